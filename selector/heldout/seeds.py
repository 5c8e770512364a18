"""Means over few seeds: Student's intervals, and what they are worth.

`selector.heldout.comparing` calls it. Knows numbers only. Student's interval asks for values that are normal over
seeds; it says nothing about other tasks, models or pools.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, sin, sqrt, tan
from statistics import fmean, stdev

Interval = tuple[float, float]

LEVEL = 0.95
MIN_SEEDS = 3  # below it an interval over seeds means nothing: with two, Student's factor is 12.7
ENOUGH_SEEDS = 6  # from it on even the signs alone can reach 5 %: 2 · 2⁻⁶ = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A mean over pairs with its interval; without one where too few pairs make it meaningless."""

    estimate: float | None
    interval: Interval | None
    pairs: int


def seeds_statement(seeds: int) -> str:
    """What an interval over so few seeds means."""
    if seeds < MIN_SEEDS:
        return (
            f"{seeds} seed{'s' if seeds != 1 else ''}: no interval over seeds means anything; {MIN_SEEDS} are the "
            f"least, {ENOUGH_SEEDS} the least at which signs alone can decide"
        )
    return (
        f"{seeds} seeds: the interval rests on differences being normal over seeds, and signs alone cannot reach 5 % "
        f"below {ENOUGH_SEEDS}"
    )


def mean_difference(values: Sequence[float], level: float = LEVEL) -> Difference:
    """Mean ± t · s / sqrt(n), Student's with n − 1 degrees of freedom; no interval below MIN_SEEDS values."""
    if not values:
        return Difference(estimate=None, interval=None, pairs=0)
    middle = fmean(values)
    if len(values) < MIN_SEEDS:
        return Difference(estimate=middle, interval=None, pairs=len(values))
    margin = student_quantile((1 + level) / 2, len(values) - 1) * stdev(values) / sqrt(len(values))
    return Difference(estimate=middle, interval=(middle - margin, middle + margin), pairs=len(values))


def unpaired(first: Sequence[float], second: Sequence[float], level: float = LEVEL) -> Difference:
    """Welch's interval for the difference of means, with his degrees of freedom rounded down."""
    if not first or not second:
        return Difference(estimate=None, interval=None, pairs=0)
    estimate = fmean(first) - fmean(second)
    if min(len(first), len(second)) < MIN_SEEDS:
        return Difference(estimate=estimate, interval=None, pairs=0)
    a, b = stdev(first) ** 2 / len(first), stdev(second) ** 2 / len(second)
    if a + b == 0:
        return Difference(estimate=estimate, interval=(estimate, estimate), pairs=0)
    freedom = int((a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1)))
    margin = student_quantile((1 + level) / 2, max(freedom, 1)) * sqrt(a + b)
    return Difference(estimate=estimate, interval=(estimate - margin, estimate + margin), pairs=0)


def student_quantile(probability: float, freedom: int) -> float:
    """The t with P(T <= t) = probability, 1/2 <= probability < 1: bisection in the closed form for whole degrees of
    freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).

    Raises ValueError outside these ranges.
    """
    if not 0.5 <= probability < 1 or freedom < 1:
        raise ValueError(f"probability in [0.5, 1) and freedom >= 1 are asked for, got {probability} and {freedom}")
    low, high = 0.0, pi / 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, freedom) < 2 * probability - 1 else (low, middle)
    return sqrt(freedom) * tan(low)


def _inside(angle: float, freedom: int) -> float:
    """P(|T| < t) at angle = atan(t / sqrt(freedom))."""
    term, total = 1.0, 1.0
    if freedom % 2:
        if freedom == 1:
            return 2 * angle / pi
        for k in range(3, freedom, 2):
            term *= (k - 1) / k * cos(angle) ** 2
            total += term
        return 2 / pi * (angle + sin(angle) * cos(angle) * total)
    for k in range(2, freedom, 2):
        term *= (k - 1) / k * cos(angle) ** 2
        total += term
    return sin(angle) * total
