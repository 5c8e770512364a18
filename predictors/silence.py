"""What it says of a pass rate that a group was not reported, where only groups whose scores differ are.

Called by estimators. A silent group was degenerate, all passed or all failed, or it was informative and got lost; which
of the three nobody knows. Pure. Axes: B groups, with any axes before it; G rollouts in a group.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import FloatArray, Observations

GOLDEN = 0.6180339887498949
"""Step of a sequence that fills [0, 1) evenly, whatever its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """What beliefs become when nothing was heard, all (..., B)."""

    mean: FloatArray
    overlap: FloatArray  # variance / (mean (1 - mean))
    chance: FloatArray  # of silence, by the belief before
    passed: FloatArray  # chance that all had passed, given the silence
    failed: FloatArray  # that all had failed; what is missing to 1 was lost


def after_silence(mean: FloatArray, overlap: FloatArray, group_size_B: np.ndarray, loss_share: float) -> Silence:
    """Moments of p given that its group of G was silent, for p ~ Beta(a, b) with this mean and overlap 1 / (a + b + 1).

    P(silent | p) = z + (1 - z) l, z = p^G + (1 - p)^G, l the share of informative groups that get lost. So p is
    Beta(a + G, b), Beta(a, b + G) or still Beta(a, b), in proportion to (1 - l) E[p^G], (1 - l) E[(1 - p)^G] and l; the
    mean and variance of that mixture are exact. They are two-sided: from an even belief silence leads to both ends at
    once, so the mean stays and the variance rises. At l = 1 nothing is learned. 0 <= l <= 1, 0 < overlap < 1.
    """
    total = 1.0 / overlap - 1.0
    alpha, beta = mean * total, (1.0 - mean) * total
    all_passed, all_failed = _power_moment(alpha, total, group_size_B), _power_moment(beta, total, group_size_B)
    chance = loss_share + (1.0 - loss_share) * (all_passed + all_failed)
    high, low = (1.0 - loss_share) * all_passed / chance, (1.0 - loss_share) * all_failed / chance
    grown = total + group_size_B
    high_mean, low_mean = (alpha + group_size_B) / grown, alpha / grown
    after = high * high_mean + low * low_mean + (1.0 - high - low) * mean
    variance = (
        high * (high_mean * (1.0 - high_mean) / (grown + 1.0) + (high_mean - after) ** 2)
        + low * (low_mean * (1.0 - low_mean) / (grown + 1.0) + (low_mean - after) ** 2)
        + (1.0 - high - low) * (mean * (1.0 - mean) * overlap + (mean - after) ** 2)
    )
    return Silence(
        mean=np.asarray(after),
        overlap=np.asarray(variance / (after * (1.0 - after))),
        chance=np.asarray(chance),
        passed=np.asarray(all_passed / chance),
        failed=np.asarray(all_failed / chance),
    )


def imputed_groups(silent: Observations, passed_B: FloatArray, failed_B: FloatArray) -> Observations:
    """The silent groups as they may have been, for what a pool is like as a whole: some all passed, some all failed, in
    these proportions; those that may have been lost are left out.

    An evenly spread sequence, keyed by row and version, decides which: no group's own fate is claimed to be known, and
    a pool's share of each is right on average. A mean over both would make a pool of zeros and ones look middling.
    """
    key_B = silent.rows_B + silent.version_B
    place_B = (key_B.astype(np.float64) * GOLDEN) % 1.0
    kept_B = place_B < passed_B + failed_B
    passes_B = np.where(place_B < passed_B, silent.scored_B, 0).astype(np.float64)
    kept = np.flatnonzero(kept_B)
    return Observations(
        rows_B=silent.rows_B[kept],
        passes_B=passes_B[kept],
        scored_B=silent.scored_B[kept],
        version_B=silent.version_B[kept],
    )


def _power_moment(alpha: FloatArray, total: FloatArray, group_size_B: np.ndarray) -> FloatArray:
    """E[p^G] under Beta(alpha, total - alpha): prod_{j < G} (alpha + j) / (total + j)."""
    moment: FloatArray = np.ones(np.broadcast(alpha, total, group_size_B).shape)
    for j in range(int(np.max(group_size_B, initial=0))):
        moment = moment * np.where(j < group_size_B, (alpha + j) / (total + j), 1.0)
    return moment
