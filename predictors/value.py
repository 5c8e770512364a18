"""From a belief to what a group is worth: the functions of a pass rate that policies rank prompts by.

Called by policies and by the audit, on every row of the pool at each draw, so they work through memory in blocks that
stay in the processor's cache. Pure; knows nothing of where a belief comes from. Axes: N rows; G rollouts in a group.
"""

import numpy as np

from predictors.base import FloatArray

BLOCK_ROWS = 8192
"""Rows worked on at once: five float64 buffers of this length (320 KiB) fit in a second-level cache."""

MAX_CONCENTRATION = 1e12
"""Concentration given to a belief without any variance; its Beta distribution is a point for every purpose here."""

RESCALE_EVERY = 64
"""Factors multiplied up before they are divided out: 64 factors of at most G each stay far from overflow."""


def beta_parameters(mean_N: FloatArray, variance_N: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The Beta distribution with this mean and variance: alpha = m c, beta = (1 - m) c, c = m (1 - m) / v - 1.

    mean_N: (N,) in (0, 1). variance_N: (N,) in [0, m (1 - m)). Returns alpha_N, beta_N, both > 0.
    A variance of 0 gives a concentration c of MAX_CONCENTRATION. Raises ValueError outside these ranges.
    """
    mean_N, variance_N = _checked_belief(mean_N, variance_N)
    with np.errstate(divide="ignore", over="ignore"):
        concentration_N = np.minimum(mean_N * (1.0 - mean_N) / variance_N - 1.0, MAX_CONCENTRATION)
    if not (concentration_N > 0.0).all():
        raise ValueError("variance_N must be below mean (1 - mean)")
    return mean_N * concentration_N, (1.0 - mean_N) * concentration_N


def degenerate_probability(pass_rate_N: FloatArray, group_size: int) -> FloatArray:
    """Chance that all G rollouts score alike, so that a group-relative method learns nothing: p^G + (1-p)^G.

    pass_rate_N: (N,) known pass rates in [0, 1]. Returns (N,) in [2^(1-G), 1]. Assumes binary outcomes that are
    independent given p. Raises ValueError if group_size < 1 or a pass rate is outside [0, 1].
    """
    _check_group_size(group_size)
    pass_rate_N = np.asarray(pass_rate_N, dtype=np.float64)
    if not ((pass_rate_N >= 0.0) & (pass_rate_N <= 1.0)).all():
        raise ValueError("pass_rate_N must be in [0, 1]")
    return np.asarray(pass_rate_N**group_size + (1.0 - pass_rate_N) ** group_size)


def informative_probability(mean_N: FloatArray, variance_N: FloatArray, group_size: int) -> FloatArray:
    """Chance that G rollouts do not all score alike, for a pass rate that is itself uncertain.

    1 - E[p^G] - E[(1-p)^G] under the Beta distribution with this mean and variance. With r = v / (m (1 - m)), the
    chance that two rollouts share their outcome beyond what m says,

        E[p^G] = m prod_{j=1}^{G-1} (m (1 - r) + j r) / (1 + (j - 1) r)

    which is m^G at r = 0 and m at r = 1 without a special case, and never forms the huge alpha, beta of a sure belief.

    mean_N: (N,) in (0, 1). variance_N: (N,) in [0, m (1 - m)], the upper end included as the limit. Returns (N,) in
    [0, 1). Assumes binary outcomes. Raises ValueError if group_size < 1 or a belief is out of range.
    """
    _check_group_size(group_size)
    mean_N, variance_N = _checked_belief(mean_N, variance_N)
    result_N = np.empty_like(mean_N)
    buffers = np.empty((5, min(BLOCK_ROWS, max(mean_N.size, 1))))
    for start in range(0, mean_N.size, BLOCK_ROWS):
        block = slice(start, min(start + BLOCK_ROWS, mean_N.size))
        _informative_block(mean_N[block], variance_N[block], group_size, result_N[block], buffers)
    return result_N


def _informative_block(
    mean: FloatArray, variance: FloatArray, group_size: int, out: FloatArray, buffers: FloatArray
) -> None:
    """One block of `informative_probability`, written to out. All passes are in place."""
    overlap, pass_factor, fail_factor, denominator, all_fail = buffers[:, : mean.size]
    np.subtract(1.0, mean, out=all_fail)
    np.multiply(mean, all_fail, out=overlap)
    np.divide(variance, overlap, out=overlap)
    if overlap.size and overlap.max() > 1.0 + 1e-9:
        raise ValueError("variance_N must not exceed mean (1 - mean)")
    np.minimum(overlap, 1.0, out=overlap)
    np.multiply(mean, overlap, out=pass_factor)
    np.subtract(mean, pass_factor, out=pass_factor)
    np.multiply(all_fail, overlap, out=fail_factor)
    np.subtract(all_fail, fail_factor, out=fail_factor)
    np.copyto(out, mean)  # becomes E[p^G], all_fail becomes E[(1-p)^G], both times the product of denominators
    step = np.ones_like(denominator)
    denominator.fill(1.0)
    for j in range(1, group_size):
        pass_factor += overlap
        fail_factor += overlap
        out *= pass_factor
        all_fail *= fail_factor
        if j > 1:
            step += overlap
            denominator *= step
        if j % RESCALE_EVERY == 0:
            out /= denominator
            all_fail /= denominator
            denominator.fill(1.0)
    out += all_fail
    out /= denominator
    np.subtract(1.0, out, out=out)
    np.clip(out, 0.0, 1.0, out=out)


def _check_group_size(group_size: int) -> None:
    if group_size < 1:
        raise ValueError(f"group_size must be >= 1, got {group_size}")


def _checked_belief(mean_N: FloatArray, variance_N: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both as float64 of one shape and in range; written so that NaN fails."""
    mean_N = np.asarray(mean_N, dtype=np.float64)
    variance_N = np.asarray(variance_N, dtype=np.float64)
    if mean_N.ndim != 1 or mean_N.shape != variance_N.shape:
        raise ValueError(f"mean_N and variance_N must be (N,) alike, got {mean_N.shape} and {variance_N.shape}")
    if mean_N.size and not (mean_N.min() > 0.0 and mean_N.max() < 1.0):
        raise ValueError(f"mean_N must be in (0, 1), got values from {mean_N.min()} to {mean_N.max()}")
    if mean_N.size and not (variance_N.min() >= 0.0 and np.isfinite(variance_N.max())):
        raise ValueError(f"variance_N must be >= 0 and finite, got values from {variance_N.min()}")
    return mean_N, variance_N
