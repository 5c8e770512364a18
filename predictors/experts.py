"""Beta beliefs that age, are averaged and learn: the arithmetic of the mixture.

A belief is alpha and beta, or its mean m and overlap r = variance / (m (1 - m)) = 1 / (alpha + beta + 1): the chance
that two rollouts share an outcome beyond what m says. Pure; knows nothing of kept rows, categories or versions.
Axes: E experts, B groups.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import FloatArray, Observations
from predictors.calibration import beta_binomial_log_loss

MEAN_EDGE = 1e-6
"""Mean pass rates keep this distance from 0 and 1."""

MIN_CHANCE = 1e-12
"""Least chance of a group in units of the best expert's: one group, however large, never rules an expert out."""

OVERLAP_RANGE = (1e-9, 0.999)
"""Overlaps stay in here: from a point, some 1e9 rollouts, to nearly sure of 0 or 1 but not of which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Beliefs of several experts and their weights, which sum to 1 over E. All (E, B)."""

    mean_EB: FloatArray
    overlap_EB: FloatArray
    weight_EB: FloatArray

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and overlap of their average, (B,) each.

        The variance is sum w (r m (1 - m) + (m - mean)^2), without a difference of nearly equal numbers.
        """
        mean_B = np.sum(self.weight_EB * self.mean_EB, axis=0)
        spread_EB = self.overlap_EB * self.mean_EB * (1.0 - self.mean_EB) + (self.mean_EB - mean_B) ** 2
        variance_B = np.sum(self.weight_EB * spread_EB, axis=0)
        return mean_B, np.clip(variance_B / (mean_B * (1.0 - mean_B)), *OVERLAP_RANGE)

    def chances(self, groups: Observations) -> FloatArray:
        """(E, B) the probability that each expert gave to each group, in units of the largest of that group."""
        loss_EB = losses(self.mean_EB, self.overlap_EB, groups)
        return np.asarray(np.maximum(np.exp(loss_EB.min(axis=0) - loss_EB), MIN_CHANCE))

    def told(self, groups: Observations, chance_EB: FloatArray, late_B: FloatArray) -> "Experts":
        """After groups of these chances, whose p has wandered by `late` since: n rollouts count as n / (1 + 4 n late).

        As the variance of psi = arcsin(sqrt(k / n)), 1 / (4 n), grows by `late`.
        """
        counted_B = 1.0 / (1.0 + 4.0 * late_B * groups.scored_B)
        concentration_EB = 1.0 / self.overlap_EB - 1.0
        total_EB = concentration_EB + counted_B * groups.scored_B
        mean_EB = (self.mean_EB * concentration_EB + counted_B * groups.passes_B) / total_EB
        weight_EB = self.weight_EB * chance_EB
        return Experts(
            mean_EB=np.clip(mean_EB, MEAN_EDGE, 1.0 - MEAN_EDGE),
            overlap_EB=1.0 / (total_EB + 1.0),
            weight_EB=weight_EB / weight_EB.sum(axis=0),
        )

    def without_last(self) -> "Experts":
        """Each of the others averaged with the last one, which has its weight in all of them."""
        last_B = self.weight_EB[-1]
        averages = [
            Experts(
                mean_EB=self.mean_EB[[e, -1]],
                overlap_EB=self.overlap_EB[[e, -1]],
                weight_EB=np.stack([1.0 - last_B, last_B]),
            ).moments()
            for e in range(self.mean_EB.shape[0] - 1)
        ]
        return Experts(
            mean_EB=np.stack([mean_B for mean_B, _ in averages]),
            overlap_EB=np.stack([overlap_B for _, overlap_B in averages]),
            weight_EB=self.weight_EB[:-1] / self.weight_EB[:-1].sum(axis=0),
        )


def losses(mean_EB: FloatArray, overlap_EB: FloatArray, groups: Observations) -> FloatArray:
    """(E, B) log loss of each belief on each group, in nats."""
    variance_EB = overlap_EB * mean_EB * (1.0 - mean_EB)
    return beta_binomial_log_loss(mean_EB, variance_EB, groups.passes_B, groups.scored_B)


def parameters(mean: FloatArray, overlap: FloatArray) -> tuple[FloatArray, FloatArray]:
    """alpha and beta."""
    total = 1.0 / overlap - 1.0
    return mean * total, (1.0 - mean) * total


def drifted(alpha: FloatArray, beta: FloatArray, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
    """alpha and beta with their odds multiplied by 1 + 4 shift, or divided by 1 - 4 shift if shift < 0.

    To first order psi = arcsin(sqrt(p)) moves by shift sin(2 psi), which is 4 shift in log-odds at every p. Over long
    lags log-odds grow with the logarithm only: a straight line is not believed for ever.
    """
    return alpha * (1.0 + 4.0 * np.maximum(shift, 0.0)), beta * (1.0 - 4.0 * np.minimum(shift, 0.0))


def aged(
    alpha_EB: FloatArray, beta_EB: FloatArray, shift_B: FloatArray, wander_EB: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and overlap after a drift by `shift`, and after psi has wandered with variance `wander`.

    If psi = arcsin(sqrt(p)) wanders on a line whose ends draw p in as fast as it comes near them (the Wright-Fisher
    diffusion), the mean of p stays and 1 - r falls by exp(-4 wander); over exponentially distributed rates with this
    mean it falls by 1 / (1 + 4 wander), which is used. alpha, beta > 0; wander >= 0; any shift.
    """
    risen_EB, rest_EB = drifted(alpha_EB, beta_EB, shift_B)
    mean_EB = np.clip(risen_EB / (risen_EB + rest_EB), MEAN_EDGE, 1.0 - MEAN_EDGE)
    total_EB = alpha_EB + beta_EB + 1.0
    overlap_EB = (1.0 + 4.0 * wander_EB * total_EB) / (total_EB * (1.0 + 4.0 * wander_EB))
    return mean_EB, np.clip(overlap_EB, *OVERLAP_RANGE)
