"""Prompts by how far their pass rate is below a target.

Built by `build_policy`. N rows, p the pass rate under the belief.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from selector.policies.base import Policy, check_power


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall(Policy):
    """u = exp(power · max(0, t − m)), m the mean of the belief: a softmax over shortfalls at temperature 1/power
    (RuleReasoner, arXiv 2506.08672, over domains, at temperature 0.8).

    Chases what fails, and so what cannot be solved, too: nothing here asks whether a group will differ.
    """

    target: float
    power: float

    def __post_init__(self) -> None:
        check_power(self.power)
        if not 0.0 <= self.target <= 1.0:
            raise ValueError(f"target must be in [0, 1], got {self.target}")

    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        # At most e^0 for the farthest prompt, so that no power leaves the range of floats; only ratios count.
        utility_N: np.ndarray = np.exp(self.power * (np.maximum(self.target - beliefs.mean_N, 0.0) - self.target))
        return utility_N
