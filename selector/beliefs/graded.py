"""P(informative) in a run whose scores may be graded or of any size: read here, and learned from how groups came out.

The fold teaches it, drawing and `api` read it. The belief is of the outcome, which is in [0, 1]; what decides whether a
group is informative is the run's signal, which need not be 0 or 1.
"""

import numpy as np

from predictors.base import Beliefs
from predictors.value import informative_probability
from selector.beliefs.rewarded import with_rewards
from selector.run.state import RunState
from selector.run.verdict import COUNTED
from selector.types import PURPOSE_CODE, Purpose


def expected_informative(
    state: RunState, beliefs: Beliefs, group_size: int, rows: np.ndarray | None = None
) -> np.ndarray:
    """P(informative) of a group of each of these rows, or of all: that of the belief for scores of 0 and 1, shifted by
    what was learned in categories with other scores; that of rewards where there are no outcomes.
    """
    binary_N = informative_probability(beliefs.mean_N, beliefs.variance_N, group_size)
    if not state.ties.graded_C.any():
        return with_rewards(state, binary_N, group_size, rows)
    category_N = state.pool.category_N + 1 if rows is None else state.pool.category_N[rows] + 1
    return with_rewards(state, state.ties.adjusted(binary_N, category_N), group_size, rows)


def learn_ties(state: RunState, ordinals: np.ndarray) -> None:
    """From closed groups that beliefs may see, before the beliefs see them. Where only informative groups are reported,
    or groups are stopped by their outcomes, audit groups alone say how many are.
    """
    table = state.book.tickets
    if state.config.feed == "informative_only" or state.config.policy.wave is not None:
        ordinals = ordinals[table["purpose"][ordinals] == PURPOSE_CODE[Purpose.AUDIT]]
    probes = ordinals[table["purpose"][ordinals] == PURPOSE_CODE[Purpose.PROBE]].tolist()
    stopped = [ticket for ticket in probes if state.batch_of(ticket).event.wave is not None]
    ordinals = ordinals[~np.isin(ordinals, stopped)] if stopped else ordinals
    ordinals = ordinals[table["prior"][ordinals] == 0]  # which are judged by more than they scored
    rows = table["row"][ordinals]
    category_B = state.pool.category_N[rows] + 1
    graded_B = _is_graded(state, ordinals)
    if not (graded_B | state.ties.graded_C[category_B]).any():
        return
    beliefs, size_B = state.beliefs(rows), table["scored"][ordinals]
    binary_B = np.zeros(len(rows))
    for size in np.unique(size_B).tolist():
        of_size = size_B == size
        binary_B[of_size] = informative_probability(beliefs.mean_N[of_size], beliefs.variance_N[of_size], int(size))
    state.ties.observe(binary_B, table["informative"][ordinals] == 1, graded_B, category_B)


def _is_graded(state: RunState, ordinals: np.ndarray) -> np.ndarray:
    """(B,) bool: groups with a score, in the run's signal, other than 0 and 1."""
    table, rollouts = state.book.tickets, state.book.rollouts
    signal = rollouts["outcome" if state.config.signal == "outcome" else "reward"]
    size_B = table["group_size"][ordinals]
    place_R = np.repeat(np.arange(len(ordinals)), size_B)
    slot_R = table["slot"][ordinals][place_R] + np.arange(len(place_R)) - (np.cumsum(size_B) - size_B)[place_R]
    counted_R = rollouts["arrived"][slot_R] & np.isin(rollouts["status"][slot_R], COUNTED)
    score_R = signal[slot_R]
    odd_R = counted_R & np.isfinite(score_R) & (score_R != 0.0) & (score_R != 1.0)
    return np.bincount(place_R, odd_R, len(ordinals)) > 0
