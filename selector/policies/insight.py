"""Prompts that are of middling difficulty and not yet well known.

Built by `build_policy`. N rows, p the pass rate under the belief, m its mean.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from predictors.beta import information_gain
from selector.policies.base import Policy, check_power


@dataclass(frozen=True, slots=True, kw_only=True)
class Insight(Policy):
    """u = (w(m) · I(outcome; p))^power, I the mutual information in nats (InSight, arXiv 2603.01907).

    w(m) = 4m(1−m), 1 at a half and 0 at the ends: the shape of the method's weight of difficulty could not be found.
    It weighs the belief's mean and draws nothing from it. Prompts sink as they are tried, whatever their difficulty.
    """

    power: float

    def __post_init__(self) -> None:
        check_power(self.power)

    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        weight_N = 4.0 * beliefs.mean_N * (1.0 - beliefs.mean_N)
        utility_N: np.ndarray = (weight_N * information_gain(beliefs.mean_N, beliefs.variance_N)) ** self.power
        return utility_N
