"""From beliefs of rewards to what a group is worth: `value`'s functions where there are no passes and failures.

Called by policies. Groups whose rewards are all alike teach nothing; those of the others are taken for normal, which
matters for mean absolute advantages alone. Pure. Axes: N rows; G rollouts in a group.
"""

from math import exp, lgamma, pi, sqrt

import numpy as np

from predictors.base import FloatArray
from predictors.rewards import RewardBeliefs
from predictors.value import AdvantageRule


def expected_squared_advantage(beliefs: RewardBeliefs, group_size: int, rule: AdvantageRule) -> FloatArray:
    """E[(1/G) Σ A²] of a group, as `value.expected_squared_advantage` has it, (N,) >= 0; beliefs: for groups of this
    size.

    grpo: P(informative). dr_grpo: (G - 1)/G times the expected variance among siblings; rloo: G/(G - 1) times it.
    Raises ValueError if group_size < 1.
    """
    _check_group_size(group_size)
    if rule == "grpo":
        return beliefs.informative_N
    if group_size == 1:
        return np.zeros_like(beliefs.variance_N)
    others = (group_size - 1) / group_size
    return beliefs.variance_N / others if rule == "rloo" else beliefs.variance_N * others


def expected_absolute_advantage(beliefs: RewardBeliefs, group_size: int, rule: AdvantageRule) -> FloatArray:
    """E[(1/G) Σ |A|] of a group, (N,) >= 0; beliefs: for groups of this size.

    For normal rewards with standard deviation s the mean of |r - mean| is s sqrt(2 (G - 1) / (pi G)): dr_grpo, and
    times G/(G - 1) rloo. grpo divides it by the group's own deviation, of which it is independent (Basu's theorem), so
    that the mean of the ratio is the ratio of the means: `mean_normal_advantage`. Each times P(informative).
    Raises ValueError if group_size < 1.
    """
    _check_group_size(group_size)
    if group_size == 1:
        return np.zeros_like(beliefs.informative_N)
    if rule == "grpo":
        return beliefs.informative_N * mean_normal_advantage(group_size)
    scale = sqrt(2.0 * (group_size - 1) / (pi * group_size))
    if rule == "rloo":
        scale *= group_size / (group_size - 1)
    return beliefs.informative_N * beliefs.deviation_N * scale


def mean_normal_advantage(group_size: int) -> float:
    """E[(1/G) Σ |r - mean| / sd] of G >= 2 normal rewards, sd without Bessel's correction: 1 at G = 2, sqrt(2/pi) for
    large ones.

    sqrt(2 (G - 1) / (pi G)) over E[sd] = sqrt(2/G) Γ(G/2) / Γ((G - 1)/2).
    """
    log_deviation = lgamma(group_size / 2.0) - lgamma((group_size - 1) / 2.0)
    return sqrt((group_size - 1) / pi) * exp(-log_deviation)


def _check_group_size(group_size: int) -> None:
    if group_size < 1:
        raise ValueError(f"group_size must be >= 1, got {group_size}")
