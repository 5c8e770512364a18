"""Prompts whose difficulty, a number that came with the pool, is close to a target.

Built by `build_policy`. N rows, d the difficulty.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from selector.policies.base import FactPolicy, RowFacts, check_power


@dataclass(frozen=True, slots=True, kw_only=True)
class Difficulty(FactPolicy):
    """u = (1 − |d − t|)^power, d scaled so that the frame's least is 0 and its largest 1 (AdaRFT, arXiv 2504.05520, on
    a scale of 0 to 100).

    The belief is not looked at. A prompt without the number is worth nothing: the floor and the audit draw it. Where
    all have one difficulty, none is preferred.
    """

    feature: str
    target: float
    power: float

    def __post_init__(self) -> None:
        check_power(self.power)
        if not 0.0 <= self.target <= 1.0:
            raise ValueError(f"target must be in [0, 1], got {self.target}")

    def utility(
        self,
        beliefs: Beliefs,
        *,
        group_size: int,
        informative_N: np.ndarray | None = None,
        facts: RowFacts | None = None,
    ) -> np.ndarray:
        seen = facts or RowFacts.none(len(beliefs.mean_N))
        of_frame = seen.feature_N[seen.frame_N & ~np.isnan(seen.feature_N)]
        low, high = (float(of_frame.min()), float(of_frame.max())) if len(of_frame) else (0.0, 0.0)
        if high == low:
            return np.where(np.isnan(seen.feature_N), 0.0, 1.0)
        scaled_N = np.clip((seen.feature_N - low) / (high - low), 0.0, 1.0)
        worth_N = (1.0 - np.abs(scaled_N - self.target)) ** self.power
        utility_N: np.ndarray = np.where(np.isnan(worth_N), 0.0, worth_N)
        return utility_N
