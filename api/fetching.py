"""Bodies of prior rollouts: from the ids that tickets name to what the rollout store has of them.

The service calls it in a worker thread. Knows the run's state and the stored bodies; what is refused is refused before
any body is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import orjson
from sqlalchemy import Connection

from api.db.bodies import read_bodies
from api.errors import BodyTooLarge, Expired, StoreOff, UnknownRollout, shown
from selector.groups.priors import find_slot, read_rollout_name
from selector.run.state import RunState
from selector.types import RolloutStatus

MAX_ANSWER_BYTES = 64 * 2**20
AFRESH = "generate the rollouts of their tickets afresh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A rollout that is held."""

    id: str
    row: int
    slot: int  # in the run's book
    serial: int  # in its store


def find(state: RunState, ids: Sequence[str]) -> list[Wanted]:
    """The rollouts of these ids, in their order.

    Raises StoreOff, UnknownRollout for an id that the run never gave out, Expired if any is no longer held or is of
    weights too old by now, BodyTooLarge for more than one answer may hold.
    """
    bounds = state.config.rollout_store
    if bounds is None:
        raise StoreOff(f"run {state.run!r} keeps no rollouts: begin a run with rollout_store to have them kept")
    found, gone, old, size = list[Wanted](), list[str](), list[str](), 0
    arrived = {text: _arrived(state, text) for text in ids}
    places = state.held.places_of((ticket, attempt, n) for ticket, attempt, n, _ in arrived.values())
    for text in ids:
        ticket, attempt, n, slot = arrived[text]
        place = places.get((ticket, attempt, n))
        if place is None:
            gone.append(text)
            continue
        if state.policy_version - int(state.held["version"][place]) > bounds.max_lag:
            old.append(text)
            continue
        size += int(state.held["size"][place])
        row, serial = int(state.book.tickets["row"][ticket]), int(state.held["serial"][place])
        found.append(Wanted(id=text, row=row, slot=slot, serial=serial))
    if gone:
        raise Expired(f"{len(gone)} of {len(ids)} rollouts are not kept, {shown(gone[0])} for one: {AFRESH}")
    if old:
        version = state.book.rollouts["version"][arrived[old[0]][3]]
        raise Expired(
            f"{len(old)} of {len(ids)} rollouts are too old, {shown(old[0])} of version {version} for one: the run is "
            f"at {state.policy_version} and its rollout_store.max_lag is {bounds.max_lag}; {AFRESH}"
        )
    if size > MAX_ANSWER_BYTES:
        raise BodyTooLarge(
            f"{len(ids)} rollouts have {size} bytes, and an answer {MAX_ANSWER_BYTES}: ask for fewer at a time"
        )
    return found


def answer(connection: Connection, run_id: int, state: RunState, wanted: Sequence[Wanted]) -> bytes:
    """The answer as JSON. Raises Expired where a restore went back to what had been let go of."""
    bodies = read_bodies(connection, run_id, (one.serial for one in wanted))
    gone = [one.id for one in wanted if one.serial not in bodies]
    if gone:
        raise Expired(f"{len(gone)} of {len(wanted)} rollouts are not kept, {shown(gone[0])} for one: {AFRESH}")
    table = state.book.rollouts
    rollouts = [
        {
            "id": one.id,
            "prompt": state.pool.keys[one.row],
            "policy_version": int(table["version"][one.slot]),
            "outcome": float(table["outcome"][one.slot]),
            "reward": None if np.isnan(reward := float(table["reward"][one.slot])) else reward,
            "status": RolloutStatus(int(table["status"][one.slot])).name.lower(),
            "tokens": int(table["tokens"][one.slot]),
            "completion": orjson.Fragment(bodies[one.serial]),
        }
        for one in wanted
    ]
    return orjson.dumps({"rollouts": rollouts})


def _arrived(state: RunState, text: str) -> tuple[int, int, int, int]:
    """Ticket, attempt, number and slot of a rollout that was reported. Raises UnknownRollout."""
    name = read_rollout_name(text)
    if name is not None and name.ticket.run != state.run:
        raise UnknownRollout(f"rollout {shown(text)} is of run {name.ticket.run!r}, not of {state.run!r}")
    ticket = None if name is None else state.find_ticket(name.ticket)
    slot = None if name is None or ticket is None else find_slot(state, ticket, name.attempt, name.n)
    if name is None or ticket is None or slot is None:
        raise UnknownRollout(
            f"run {state.run!r} has no rollout {shown(text)}: ids are those in a ticket's prior_rollouts"
        )
    return ticket, name.attempt, name.n, slot
