"""Arrivals: how the rollouts of a report enter tickets, prompts' counts and the ledger, and what then closes.

`fold` calls `take_report`, with an event in which everything counts: what does not was left out when it was decided.
Deterministic, as the fold.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from selector.beliefs.rewarded import CountsRewards
from selector.folding.closings import close
from selector.groups import priors
from selector.ledger import whole_microseconds
from selector.run.events import GroupEvidence, RolloutsReported
from selector.run.state import RunState
from selector.run.tickets import hash_id
from selector.run.verdict import COUNTED
from selector.types import PURPOSES, RolloutStatus, Source, TicketState

STATUS_NAME = {status: status.name.lower() for status in RolloutStatus}


def take_report(state: RunState, event: RolloutsReported) -> None:
    """Group by group, a reopened ticket's next attempt after the one before has ended; then what was refused."""
    waiting: list[GroupEvidence] = []
    for group in event.groups:
        if group.reopens:
            _take_in(state, waiting)  # the attempt before may have ended in this report
            waiting = []
            _retry(state, group.ticket, event.deadline)
        waiting.append(group)
    _take_in(state, waiting)
    for refused in event.refused:
        state.refused.setdefault(refused.ticket, []).append(refused)
        state.ledger.add(Source.REJECTED, tokens=refused.tokens, rollouts=refused.code != "report_conflict")
    if event.groups:
        state.last_change = state.seq


def _take_in(state: RunState, groups: Sequence[GroupEvidence]) -> None:
    """Rollouts first, then the closings that they led to."""
    if any(group.n for group in groups):
        _add_rollouts(state, groups)
        priors.hold(state, groups)
    for group in groups:
        if group.decisions:
            state.book.note(group.ticket, group.decisions)
    closed = [(group.ticket, group.closing) for group in groups if group.closing is not None]
    close(state, [ticket for ticket, _ in closed], [closing for _, closing in closed])


def _add_rollouts(state: RunState, groups: Sequence[GroupEvidence]) -> None:
    """All rollouts of a report at once. B of them; one whose slot has arrived is a further fragment of it."""
    table, rollouts = state.book.tickets, state.book.rollouts
    ticket_B = np.repeat([group.ticket for group in groups], [len(group.n) for group in groups])
    slot_B = table["slot"][ticket_B] + np.array(_joined(groups, "n"), np.int64)
    tokens_B = np.array(_joined(groups, "tokens"), np.int64)
    outcomes = _floats(_joined(groups, "outcome"))
    fragments = _joined(groups, "fragment")
    new_B = np.zeros(len(slot_B), bool)
    new_B[np.unique(slot_B, return_index=True)[1]] = True
    new_B &= ~rollouts["arrived"][slot_B]
    for i in np.flatnonzero(~new_B).tolist():
        of_slot = state.book.fragments.setdefault(int(slot_B[i]), {})
        of_slot[fragments[i]] = (float(outcomes[i]), int(tokens_B[i]))
    slots, tickets = slot_B[new_B], ticket_B[new_B]
    status_B = np.array(_joined(groups, "status"), np.uint8)[new_B]
    rollouts["arrived"][slots] = True
    rollouts["fragment"][slots] = np.array(fragments, np.int64)[new_B]
    rollouts["outcome"][slots] = outcomes[new_B]
    rollouts["reward"][slots] = _floats(_joined(groups, "reward"))[new_B]
    rollouts["status"][slots] = status_B
    rollouts["tokens"][slots] = tokens_B[new_B]
    np.add.at(rollouts["seconds"], slot_B, np.array(_joined(groups, "seconds"), np.float64))
    rollouts["version"][slots] = np.array(_joined(groups, "version"), np.int64)[new_B]
    rollouts["id_hash"][slots] = np.array([hash_id(name) for name in _joined(groups, "ids")], np.uint64)[new_B]
    np.add.at(table["arrived"], tickets, 1)
    np.add.at(table["tokens"], ticket_B, tokens_B)
    microseconds_B = whole_microseconds(np.array(_joined(groups, "seconds"), np.float64))
    np.add.at(table["microseconds"], ticket_B, microseconds_B)
    np.add.at(state.rows["rollouts_N"], table["row"][tickets], 1)
    np.add.at(state.rows["errors_N"], table["row"][tickets], status_B == RolloutStatus.ERROR)
    _count(state, ticket_B, tokens_B, microseconds_B, new_B)
    statuses = state.ledger.statuses
    statuses["reported"] += len(slots)
    for status in (RolloutStatus.UNSCORED, RolloutStatus.ERROR, RolloutStatus.TRUNCATED):
        statuses[STATUS_NAME[status]] += int(np.count_nonzero(status_B == status))
    counted = np.isin(status_B, [int(status) for status in COUNTED]) & ~np.isnan(outcomes[new_B])
    statuses["scored"] += int(np.count_nonzero(counted))
    rewarded = np.flatnonzero(status_B == RolloutStatus.REWARDED)
    if len(rewarded):
        counts_B = CountsRewards(state).of_rows(table["row"][tickets[rewarded]])
        counts_B &= ~np.isin(tickets[rewarded], tickets[~np.isnan(outcomes[new_B])])
        counts = int(np.count_nonzero(counts_B))
        statuses["scored"] += counts
        statuses["unscored"] += len(rewarded) - counts


def _count(
    state: RunState, ticket_B: np.ndarray, tokens_B: np.ndarray, microseconds_B: np.ndarray, new_B: np.ndarray
) -> None:
    """Tokens, rollouts and their time to the ledger: under their tickets' purpose, or rejected if those are void."""
    table = state.book.tickets
    void_B = table["state"][ticket_B] == TicketState.VOID
    code_B = np.where(void_B, len(PURPOSES), table["purpose"][ticket_B])
    for code in np.unique(code_B).tolist():
        of_code = code_B == code
        source = Source.REJECTED if code == len(PURPOSES) else Source(PURPOSES[code].value)
        state.ledger.add(
            source,
            tokens=int(tokens_B[of_code].sum()),
            rollouts=int(np.count_nonzero(new_B & of_code)),
            microseconds=int(microseconds_B[of_code].sum()),
        )


def _retry(state: RunState, ticket: int, deadline: float | None) -> None:
    """Begins the next attempt of a void ticket; its prompt is in flight again."""
    book = state.book
    book.begin_attempt(ticket, state.seq)
    state.in_flight_N[book.tickets["row"][ticket]] += 1
    book.tickets["deadline"][ticket] = np.nan if deadline is None else deadline
    if deadline is not None:
        book.next_deadline = min(book.next_deadline, deadline)


def _joined(groups: Sequence[GroupEvidence], name: str) -> list[Any]:
    return [value for group in groups for value in getattr(group, name)]


def _floats(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], np.float64)
