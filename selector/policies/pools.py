"""Prompts by the pool of difficulty that their pass rate puts them in.

Built by `build_policy`. N rows, p the pass rate under the belief.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from selector.policies.base import Policy

OUTSIDE = 0.2
"""Weight of the hard and of the easy pool; the one between them has 1. prime-rl's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools(Policy):
    """u = 1 where low < p ≤ high and OUTSIDE elsewhere, p the mean of the belief (prime-rl, orchestrator/curriculum).

    Thresholds are inclusive from above: a prompt at `low` is hard, one at `high` is not yet easy.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.low < self.high <= 1.0:
            raise ValueError(f"pools need 0 <= low < high <= 1, got low {self.low} and high {self.high}")

    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        return np.where((beliefs.mean_N > self.low) & (beliefs.mean_N <= self.high), 1.0, OUTSIDE)
