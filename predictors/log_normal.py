"""Log-normal costs: the longest of several, and what a value that was cut off says. Called by `costs` and its model.

Pure functions of arrays; knows nothing of rows, prompts or versions. Z is a standard normal variable, phi its density,
Phi its distribution function.
"""

from collections.abc import Callable

import numpy as np

from predictors.base import FloatArray

TAIL_COEFFICIENTS = (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)
TAIL_RATE = 0.2316419
"""Abramowitz and Stegun 26.2.17: 1 - Phi(x) = phi(x) sum b_i t^i, t = 1 / (1 + rate x), x >= 0, within 7.5e-8."""

FAR_TAIL = 4.0
"""From here on the hazard is Sampford's (1953) bound (3 x + sqrt(x^2 + 8)) / 4, within 3e-4 of it, relatively."""

MAX_SIGMA = 3.0
"""Largest standard deviation of a logarithm that is looked up; larger ones count as this one."""

SIGMA_STEP = 0.025
"""Grid of the table; straight lines between its points are off by at most 1e-4 of the value."""

NODES = np.linspace(-9.0, 9.0, 361)
"""Where the integral over Z is summed: a step of 0.05 leaves 1e-7."""


def hazard(x: FloatArray) -> FloatArray:
    """phi(x) / (1 - Phi(x)), the mean of Z given Z >= x. Any finite x; relative error below 3e-3 near FAR_TAIL, 1e-4
    below 3.
    """
    x = np.asarray(x, np.float64)
    size = np.abs(x)
    with np.errstate(over="ignore", under="ignore"):
        density = np.exp(-0.5 * size**2) / np.sqrt(2.0 * np.pi)
        mills = _mills(np.minimum(size, FAR_TAIL))
        near = np.where(x >= 0.0, 1.0 / mills, density / (1.0 - density * mills))
    return np.where(x > FAR_TAIL, 0.25 * (3.0 * x + np.sqrt(x**2 + 8.0)), near)


def truncated_moments(mean: FloatArray, variance: FloatArray, at_least: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of a normal variable that is known to be at least so large: what a value cut off there says.

    With x = (at_least - mean) / sd and h = hazard(x): mean + sd h, variance (1 + x h - h^2). The mean is never below
    `at_least`. variance > 0.
    """
    deviation = np.sqrt(variance)
    x = (at_least - mean) / deviation
    above = hazard(x)
    return (
        np.maximum(mean + deviation * above, at_least),
        variance * np.clip(1.0 + x * above - above**2, 0.0, 1.0),
    )


def expected_maximum(count: int) -> Callable[[FloatArray], FloatArray]:
    """E max_{i <= G} exp(sigma Z_i) of G independent Z_i, as a function of sigma.

    = G exp(sigma^2 / 2) E[Phi(Z + sigma)^(G-1)], summed over NODES on a grid of sigma and read between its points along
    straight lines in the logarithm. For sigma >= 0 it is >= 1. Raises ValueError if count < 1.
    """
    if count < 1:
        raise ValueError(f"count must be >= 1, got {count}")
    grid_S = np.arange(0.0, MAX_SIGMA + SIGMA_STEP, SIGMA_STEP)
    density_Q = np.exp(-0.5 * NODES**2)
    below_SQ = _distribution(NODES[None, :] + grid_S[:, None]) ** (count - 1)
    log_S = np.log(count * (below_SQ @ density_Q) / density_Q.sum()) + 0.5 * grid_S**2
    log_S -= log_S[0]
    return lambda sigma_N: np.asarray(np.exp(np.interp(sigma_N, grid_S, log_S)))


def _distribution(x: FloatArray) -> FloatArray:
    """Phi(x)."""
    size = np.abs(x)
    tail = np.exp(-0.5 * size**2) / np.sqrt(2.0 * np.pi) * _mills(size)
    return np.asarray(np.where(x >= 0.0, 1.0 - tail, tail))


def _mills(x: FloatArray) -> FloatArray:
    """(1 - Phi(x)) / phi(x) for x >= 0."""
    t = 1.0 / (1.0 + TAIL_RATE * x)
    total: FloatArray = np.zeros_like(t)
    for coefficient in reversed(TAIL_COEFFICIENTS):
        total = (total + coefficient) * t
    return total
