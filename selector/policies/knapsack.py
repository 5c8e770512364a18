"""Prompts by the value that Knapsack RL puts on a group of theirs.

Built by `build_policy`. N rows, G rollouts of a group, p the pass rate under the belief.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from predictors.value import knapsack_value
from selector.policies.base import Policy, check_power


@dataclass(frozen=True, slots=True, kw_only=True)
class Knapsack(Policy):
    """u = E[(1−p^G−(1−p)^G)·p(1−p)²]^power (arXiv 2509.25849): prompts that pass a third of the time are worth most.

    The method spends a varying number of rollouts by it; here it says which prompts get a group of the run's size.
    """

    power: float

    def __post_init__(self) -> None:
        check_power(self.power)

    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        utility_N: np.ndarray = knapsack_value(beliefs.mean_N, beliefs.variance_N, group_size) ** self.power
        return utility_N
