"""A bet against "the mean of each observation, given all before it, is zero": evidence that may be looked at any time.

`selector.audit.contrasts` calls it. Knows numbers and their ranges; nothing of draws. It serves constant nulls alone: a
sequence of such bets for a mean that moves would err (`tests/selector/audit/test_betting.py` shows it).

Axes: T observations, S sides (the mean is above zero, below zero), J stakes.

With λ_i fixed before x_i is seen and 1 + λ_i·x_i >= 0, the capital Π (1 + λ_i·x_i) is a nonnegative martingale under
the null, whatever else moves; by Ville's inequality it ever reaches 1/α with probability α at most (Waudby-Smith and
Ramdas 2024, arXiv 2010.09686, section 4). Here λ_i is a fixed share of the largest stake that the range of x_i allows,
1/|low_i| upwards and 1/high_i downwards; the capital is spread over shares and sides beforehand.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Shares of the largest stake, and how the capital is spread over them: large ones find a large shift soon, small ones
# find a small one at all.
TOP_SHARE = 0.95
SHARE_RATIO = 1.5
NUM_SHARES = 12  # the smallest is a hundredth
TILT = 0.5  # capital ∝ share ** TILT
RANGE_TOLERANCE = 1e-9  # how far outside its range rounding may carry an observation, relative to the range


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Logarithms of capital: 0 at the start, and log(1/α) is where the null falls at level α."""

    log_T: Floats  # (T,) after each observation


def bet_against_zero(x_T: Floats, low_T: Floats, high_T: Floats) -> Evidence:
    """Evidence against a conditional mean of zero throughout.

    x_T: (T,) observations. low_T, high_T: (T,) the range of each, known before it is seen. A range that does not reach
    to both sides of zero allows one observation only, zero; nothing is staked there. O(T·S·J).
    Raises ValueError if shapes differ, a value is not finite, or an observation lies outside its range.
    """
    if not x_T.shape == low_T.shape == high_T.shape or x_T.ndim != 1:
        raise ValueError(f"x_T, low_T and high_T must be (T,) alike, got {x_T.shape}, {low_T.shape}, {high_T.shape}")
    if not (np.isfinite(x_T).all() and np.isfinite(low_T).all() and np.isfinite(high_T).all()):
        raise ValueError("observations and ranges must be finite: leave out what was not observed")
    slack_T = RANGE_TOLERANCE * (np.abs(low_T) + np.abs(high_T))
    wrong = np.flatnonzero((x_T < low_T - slack_T) | (x_T > high_T + slack_T))
    if wrong.size:
        i = int(wrong[0])
        raise ValueError(f"observation {i} is {x_T[i]}, outside its range [{low_T[i]}, {high_T[i]}]")
    if not x_T.size:
        return Evidence(log_T=np.zeros(0))
    share_J = TOP_SHARE * SHARE_RATIO ** -np.arange(NUM_SHARES)
    capital_J = share_J**TILT / (share_J**TILT).sum() / 2
    is_open_T = (low_T < 0) & (high_T > 0)
    log_sides = []
    for reach_T, side_T in ((-low_T, x_T), (high_T, -x_T)):
        gain_T = np.divide(side_T, reach_T, out=np.zeros(x_T.size), where=is_open_T)
        grown_TJ = np.cumsum(np.log1p(np.maximum(np.multiply.outer(gain_T, share_J), -TOP_SHARE)), axis=0)
        log_sides.append(grown_TJ + np.log(capital_J))
    log_TS = np.concatenate(log_sides, axis=1)
    top_T = log_TS.max(axis=1)
    log_T = top_T + np.log(np.exp(log_TS - top_T[:, None]).sum(axis=1))
    return Evidence(log_T=log_T)
