"""What people can ask of runs by SQL: groups that ended, batches with their counts, and what was spent.

`RunStore` calls it inside the transaction that adds to the log; `api.doctor` compares. Each row is a function of the
run's state, so that what an event changed is written anew and never counted up. Nothing in the service reads it.
"""

from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection, Table

from api.db import projections as queries
from api.db.projections import BATCHES, COSTS, GROUPS, Values
from selector.run.events import (
    BatchDrawn,
    CheckpointMade,
    Event,
    PoolRevised,
    Restored,
    RolloutsReported,
    RunCompleted,
    TicketsExpired,
)
from selector.run.state import RunState
from selector.types import PURPOSES, TicketState, VoidReason

REASONS = {int(reason): None if reason is VoidReason.NONE else reason.name.lower() for reason in VoidReason}


def write(connection: Connection, run_id: int, state: RunState, added: Sequence[Event]) -> None:
    """Brings a run's rows to where its state is, given the last events of its log that led there."""
    first_seq = state.seq - len(added) + 1
    if not queries.step_on(connection, run_id, first_seq - 1, state.seq):
        write_all(connection, run_id, state)
        return
    tickets, batches = _changed(state, added, first_seq)
    table = state.book.tickets
    is_open = table["state"][tickets] == TicketState.OPEN
    queries.remove(connection, GROUPS, run_id, tickets[is_open & (table["attempt"][tickets] > 1)].tolist())
    queries.put(connection, GROUPS, run_id, group_rows(state, tickets[~is_open]))
    queries.put(connection, BATCHES, run_id, batch_rows(state, batches))
    if not all(isinstance(event, (BatchDrawn, CheckpointMade, PoolRevised)) for event in added):
        queries.put(connection, COSTS, run_id, cost_rows(state))


def write_all(connection: Connection, run_id: int, state: RunState) -> None:
    """Makes all rows of a run anew."""
    for table, values in _everything(state).items():
        queries.remove(connection, table, run_id)
        queries.put(connection, table, run_id, values)
    queries.set_projected_seq(connection, run_id, state.seq)


def differing(connection: Connection, run_id: int, state: RunState) -> list[str]:
    """Names of the tables whose rows of a run are not what its state says."""
    return [
        table.name
        for table, values in _everything(state).items()
        if queries.read_rows(connection, table, run_id) != _sorted_rows(table, values)
    ]


def group_rows(state: RunState, tickets: np.ndarray) -> Values:
    """Tickets that have ended, each as its last attempt left it."""
    table = state.book.tickets
    informative = table["informative"][tickets].tolist()
    return {
        "ticket": tickets.tolist(),
        "batch": table["batch"][tickets].tolist(),
        "purpose": [PURPOSES[code].value for code in table["purpose"][tickets].tolist()],
        "prompt_row": table["row"][tickets].tolist(),
        "attempt": table["attempt"][tickets].tolist(),
        "void_reason": [REASONS[reason] for reason in table["reason"][tickets].tolist()],
        "rollouts": table["arrived"][tickets].tolist(),
        "n": (table["scored"][tickets] + table["rewarded"][tickets]).tolist(),
        "k": table["passes"][tickets].tolist(),
        "reward_sum": _reward_sums(state, tickets),
        "informative": [None if verdict < 0 else verdict for verdict in informative],
        "tokens": table["tokens"][tickets].tolist(),
        "seconds": (table["microseconds"][tickets] / 1e6).tolist(),
        "ended_seq": table["ended_seq"][tickets].tolist(),
    }


def batch_rows(state: RunState, ordinals: np.ndarray) -> Values:
    """Batches with how many of their tickets are where."""
    batches, table = [state.batches[ordinal] for ordinal in ordinals.tolist()], state.book.tickets
    spans = [slice(batch.first_ticket, batch.first_ticket + len(batch.event.row_K)) for batch in batches]
    counts = [np.bincount(table["state"][span], minlength=len(TicketState)).tolist() for span in spans]
    informative = [
        int(np.count_nonzero((table["informative"][span] == 1) & (table["state"][span] == TicketState.REPORTED)))
        for span in spans
    ]
    return {
        "batch": ordinals.tolist(),
        "branch": [batch.event.branch for batch in batches],
        "purpose": [str(batch.event.purpose) for batch in batches],
        "draw_index": [batch.event.index for batch in batches],
        "refill": [batch.event.refill for batch in batches],
        "policy_version": [batch.event.policy_version for batch in batches],
        "survives": [batch.alive for batch in batches],
        "tickets": [len(batch.event.row_K) for batch in batches],
        "open": [count[TicketState.OPEN] for count in counts],
        "reported": [count[TicketState.REPORTED] for count in counts],
        "void": [count[TicketState.VOID] for count in counts],
        "informative": informative,
        "drawn_seq": [batch.seq for batch in batches],
    }


def cost_rows(state: RunState) -> Values:
    """Tokens, rollouts and their own time, by where they went."""
    ledger = state.ledger
    return {
        "source": [source.value for source in ledger.tokens],
        "tokens": list(ledger.tokens.values()),
        "rollouts": [ledger.rollouts[source] for source in ledger.tokens],
        "seconds": [ledger.microseconds[source] / 1e6 for source in ledger.tokens],
    }


def _everything(state: RunState) -> dict[Table, Values]:
    ended = np.flatnonzero(state.book.tickets["state"] != TicketState.OPEN)
    batches = np.arange(len(state.batches))
    return {GROUPS: group_rows(state, ended), BATCHES: batch_rows(state, batches), COSTS: cost_rows(state)}


def _sorted_rows(table: Table, values: Values) -> list[tuple[object, ...]]:
    names = [column.name for column in table.c if column.name != "run_id"]
    key = names.index(queries.KEYS[table])
    return sorted(zip(*(values[name] for name in names), strict=True), key=lambda row: row[key])


def _changed(state: RunState, added: Sequence[Event], first_seq: int) -> tuple[np.ndarray, np.ndarray]:
    """Ordinals of the tickets and of the batches whose rows these events may have changed."""
    book = state.book
    tickets, batches = list[np.ndarray](), list[np.ndarray]()
    for event in added:
        if isinstance(event, BatchDrawn):
            ordinal = state.by_branch[event.branch, event.purpose, event.index, event.refill]
            batches.append(np.array([ordinal]))
        elif isinstance(event, RolloutsReported):
            tickets.append(np.array([group.ticket for group in event.groups], np.int64))
        elif isinstance(event, TicketsExpired):
            tickets.append(np.array(event.tickets, np.int64))
        elif isinstance(event, (RunCompleted, Restored)):
            tickets.append(np.flatnonzero(book.tickets["ended_seq"] >= first_seq))
        if isinstance(event, Restored):  # it begins attempts anew, and takes back those that began after its position
            tickets.append(book.past["ticket"][book.past["resumed_seq"] > event.position])
            batches.append(np.arange(len(state.batches)))
    touched = np.unique(np.concatenate([np.zeros(0, np.int64), *tickets]))
    # A batch counts tickets by how they stand: one that was open before and is now, with more in, is where it was.
    standing = book.tickets["state"][touched] != TicketState.OPEN
    moved = touched[standing | (book.tickets["attempt"][touched] > 1)]
    return touched, np.unique(np.concatenate([np.zeros(0, np.int64), *batches, book.tickets["batch"][moved]]))


def _reward_sums(state: RunState, tickets: np.ndarray) -> list[float | None]:
    """Of the rollouts that have a reward, by ticket; None where none has."""
    if not len(tickets):
        return []
    size_B = state.book.tickets["group_size"][tickets].astype(np.int64)
    begin_B = np.cumsum(size_B) - size_B
    place_R = np.arange(int(size_B.sum())) + np.repeat(state.book.tickets["slot"][tickets] - begin_B, size_B)
    reward_R = state.book.rollouts["reward"][place_R]
    known_R = ~np.isnan(reward_R)
    sum_B = np.add.reduceat(np.where(known_R, reward_R, 0.0), begin_B)
    some_B = np.logical_or.reduceat(known_R, begin_B)
    return [total if some else None for total, some in zip(sum_B.tolist(), some_B.tolist(), strict=True)]
