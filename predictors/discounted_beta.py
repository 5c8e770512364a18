"""Discounted Beta: each prompt's successes and failures, fading as newer groups arrive and as the policy moves on.

The estimator of MoPPS (arXiv 2507.04632), and the plain one to compare others with. Built by the registry.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from predictors.base import FloatArray, IntArray, Observations, State, check_categories, check_rows, require_between
from predictors.configured import EstimatorConfig
from predictors.prior import MIN_PARAMETER, CategoryPrior
from predictors.rows import MIN_N_EFF, Reader, Reading, RowEstimator, Rows, beta_moments
from predictors.silence import after_silence, imputed_groups

MAX_FIXED_PARAMETER = 1000.0
"""Largest alpha or beta of a fixed prior."""

LEAST_PARAMETER = 0.02
"""Least alpha and beta of a belief after silence, which can leave less than the prior."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscountedBetaConfig(EstimatorConfig):
    """Options. MoPPS is discount 0.5 or 1, process_noise 0 and a fixed prior of 1 and 1.

    The defaults are within .001 nats a group of the least prequential log loss on a real GRPO run, summed over a full
    feed and a feed of one visit in ten. There a policy version is an optimizer step, and visits are 9.4 versions apart.
    """

    discount: float = 0.9
    """Share of older evidence that is kept at each new group of the same prompt."""

    process_noise: float = 5e-5
    """Variance per policy version by which arcsin(sqrt(p)) wanders; n rollouts that are d versions old are worth
    n / (1 + 4 n d process_noise). Evidence about a prompt that is left alone fades by this only."""

    prior_successes: float = 0.0
    """alpha of a fixed prior; 0 for both takes the empirical-Bayes prior of the prompt's category."""

    prior_failures: float = 0.0
    """beta of a fixed prior."""

    def __post_init__(self) -> None:
        require_between("discount", self.discount, 0.0, 1.0)
        require_between("process_noise", self.process_noise, 0.0, 0.1)
        fixed = (self.prior_successes, self.prior_failures)
        if fixed != (0.0, 0.0) and not all(MIN_PARAMETER <= value <= MAX_FIXED_PARAMETER for value in fixed):
            raise ValueError(
                "prior_successes and prior_failures must both be 0 (prior of the category) or both be in "
                f"[{MIN_PARAMETER:g}, {MAX_FIXED_PARAMETER:g}], got {fixed[0]!r} and {fixed[1]!r}"
            )


class DiscountedBeta(RowEstimator[DiscountedBetaConfig]):
    """Beta(alpha0 + s, beta0 + f) with s <- discount w s + k and f <- discount w f + n - k at each group (k of n).

    w = 1 / (1 + 4 (s + f) q lag) is what `lag` versions leave of s + f rollouts: in psi = arcsin(sqrt(p)) they have
    variance 1 / (4 (s + f)), to which a random walk adds q lag. MoPPS writes alpha <- l alpha + (1 - l) alpha0 + k;
    then alpha - alpha0 obeys the rule for s, so s and f alone are kept and the prior, which moves, enters at reading.
    Evidence that comes late is faded by its own age and leaves `last` where it is.
    """

    name = "discounted_beta"
    columns: ClassVar = {"successes_N": 0.0, "failures_N": 0.0}

    def __init__(self, config: DiscountedBetaConfig) -> None:
        super().__init__(config)
        self._prior = CategoryPrior()

    @classmethod
    def config_type(cls) -> type[DiscountedBetaConfig]:
        return DiscountedBetaConfig

    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        category_N = check_categories(category_N, self._last_N.shape[0])
        super().resize(category_N)
        self._prior.resize(category_N)

    def _update(self, groups: Observations, newest_B: IntArray) -> None:
        self._prior.observe(groups)
        rows_B = groups.rows_B
        alpha_B, beta_B = self._row_priors(rows_B)
        successes_N, failures_N = self._columns["successes_N"], self._columns["failures_N"]
        old_B = self._config.discount * self._kept(rows_B, newest_B)
        age_B = newest_B - groups.version_B
        own_B = 1.0 / (1.0 + 4.0 * self._config.process_noise * groups.scored_B * age_B)
        passed_B, failed_B = own_B * groups.passes_B, own_B * (groups.scored_B - groups.passes_B)
        successes_N[rows_B] = _stored(old_B * _counted(successes_N[rows_B], alpha_B) + passed_B, alpha_B)
        failures_N[rows_B] = _stored(old_B * _counted(failures_N[rows_B], beta_B) + failed_B, beta_B)

    def observe_silence(self, silent: Observations, loss_share: float) -> None:
        """s and f become what leaves the moments of p given the silence. Below 0 they are the share of alpha0 or beta0
        that it took away: a prior that turns out to be narrow does not give the certainty back.
        """
        check_rows(silent.rows_B, self._last_N.shape[0])
        for groups in silent.rounds():
            rows_B = groups.rows_B
            newest_B = np.maximum(self._last_N[rows_B], groups.version_B)
            alpha_B, beta_B = self._row_priors(rows_B)
            mean_B, variance_B, _ = self._posterior(alpha_B, beta_B, rows_B, newest_B)
            after = after_silence(mean_B, variance_B / (mean_B * (1.0 - mean_B)), groups.scored_B, loss_share)
            total_B = np.maximum(1.0 / after.overlap - 1.0, 2.0 * LEAST_PARAMETER)
            self._columns["successes_N"][rows_B] = _stored(after.mean * total_B - alpha_B, alpha_B)
            self._columns["failures_N"][rows_B] = _stored((1.0 - after.mean) * total_B - beta_B, beta_B)
            self._last_N[rows_B] = newest_B
            self._prior.observe(imputed_groups(groups, after.passed, after.failed))

    def _row_priors(self, rows_B: IntArray) -> tuple[FloatArray, FloatArray]:
        """alpha0 and beta0 of these rows, as `_reader` has them."""
        alpha_C, beta_C = self._prior_parameters()
        category_B = self._prior.category_N[rows_B]
        return alpha_C[category_B], beta_C[category_B]

    def _reader(self) -> Reader:
        return partial(self._read, *self._prior_parameters())

    def _read(self, alpha_C: FloatArray, beta_C: FloatArray, at: Rows, now_N: IntArray) -> Reading:
        category_N = self._prior.category_N[at]
        return self._posterior(alpha_C[category_N], beta_C[category_N], at, now_N)

    def _posterior(
        self, alpha_N: FloatArray, beta_N: FloatArray, at: Rows, now_N: IntArray, share_N: FloatArray | float = 1.0
    ) -> Reading:
        """What this share of own evidence makes of these priors."""
        successes_N = _counted(self._columns["successes_N"][at], alpha_N)
        failures_N = _counted(self._columns["failures_N"][at], beta_N)
        kept_N = share_N * self._kept(at, now_N)
        mean_N, variance_N = beta_moments(
            np.maximum(alpha_N + kept_N * successes_N, LEAST_PARAMETER),
            np.maximum(beta_N + kept_N * failures_N, LEAST_PARAMETER),
        )
        return mean_N, variance_N, np.maximum(kept_N * (successes_N + failures_N), MIN_N_EFF)

    def discount(self, kept: float) -> None:
        require_between("discount", kept, 0.0, 1.0)
        for column_N in self._columns.values():
            column_N *= kept

    def state(self) -> State:
        return {**self._prior.state(), **super().state()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().load_state(state)
        self._prior.load_state(state)

    def _kept(self, at: Rows, version: IntArray) -> FloatArray:
        """Share of these rows' evidence that is left at `version`, which is not before their last; 1 if never tried."""
        lag = version - self._last_N[at]
        total = np.maximum(self._columns["successes_N"][at] + self._columns["failures_N"][at], 0.0)
        return np.asarray(1.0 / (1.0 + 4.0 * self._config.process_noise * total * lag))

    def _prior_parameters(self) -> tuple[FloatArray, FloatArray]:
        """alpha0 and beta0 of each category."""
        alpha_C, beta_C = self._prior.parameters()
        if self._config.prior_successes > 0.0:
            return np.full_like(alpha_C, self._config.prior_successes), np.full_like(
                beta_C, self._config.prior_failures
            )
        return alpha_C, beta_C


def _counted(stored: FloatArray, prior: FloatArray) -> FloatArray:
    """Rollouts: what is stored, or below 0 that share of alpha0 or beta0."""
    return np.where(stored < 0.0, stored * prior, stored)


def _stored(counted: FloatArray, prior: FloatArray) -> FloatArray:
    """The inverse of `_counted`."""
    return np.where(counted < 0.0, counted / prior, counted)
