"""Prompts by how much the outcome of a rollout varies, which is called learnability.

Built by `build_policy`. N rows, G rollouts of a group, p the pass rate under the belief.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from predictors.rewards import RewardBeliefs
from predictors.value import expected_outcome_variance
from selector.policies.base import Policy, check_power


@dataclass(frozen=True, slots=True, kw_only=True)
class Variance(Policy):
    """u = E[p(1−p)]^power (SFL, arXiv 2408.15099; LILO, arXiv 2502.12272).

    The methods take p̂(1−p̂) of the rollouts of a probe. Under a belief the expectation is m(1−m) − v, so that a prompt
    nothing is known of counts less than one known to pass half of the time.
    """

    power: float

    def __post_init__(self) -> None:
        check_power(self.power)

    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        utility_N: np.ndarray = expected_outcome_variance(beliefs.mean_N, beliefs.variance_N) ** self.power
        return utility_N

    def reward_utility(self, beliefs: RewardBeliefs, *, group_size: int) -> np.ndarray:
        utility_N: np.ndarray = beliefs.variance_N**self.power
        return utility_N
