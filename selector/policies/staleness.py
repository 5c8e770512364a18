"""Prompts by the rank of their advantages, mixed with how long ago they were drawn.

Built by `build_policy`. N rows, p the pass rate under the belief.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from predictors.value import expected_absolute_advantage
from selector.config import Advantage
from selector.policies.base import FactPolicy, RowFacts, check_power


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness(FactPolicy):
    """u = (1−s)·h/Σh + s·a/Σa over the frame: h = (1/rank of E[|A|])^power, a the train draws since a prompt was last
    drawn, s `staleness` (Prioritized Level Replay, arXiv 2010.03934; power is 1/temperature).

    Ranks and not scores, so that no scale of rewards matters; equal scores share the best of their ranks. The method
    scores a level by the mean size of its advantages, too, those of a value network where ours are the group's.
    """

    advantage: Advantage
    power: float
    staleness: float

    def __post_init__(self) -> None:
        check_power(self.power)
        if not 0.0 <= self.staleness <= 1.0:
            raise ValueError(f"staleness must be in [0, 1], got {self.staleness}")

    def utility(
        self,
        beliefs: Beliefs,
        *,
        group_size: int,
        informative_N: np.ndarray | None = None,
        facts: RowFacts | None = None,
    ) -> np.ndarray:
        seen = facts or RowFacts.none(len(beliefs.mean_N))
        score_N = expected_absolute_advantage(beliefs.mean_N, beliefs.variance_N, group_size, self.advantage)
        rank_N = ranks(score_N, score_N[seen.frame_N])
        share_N = _shares(rank_N.astype(np.float64) ** -self.power, seen.frame_N)
        stale_N = _shares(seen.age_N.astype(np.float64), seen.frame_N)
        utility_N: np.ndarray = (1.0 - self.staleness) * share_N + self.staleness * stale_N
        return utility_N


def ranks(score_N: np.ndarray, among_M: np.ndarray) -> np.ndarray:
    """1 + how many of `among_M` are larger: (N,) int64 >= 1. Scores that differ by rounding alone are the same."""
    scale = np.round(score_N, 12)
    ordered_M = np.sort(np.round(among_M, 12))
    found_N: np.ndarray = 1 + len(ordered_M) - np.searchsorted(ordered_M, scale, side="right")
    return found_N


def _shares(size_N: np.ndarray, frame_N: np.ndarray) -> np.ndarray:
    """Each row's part of the frame's sum."""
    total = float(size_N[frame_N].sum())
    shares_N: np.ndarray = size_N / total if total > 0.0 else np.zeros(len(size_N))
    return shares_N
