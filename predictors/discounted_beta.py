"""Discounted Beta: each prompt's successes and failures, fading as newer groups arrive and as the policy moves on.

The estimator of MoPPS (arXiv 2507.04632), and the plain one to compare others with. Built by the registry.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from predictors.base import (
    NEVER,
    Beliefs,
    Estimator,
    FloatArray,
    IntArray,
    Observations,
    State,
    check_categories,
    check_rows,
    check_state,
    check_version,
    parse_options,
    require_between,
)
from predictors.prior import MIN_PARAMETER, CategoryPrior

MAX_FIXED_PARAMETER = 1000.0
"""Largest alpha or beta of a fixed prior."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscountedBetaConfig:
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


class DiscountedBeta(Estimator):
    """Beta(alpha0 + s, beta0 + f) with s <- discount w s + k and f <- discount w f + n - k at each group (k of n).

    w = 1 / (1 + 4 (s + f) q lag) is what `lag` versions leave of s + f rollouts: in psi = arcsin(sqrt(p)) they have
    variance 1 / (4 (s + f)), to which a random walk adds q lag. MoPPS writes alpha <- l alpha + (1 - l) alpha0 + k;
    then alpha - alpha0 obeys the rule for s, so s and f alone are kept and the prior, which moves, enters at reading.
    Evidence that comes late is faded by its own age and leaves `last` where it is.
    """

    def __init__(self, config: DiscountedBetaConfig) -> None:
        self._config = config
        self._prior = CategoryPrior()
        self._version = 0
        self._successes_N: FloatArray = np.empty(0)
        self._failures_N: FloatArray = np.empty(0)
        self._last_N: IntArray = np.empty(0, dtype=np.int64)

    @classmethod
    def default_options(cls) -> dict[str, float]:
        return asdict(DiscountedBetaConfig())

    @classmethod
    def from_options(cls, options: Mapping[str, float]) -> Self:
        return cls(parse_options(DiscountedBetaConfig, options, estimator="discounted_beta"))

    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        category_N = check_categories(category_N, self._last_N.shape[0])
        added = category_N.shape[0] - self._last_N.shape[0]
        self._prior.resize(category_N)
        self._successes_N = np.r_[self._successes_N, np.zeros(added)]
        self._failures_N = np.r_[self._failures_N, np.zeros(added)]
        self._last_N = np.r_[self._last_N, np.full(added, NEVER, dtype=np.int64)]

    def observe(self, observations: Observations) -> None:
        check_rows(observations.rows_B, self._last_N.shape[0])
        for groups in observations.rounds():
            self._prior.observe(groups)
            self._update(groups)

    def _update(self, groups: Observations) -> None:
        rows_B, version_B = groups.rows_B, groups.version_B
        newest_B = np.maximum(self._last_N[rows_B], version_B)
        old_B = self._config.discount * self._kept(rows_B, newest_B)
        own_B = 1.0 / (1.0 + 4.0 * self._config.process_noise * groups.scored_B * (newest_B - version_B))
        self._successes_N[rows_B] = old_B * self._successes_N[rows_B] + own_B * groups.passes_B
        self._failures_N[rows_B] = old_B * self._failures_N[rows_B] + own_B * (groups.scored_B - groups.passes_B)
        self._last_N[rows_B] = newest_B

    def advance(self, policy_version: int) -> None:
        self._version = check_version(policy_version, self._version)

    def beliefs(self, rows: IntArray | None = None) -> Beliefs:
        if rows is not None:
            check_rows(rows, self._last_N.shape[0])
        at: IntArray | slice = slice(None) if rows is None else rows
        last_N = self._last_N[at]
        tried_N = last_N != NEVER
        now_N = np.maximum(last_N, self._version)
        kept_N = self._kept(at, now_N)
        alpha_N, beta_N = self._prior_parameters(at)
        alpha_N += kept_N * self._successes_N[at]
        beta_N += kept_N * self._failures_N[at]
        total_N = alpha_N + beta_N
        mean_N = alpha_N / total_N
        return Beliefs(
            mean_N=mean_N,
            variance_N=mean_N * (beta_N / total_N) / (total_N + 1.0),
            n_eff_N=kept_N * (self._successes_N[at] + self._failures_N[at]),
            lag_N=np.where(tried_N, now_N - last_N, NEVER),
            source_N=tried_N.astype(np.uint8),
        )

    def state(self) -> State:
        return {
            **self._prior.state(),
            "version": np.array(self._version, dtype=np.int64),
            "successes_N": self._successes_N.copy(),
            "failures_N": self._failures_N.copy(),
            "last_N": self._last_N.copy(),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        check_state(state, self.state(), rows_from="category_N")
        self._prior.load_state(state)
        self._version = int(state["version"])
        self._successes_N = np.array(state["successes_N"])
        self._failures_N = np.array(state["failures_N"])
        self._last_N = np.array(state["last_N"])

    def _kept(self, at: IntArray | slice, version: IntArray) -> FloatArray:
        """Share of these rows' evidence that is left at `version`, which is not before their last; 1 if never tried."""
        lag = version - self._last_N[at]
        total = self._successes_N[at] + self._failures_N[at]
        return np.asarray(1.0 / (1.0 + 4.0 * self._config.process_noise * total * lag))

    def _prior_parameters(self, at: IntArray | slice) -> tuple[FloatArray, FloatArray]:
        """alpha0 and beta0 of these rows, as fresh arrays."""
        category_N = self._prior.category_N[at]
        if self._config.prior_successes > 0.0:
            size = category_N.shape[0]
            return np.full(size, self._config.prior_successes), np.full(size, self._config.prior_failures)
        alpha_C, beta_C = self._prior.parameters()
        return alpha_C[category_N], beta_C[category_N]
