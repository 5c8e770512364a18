"""Discounted Beta: each prompt's successes and failures, fading as newer groups arrive and as the policy moves on.

The estimator of MoPPS (arXiv 2507.04632), and the plain one to compare others with. Built by the registry.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import FloatArray
from predictors.fading_beta import FadingBeta, FadingBetaConfig
from predictors.prior import MIN_PARAMETER, CategoryPrior

MAX_FIXED_PARAMETER = 1000.0
"""Largest alpha or beta of a fixed prior."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscountedBetaConfig(FadingBetaConfig):
    """Options. MoPPS is discount 0.5 or 1, process_noise 0 and a fixed prior of 1 and 1.

    The defaults are within .001 nats a group of the least prequential log loss on a real GRPO run, summed over a full
    feed and a feed of one visit in ten. There a policy version is an optimizer step, and visits are 9.4 versions apart.
    """

    discount: float = 0.9
    process_noise: float = 5e-5
    prior_successes: float = 0.0
    """alpha of a fixed prior; 0 for both takes the empirical-Bayes prior of the prompt's category."""

    prior_failures: float = 0.0
    """beta of a fixed prior."""

    def __post_init__(self) -> None:
        FadingBetaConfig.__post_init__(self)
        fixed = (self.prior_successes, self.prior_failures)
        if fixed != (0.0, 0.0) and not all(MIN_PARAMETER <= value <= MAX_FIXED_PARAMETER for value in fixed):
            raise ValueError(
                "prior_successes and prior_failures must both be 0 (prior of the category) or both be in "
                f"[{MIN_PARAMETER:g}, {MAX_FIXED_PARAMETER:g}], got {fixed[0]!r} and {fixed[1]!r}"
            )


class DiscountedBeta(FadingBeta[DiscountedBetaConfig]):
    """Fading own evidence on the empirical-Bayes prior of the category, or on a fixed one.

    MoPPS writes alpha <- l alpha + (1 - l) alpha0 + k; then alpha - alpha0 obeys the rule for s.
    """

    name = "discounted_beta"

    def __init__(self, config: DiscountedBetaConfig) -> None:
        fixed = (config.prior_successes, config.prior_failures)
        super().__init__(config, FixedPrior(*fixed) if config.prior_successes > 0.0 else CategoryPrior())

    @classmethod
    def config_type(cls) -> type[DiscountedBetaConfig]:
        return DiscountedBetaConfig


class FixedPrior(CategoryPrior):
    """The same Beta distribution for every category."""

    def __init__(self, successes: float, failures: float) -> None:
        super().__init__()
        self._successes, self._failures = successes, failures

    def parameters(self) -> tuple[FloatArray, FloatArray]:
        alpha_C, beta_C = super().parameters()
        return np.full_like(alpha_C, self._successes), np.full_like(beta_C, self._failures)
