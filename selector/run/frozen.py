"""A copy of what a run has recorded, to be read at leisure while the run goes on.

`api` takes it in the run's turn and computes audits, curves and reports from it in another thread, so that they keep no
draw waiting for longer than the copy takes. Knows the run's state; nothing of what is computed from it.

What only ever grows or is replaced as a whole (events, the pool, recorded steps) is shared; what is written in place is
copied. Beliefs are neither: the copy must not be asked for them.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace

from selector.run.state import DrawnBatch, RunState
from selector.run.tickets import TicketBook

ALL_THAT_IS_READ = ("arrived", "outcome", "status", "tokens")
"""Columns of rollouts that audits, curves and reports read; they are most of a run's memory."""


def frozen(state: RunState, rollouts: Iterable[str] = ALL_THAT_IS_READ) -> RunState:
    """The record of the run as it is now. rollouts: the columns of rollouts to copy; no others can be read."""
    book = TicketBook()
    book.tickets, book.past = state.book.tickets.copied(), state.book.past.copied()
    book.rollouts, book.decisions = state.book.rollouts.copied(rollouts), state.book.decisions.copied()
    return replace(
        state,
        controlled=dict(state.controlled),
        rows={name: column_N.copy() for name, column_N in state.rows.items()},
        in_flight_N=state.in_flight_N.copy(),
        quarantined_N=state.quarantined_N.copy(),
        book=book,
        batches=[DrawnBatch(b.ordinal, b.event, b.seq, b.first_ticket, b.alive) for b in state.batches],
        surviving=dict(state.surviving),
        by_branch={},
        refused={ticket: list(kept) for ticket, kept in state.refused.items()},
        ledger=deepcopy(state.ledger),
        steps=dict(state.steps),
        checkpoints=list(state.checkpoints),
        restores={},
        alarms=dict(state.alarms),
        costs=deepcopy(state.costs),
        heard=state.heard.copy(),
    )
