"""Prompts whose pass rate is moving, up or down.

Built by `build_policy`. N rows.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from selector.policies.base import FactPolicy, RowFacts, check_power


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(FactPolicy):
    """u = |q_fast − q_slow|^power: two averages of the shares passed, one that forgets sooner than the other
    (Kanitscheider et al., arXiv 2106.14876; TSCL, arXiv 1707.00183, takes the slope).

    Both directions count: a prompt that is being forgotten is worth as much as one that is being learnt. Prompts with
    fewer than two groups show no progress yet and count as the mean of the others, so that they get their turn.
    """

    power: float

    def __post_init__(self) -> None:
        check_power(self.power)

    def utility(
        self,
        beliefs: Beliefs,
        *,
        group_size: int,
        informative_N: np.ndarray | None = None,
        facts: RowFacts | None = None,
    ) -> np.ndarray:
        seen = facts or RowFacts.none(len(beliefs.mean_N))
        worth_N = np.abs(seen.progress_N) ** self.power
        known_N = ~np.isnan(worth_N)
        in_frame_N = worth_N[known_N & seen.frame_N]
        utility_N: np.ndarray = np.where(known_N, worth_N, in_frame_N.mean() if len(in_frame_N) else 1.0)
        return utility_N
