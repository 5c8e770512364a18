"""Prompts whose pass rate is close to a target.

Built by `build_policy`. N rows, G rollouts of a group, p the pass rate under the belief.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from predictors.value import target_closeness
from selector.policies.base import Policy, check_power


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Policy):
    """u = (1 − E[(p−t)²]/max(t, 1−t)²)^power: 1 at the target, 0 at the pass rate farthest from it.

    MoPPS (arXiv 2507.04632) takes the least (p−t)², BOTS (arXiv 2510.26374) the least |p−t|; the order is theirs where
    the pass rate is taken as known. At t = 1/2 it is E[p(1−p)] times 4.
    """

    target: float
    power: float

    def __post_init__(self) -> None:
        check_power(self.power)
        if not 0.0 <= self.target <= 1.0:
            raise ValueError(f"target must be in [0, 1], got {self.target}")

    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        utility_N: np.ndarray = target_closeness(beliefs.mean_N, beliefs.variance_N, self.target) ** self.power
        return utility_N
