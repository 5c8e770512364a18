"""Each entry of a log has a digest of itself and all before it: what was changed and can still be read is noticed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from api.db.digests import DIGEST_BYTES, Chain, chained
from api.doctor import examine
from api.settings import Settings
from selector.errors import SnapshotDamaged
from tests.api.harness import Http, everything, group, in_process, prompts, refused, stored

RUN = "/v1/runs/r"


@dataclass(frozen=True, slots=True)
class Entry:
    seq: int
    kind: str = "batch_drawn"
    at: float = 1.5
    payload: bytes = b"{}"
    digest: bytes | None = None


def written(entries: list[Entry], before: bytes | None = None) -> list[Entry]:
    """The same with the digests that a log would give them."""
    result = list[Entry]()
    for entry in entries:
        before = chained(before, entry.seq, entry.kind, entry.at, entry.payload)
        result.append(replace(entry, digest=before))
    return result


def follow(entries: list[Entry], before: bytes | None = None) -> None:
    chain = Chain(before)
    for entry in entries:
        chain.follow(entry.seq, entry.kind, entry.at, entry.payload, entry.digest)


def test_a_log_as_it_was_written_is_followed_from_any_place() -> None:
    log = written([Entry(seq, payload=b"%d" % seq) for seq in range(1, 6)])
    follow(log)
    for place in range(1, 5):
        follow(log[place:], log[place - 1].digest)
    assert len({entry.digest for entry in log}) == 5
    assert all(entry.digest is not None and len(entry.digest) == DIGEST_BYTES for entry in log)


def test_entries_from_before_there_were_digests_are_taken_as_they_are_and_the_chain_begins_behind_them() -> None:
    old = [Entry(1), Entry(2)]
    new = written([Entry(3), Entry(4)])
    follow(old + new)
    with pytest.raises(SnapshotDamaged, match="event 4 has lost its digest"):
        follow([*old, new[0], replace(new[1], digest=None)])


@given(st.integers(0, 4), st.sampled_from(["seq", "kind", "at", "payload", "digest", "order"]))
def test_an_entry_in_which_anything_was_changed_is_named(place: int, what: str) -> None:
    log = written([Entry(seq, payload=b"%d" % seq) for seq in range(1, 6)])
    other: dict[str, Any] = {
        "seq": 9,
        "kind": "run_begun",
        "at": 1.5000001,
        "payload": b"7",
        "digest": b"x" * DIGEST_BYTES,
    }
    if what == "order":
        log[place], log[place - 1] = (
            replace(log[place], payload=log[place - 1].payload),
            replace(log[place - 1], payload=log[place].payload),
        )
    else:
        log[place] = replace(log[place], **{what: other[what]})
    named = min(entry.seq for entry in (log[place], log[place - 1])) if what == "order" else log[place].seq
    with pytest.raises(SnapshotDamaged, match=f"event {named} is not as it was written"):
        follow(log)


def test_a_byte_moved_from_the_kind_to_what_it_says_changes_the_digest() -> None:
    assert chained(None, 1, "ab", 1.0, b"c") != chained(None, 1, "a", 1.0, b"bc")


def train(http: Http, indices: range) -> None:
    for index in indices:
        batch = http.draw(index, 4, index)
        http.report(*(group(ticket, [1.0, 0.0]) for ticket in batch["tickets"]))


def exchanged(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(payload: bytes) -> bytes:
        assert old in payload
        return payload.replace(old, new, 1)

    return change


CHANGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "an outcome": ("rollouts_reported", exchanged(b'"outcome":[1.0,0.0]', b'"outcome":[1.0,1.0]')),
    "a number of tokens": ("rollouts_reported", exchanged(b'"tokens":[10,10]', b'"tokens":[10,99]')),
    "a policy version": ("batch_drawn", exchanged(b'"policy_version":2', b'"policy_version":1')),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_number_that_was_changed_and_can_still_be_read_stops_the_run_and_names_the_event(
    database_url: str, change: str
) -> None:
    kind, apply = CHANGES[change]
    with in_process(database_url) as http:
        http.pool(prompts(30))
        http.run(group_size=2)
        train(http, range(3))
    with stored(database_url) as connection:
        query = "SELECT seq, payload FROM events WHERE kind = :kind ORDER BY seq DESC LIMIT 1"
        seq, payload = connection.execute(text(query), {"kind": kind}).one()
        where = "WHERE seq = :seq AND run_id = 1"
        values = {"seq": seq, "payload": apply(bytes(payload))}
        connection.execute(text(f"UPDATE events SET payload = :payload {where}"), values)
        connection.execute(text("DELETE FROM snapshots"))  # which else stands behind what was changed
    with in_process(database_url) as http:
        words = ("run 'r'", f"event {seq} is not as it was written", "restore the database from a backup")
        refused(http.send("GET", RUN), 500, "snapshot_damaged", *words)
        body = {"index": 9, "size": 1, "policy_version": 9}
        refused(http.send("POST", f"{RUN}/batches", body), 500, "snapshot_damaged", *words)
    (line,) = (line for line in examine(Settings(database_url=database_url)).lines if line.startswith("WRONG"))
    assert f"event {seq} is not as it was written" in line
    assert "restore a backup" in line


def test_doctor_finds_a_change_that_a_snapshot_stands_behind(sqlite_url: str) -> None:
    with in_process(sqlite_url) as http:
        http.pool(prompts(30))
        http.run(group_size=2)
        train(http, range(3))
        before = everything(http)
    with stored(sqlite_url) as connection:
        connection.execute(text("UPDATE events SET at = at + 1 WHERE seq = 4"))
    with in_process(sqlite_url) as http:
        assert http.info() == before[0]
    (line,) = (line for line in examine(Settings(database_url=sqlite_url)).lines if line.startswith("WRONG"))
    assert "event 4 is not as it was written" in line


def test_a_log_of_a_version_without_digests_is_read_goes_on_and_is_guarded_from_there(database_url: str) -> None:
    with in_process(database_url) as http:
        http.pool(prompts(30))
        http.run(group_size=2)
        train(http, range(2))
        before = everything(http)
    with stored(database_url) as connection:
        connection.execute(text("UPDATE events SET digest = NULL"))
        connection.execute(text("DELETE FROM snapshots"))
    with in_process(database_url) as http:
        assert everything(http) == before
        train(http, range(2, 4))
        before = everything(http)
    settings = Settings(database_url=database_url)
    assert examine(settings).healthy
    with stored(database_url) as connection:
        connection.execute(text("DELETE FROM snapshots"))
    with in_process(database_url) as http:
        assert everything(http) == before
    with stored(database_url) as connection:
        last = connection.execute(text("SELECT max(seq) FROM events")).scalar_one()
        connection.execute(text("UPDATE events SET digest = NULL WHERE seq = :seq"), {"seq": last})
    assert any(f"event {last} has lost its digest" in line for line in examine(settings).lines)
