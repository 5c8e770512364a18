"""A confidence sequence that holds for long runs only: narrower than `confidence`, shown beside it, and labelled.

`selector.audit.estimates` and `selector.audit.contrasts` call it. Knows numbers only.

The running mean of T observations plus or minus

    sqrt( 2 (T σ² ρ² + 1) / (T² ρ²) · log( sqrt(T σ² ρ² + 1) / α ) )

covers the running mean of the conditional means at all times with a probability that goes to 1 − α as the first look
comes later (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2024, arXiv 2103.06476, Theorem 2.2 and its form for means
that move; ρ by its equation for the time at which the sequence is to be narrow). Nothing holds for the first few draws.
"""

from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NARROW_AT = 200  # observations at which it is narrowest, as a multiple of the interval for one look
MIN_OBSERVATIONS = 30  # before which it is not shown


def asymptotic_margin(x_T: Floats, guess_T: Floats | float, level: float) -> float | None:
    """Half of the width around the mean of x_T; None while there are fewer than MIN_OBSERVATIONS.

    guess_T: a prediction of each, made before it was seen. σ² is the variance of x − guess, which takes a moving mean
    for noise as far as it was not predicted, and so is too large rather than too small.
    Raises ValueError unless level is in (0, 1).
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), such as 0.95, got {level}")
    count = x_T.size
    if count < MIN_OBSERVATIONS:
        return None
    alpha = 1 - level
    rho_squared = (-2 * log(alpha) + log(-2 * log(alpha) + 1)) / NARROW_AT
    variance = float(np.var(x_T - guess_T))
    if variance == 0:
        return 0.0
    # In units of the standard deviation, so that ρ means the same whatever is measured.
    spread = count * rho_squared + 1
    return sqrt(variance) * sqrt(2 * spread / (count**2 * rho_squared) * log(sqrt(spread) / alpha))
