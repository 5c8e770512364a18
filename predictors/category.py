"""Category: one belief for all prompts of a category, which is what bandits over categories know of a prompt.

A reconstruction after SEC (arXiv 2505.14970), which tracks |advantage|, not p, at a rate that could not be found.
Built by the registry.
Axes: N rows, B groups, C categories.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from predictors.base import FloatArray, IntArray, Observations, State, check_categories, check_rows, require_between
from predictors.configured import EstimatorConfig
from predictors.prior import FLAT_MEAN, FLAT_SQUARE, MAX_CONCENTRATION, MIN_PARAMETER, POOL_WEIGHT
from predictors.rows import MIN_N_EFF, Reader, Reading, RowEstimator, Rows

NO_STEP = -1
"""Last step of a category without any group."""

SUMS = ("groups_C", "mean_sum_C", "paired_C", "square_sum_C")
"""What is summed per category: groups, their k/n, groups of two or more, their k (k - 1) / (n (n - 1))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryConfig(EstimatorConfig):
    """Options."""

    learning_rate: float = 0.1
    """Weight of the newest step that has groups of the category; none is published."""

    def __post_init__(self) -> None:
        require_between("learning_rate", self.learning_rate, 1e-3, 1.0)


class Category(RowEstimator[CategoryConfig]):
    """Q <- (1 - a) Q + a r per category and step that has groups of it, r being their mean pass rate.

    SEC does this with r = mean |advantage| and calls it TD(0). Here Q is kept as a sum over a number of groups, both of
    which fade by 1 - a at each such step: the same where steps are of one size, and steady where one is small. A step
    is a policy version; a late group joins the newest one. Next to k/n the same is kept of k (k - 1) / (n (n - 1)),
    which estimates p^2, so that the belief has the mean of the category and, as variance, how prompts of it differ.
    POOL_WEIGHT groups of the flat prior are added, and the concentration is bounded as in `prior`. A prompt's own
    rollouts count as those of any other.
    """

    name = "category"
    columns: ClassVar = {}

    def __init__(self, config: CategoryConfig) -> None:
        super().__init__(config)
        self._category_N: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._step_C: IntArray = np.full(1, NO_STEP, dtype=np.int64)
        self._sums_4C: FloatArray = np.zeros((len(SUMS), 1))

    @classmethod
    def config_type(cls) -> type[CategoryConfig]:
        return CategoryConfig

    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        category_N = check_categories(category_N, self._last_N.shape[0])
        super().resize(category_N)
        self._category_N = category_N
        added = max(int(category_N.max(initial=0)) + 1 - self._step_C.shape[0], 0)
        self._step_C = np.r_[self._step_C, np.full(added, NO_STEP, dtype=np.int64)]
        self._sums_4C = np.pad(self._sums_4C, ((0, 0), (0, added)))

    def observe(self, observations: Observations) -> None:
        check_rows(observations.rows_B, self._last_N.shape[0])
        newest_B = np.maximum.accumulate(observations.version_B)
        for step in np.unique(newest_B):
            self._add(observations.take(np.flatnonzero(newest_B == step)), int(step))
        super().observe(observations)

    def _add(self, groups: Observations, step: int) -> None:
        """Count groups whose newest version is `step`."""
        category_B = self._category_N[groups.rows_B]
        passes_B, scored_B = groups.passes_B, groups.scored_B
        begins = np.unique(category_B[self._step_C[category_B] < step])
        self._sums_4C[:, begins] *= 1.0 - self._config.learning_rate
        self._step_C[begins] = step
        has_pairs_B = scored_B >= 2
        square_B = passes_B * (passes_B - 1.0) / np.maximum(scored_B * (scored_B - 1), 1)
        values = (np.ones_like(passes_B), passes_B / scored_B, has_pairs_B, square_B * has_pairs_B)
        for sum_C, value_B in zip(self._sums_4C, values, strict=True):
            np.add.at(sum_C, category_B, value_B)

    def _update(self, groups: Observations, newest_B: IntArray) -> None:
        """Nothing is kept of a row but when it was tried."""

    def _reader(self) -> Reader:
        groups_C, mean_sum_C, paired_C, square_sum_C = self._sums_4C
        mean_C = (mean_sum_C + POOL_WEIGHT * FLAT_MEAN) / (groups_C + POOL_WEIGHT)
        square_C = (square_sum_C + POOL_WEIGHT * FLAT_SQUARE) / (paired_C + POOL_WEIGHT)
        edge = MIN_PARAMETER / MAX_CONCENTRATION
        mean_C = np.clip(mean_C, edge, 1.0 - edge)
        spread_C = mean_C * (1.0 - mean_C)
        most_C = spread_C / (MIN_PARAMETER / np.minimum(mean_C, 1.0 - mean_C) + 1.0)
        variance_C = np.clip(square_C - mean_C**2, spread_C / (MAX_CONCENTRATION + 1.0), most_C)
        return partial(self._read, mean_C, variance_C)

    def _read(self, mean_C: FloatArray, variance_C: FloatArray, at: Rows, now_N: IntArray) -> Reading:
        category_N = self._category_N[at]
        return mean_C[category_N], variance_C[category_N], np.full(category_N.shape[0], MIN_N_EFF)

    def state(self) -> State:
        sums = {name: sum_C.copy() for name, sum_C in zip(SUMS, self._sums_4C, strict=True)}
        return {**super().state(), "category_N": self._category_N.copy(), "step_C": self._step_C.copy(), **sums}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().load_state(state)
        self._category_N = np.array(state["category_N"])
        self._step_C = np.array(state["step_C"])
        self._sums_4C = np.stack([state[name] for name in SUMS])
