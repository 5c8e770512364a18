"""Prompts of middling pass rate again, after a pause and not too often.

Built by `build_policy`. N rows, m the mean of the belief.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from selector.policies.base import FactPolicy, RowFacts

COOLDOWN_DRAWS = 10
"""Least train draws from one to the next that hold a prompt. The method's setting."""

MAX_REUSES = 15
"""Times that a prompt is drawn again, after its first. The method's setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReplay(FactPolicy):
    """u = 1 − |2m − 1| where low ≤ m ≤ high and the prompt may be drawn again, 0 elsewhere (Prompt Replay, arXiv
    2603.21177): tried prompts nearest to one half, with rollouts made afresh.

    A prompt may be so COOLDOWN_DRAWS train draws after its last, at most MAX_REUSES times, and not before its first:
    new ones come in by the floor.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.low < self.high <= 1.0:
            raise ValueError(f"a band needs 0 <= low < high <= 1, got low {self.low} and high {self.high}")

    def utility(
        self,
        beliefs: Beliefs,
        *,
        group_size: int,
        informative_N: np.ndarray | None = None,
        facts: RowFacts | None = None,
    ) -> np.ndarray:
        seen = facts or RowFacts.none(len(beliefs.mean_N))
        may_N = (seen.drawn_N >= 1) & (seen.drawn_N <= MAX_REUSES) & (seen.age_N >= COOLDOWN_DRAWS)
        may_N &= (beliefs.mean_N >= self.low) & (beliefs.mean_N <= self.high)
        return np.where(may_N, 1.0 - np.abs(2.0 * beliefs.mean_N - 1.0), 0.0)
