"""Prompts whose groups are likely to be informative, as much more often as the claim of the run allows.

Built by `build_policy`. N rows, G rollouts of a group, p the pass rate under the belief.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from predictors.rewards import RewardBeliefs
from predictors.value import expected_outcome_variance, informative_probability, raised
from selector.config import Advantage, Weights
from selector.policies.base import Policy, check_power


@dataclass(frozen=True, slots=True, kw_only=True)
class Midband(Policy):
    """u = P(informative)^power without weights; with weights, the root of the expected squared step, E[g²]^½.

    With weights the expected step is the uniform one whatever the utility, and the variance of the weighted step,
    Σ E[g²]/π, is least at π ∝ E[g²]^½. A GRPO group has unit variance if it is informative and no step otherwise, so
    E[g²] is P(informative); without division by the standard deviation (RLOO, Dr. GRPO) it is E[p(1−p)]. A higher power
    would only add variance. Without weights there is no such limit: nearly all tickets can go to groups that teach.
    """

    weights: Weights
    advantage: Advantage
    power: float

    def __post_init__(self) -> None:
        check_power(self.power)

    @property
    def informative_power(self) -> int | None:
        return int(self.power) if self.weights == "none" and self.power in (1.0, 2.0, 3.0, 4.0) else None

    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        if self.weights != "none" and self.advantage != "grpo":
            return np.sqrt(expected_outcome_variance(beliefs.mean_N, beliefs.variance_N))
        if informative_N is None:
            informative_N = informative_probability(beliefs.mean_N, beliefs.variance_N, group_size)
        if self.weights != "none":
            return np.sqrt(informative_N)
        return raised(informative_N, self.power)

    def reward_utility(self, beliefs: RewardBeliefs, *, group_size: int) -> np.ndarray:
        if self.weights == "none":
            return raised(beliefs.informative_N, self.power)
        if self.advantage == "grpo":
            return np.sqrt(beliefs.informative_N)
        return np.sqrt(beliefs.variance_N)
