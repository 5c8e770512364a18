"""Prompts whose next group is likely to have a share passed within a band.

Built by `build_policy`. N rows, G rollouts of a group, p the pass rate under the belief.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from predictors.value import band_probability
from selector.policies.base import Policy, check_power


@dataclass(frozen=True, slots=True, kw_only=True)
class Band(Policy):
    """u = P(low ≤ k/G ≤ high)^power, ends included (Bae et al., arXiv 2504.03380; PRIME).

    The method rolls out first and drops groups outside the band; the chance that it would keep one is what can be known
    before. Where no k/G lies in the band, no prompt is preferred.
    """

    low: float
    high: float
    power: float

    def __post_init__(self) -> None:
        check_power(self.power)
        if not 0.0 <= self.low < self.high <= 1.0:
            raise ValueError(f"a band needs 0 <= low < high <= 1, got low {self.low} and high {self.high}")

    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        inside_N = band_probability(beliefs.mean_N, beliefs.variance_N, group_size, self.low, self.high)
        utility_N: np.ndarray = inside_N**self.power
        return utility_N
