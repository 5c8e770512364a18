"""Prompts by the chance that GRESO keeps one after a run of groups that taught nothing.

Built by `build_policy`. N rows.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from predictors.streak import keep_probability
from selector.policies.base import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep(Policy):
    """u = max(keep^z, 0.01) after z groups in a row that were all right (easy_keep) or all wrong (hard_keep), else 1.

    GRESO (arXiv 2506.02177) moves both numbers by a controller, within [0.05, 0.95]. Beliefs that count no runs, as
    those of prompts never tried, keep every prompt; `build_policy` asks for the estimator that counts them. With
    design `bernoulli` these are the method's own chances.
    """

    easy_keep: float
    hard_keep: float

    def __post_init__(self) -> None:
        for name in ("easy_keep", "hard_keep"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be in (0, 1], got {getattr(self, name)}")

    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        if beliefs.run_N is None:
            return np.ones(len(beliefs.mean_N))
        return keep_probability(beliefs.run_N, easy_base=self.easy_keep, hard_base=self.hard_keep)
