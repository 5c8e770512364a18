"""What was paid for each prompt, and how much of it was never trained on.

`api` calls it for exports, with a copy of a run. Pure; it reads tables and never changes them. N rows, M tickets.
"""

from dataclasses import dataclass

import numpy as np

from selector.run.state import RunState
from selector.types import Purpose, TicketState


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Paid:
    """Tokens by prompt, both (N,) int64."""

    tokens_N: np.ndarray  # of all its rollouts that anybody reported, whatever for
    untrained_N: np.ndarray  # of them, of groups drawn to be trained on that have ended and were not


def paid(state: RunState) -> Paid:
    """Trained on is what a step has named or, as long as none names anything, every group that came back.

    What a restore discarded, an earlier attempt made or a report brought too late was paid for and not trained on.
    """
    table, rows = state.book.tickets, state.book.tickets["row"]
    is_train_T = np.array([batch.event.purpose == Purpose.TRAIN for batch in state.batches], bool)
    is_train_M = is_train_T[table["batch"]] if table.size else np.zeros(0, bool)
    named = [step["trained"] for step in state.steps.values() if step["trained"] is not None]
    trained_M = table["state"] == TicketState.REPORTED
    if named:
        trained_M = np.zeros(table.size, bool)
        trained_M[np.concatenate([np.asarray(one, np.int64) for one in named])] = True
    lost_M = is_train_M & ~trained_M & (table["state"] != TicketState.OPEN)
    other_M = _beside_the_attempt(state)
    untrained_M = np.where(lost_M, table["tokens"], 0) + np.where(is_train_M, other_M, 0)
    return Paid(
        tokens_N=_by_row(rows, table["tokens"] + other_M, state.num_rows),
        untrained_N=_by_row(rows, untrained_M, state.num_rows),
    )


def _beside_the_attempt(state: RunState) -> np.ndarray:
    """(M,) tokens of a ticket's earlier attempts, without further fragments, and of what was refused for it."""
    book = state.book
    tokens_M = np.zeros(book.tickets.size, np.int64)
    ticket_A, size_A = book.past["ticket"], book.tickets["group_size"][book.past["ticket"]]
    slot_B = np.repeat(book.past["slot"] - np.cumsum(size_A) + size_A, size_A) + np.arange(size_A.sum())
    made_B = np.where(book.rollouts["arrived"][slot_B], book.rollouts["tokens"][slot_B], 0)
    np.add.at(tokens_M, np.repeat(ticket_A, size_A), made_B)
    for ticket, refused in state.refused.items():
        tokens_M[ticket] += sum(one.tokens for one in refused)
    return tokens_M


def _by_row(rows_M: np.ndarray, tokens_M: np.ndarray, num_rows: int) -> np.ndarray:
    # Sums of whole numbers as float64 are exact up to 2^53.
    return np.bincount(rows_M, tokens_M, num_rows).astype(np.int64)
