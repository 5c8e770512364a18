"""What policies see of prompts beside their beliefs: how often and how lately drawn, whether moving, a feature.

`drawing` reads `row_facts` before a train draw, `engine` looks for the feature at the door. N rows of the pool.
"""

import numpy as np

from selector.beliefs.progress import MIN_GROUPS
from selector.errors import UnknownConfig
from selector.policies.base import RowFacts
from selector.pool import PoolState
from selector.run.state import RunState


def row_facts(state: RunState) -> RowFacts:
    """What the run knows of every prompt beside its belief. Raises UnknownConfig for a feature that the pool lacks."""
    columns = state.rows
    known_N = columns["rated_N"] >= MIN_GROUPS
    last_N = columns["last_draw_N"]
    return RowFacts(
        frame_N=state.frame_N,
        drawn_N=columns["drawn_N"],
        age_N=state.train_draws + 1 - last_N,
        progress_N=np.where(known_N, columns["fast_N"].astype(np.float64) - columns["slow_N"], np.nan),
        feature_N=feature_column(state.pool, state.config.policy.feature),
    )


def feature_column(pool: PoolState, name: str | None) -> np.ndarray:
    """A feature of all prompts, NaN throughout where the policy names none. Raises UnknownConfig naming those there
    are.
    """
    if name is None:
        return np.full(len(pool), np.nan)
    column_N = pool.features.get(name)
    if column_N is None or column_N.ndim != 1:
        raise UnknownConfig(
            f"policy.feature: the prompts of pool {pool.name!r} have no number {name!r}; they have "
            f"{sorted(pool.features) or 'none'}"
        )
    return column_N
