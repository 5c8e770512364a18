"""What pass rates of a category look like: an empirical-Bayes Beta for prompts never tried, one for those that jumped.

Owned by the mixture, which tells it every group. Two samples of the tried rows are kept. *First* groups: which rows are
tried first does not depend on how they will score, so these are a fair sample whatever policy selects; they grow stale,
and are moved by the common drift. *Newest* groups: where rows are now, but selection stops choosing a prompt after an
extreme result, so under selection they look more extreme than the pool. A row that jumped is told by the newest.
Axes: N rows, C categories, B groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from predictors.base import FloatArray, IntArray, Observations, State
from predictors.experts import drifted

Int16Array = npt.NDArray[np.int16]

UNIT = 2.0**-14
"""Group means and squares are kept as integers of this unit (to 3e-5): sums over rows are exact in any order."""

UNTRIED = np.iinfo(np.int16).min
"""Marks a row without a group."""

NO_SQUARE = UNTRIED + 1
"""Marks a group of one rollout, which says nothing about the spread of pass rates."""

POOL_WEIGHT = 8.0
"""Groups that the flat prior, Beta(1, 1), counts for in a pool."""

START_CATEGORY_WEIGHT = 16.0
"""Groups that the pool counts for in a category, before categories have shown how unlike they are."""

CATEGORY_EVIDENCE = 32.0
"""Groups beyond the first of their category that it takes to believe what they show of that unlikeness by one half."""

CATEGORY_WEIGHT_RANGE = (1.0, 200.0)
"""The learned weight of the pool stays in here."""

SPREAD_WEIGHT = 16.0
"""Groups that the spread within categories, all taken together, counts for in the spread of one."""

VERSION_WEIGHT = 16.0
"""Groups that the pool counts for in the mean version of a category's first groups."""

FLAT_MEAN, FLAT_OVERLAP = 1.0 / 2.0, 1.0 / 3.0
"""Mean of Beta(1, 1), and its overlap: variance over mean (1 - mean), 1 / (alpha + beta + 1)."""

MAX_OVERLAP = 0.95
"""Largest overlap that squares may show."""

MAX_CONCENTRATION = 20.0
"""Rollouts a prior counts for at most: however alike a category looks, three groups of 8 outweigh it."""

MIN_PARAMETER = 0.05
"""Least alpha and beta. After no pass in 8 rollouts the next 8 are still mixed with a chance of 1 to 3 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Beta(alpha, beta) for categories, or for rows. Parameters >= MIN_PARAMETER, sums at most MAX_CONCENTRATION."""

    alpha: FloatArray
    beta: FloatArray

    @classmethod
    def of(cls, mean_C: FloatArray, overlap_C: FloatArray, strength: float) -> Self:
        """From mean and overlap, the concentration multiplied by `strength`."""
        edge = MIN_PARAMETER / MAX_CONCENTRATION
        mean_C = np.clip(mean_C, edge, 1.0 - edge)
        least_C = MIN_PARAMETER / np.minimum(mean_C, 1.0 - mean_C)
        concentration_C = np.clip((1.0 / overlap_C - 1.0) * strength, least_C, MAX_CONCENTRATION)
        return cls(alpha=mean_C * concentration_C, beta=(1.0 - mean_C) * concentration_C)

    @property
    def mean(self) -> FloatArray:
        return self.alpha / (self.alpha + self.beta)

    @property
    def overlap(self) -> FloatArray:
        return 1.0 / (self.alpha + self.beta + 1.0)

    def take(self, index: npt.NDArray[np.integer]) -> "Levels":
        """Those at these places."""
        return Levels(alpha=self.alpha[index], beta=self.beta[index])


class CategoryLevels:
    """Keeps the first and the newest group of each row, and turns them into `Levels`."""

    def __init__(self) -> None:
        self.category_N: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._first = _Sample()
        self._newest = _Sample()
        self._first_version_N: npt.NDArray[np.float32] = np.empty(0, dtype=np.float32)
        self._version_sum_C: FloatArray = np.zeros(1)

    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        """Take new categories; rows beyond the old ones are untried."""
        added = category_N.shape[0] - self.category_N.shape[0]
        self.category_N = category_N.copy()
        for sample in (self._first, self._newest):
            sample.grow(added)
        self._first_version_N = np.r_[self._first_version_N, np.zeros(added, dtype=np.float32)]
        self._recount()

    def start(self, groups: Observations) -> None:
        """Take the first groups of rows, before they are judged: a pool's first groups say what it is like."""
        category_B = self.category_N[groups.rows_B]
        self._first.put(groups, category_B)
        self._first_version_N[groups.rows_B] = groups.version_B
        np.add.at(self._version_sum_C, category_B, self._first_version_N[groups.rows_B])

    def renew(self, groups: Observations) -> None:
        """Take the newest groups of rows, each of which may occur only once; after they are judged."""
        self._newest.put(groups, self.category_N[groups.rows_B])

    def first(self, *, version: int, drift: float, strength: float) -> Levels:
        """For rows never tried, at this version: odds of p grow with the drift as in `experts.drifted`.

        If the log-odds of every p move by x, those of their mean move by about (1 - overlap) x.
        """
        mean_C, overlap_C = self._first.moments()
        tried_C = self._first.count_C
        pool_version = float(self._version_sum_C.sum()) / max(int(tried_C.sum()), 1)
        version_C = (self._version_sum_C + VERSION_WEIGHT * pool_version) / (tried_C + VERSION_WEIGHT)
        shift_C = drift * (1.0 - overlap_C) * np.maximum(version - version_C, 0.0)
        risen_C, rest_C = drifted(mean_C, 1.0 - mean_C, shift_C)
        return Levels.of(risen_C / (risen_C + rest_C), overlap_C, strength)

    def newest(self, *, strength: float) -> Levels:
        """For rows of which nothing is known any more but their category."""
        return Levels.of(*self._newest.moments(), strength)

    def state(self) -> State:
        """The rows' categories and groups; the sums follow from them exactly."""
        return {
            "category_N": self.category_N.copy(),
            "first_mean_N": self._first.mean_N.copy(),
            "first_square_N": self._first.square_N.copy(),
            "newest_mean_N": self._newest.mean_N.copy(),
            "newest_square_N": self._newest.square_N.copy(),
            "first_version_N": self._first_version_N.copy(),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take arrays that the owner has checked."""
        self.category_N = np.array(state["category_N"])
        self._first_version_N = np.array(state["first_version_N"])
        for name, sample in (("first", self._first), ("newest", self._newest)):
            sample.mean_N = np.array(state[f"{name}_mean_N"])
            sample.square_N = np.array(state[f"{name}_square_N"])
        self._recount()

    def _recount(self) -> None:
        num_categories = int(self.category_N.max(initial=0)) + 1
        for sample in (self._first, self._newest):
            sample.recount(self.category_N, num_categories)
        self._version_sum_C = np.zeros(num_categories)
        tried = np.flatnonzero(self._first.mean_N != UNTRIED)
        np.add.at(self._version_sum_C, self.category_N[tried], self._first_version_N[tried])


class _Sample:
    """One group (k of n) a tried row: x = k/n and, for n >= 2, s = k (k-1) / (n (n-1)), which is p^2 on average.

    Graded outcomes vary less than binary ones, so for them s is somewhat low and the spread somewhat narrow.
    """

    def __init__(self) -> None:
        self.mean_N: Int16Array = np.empty(0, dtype=np.int16)
        self.square_N: Int16Array = np.empty(0, dtype=np.int16)
        self.recount(np.empty(0, dtype=np.int32), 1)

    def grow(self, added: int) -> None:
        self.mean_N, self.square_N = (
            np.r_[column_N, np.full(added, UNTRIED, dtype=np.int16)] for column_N in (self.mean_N, self.square_N)
        )

    def recount(self, category_N: npt.NDArray[np.int32], num_categories: int) -> None:
        self.count_C, self.paired_C, self._mean_sum_C, self._mean_square_sum_C, self._square_sum_C = np.zeros(
            (5, num_categories), dtype=np.int64
        )
        self._count(np.arange(self.mean_N.shape[0]), category_N, +1)

    def put(self, groups: Observations, category_B: npt.NDArray[np.int32]) -> None:
        """Replace what is kept of these rows."""
        rows_B, passes_B, scored_B = groups.rows_B, groups.passes_B, groups.scored_B
        self._count(rows_B, category_B, -1)
        self.mean_N[rows_B] = np.rint(passes_B / scored_B / UNIT)
        pairs_B = np.maximum(scored_B * (scored_B - 1), 1)
        self.square_N[rows_B] = np.where(
            scored_B >= 2, np.rint(passes_B * (passes_B - 1.0) / pairs_B / UNIT), NO_SQUARE
        )
        self._count(rows_B, category_B, +1)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and overlap per category, (C,) each.

        With U_C the mean of x x' over pairs of rows of a category, free of bias for its squared mean: the overlap is
        (mean s - U) / (mean x - U), first over all categories together, then in each. A category's mean is drawn to
        the pool's by as many groups as one group varies more than category means do, var(x | C) / var(mean_C).
        """
        count_C, total = self.count_C.astype(np.float64), float(self.count_C.sum())
        sum_C = self._mean_sum_C * UNIT
        pool_mean = (float(sum_C.sum()) + POOL_WEIGHT * FLAT_MEAN) / (total + POOL_WEIGHT)
        flat_spread = pool_mean * (1.0 - pool_mean)
        size_C, others_C = np.maximum(count_C, 1.0), np.maximum(count_C - 1.0, 0.0)
        raw_mean_C, mean_square_C = sum_C / size_C, self._mean_square_sum_C * UNIT**2 / size_C
        product_C = np.where(others_C > 0.0, (sum_C * raw_mean_C - mean_square_C) / np.maximum(others_C, 1.0), 0.0)

        weight = START_CATEGORY_WEIGHT
        if count_C.size > 1:
            weight = self._category_weight(mean_square_C, product_C, flat_spread)
        mean_C = (sum_C + weight * pool_mean) / (count_C + weight)

        pairs_C = others_C * self.paired_C / size_C
        seen_C = pairs_C * (self._square_sum_C * UNIT / np.maximum(self.paired_C, 1) - product_C)
        most_C = pairs_C * (raw_mean_C - product_C)
        flat = POOL_WEIGHT * flat_spread
        overlap = (float(seen_C.sum()) + FLAT_OVERLAP * flat) / (float(most_C.sum()) + flat)
        within = np.clip(overlap, 1.0 / (MAX_CONCENTRATION + 1.0), MAX_OVERLAP)
        typical_C = SPREAD_WEIGHT * mean_C * (1.0 - mean_C)
        overlap_C = (seen_C + within * typical_C) / (most_C + typical_C)
        return mean_C, np.clip(overlap_C, 1.0 / (MAX_CONCENTRATION + 1.0), MAX_OVERLAP)

    def _category_weight(self, mean_square_C: FloatArray, product_C: FloatArray, flat_spread: float) -> float:
        """Groups that the pool counts for in a category's mean."""
        count_C = self.count_C.astype(np.float64)
        total, others_C = float(count_C.sum()), np.maximum(count_C - 1.0, 0.0)
        others, all_pairs = float(others_C.sum()), max(total * (total - 1.0), 1.0)
        group_variance = (float(np.sum(others_C * (mean_square_C - product_C))) + POOL_WEIGHT * flat_spread / 2.0) / (
            others + POOL_WEIGHT
        )
        pool_product = (float(self._mean_sum_C.sum()) ** 2 - float(self._mean_square_sum_C.sum())) * UNIT**2 / all_pairs
        same_category = float(np.sum(count_C * (count_C - 1.0))) / all_pairs
        within_product = float(np.sum(others_C * product_C)) / max(others, 1.0)
        between = (within_product - pool_product) / max(1.0 - same_category, 0.1)
        start = group_variance / START_CATEGORY_WEIGHT
        category_variance = (others * max(between, 0.0) + CATEGORY_EVIDENCE * start) / (others + CATEGORY_EVIDENCE)
        return float(np.clip(group_variance / max(category_variance, 1e-12), *CATEGORY_WEIGHT_RANGE))

    def _count(self, rows_B: IntArray, category_B: npt.NDArray[np.int32], sign: int) -> None:
        """Add (+1) or take away (-1) what is kept of these rows."""
        mean_B, square_B = self.mean_N[rows_B].astype(np.int64), self.square_N[rows_B].astype(np.int64)
        tried_B = mean_B != UNTRIED
        paired_B = tried_B & (square_B != NO_SQUARE)
        np.add.at(self.count_C, category_B[tried_B], sign)
        np.add.at(self._mean_sum_C, category_B[tried_B], sign * mean_B[tried_B])
        np.add.at(self._mean_square_sum_C, category_B[tried_B], sign * mean_B[tried_B] ** 2)
        np.add.at(self.paired_C, category_B[paired_B], sign)
        np.add.at(self._square_sum_C, category_B[paired_B], sign * square_B[paired_B])
