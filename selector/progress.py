"""Whether a prompt's pass rate is moving: two averages of its shares passed, and what else policies see of a prompt.

The fold calls `rate` for groups that the beliefs are shown, `drawing` reads `row_facts`. N rows, B groups.
"""

from collections.abc import Mapping

import numpy as np

from selector.errors import UnknownConfig
from selector.policies.base import RowFacts
from selector.pool import PoolState
from selector.state import RunState

FAST = np.float32(0.5)
"""Weight of the newest group in the average that forgets sooner: half is forgotten with each group."""

SLOW = np.float32(0.1)
"""Its weight in the other: half is forgotten with every six or seven."""

MIN_GROUPS = 2
"""Groups from which there is a difference to speak of."""


def rate(rows: Mapping[str, np.ndarray], rows_B: np.ndarray, share_B: np.ndarray) -> None:
    """Takes groups into both averages, in order; a prompt's first group is what both begin with.

    fast ← fast + FAST·(q − fast), slow likewise. rows: the run's columns, changed in place. rows_B: (B,) int64, repeats
    allowed. share_B: (B,) in [0, 1], k/n of each.
    """
    share_B = share_B.astype(np.float32)
    left = np.arange(len(rows_B))
    while len(left):
        at, first = np.unique(rows_B[left], return_index=True)
        share = share_B[left[first]]
        is_new = rows["rated_N"][at] == 0
        for name, weight in (("fast_N", FAST), ("slow_N", SLOW)):
            before = rows[name][at]
            rows[name][at] = np.where(is_new, share, before + weight * (share - before))
        rows["rated_N"][at] += 1
        left = np.delete(left, first)


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
    if column_N is None:
        raise UnknownConfig(
            f"policy.feature: the prompts of pool {pool.name!r} have no number {name!r}; they have "
            f"{sorted(pool.features) or 'none'}"
        )
    return column_N
