"""Going back to a checkpoint: which tickets are lost, which are issued again, what the trainer should ask for next.

`engine` asks which checkpoint is meant, the fold calls `fold_restored`. Beliefs, states, counters, version and step go
back to the checkpoint; costs, tokens, refused evidence, quarantine, pool edits and the configuration do not.
"""

from typing import Any

import numpy as np

from selector.errors import UnknownCheckpoint
from selector.run.events import Restored
from selector.run.state import Checkpoint, RunState
from selector.types import Purpose, Source, TicketState, VoidReason


def find_checkpoint(state: RunState, step: int) -> Checkpoint:
    """The surviving checkpoint of a step. Raises UnknownCheckpoint, naming those that exist."""
    for checkpoint in state.checkpoints:
        if checkpoint.step == step:
            return checkpoint
    steps = [c.step for c in state.checkpoints]
    raise UnknownCheckpoint(f"run {state.run!r} has no checkpoint of step {step}; it has {steps or 'none'}")


def fold_restored(state: RunState, event: Restored) -> None:
    """The restore itself; the answer to the trainer is kept under its restore id."""
    if event.rewound is None:
        raise ValueError("a restored event needs its rewound state attached")
    position = event.position
    lost = _lose_later_batches(state, position)
    state.rewind(event.rewound, beliefs=event.beliefs == "rewind")
    if event.beliefs == "rewind" and position < state.lifecycle_start:
        state.wake_all()  # what rested at the checkpoint did by other rules
    if position < state.controller_start:
        state.begin_controller()  # the numbers at the checkpoint are another policy's
    reissued = _return_open_tickets(state, event)
    for batch in state.batches:
        if batch.alive and _is_freed(state, batch.first_ticket, len(batch.event.row_K), event):
            batch.alive = False
            del state.surviving[batch.key]
    table = state.book.tickets
    state.in_flight_N[:] = 0
    np.add.at(state.in_flight_N, table["row"][list(state.book.open)], 1)
    state.steps = {key: step for key, step in state.steps.items() if step["seq"] <= position}
    state.checkpoints = [c for c in state.checkpoints if c.seq <= position]
    state.branch = event.branch
    state.completed = False
    state.restores[event.restore_id or ""] = answer(state, event, lost, reissued)


def answer(state: RunState, event: Restored, lost: int, reissued: list[int]) -> dict[str, Any]:
    """What the trainer is told."""
    train = [batch for batch in state.batches if batch.alive and batch.event.purpose == Purpose.TRAIN]
    next_index = 1 + max((batch.event.index for batch in train), default=-1)
    table = state.book.tickets
    open_indices = [
        batch.event.index
        for batch in train
        if (table["state"][batch.first_ticket : batch.first_ticket + len(batch.event.row_K)] == TicketState.OPEN).any()
    ]
    return {
        "step": event.step,
        "branch": event.branch,
        "next_index": next_index,
        "resume_from": min(open_indices, default=next_index),
        "lost": lost,
        "reissued": [state.ticket_id(ticket) for ticket in reissued],
    }


def _lose_later_batches(state: RunState, position: int) -> int:
    """Batches drawn after the checkpoint leave the surviving history; their tickets end as lost."""
    table, lost = state.book.tickets, 0
    for batch in state.batches:
        if not batch.alive or batch.seq <= position:
            continue
        batch.alive = False
        del state.surviving[batch.key]
        for ticket in range(batch.first_ticket, batch.first_ticket + len(batch.event.row_K)):
            if table["state"][ticket] != TicketState.VOID:
                lost += 1
                _lose_work(state, ticket)
                _end(state, ticket, VoidReason.LOST, state.seq)
    return lost


def _return_open_tickets(state: RunState, event: Restored) -> list[int]:
    """Tickets open at the checkpoint begin their next attempt, or are voided when the caller wants none back; those
    that were void then and were tried again later are void as before.
    """
    table = state.book.tickets
    alive = np.array([batch.alive for batch in state.batches], bool)[table["batch"]]
    changed = alive & ((table["state"] == TicketState.OPEN) | (table["ended_seq"] > event.position))
    ttl = state.config.ticket_ttl_s
    reissued = []
    for ticket in np.flatnonzero(changed).tolist():
        if table["state"][ticket] != TicketState.VOID:
            _lose_work(state, ticket)
        void_then = state.book.void_at(ticket, event.position)
        if void_then is not None:
            _end(state, ticket, *void_then)
        elif event.in_flight == "void":
            _end(state, ticket, VoidReason.LOST, state.seq)
        else:
            state.book.begin_attempt(ticket, state.seq)
            table["deadline"][ticket] = np.nan if ttl is None else event.at + ttl
            reissued.append(ticket)
    state.book.open = dict.fromkeys(np.flatnonzero(table["state"] == TicketState.OPEN).tolist())
    state.book.find_next_deadline()
    return reissued


def _lose_work(state: RunState, ticket: int) -> None:
    table = state.book.tickets
    state.ledger.move(
        state.source_of(ticket),
        Source.LOST,
        tokens=int(table["tokens"][ticket]),
        rollouts=int(table["arrived"][ticket]),
        microseconds=int(table["microseconds"][ticket]),
    )


def _end(state: RunState, ticket: int, reason: int, seq: int) -> None:
    table = state.book.tickets
    table["state"][ticket] = TicketState.VOID
    table["reason"][ticket] = reason
    table["ended_seq"][ticket] = seq
    state.book.open.pop(ticket, None)


def _is_freed(state: RunState, first: int, count: int, event: Restored) -> bool:
    """A batch whose tickets this restore voided to the last is free to be drawn anew under its index."""
    if event.in_flight != "void" or not count:
        return False
    table = state.book.tickets
    span = slice(first, first + count)
    return bool((table["reason"][span] == VoidReason.LOST).all() and (table["ended_seq"][span] == state.seq).all())
