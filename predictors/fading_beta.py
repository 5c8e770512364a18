"""Base of estimators that add a prompt's own successes and failures, fading, to a prior of its category.

Subclasses choose the prior and the defaults. Axes: N rows, B groups, C categories.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from predictors.base import FloatArray, IntArray, Observations, State, check_categories, require_between
from predictors.rows import EstimatorConfig, Reader, Reading, RowEstimator, Rows, beta_moments


@dataclass(frozen=True, slots=True, kw_only=True)
class FadingBetaConfig(EstimatorConfig):
    """Options of how a prompt's own evidence fades."""

    discount: float
    """Share of older evidence that is kept at each new group of the same prompt."""

    process_noise: float
    """Variance per policy version by which arcsin(sqrt(p)) wanders; n rollouts that are d versions old are worth
    n / (1 + 4 n d process_noise). Evidence about a prompt that is left alone fades by this only."""

    def __post_init__(self) -> None:
        require_between("discount", self.discount, 0.0, 1.0)
        require_between("process_noise", self.process_noise, 0.0, 0.1)


class Prior(Protocol):
    """What is thought of a prompt before its own evidence, by category; learned from all groups."""

    category_N: npt.NDArray[np.int32]

    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        """Take new categories; rows beyond the old ones are untried."""

    def observe(self, groups: Observations) -> None:
        """Learn from groups in which a row occurs once."""

    def parameters(self) -> tuple[FloatArray, FloatArray]:
        """alpha and beta per category, (C,) each, > 0."""

    def state(self) -> State:
        """What it needs to go on bit for bit."""

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take arrays that have been checked."""


FadingConfigT = TypeVar("FadingConfigT", bound=FadingBetaConfig)


class FadingBeta(RowEstimator[FadingConfigT], Generic[FadingConfigT]):
    """Beta(alpha0 + s, beta0 + f) with s <- discount w s + k and f <- discount w f + n - k at each group (k of n).

    w = 1 / (1 + 4 (s + f) q lag) is what `lag` versions leave of s + f rollouts: in psi = arcsin(sqrt(p)) they have
    variance 1 / (4 (s + f)), to which a random walk adds q lag. The prior, which moves, enters at reading. Evidence
    that comes late is faded by its own age and leaves `last` where it is.
    """

    columns: ClassVar = {"successes_N": 0.0, "failures_N": 0.0}

    def __init__(self, config: FadingConfigT, prior: Prior) -> None:
        super().__init__(config)
        self._prior = prior

    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        category_N = check_categories(category_N, self._last_N.shape[0])
        super().resize(category_N)
        self._prior.resize(category_N)

    def _update(self, groups: Observations, newest_B: IntArray) -> None:
        self._prior.observe(groups)
        rows_B = groups.rows_B
        successes_N, failures_N = self._columns["successes_N"], self._columns["failures_N"]
        old_B = self._config.discount * self._kept(rows_B, newest_B)
        age_B = newest_B - groups.version_B
        own_B = 1.0 / (1.0 + 4.0 * self._config.process_noise * groups.scored_B * age_B)
        successes_N[rows_B] = old_B * successes_N[rows_B] + own_B * groups.passes_B
        failures_N[rows_B] = old_B * failures_N[rows_B] + own_B * (groups.scored_B - groups.passes_B)

    def _reader(self) -> Reader:
        return partial(self._read, *self._prior.parameters())

    def _read(self, alpha_C: FloatArray, beta_C: FloatArray, at: Rows, now_N: IntArray) -> Reading:
        successes_N, failures_N = self._columns["successes_N"][at], self._columns["failures_N"][at]
        category_N = self._prior.category_N[at]
        kept_N = self._kept(at, now_N)
        mean_N, variance_N = beta_moments(
            alpha_C[category_N] + kept_N * successes_N, beta_C[category_N] + kept_N * failures_N
        )
        return mean_N, variance_N, kept_N * (successes_N + failures_N)

    def state(self) -> State:
        return {**self._prior.state(), **super().state()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().load_state(state)
        self._prior.load_state(state)

    def _kept(self, at: Rows, version: IntArray) -> FloatArray:
        """Share of these rows' evidence that is left at `version`, which is not before their last; 1 if never tried."""
        lag = version - self._last_N[at]
        total = self._columns["successes_N"][at] + self._columns["failures_N"][at]
        return np.asarray(1.0 / (1.0 + 4.0 * self._config.process_noise * total * lag))
