"""Shared Beta: what the prompts of a category do now, with a prompt's own newest groups on top. Built by the registry.

For pools that a run goes through once or a few times while the policy moves fast: there the other prompts of a category
tell more about a prompt than its own last visit does, and what they told long ago is wrong. Axes: N rows, C categories.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from predictors.base import FloatArray, IntArray, Observations, State, require_between
from predictors.fading_beta import FadingBeta, FadingBetaConfig
from predictors.prior import FLAT_MEAN, FLAT_SQUARE

POOL_WEIGHT = 2.0
"""Groups that the flat prior, Beta(1, 1), counts for in the pool, and the pool's distribution in a category."""

MIN_PARAMETER = 0.05
"""Least alpha and beta of a category: where no prompt ever passed, a group of 8 differs once or twice in 100 times."""

MAX_CONCENTRATION = 20.0
"""Rollouts a category counts for at most: however alike it looks, three groups of 8 outweigh it."""

SUMS = ("groups_C", "mean_sum_C", "paired_C", "square_sum_C")
"""What is summed per category: groups, their k/n, groups of two or more, their k (k - 1) / (n (n - 1))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBetaConfig(FadingBetaConfig):
    """Options."""

    discount: float = 0.5
    process_noise: float = 2e-3
    memory_groups: float = 256.0
    """Groups of a category after which an older one counts e times less; a category that is drawn more forgets
    sooner, as it is better known."""

    def __post_init__(self) -> None:
        FadingBetaConfig.__post_init__(self)
        require_between("memory_groups", self.memory_groups, 2.0, 1e9)


class SharedBeta(FadingBeta[SharedBetaConfig]):
    """Fading own evidence on a category's Beta distribution, matched to the moments of the category's fading groups."""

    name = "shared_beta"

    def __init__(self, config: SharedBetaConfig) -> None:
        super().__init__(config, FadingPrior(config.memory_groups))

    @classmethod
    def config_type(cls) -> type[SharedBetaConfig]:
        return SharedBetaConfig


class FadingPrior:
    """Beta(alpha, beta) per category from sums over its groups, each older group worth (1 - 1/memory) of the next.

    The mean of k/n estimates E[p], and that of k (k - 1) / (n (n - 1)) over groups with n >= 2 E[p^2], both without
    bias for binary outcomes. The pool's moments are those of all sums together with POOL_WEIGHT flat groups; a
    category's have POOL_WEIGHT groups of the pool added. A prompt counts as often as it is drawn, so the moments are of
    the prompts as they are selected.
    """

    def __init__(self, memory_groups: float) -> None:
        self._kept_per_group = 1.0 - 1.0 / memory_groups
        self.category_N: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._sums_4C: FloatArray = np.zeros((len(SUMS), 1))

    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        """Take new categories; groups stay with the category that their prompt had."""
        self.category_N = category_N.copy()
        added = max(int(category_N.max(initial=0)) + 1 - self._sums_4C.shape[1], 0)
        self._sums_4C = np.pad(self._sums_4C, ((0, 0), (0, added)))

    def observe(self, groups: Observations) -> None:
        """The groups of one call fade together: all older ones by their number, none of them by the others."""
        category_B: IntArray = self.category_N[groups.rows_B].astype(np.int64)
        passes_B, scored_B = groups.passes_B, groups.scored_B
        self._sums_4C *= self._kept_per_group ** np.bincount(category_B, minlength=self._sums_4C.shape[1])
        has_pairs_B = scored_B >= 2
        square_B = passes_B * (passes_B - 1.0) / np.maximum(scored_B * (scored_B - 1), 1)
        values = (np.ones_like(passes_B), passes_B / scored_B, has_pairs_B, square_B * has_pairs_B)
        for sum_C, value_B in zip(self._sums_4C, values, strict=True):
            np.add.at(sum_C, category_B, value_B)

    def parameters(self) -> tuple[FloatArray, FloatArray]:
        """alpha and beta per category, (C,) each, >= MIN_PARAMETER and together <= MAX_CONCENTRATION."""
        groups_C, mean_sum_C, paired_C, square_sum_C = self._sums_4C
        mean_C = _shrunk(mean_sum_C, groups_C, FLAT_MEAN)
        square_C = _shrunk(square_sum_C, paired_C, FLAT_SQUARE)
        edge = MIN_PARAMETER / MAX_CONCENTRATION
        mean_C = np.clip(mean_C, edge, 1.0 - edge)
        spread_C = mean_C * (1.0 - mean_C)
        variance_C = np.maximum(square_C - mean_C**2, spread_C / (MAX_CONCENTRATION + 1.0))
        least_C = MIN_PARAMETER / np.minimum(mean_C, 1.0 - mean_C)
        concentration_C = np.clip(spread_C / variance_C - 1.0, least_C, MAX_CONCENTRATION)
        return mean_C * concentration_C, (1.0 - mean_C) * concentration_C

    def state(self) -> State:
        """Categories and sums."""
        sums = {name: sum_C.copy() for name, sum_C in zip(SUMS, self._sums_4C, strict=True)}
        return {"category_N": self.category_N.copy(), **sums}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take arrays that the owner has checked."""
        self.category_N = np.array(state["category_N"])
        self._sums_4C = np.stack([state[name] for name in SUMS])


def _shrunk(sum_C: FloatArray, count_C: FloatArray, flat: float) -> FloatArray:
    """Means per category, each with POOL_WEIGHT values at the pool's mean, which has as many at the flat one."""
    pool = (float(sum_C.sum()) + POOL_WEIGHT * flat) / (float(count_C.sum()) + POOL_WEIGHT)
    return np.asarray((sum_C + POOL_WEIGHT * pool) / (count_C + POOL_WEIGHT))
