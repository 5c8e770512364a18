"""What a prompt's pass rate may be before it is tried: an empirical-Bayes Beta distribution per category.

Owned by an estimator, which tells it every group. It keeps the newest group of each row and describes the spread of
those, so that each tried prompt has one vote however often it was chosen: a policy that keeps choosing middling prompts
does not make the untried ones look middling. As untried prompts of a category are alike to every policy, the tried ones
are a fair sample of them. A newer group replaces the older one, which is how the prior follows the policy.
Axes: N rows, C categories, B groups.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from predictors.base import NEVER, FloatArray, IntArray, Observations, State

UNIT = 2.0**-32
"""Group means and squares are kept as integers of this unit, so that sums over rows are exact in any order."""

NO_SQUARE = np.iinfo(np.int64).min
"""Marks a group of one rollout, which says nothing about the spread of pass rates."""

POOL_WEIGHT = 8.0
"""Groups that the flat prior, Beta(1, 1), counts for in a pool."""

CATEGORY_WEIGHT = 16.0
"""Groups that the pool's distribution counts for in a category."""

FLAT_MEAN, FLAT_SQUARE = 1.0 / 2.0, 1.0 / 3.0
"""E[p] and E[p^2] under Beta(1, 1), whose variance is also a third of mean (1 - mean)."""

MAX_CONCENTRATION = 20.0
"""Rollouts a prior counts for at most: however alike a category looks, three groups of 8 outweigh it."""

MIN_PARAMETER = 0.1
"""Least alpha and beta. After no pass in 8 rollouts the next 8 are still mixed with a chance of 2 to 7 %."""


class CategoryPrior:
    """Beta(alpha, beta) per category, by matching moments with the binomial noise taken out.

    Per category, over the newest group (k of n) of each tried row: the mean of k/n estimates E[p], and the mean of
    k (k-1) / (n (n-1)) over groups with n >= 2 estimates E[p^2], both without bias for binary outcomes. Graded
    outcomes vary less than binary ones, so for them the second is somewhat low and the prior somewhat narrow.
    The pool is shrunk to Beta(1, 1) by POOL_WEIGHT groups and each category to the pool by CATEGORY_WEIGHT groups. The
    former adds E[p^2] at the mean that was found, not at 1/2: groups of one move the mean and say nothing of E[p^2].
    Raw E[p^2] of the pool still stands in for small categories, whose Beta is then wide below the pool's mean and
    narrow above; shrinking the spread instead lost on recorded outcomes with categories.
    """

    def __init__(self) -> None:
        self.category_N: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._mean_units_N: IntArray = np.empty(0, dtype=np.int64)
        self._square_units_N: IntArray = np.empty(0, dtype=np.int64)
        self._rebuild_sums()

    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        """Take new categories; rows beyond the old ones are untried."""
        added = category_N.shape[0] - self.category_N.shape[0]
        self.category_N = category_N.copy()
        self._mean_units_N = np.r_[self._mean_units_N, np.full(added, NEVER, dtype=np.int64)]
        self._square_units_N = np.r_[self._square_units_N, np.full(added, NO_SQUARE, dtype=np.int64)]
        self._rebuild_sums()

    def observe(self, groups: Observations) -> None:
        """Replace what is kept of these rows. A row may occur only once; see `Observations.rounds`."""
        rows_B, passes_B, scored_B = groups.rows_B, groups.passes_B, groups.scored_B
        self._count(rows_B, -1)
        self._mean_units_N[rows_B] = np.rint(passes_B / scored_B / UNIT).astype(np.int64)
        pairs_B = np.maximum(scored_B * (scored_B - 1), 1)
        square_B = np.rint(passes_B * (passes_B - 1.0) / pairs_B / UNIT).astype(np.int64)
        self._square_units_N[rows_B] = np.where(scored_B >= 2, square_B, NO_SQUARE)
        self._count(rows_B, +1)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and concentration (alpha + beta) per category, (C,) each."""
        pool_mean = _shrunk(self._mean_sum_C.sum(), self._tried_C.sum(), FLAT_MEAN, POOL_WEIGHT)
        pool_square = _shrunk(self._square_sum_C.sum(), self._paired_C.sum(), _flat_square(pool_mean), POOL_WEIGHT)
        mean_C = _shrunk(self._mean_sum_C, self._tried_C, pool_mean, CATEGORY_WEIGHT)
        square_C = _shrunk(self._square_sum_C, self._paired_C, pool_square, CATEGORY_WEIGHT)
        edge = MIN_PARAMETER / MAX_CONCENTRATION
        mean_C = np.clip(mean_C, edge, 1.0 - edge)
        spread_C = mean_C * (1.0 - mean_C)
        variance_C = np.maximum(square_C - mean_C**2, spread_C / (MAX_CONCENTRATION + 1.0))
        least_C = MIN_PARAMETER / np.minimum(mean_C, 1.0 - mean_C)
        return mean_C, np.clip(spread_C / variance_C - 1.0, least_C, MAX_CONCENTRATION)

    def parameters(self) -> tuple[FloatArray, FloatArray]:
        """alpha and beta per category, (C,) each, >= MIN_PARAMETER and together <= MAX_CONCENTRATION."""
        mean_C, concentration_C = self.moments()
        return mean_C * concentration_C, (1.0 - mean_C) * concentration_C

    def state(self) -> State:
        """The rows' categories and newest groups; the sums follow from them exactly."""
        return {
            "category_N": self.category_N.copy(),
            "prior_mean_units_N": self._mean_units_N.copy(),
            "prior_square_units_N": self._square_units_N.copy(),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take arrays that the owner has checked."""
        self.category_N = np.array(state["category_N"])
        self._mean_units_N = np.array(state["prior_mean_units_N"])
        self._square_units_N = np.array(state["prior_square_units_N"])
        self._rebuild_sums()

    def _rebuild_sums(self) -> None:
        num_categories = int(self.category_N.max(initial=0)) + 1
        self._tried_C, self._paired_C, self._mean_sum_C, self._square_sum_C = np.zeros((4, num_categories), np.int64)
        self._count(np.arange(self.category_N.shape[0]), +1)

    def _count(self, rows_B: IntArray, sign: int) -> None:
        """Add (+1) or take away (-1) what is kept of these rows."""
        tried_B = rows_B[self._mean_units_N[rows_B] != NEVER]
        paired_B = tried_B[self._square_units_N[tried_B] != NO_SQUARE]
        np.add.at(self._tried_C, self.category_N[tried_B], sign)
        np.add.at(self._mean_sum_C, self.category_N[tried_B], sign * self._mean_units_N[tried_B])
        np.add.at(self._paired_C, self.category_N[paired_B], sign)
        np.add.at(self._square_sum_C, self.category_N[paired_B], sign * self._square_units_N[paired_B])


def _flat_square(mean: npt.ArrayLike) -> FloatArray:
    """E[p^2] where the variance is, as under Beta(1, 1), a third of mean (1 - mean)."""
    mean = np.asarray(mean)
    return np.asarray(mean**2 + mean * (1.0 - mean) / 3.0)


def _shrunk(sum_units: npt.ArrayLike, count: npt.ArrayLike, centre: npt.ArrayLike, weight: float) -> FloatArray:
    """Mean of `count` values whose sum is given in units, with `weight` more of them at `centre`."""
    total = np.asarray(sum_units, dtype=np.float64) * UNIT + weight * np.asarray(centre)
    return np.asarray(total / (np.asarray(count, dtype=np.float64) + weight))
