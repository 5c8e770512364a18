"""Costs of rollouts between a run's book and its predictor: what came back goes in, what a draw needs comes out.

The fold feeds it, drawing and `api` read it. What a rollout cost is known once its group has closed as reported: tokens
and seconds of all fragments that had arrived by then; those of a fragment that comes later are in the ledger only.
"""

import numpy as np

from predictors.costs import QUANTITIES, RolloutCosts
from selector.config import Per
from selector.run.state import RunState
from selector.run.verdict import COUNTED
from selector.types import RolloutStatus


def rollout_costs(state: RunState, ordinals: np.ndarray) -> RolloutCosts:
    """Scored and truncated rollouts of these tickets. Infrastructure errors say nothing of the prompt. One that was
    truncated would have cost at least as much.
    """
    book, table = state.book, state.book.tickets
    size_B = table["group_size"][ordinals]
    end_B = np.cumsum(size_B)
    within_R = np.arange(end_B[-1] if len(end_B) else 0) - np.repeat(end_B - size_B, size_B)
    slot_R = np.repeat(table["slot"][ordinals], size_B) + within_R
    row_R = np.repeat(table["row"][ordinals], size_B)
    status_R = book.rollouts["status"][slot_R]
    by_reward_R = (status_R == RolloutStatus.REWARDED) & np.repeat(table["rewarded"][ordinals] > 0, size_B)
    counted_R = book.rollouts["arrived"][slot_R] & (np.isin(status_R, COUNTED) | by_reward_R)
    slot_R, row_R = slot_R[counted_R], row_R[counted_R]
    tokens_R = book.rollouts["tokens"][slot_R].astype(np.float64)
    if book.fragments:
        more = [sum(tokens for _, tokens in book.fragments.get(slot, {}).values()) for slot in slot_R.tolist()]
        tokens_R += np.array(more, np.float64)
    return RolloutCosts(
        rows_R=row_R,
        tokens_R=tokens_R,
        seconds_R=book.rollouts["seconds"][slot_R],
        truncated_R=book.rollouts["status"][slot_R] == RolloutStatus.TRUNCATED,
        version_R=state.clock(book.rollouts["version"][slot_R]),
    )


def expected_tokens(state: RunState, rows: np.ndarray) -> np.ndarray | None:
    """Of one rollout of each of these rows, under the policy as it is now; None while nothing is known."""
    return state.costs.mean("tokens", state.clock(state.belief_version), rows)


def expected_costs(state: RunState, rows: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Tokens and seconds of one rollout, for these rows or all; NaN while nothing is known."""
    size = state.num_rows if rows is None else len(rows)
    found = {quantity: state.costs.mean(quantity, state.clock(state.belief_version), rows) for quantity in QUANTITIES}
    return {name: np.full(size, np.nan) if values is None else values for name, values in found.items()}


def group_cost(state: RunState, per: Per | None, group_size: int) -> np.ndarray | None:
    """(N,) what a group of each row is expected to cost in the policy's currency, on a scale that all rows share.

    token: the mean of a rollout, as a group's tokens are their sum. second: the longest of its rollouts, as they run
    side by side. None without a currency, and while nothing is known, so that there is no preference.
    """
    match per:
        case "token":
            return state.costs.mean("tokens", state.clock(state.belief_version))
        case "second":
            return state.costs.maximum("seconds", state.clock(state.belief_version), group_size)
    return None
