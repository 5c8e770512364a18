"""Prompts by the size of the step that a group of theirs is expected to make.

Built by `build_policy`. N rows, G rollouts of a group, p the pass rate under the belief.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from predictors.reward_value import expected_squared_advantage as squared_advantage_of_rewards
from predictors.rewards import RewardBeliefs
from predictors.value import expected_squared_advantage
from selector.config import Advantage
from selector.policies.base import Policy, check_power


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient(Policy):
    """u = √E[g²]^power, E[g²] the mean squared advantage: P(informative) for GRPO, else E[p(1−p)] times a constant.

    At power 1 it is what leaves the least variance in a weighted step; the `informative` utility is this one as soon
    as weights are used, and does not look at power then. Assumes that rollouts of all prompts have gradients of like
    size.
    """

    advantage: Advantage
    power: float

    def __post_init__(self) -> None:
        check_power(self.power)

    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        if informative_N is not None and self.advantage == "grpo":
            squared_N = informative_N
        else:
            squared_N = expected_squared_advantage(beliefs.mean_N, beliefs.variance_N, group_size, self.advantage)
        utility_N: np.ndarray = squared_N ** (0.5 * self.power)
        return utility_N

    def reward_utility(self, beliefs: RewardBeliefs, *, group_size: int) -> np.ndarray:
        squared_N = squared_advantage_of_rewards(beliefs, group_size, self.advantage)
        utility_N: np.ndarray = squared_N ** (0.5 * self.power)
        return utility_N
