"""What a belief says beyond its mean and variance: quantiles, and what one more rollout is expected to teach.

Called by policies and by whoever shows a belief. A belief is read as the Beta distribution with its mean and variance.
Pure numpy: logarithm and derivative of the gamma function, and the incomplete beta function, are here because numpy has
none. Axes: N rows.
"""

from statistics import NormalDist

import numpy as np

from predictors.base import FloatArray
from predictors.value import beta_parameters

SHIFT = 10
"""Steps by which small arguments are raised before the asymptotic series; its error is then below 1e-13."""

MAX_FRACTION_CONCENTRATION = 1e4
"""Concentration up to which quantiles are found from the incomplete beta function."""

FRACTION_TERMS = 400
"""Terms of its continued fraction; about 3 sqrt(concentration) are needed."""

FRACTION_TOLERANCE = 1e-14
"""Relative change of the fraction at which it has settled."""

HALVINGS = 60
"""Bisections of [0, 1] for a quantile, which is then known to 2^-60."""

TINY = 1e-300
"""In place of 0 in a denominator of the continued fraction."""


def information_gain(mean_N: FloatArray, variance_N: FloatArray) -> FloatArray:
    """Mutual information, in nats, of the outcome of one more rollout and the pass rate: H(m) - E[H(p)].

    Under Beta(a, b) with c = a + b:
    E[p ln p] = m (psi(a + 1) - psi(c + 1)), and E[(1 - p) ln(1 - p)] = (1 - m) (psi(b + 1) - psi(c + 1)),
    psi the digamma function. About v / (2 m (1 - m)) for a sure belief, H(m) for one that says 0 or 1.

    mean_N: (N,) in (0, 1). variance_N: (N,) in [0, m (1 - m)). Returns (N,) in [0, ln 2]. Raises ValueError if a belief
    is out of range.
    """
    alpha_N, beta_N = beta_parameters(mean_N, variance_N)
    mean_N = np.asarray(mean_N, dtype=np.float64)
    total = digamma(alpha_N + beta_N + 1.0)
    passed = mean_N * (digamma(alpha_N + 1.0) - total - np.log(mean_N))
    failed = (1.0 - mean_N) * (digamma(beta_N + 1.0) - total - np.log1p(-mean_N))
    return np.asarray(np.maximum(passed + failed, 0.0))


def quantile(mean_N: FloatArray, variance_N: FloatArray, level: float) -> FloatArray:
    """The pass rate below which the belief puts `level` of its mass.

    Found by bisection of the cumulative distribution, to 1e-12; beliefs of a concentration above 10,000 are taken as
    normal with the first correction for skewness, which is within a thousandth of their standard deviation for levels
    in [0.001, 0.999].

    mean_N: (N,) in (0, 1). variance_N: (N,) in [0, m (1 - m)). Returns (N,) in [0, 1]. Raises ValueError unless level
    is in (0, 1) and the beliefs are in range.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be in (0, 1), got {level}")
    alpha_N, beta_N = beta_parameters(mean_N, variance_N)
    total_N = alpha_N + beta_N
    mean_N = np.asarray(mean_N, dtype=np.float64)
    deviation_N = np.sqrt(mean_N * (1.0 - mean_N) / (total_N + 1.0))
    skewness_N = 2.0 * (1.0 - 2.0 * mean_N) / (total_N + 2.0) * np.sqrt((total_N + 1.0) / (mean_N * (1.0 - mean_N)))
    z = NormalDist().inv_cdf(level)
    quantile_N = np.clip(mean_N + deviation_N * (z + skewness_N * (z * z - 1.0) / 6.0), 0.0, 1.0)
    exact = np.flatnonzero(total_N <= MAX_FRACTION_CONCENTRATION)
    if exact.size:
        low, high = np.zeros(exact.size), np.ones(exact.size)
        for _ in range(HALVINGS):
            middle = (low + high) / 2.0
            below = beta_cdf(alpha_N[exact], beta_N[exact], middle) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        quantile_N[exact] = (low + high) / 2.0
    return quantile_N


def probability_below(mean_N: FloatArray, variance_N: FloatArray, level: float) -> FloatArray:
    """P(p <= level): how much of the belief lies below a pass rate.

    A belief of a concentration above 10,000 is read as one of 10,000 with its mean; its standard deviation is then at
    most 0.005. mean_N: (N,) in (0, 1). variance_N: (N,) in [0, m (1 - m)). Returns (N,) in [0, 1]. Raises ValueError
    unless level is in [0, 1] and the beliefs are in range.
    """
    alpha_N, beta_N = beta_parameters(mean_N, variance_N)
    # Below the limit by more than rounding, as the two are added up again.
    scale_N = np.minimum(1.0, (1.0 - FRACTION_TOLERANCE) * MAX_FRACTION_CONCENTRATION / (alpha_N + beta_N))
    return beta_cdf(alpha_N * scale_N, beta_N * scale_N, np.full(len(alpha_N), level))


def beta_cdf(alpha_N: FloatArray, beta_N: FloatArray, x_N: FloatArray) -> FloatArray:
    """P(p <= x) under Beta(alpha, beta): the regularised incomplete beta function, by its continued fraction.

    Lentz's way of evaluating it, on the side of the mean where it settles fast (Press et al., Numerical Recipes, 6.4).
    alpha_N, beta_N: (N,) > 0, together at most MAX_FRACTION_CONCENTRATION. x_N: (N,) in [0, 1]. Returns (N,) in [0, 1].
    Raises ValueError for parameters outside these ranges.
    """
    alpha_N, beta_N, x_N = (np.asarray(value, dtype=np.float64) for value in (alpha_N, beta_N, x_N))
    if not ((alpha_N > 0.0) & (beta_N > 0.0) & (alpha_N + beta_N <= MAX_FRACTION_CONCENTRATION)).all():
        raise ValueError(f"alpha and beta must be > 0 and add up to at most {MAX_FRACTION_CONCENTRATION:g}")
    if not ((x_N >= 0.0) & (x_N <= 1.0)).all():
        raise ValueError("x must be in [0, 1]")
    turned_N = x_N > (alpha_N + 1.0) / (alpha_N + beta_N + 2.0)
    a_N, b_N = np.where(turned_N, beta_N, alpha_N), np.where(turned_N, alpha_N, beta_N)
    y_N = np.where(turned_N, 1.0 - x_N, x_N)
    with np.errstate(divide="ignore"):
        log_front_N = log_gamma(a_N + b_N) - log_gamma(a_N) - log_gamma(b_N) + a_N * np.log(y_N) + b_N * np.log1p(-y_N)
    part_N = np.exp(log_front_N) / a_N * _fraction(a_N, b_N, y_N)
    return np.asarray(np.clip(np.where(turned_N, 1.0 - part_N, part_N), 0.0, 1.0))


def _fraction(a_N: FloatArray, b_N: FloatArray, x_N: FloatArray) -> FloatArray:
    above_N = np.ones_like(x_N)
    below_N = 1.0 / _not_zero(1.0 - (a_N + b_N) * x_N / (a_N + 1.0))
    fraction_N = below_N.copy()
    for j in range(1, FRACTION_TERMS):
        for term_N in (
            j * (b_N - j) * x_N / ((a_N + 2 * j - 1.0) * (a_N + 2 * j)),
            -(a_N + j) * (a_N + b_N + j) * x_N / ((a_N + 2 * j) * (a_N + 2 * j + 1.0)),
        ):
            below_N = 1.0 / _not_zero(1.0 + term_N * below_N)
            above_N = _not_zero(1.0 + term_N / above_N)
            step_N = above_N * below_N
            fraction_N *= step_N
        if (np.abs(step_N - 1.0) < FRACTION_TOLERANCE).all():
            break
    return fraction_N


def _not_zero(value_N: FloatArray) -> FloatArray:
    return np.where(np.abs(value_N) < TINY, TINY, value_N)


def log_gamma(x_N: FloatArray) -> FloatArray:
    """ln Gamma(x) for x > 0: Stirling's series at x + 10, less ln of the ten factors in between."""
    x_N = np.asarray(x_N, dtype=np.float64)
    below_N = np.zeros_like(x_N)
    for j in range(SHIFT):
        below_N += np.log(x_N + j)
    y_N = x_N + SHIFT
    inverse_N = 1.0 / (y_N * y_N)
    series_N = (1.0 / 12.0 - inverse_N * (1.0 / 360.0 - inverse_N * (1.0 / 1260.0 - inverse_N / 1680.0))) / y_N
    return np.asarray((y_N - 0.5) * np.log(y_N) - y_N + 0.5 * np.log(2.0 * np.pi) + series_N - below_N)


def digamma(x_N: FloatArray) -> FloatArray:
    """The derivative of ln Gamma(x) for x > 0, in the same way."""
    x_N = np.asarray(x_N, dtype=np.float64)
    below_N = np.zeros_like(x_N)
    for j in range(SHIFT):
        below_N += 1.0 / (x_N + j)
    y_N = x_N + SHIFT
    inverse_N = 1.0 / (y_N * y_N)
    series_N = inverse_N * (1.0 / 12.0 - inverse_N * (1.0 / 120.0 - inverse_N * (1.0 / 252.0 - inverse_N / 240.0)))
    return np.asarray(np.log(y_N) - 0.5 / y_N - series_N - below_N)
