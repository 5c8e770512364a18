"""C(q): what it cost to reach a held-out quality q, from one run's looks.

`api` and `selector.heldout.comparing` call it. Knows looks' costs and pass rates; nothing of tickets or runs.

Axes: T looks in the order of their draws.

The smoothed curve is the nondecreasing sequence nearest to the pass rates in weighted least squares (isotonic
regression by pooling adjacent violators: Ayer, Brunk, Ewing, Reid and Silverman 1955), weights being the prompts of
each look. A curve that rises and falls again by chance so passes q once, and later than its first lucky look. Quality
was looked at at these points only, so the passage is known as an interval: after one look, and by the next. A run that
truly gets worse is flattened to what it lost; the plain pass rates stand beside the smoothed ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selector.heldout.looks import Look
from selector.heldout.quality import LEVEL, Rate, pass_rate

Floats = NDArray[np.float64]

UNITS = ("tokens", "rollouts", "accelerator_s", "energy_j")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One look on the curve."""

    index: int
    policy_version: int
    spent: Mapping[str, float | None]  # unit -> cost of training before it; None where it was not told
    rate: Rate
    smoothed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Where the smoothed curve first has the target."""

    target: float
    reached: bool
    after: int | None  # place of the last look below it; None when the first look has it already
    by: int | None  # place of the first look that has it; None when none does
    cost: Mapping[str, tuple[float | None, float | None]]  # unit -> (more than, at most); (all that was spent, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Held-out quality against the cost of training."""

    points: Sequence[Point]
    left_out: int  # looks without a score, or drawn by a version that did not note their cost

    @property
    def units(self) -> list[str]:
        """The units in which every point has a cost."""
        return [unit for unit in UNITS if self.points and all(p.spent[unit] is not None for p in self.points)]

    def cost_T(self, unit: str) -> Floats:
        return np.array([point.spent[unit] for point in self.points], np.float64)

    def at_cost(self, unit: str, cost: float) -> Point | None:
        """The last look that training had not spent more than `cost` before; nothing is interpolated."""
        place = int(np.searchsorted(self.cost_T(unit), cost, side="right")) - 1
        return self.points[place] if place >= 0 else None


def curve(looks: Sequence[Look], *, indices: frozenset[int] | None = None, level: float = LEVEL) -> Curve:
    """The curve over the looks, or over those of some indices; of looks with one index the first counts."""
    points, seen, left_out = list[tuple[Look, Rate]](), set[int](), 0
    for look in looks:
        if look.index in seen or (indices is not None and look.index not in indices):
            continue
        rate = pass_rate(look, np.ones(len(look.row_K), bool), level)
        if rate.estimate is None or not look.spent:
            left_out += 1
            continue
        seen.add(look.index)
        points.append((look, rate))
    estimates = [0.0 if rate.estimate is None else rate.estimate for _, rate in points]
    smoothed_T = isotonic(estimates, [rate.num_prompts for _, rate in points])
    return Curve(
        points=[
            Point(
                index=look.index,
                policy_version=look.policy_version,
                spent={unit: look.spent.get(unit) for unit in UNITS},
                rate=rate,
                smoothed=smoothed,
            )
            for (look, rate), smoothed in zip(points, smoothed_T.tolist(), strict=True)
        ],
        left_out=left_out,
    )


def isotonic(value_T: ArrayLike, weight_T: ArrayLike) -> Floats:
    """The nondecreasing (T,) nearest to value_T in Σ weight · (x − value)². weight_T: (T,), positive.

    Raises ValueError for shapes that differ, a weight that is not positive or a value that is not finite.
    """
    value, weight = np.asarray(value_T, np.float64), np.asarray(weight_T, np.float64)
    if value.shape != weight.shape or value.ndim != 1:
        raise ValueError(f"value_T and weight_T must be (T,) alike, got {value.shape} and {weight.shape}")
    if not (np.isfinite(value).all() and (weight > 0).all()):
        raise ValueError("values must be finite and weights positive")
    blocks = list[list[float]]()  # mean, weight, length
    for mean, mass in zip(value.tolist(), weight.tolist(), strict=True):
        blocks.append([mean, mass, 1])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            right, left = blocks.pop(), blocks[-1]
            total = left[1] + right[1]
            left[:] = [(left[0] * left[1] + right[0] * right[1]) / total, total, left[2] + right[2]]
    return np.repeat([block[0] for block in blocks], [int(block[2]) for block in blocks]).astype(np.float64)


def first_passage(found: Curve, target: float) -> Passage:
    """Where the smoothed curve first has the target; a curve that never does says all that it spent.

    Raises ValueError unless 0 <= target <= 1.
    """
    if not 0 <= target <= 1:
        raise ValueError(f"a target is a pass rate in [0, 1], got {target}")
    smoothed_T = np.array([point.smoothed for point in found.points])
    place = int(np.searchsorted(smoothed_T, target, side="left"))
    reached = place < len(smoothed_T)
    after = place - 1 if place else None
    by = place if reached else None
    cost = {
        unit: (
            0.0 if after is None else float(found.cost_T(unit)[after]),
            None if by is None else float(found.cost_T(unit)[by]),
        )
        for unit in found.units
    }
    return Passage(target=target, reached=reached, after=after, by=by, cost=cost)
