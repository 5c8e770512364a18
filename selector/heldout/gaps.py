"""How far the selected stream is from the held-out split, with an interval that holds however often one looks.

`selector.heldout.quality` calls it. Knows arrays of outcomes, nothing of tickets or runs.

Axes: T looks or draws, W windows between two looks, C columns: everything, then each category; M groups end to end.

The mean of K values in [0, 1], drawn without replacement, is sub-Gaussian with σ² = 1/(4K) (Hoeffding 1963, Theorem 4
and Section 6). So with V = Σ_t σ_t² the sum of the deviations of T looks stays below sqrt((V + ρ) log((V + ρ)/(ρ α²)))
at all times with probability 1 − α, while the policy moves as it likes (Robbins' normal mixture: Howard, Ramdas,
McAuliffe and Sekhon 2021, arXiv 1810.08240, equation 14). ρ is the first look's σ².
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, sqrt
from typing import Self

import numpy as np
from numpy.typing import NDArray

from selector.heldout.looks import Look, Selected

Floats = NDArray[np.float64]
Interval = tuple[float, float]

RESOLUTION = 0.05  # a difference of pass rates that is worth speaking of
MAX_FURTHER_LOOKS = 100_000  # that "how much more" counts to


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Selected stream minus held-out split, averaged over the windows between looks."""

    where: str  # "overall", or a category
    windows: int
    estimate: float | None
    interval: Interval | None
    margin: float | None  # what chance alone may do, either way
    further_looks: int | None  # until the margin is RESOLUTION; 0 when it is


_NO_GAP = Gap(where="overall", windows=0, estimate=None, interval=None, margin=None, further_looks=None)


def gaps(looks: Sequence[Look], selected: Sequence[Selected], categories: Sequence[str], level: float) -> list[Gap]:
    """The gap overall, with half of the error, and by category, with the other half split evenly.

    In a window between two looks the selected stream's number is the mean over its draws of the mean of what came back,
    as a trainer's own curve shows it; it is compared with the middle of the two looks, so that steady progress cancels.
    The interval has the chance of the looks only: what the selected stream showed is a fact.
    """
    alpha, num_categories = 1 - level, len(categories)
    if len(looks) < 2:
        return [_NO_GAP]
    seen, stream = _Means.of(looks, num_categories), _Means.of(selected, num_categories)
    shown_WC = _window_means(stream.mean_TC, [one.seq for one in selected], [look.seq for look in looks])
    found = [_gap("overall", seen, shown_WC, 0, alpha / 2)]
    if num_categories > 1:
        part = alpha / (2 * num_categories)
        found += [_gap(name, seen, shown_WC, code + 1, part) for code, name in enumerate(categories)]
    return [gap for gap in found if gap.where == "overall" or gap.windows]


@dataclass(frozen=True, slots=True, eq=False)
class _Means:
    """Of T looks or draws, by column: everything first, then each category. NaN where nothing came back."""

    mean_TC: Floats
    least_TC: Floats  # what did not come back counted as 0
    most_TC: Floats  # and as 1
    count_TC: Floats

    @classmethod
    def of(cls, parts: Sequence[Look] | Sequence[Selected], num_categories: int) -> Self:
        shape = (len(parts), num_categories + 1)
        outcomes = [part.outcome_K for part in parts]
        x_M = np.concatenate(outcomes) if outcomes else np.zeros(0)
        code_M = np.concatenate([part.category_K for part in parts]) if outcomes else np.zeros(0, np.int64)
        first_M = np.repeat(np.arange(len(parts)), [len(x_K) for x_K in outcomes]) * shape[1]

        def sums(value_M: Floats) -> Floats:
            known_M = code_M >= 0
            place_B = np.concatenate([first_M, (first_M + 1 + code_M)[known_M]])
            value_B = np.concatenate([value_M, value_M[known_M]])
            flat = np.bincount(place_B, value_B, minlength=shape[0] * shape[1])
            return np.asarray(flat, np.float64).reshape(shape)

        back_M = np.isfinite(x_M)
        passed_TC, back_TC = sums(np.where(back_M, x_M, 0.0)), sums(back_M.astype(np.float64))
        count_TC = sums(np.ones(len(x_M)))
        with np.errstate(invalid="ignore"):
            return cls(
                mean_TC=passed_TC / back_TC,
                least_TC=passed_TC / count_TC,
                most_TC=(passed_TC + count_TC - back_TC) / count_TC,
                count_TC=count_TC,
            )


def _window_means(mean_TC: Floats, seq_T: Sequence[int], ends: Sequence[int]) -> Floats:
    """(W, C): mean over the draws between two ends, draws without a value left out; NaN where none is left."""
    known_TC = np.isfinite(mean_TC)
    zero = np.zeros((1, mean_TC.shape[1]))
    total = np.concatenate([zero, np.cumsum(np.where(known_TC, mean_TC, 0.0), axis=0)])
    count = np.concatenate([zero, np.cumsum(known_TC, axis=0)])
    edge = np.searchsorted(np.asarray(seq_T, np.int64), ends)
    with np.errstate(invalid="ignore"):
        means: Floats = (total[edge[1:]] - total[edge[:-1]]) / (count[edge[1:]] - count[edge[:-1]])
    return means


def _gap(where: str, seen: _Means, shown_WC: Floats, column: int, alpha: float) -> Gap:
    shown_W, mean_T = shown_WC[:, column], seen.mean_TC[:, column]
    used_W = np.isfinite(shown_W) & np.isfinite(mean_T[:-1]) & np.isfinite(mean_T[1:])
    count = int(np.count_nonzero(used_W))
    if not count:
        return replace(_NO_GAP, where=where)

    def middle(value_T: Floats) -> float:
        return float(((value_T[:-1] + value_T[1:]) / 2)[used_W].mean())

    with np.errstate(divide="ignore"):
        variance_T = 1 / (4 * seen.count_TC[:, column])
    starts, ends = variance_T[:-1][used_W].tolist(), variance_T[1:][used_W].tolist()
    shown, margin = float(shown_W[used_W].mean()), (sum_margin(starts, alpha / 2) + sum_margin(ends, alpha / 2)) / 2
    margin /= count
    return Gap(
        where=where,
        windows=count,
        estimate=shown - middle(mean_T),
        interval=(shown - middle(seen.most_TC[:, column]) - margin, shown - middle(seen.least_TC[:, column]) + margin),
        margin=margin,
        further_looks=_further(starts, alpha / 2),
    )


def sum_margin(variance_T: Sequence[float], alpha: float) -> float:
    """Most that the sum of deviations can be, either way, at any time with probability 1 − alpha; ρ is the first σ²."""
    total, rho = sum(variance_T), variance_T[0]
    return sqrt((total + rho) * log((total + rho) / (rho * alpha**2)))


def _further(variance_T: Sequence[float], alpha: float) -> int | None:
    """Looks like those so far that are missing until the margin of the mean is RESOLUTION; None beyond the limit."""
    per_look, rho = sum(variance_T) / len(variance_T), variance_T[0]

    def margin(count: int) -> float:
        total = per_look * count
        return sqrt((total + rho) * log((total + rho) / (rho * alpha**2))) / count

    now = len(variance_T)
    if margin(now) <= RESOLUTION:
        return 0
    low, high = now, now + MAX_FURTHER_LOOKS
    if margin(high) > RESOLUTION:
        return None
    while high - low > 1:  # the margin falls with every further look
        middle = (low + high) // 2
        low, high = (middle, high) if margin(middle) > RESOLUTION else (low, middle)
    return high - now
