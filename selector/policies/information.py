"""Prompts of which one more rollout is expected to teach the estimator most.

Built by `build_policy`. N rows, G rollouts of a group, p the pass rate under the belief.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from predictors.beta import information_gain
from selector.policies.base import Policy, check_power


@dataclass(frozen=True, slots=True, kw_only=True)
class Information(Policy):
    """u = I(outcome; p)^power, mutual information in nats (part of InSight, arXiv 2603.01907).

    Serves the beliefs and not the training: a prompt known to pass half of the time is worth nothing here, one that was
    never tried is worth most.
    """

    power: float

    def __post_init__(self) -> None:
        check_power(self.power)

    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        utility_N: np.ndarray = information_gain(beliefs.mean_N, beliefs.variance_N) ** self.power
        return utility_N
