"""Prompts by the pool of difficulty that their pass rate puts them in.

Built by `build_policy`. N rows, p the pass rate under the belief.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from selector.policies.base import Policy

OUTSIDE = 0.2
"""Weight of the hard and of the easy pool by default; the one between them has 1. prime-rl's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools(Policy):
    """u = 1 where low < p ≤ high, `hard_weight` below and `easy_weight` above, p the mean of the belief (prime-rl,
    orchestrator/curriculum).

    Thresholds are inclusive from above: a prompt at `low` is hard, one at `high` is not yet easy.
    """

    low: float
    high: float
    easy_weight: float = OUTSIDE
    hard_weight: float = OUTSIDE

    def __post_init__(self) -> None:
        if not 0.0 <= self.low < self.high <= 1.0:
            raise ValueError(f"pools need 0 <= low < high <= 1, got low {self.low} and high {self.high}")
        for name in ("easy_weight", "hard_weight"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be in [0, 1], got {getattr(self, name)}")

    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        easy_N, hard_N = beliefs.mean_N > self.high, beliefs.mean_N <= self.low
        return np.where(easy_N, self.easy_weight, np.where(hard_N, self.hard_weight, 1.0))
