"""Prompts by how large the advantages of their rollouts are expected to be.

Built by `build_policy`. N rows, G rollouts of a group, p the pass rate under the belief.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from predictors.reward_value import expected_absolute_advantage as absolute_advantage_of_rewards
from predictors.rewards import RewardBeliefs
from predictors.value import expected_absolute_advantage
from selector.config import Advantage
from selector.policies.base import Policy, check_power


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsoluteAdvantage(Policy):
    """u = E[|A|]^power, the mean over the rollouts of a group by the run's rule (SEC, arXiv 2505.14970)."""

    advantage: Advantage
    power: float

    def __post_init__(self) -> None:
        check_power(self.power)

    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        absolute_N = expected_absolute_advantage(beliefs.mean_N, beliefs.variance_N, group_size, self.advantage)
        utility_N: np.ndarray = absolute_N**self.power
        return utility_N

    def reward_utility(self, beliefs: RewardBeliefs, *, group_size: int) -> np.ndarray:
        absolute_N = absolute_advantage_of_rewards(beliefs, group_size, self.advantage)
        utility_N: np.ndarray = absolute_N**self.power
        return utility_N
