"""Snapshots and replay: the same state to the bit from the log, from a snapshot and its tail, at every position."""

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from selector.beliefs.warm_start import plan_warm_start
from selector.errors import SnapshotDamaged
from selector.groups.reports import GroupIn
from selector.replay import MemoryArchive, replay
from selector.run.events import EVENTS, event_from_json
from selector.run.snapshot import chunk_name, pack, restore_snapshot, snapshot, unpack
from selector.types import Purpose, VoidReason
from tests.selector.checked_run import fingerprint
from tests.selector.engine_cases import (
    KALMAN,
    Session,
    coin,
    error,
    make_config,
    make_pool,
    numbered,
    rollout,
    rollouts,
    tickets_of,
    what_was_drawn,
)

MIXED = (1.0, 0.0, 0.0, 0.0)
ANSWER = coin(5, np.linspace(0.0, 1.0, 30))


def eventful(**config: Any) -> tuple[Session, list[bytes]]:
    """A run with every kind of event, and its snapshot after each of them."""
    known = make_config(KALMAN, audit_share=0.2, weights="clipped", ticket_ttl_s=60.0, max_lag=6, **config)
    pool = make_pool(24, heldout=[2, 5])
    session, source = Session(known, pool), Session(known, pool, run="before")
    source.answer_batch(source.draw(0, 4), ANSWER)
    snapshots: list[bytes] = [b""] * session.state.seq
    apply = session.apply

    def watched(event: Any) -> None:
        apply(event)
        snapshots.append(snapshot(session.state))

    session.apply = watched  # type: ignore[method-assign]
    snapshots[-1] = snapshot(session.state)
    learned = source.state.rewindable()
    session.apply(
        plan_warm_start(known, known, learned, run="before", step=None, position=source.state.seq, discount=0.5)
    )
    for index in range(3):
        batch = session.draw(index, 4, policy_version=index)
        session.answer_batch(batch, ANSWER)
        session.step(index, index, costs={"update_s": 0.5, "environment_s": {"act": 1.0}}, trained=[session.id(0)])
    session.push(3, value={0: 0.25, 7: 0.5}, entropy={1: 3.0})
    session.draw(0, 2, purpose=Purpose.HELDOUT)
    session.report(12, numbered(n3=1.0, n1=None))
    session.checkpoint(2)
    first = session.draw(3, 4, policy_version=8).first_ticket
    session.report(first, rollouts(*MIXED), version=1)
    session.report(first, [rollout(0.0, id="late", n=None)])
    session.report(first + 1, [rollout(0.5, id="w1"), rollout(0.5, id="w1", fragment=3, tokens=4), error(id="w2")])
    session.report(first + 1, [rollout(0.7, id="w1")])
    session.void(first + 2, VoidReason.ERROR)
    session.report(first + 2, numbered(n0=1.0), attempt=2)
    session.push(8, value={0: 0.75, 9: 0.125})
    session.restore(2, restore_id="a")
    session.revise(make_pool(30, revision=2, absent=[1], heldout=[2, 5]))
    session.draw(3, 4, policy_version=8, divisor=2)
    session.report(session.state.book.tickets.size - 1, rollouts(*MIXED))
    session.configure(audit_share=0.5, weights="none")
    session.draw(4, 20, policy_version=9, allow_repeat=True)
    session.checkpoint(4)
    session.expire(session.now + 70)
    session.restore(4, beliefs="keep", in_flight="void")
    session.draw(4, 3, refill=1)
    session.draw(5, 3)
    session.complete()
    session.restore(4)
    session.draw(0, 2, purpose=Purpose.PROBE)
    return session, snapshots


@cache
def finished() -> tuple[Session, list[bytes]]:
    """The eventful run, to look at and not to go on with."""
    return eventful()


def test_the_eventful_run_has_every_kind_of_event() -> None:
    session, _ = finished()

    assert {event.kind for event in session.log} == set(EVENTS)


def test_replay_gives_the_same_state_to_the_bit_after_every_event() -> None:
    session, snapshots = finished()
    found: list[bytes] = []

    replay(session.log, session.archive, watch=lambda engine: found.append(snapshot(engine.state)))

    assert len(found) == len(snapshots) == session.state.seq
    assert found[1:] == snapshots[1:]


def test_any_snapshot_and_the_tail_of_the_log_give_the_same_state() -> None:
    session, snapshots = finished()

    for stored in snapshots[1::2]:
        assert snapshot(session.resumed(stored).state) == snapshots[-1]


def test_a_snapshot_read_back_is_the_same_snapshot() -> None:
    session, snapshots = finished()

    for stored in snapshots[1:]:
        assert snapshot(restore_snapshot(stored, session.archive.pool)) == stored


def test_nothing_that_a_run_knows_is_left_out_of_its_snapshot() -> None:
    session, snapshots = finished()

    state = restore_snapshot(snapshots[-1], session.archive.pool)

    assert session.state.refused
    assert session.state.book.fragments
    assert session.state.book.past.size
    assert fingerprint(state) == fingerprint(session.state)
    assert [batch.event.to_json() for batch in state.batches] == [b.event.to_json() for b in session.state.batches]


def test_a_run_resumed_from_a_snapshot_goes_on_as_the_other_one() -> None:
    """What no snapshot holds must be worked out anew: prompts in flight, open tickets, deadlines."""
    session, _ = eventful()
    resumed = session.fork()
    for one in (session, resumed):
        one.report(one.state.book.tickets.size - 1, numbered(n1=1.0))
        batch = one.draw(6, 6, policy_version=12)
        for ticket in list(tickets_of(batch))[:3]:
            one.report(ticket, rollouts(*MIXED), version=12)
        one.void(batch.first_ticket + 4, VoidReason.LOST)
        one.report(batch.first_ticket + 4, numbered(n0=0.0), attempt=2)
        one.expire(one.now + 61)
        one.draw(7, 6, policy_version=13)

    assert snapshot(resumed.state) == snapshot(session.state)
    assert [what_was_drawn(batch) for batch in resumed.state.batches] == [
        what_was_drawn(batch) for batch in session.state.batches
    ]
    assert [event.to_json() for event in resumed.log] == [event.to_json() for event in session.log]


def test_the_order_in_which_tickets_reopened_is_not_needed_to_go_on() -> None:
    """Tickets expire in order of issue, also when one was tried again after the others."""
    session = Session(make_config(KALMAN, ticket_ttl_s=60.0))
    session.draw(0, 4)
    session.void(0, VoidReason.ERROR)
    session.report(0, numbered(n0=1.0, n1=0.0), attempt=2)
    for ticket in (1, 2, 3):
        session.report(ticket, numbered(n0=0.0, n1=0.0))
    resumed = session.fork()

    assert session.expire(1060.0) == resumed.expire(1060.0) == [0, 1, 2, 3]
    assert snapshot(resumed.state) == snapshot(session.state)


@pytest.mark.parametrize("where", [0, 31, 32, 200, -1])
def test_a_changed_byte_is_found(where: int) -> None:
    stored = bytearray(snapshot(finished()[0].state))
    stored[where] ^= 1

    with pytest.raises(SnapshotDamaged, match="checksum"):
        restore_snapshot(bytes(stored), lambda revision: make_pool(24))


@pytest.mark.parametrize("length", [0, 10, 32, 1000, -1])
def test_a_truncated_snapshot_is_found(length: int) -> None:
    stored = snapshot(finished()[0].state)[:length]

    with pytest.raises(SnapshotDamaged, match="checksum"):
        restore_snapshot(stored, lambda revision: make_pool(24))


def test_another_schema_is_refused_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selector.run.snapshot.SCHEMA", 99)
    stored = snapshot(Session().state)
    monkeypatch.undo()

    with pytest.raises(SnapshotDamaged, match="schema 99"):
        restore_snapshot(stored, lambda revision: make_pool(8))


def test_a_snapshot_without_a_part_is_refused() -> None:
    session = Session()
    session.draw(0, 2)
    arrays, document = unpack(snapshot(session.state))
    without_column = {name: array for name, array in arrays.items() if name != "tickets.row"}
    without_ledger = {name: value for name, value in document.items() if name != "ledger"}
    wrong_policy = {**document, "config": {**document["config"], "policy": {"preset": "x"}}}

    for parts in ((without_column, document), (arrays, without_ledger), (arrays, wrong_policy)):
        with pytest.raises(SnapshotDamaged):
            restore_snapshot(pack(*parts), session.archive.pool)


def test_a_snapshot_needs_its_own_pool() -> None:
    session = Session(make_config(), make_pool(8))
    session.draw(0, 2)

    with pytest.raises(SnapshotDamaged):
        restore_snapshot(snapshot(session.state), lambda revision: make_pool(5))


def test_a_snapshot_says_where_it_was_made_and_holds_no_pickle() -> None:
    arrays, document = unpack(snapshot(finished()[0].state))

    assert document["made_on"]["numpy"] == np.__version__
    assert all(array.dtype != object for array in arrays.values())
    assert json.dumps(document, allow_nan=False)


def test_a_log_begins_with_its_run() -> None:
    session, _ = finished()

    with pytest.raises(SnapshotDamaged, match="begins with run_begun, this one with pool_revised"):
        replay(session.log[1:], session.archive)
    with pytest.raises(SnapshotDamaged, match="empty"):
        replay([], session.archive)


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        ("weather_seen", {}, "unknown kind 'weather_seen'"),
        ("checkpoint_made", {"branch": 0}, "checkpoint_made event that cannot be read"),
        ("checkpoint_made", {"branch": 0, "step": 1, "mood": 2}, "cannot be read"),
        ("batch_drawn", {"row_K": [1]}, "batch_drawn event that cannot be read"),
        ("rollouts_reported", {"groups": [{}], "refused": []}, "cannot be read"),
    ],
)
def test_an_event_that_cannot_be_read_is_named(kind: str, values: dict[str, Any], words: str) -> None:
    with pytest.raises(SnapshotDamaged, match=words):
        event_from_json(kind, values)


def test_events_come_back_from_their_json_as_they_were() -> None:
    session, _ = finished()

    for event in session.log:
        again = event_from_json(event.kind, json.loads(json.dumps(event.to_json(), allow_nan=False)))
        assert again.to_json() == event.to_json()
        assert type(again) is type(event)


def test_an_archive_sees_what_is_appended_to_its_log() -> None:
    session = Session()
    archive = MemoryArchive(session.pools, session.log)
    session.draw(0, 2)
    session.send(GroupIn(ticket=session.id(0), rollouts=rollouts(*MIXED)))

    rewound = archive.rewound(4)

    assert {name: array.tobytes() for name, array in rewound.items()} == {
        name: array.tobytes() for name, array in session.state.rewindable().items()
    }


def test_long_columns_go_into_chunks_that_are_named_by_their_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selector.run.snapshot.CHUNK_ROWS", 8)
    session, _ = finished()
    chunks = dict[str, memoryview]()

    stored = snapshot(session.state, chunks=chunks)

    assert len(chunks) > 20
    whole = snapshot(session.state)
    arrays, document = unpack(whole)
    joined, same_document = unpack(stored, lambda name: bytes(chunks[name]))
    assert same_document == document
    assert list(joined) == list(arrays)
    assert all(joined[n].dtype == arrays[n].dtype and joined[n].tobytes() == arrays[n].tobytes() for n in arrays)
    again = restore_snapshot(stored, session.archive.pool, lambda name: bytes(chunks[name]))
    assert snapshot(again) == whole


def test_chunks_of_what_did_not_change_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selector.run.snapshot.CHUNK_ROWS", 8)
    session = Session()
    session.draw(0, 8)
    before, after = dict[str, memoryview](), dict[str, memoryview]()
    snapshot(session.state, chunks=before)
    session.draw(1, 8)
    snapshot(session.state, chunks=after)
    rows_of_first = np.ascontiguousarray(session.state.book.tickets["row"][:8])
    assert chunk_name(rows_of_first.tobytes()) in before.keys() & after.keys()


def test_a_chunk_that_is_missing_or_damaged_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selector.run.snapshot.CHUNK_ROWS", 8)
    session, _ = finished()
    chunks = dict[str, memoryview]()
    stored = snapshot(session.state, chunks=chunks)

    with pytest.raises(SnapshotDamaged, match="not there"):
        restore_snapshot(stored, session.archive.pool)
    for content in (b"", b"x" * 64):
        damaged = dict.fromkeys(chunks, content)
        with pytest.raises(SnapshotDamaged, match="chunk"):
            restore_snapshot(stored, session.archive.pool, damaged.__getitem__)
