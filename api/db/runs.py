"""Queries on runs, their logs and their snapshots. The log only grows; everything else here can be rebuilt from it.

Called by `api.store`. Knows rows and bytes; what an event means is the core's business.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, bindparam, delete, insert, select, update

from api.db.digests import Chain, chained
from api.db.models import events, pools, runs, snapshots
from predictors.registry import ESTIMATORS
from selector.config import RunConfig
from selector.errors import SnapshotDamaged
from selector.run.events import Event, PoolRevised, Restored, RolloutsReported, event_from_json

FULL, REWIND = "full", "rewind"
CHUNK_NAMES = (
    "chunks"  # kind of the row beside a full snapshot that lists its chunks, each a row whose kind is its name
)
NAME_BYTES = 32
EVENTS_PER_READ = 500
_DIGEST = select(events.c.digest).where(events.c.run_id == bindparam("of_run"), events.c.seq == bindparam("at_seq"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A row of the runs table."""

    id: int
    name: str
    pool_id: int
    request: dict[str, object]
    completed: bool
    last_seq: int  # of the last event of its log
    reads_features: bool  # by its estimator, which never changes, or by the policy that it began with


def insert_run(
    connection: Connection,
    *,
    name: str,
    pool_id: int,
    request: dict[str, object],
    config: dict[str, object],
    config_hash: str,
    at: float,
) -> int:
    """The id of a new run."""
    values = {
        "name": name,
        "pool_id": pool_id,
        "request": orjson.dumps(request).decode(),
        "config": orjson.dumps(config).decode(),
        "config_hash": config_hash,
        "created_at": at,
        "completed": False,
        "last_seq": 0,
    }
    result = connection.execute(insert(runs).values(values).returning(runs.c.id))
    return int(result.scalar_one())


def find_run(connection: Connection, name: str) -> StoredRun | None:
    row = connection.execute(select(runs).where(runs.c.name == name)).mappings().one_or_none()
    return None if row is None else _stored(dict(row))


def begun_with(connection: Connection, run_id: int) -> RunConfig:
    """The configuration that a run began with."""
    return RunConfig.from_dict(
        orjson.loads(connection.execute(select(runs.c.config).where(runs.c.id == run_id)).scalar_one())
    )


def list_runs(connection: Connection, pool_id: int | None = None) -> list[StoredRun]:
    query = select(runs).order_by(runs.c.id)
    if pool_id is not None:
        query = query.where(runs.c.pool_id == pool_id)
    return [_stored(dict(row)) for row in connection.execute(query).mappings()]


def pool_head(connection: Connection, pool_id: int) -> tuple[str, int]:
    """Name and newest revision of a run's pool."""
    row = connection.execute(select(pools.c.name, pools.c.revision).where(pools.c.id == pool_id)).one()
    return str(row.name), int(row.revision)


def set_completed(connection: Connection, run_id: int, completed: bool) -> None:
    connection.execute(update(runs).where(runs.c.id == run_id).values(completed=completed))


def log_length(connection: Connection, run_id: int) -> int:
    """Seq of the last event that was ever written into a run's log."""
    return int(connection.execute(select(runs.c.last_seq).where(runs.c.id == run_id)).scalar_one())


def append_events(connection: Connection, run_id: int, first_seq: int, added: Sequence[Event], at: float) -> None:
    """Adds events at `first_seq` and on, and notes how far the log reaches. The primary key refuses a second writer."""
    rows, digest = list[dict[str, Any]](), read_digest(connection, run_id, first_seq - 1)
    for seq, event in enumerate(added, first_seq):
        payload = _payload(event)
        digest = chained(digest, seq, event.kind, at, payload)
        rows.append({"run_id": run_id, "seq": seq, "kind": event.kind, "at": at, "payload": payload, "digest": digest})
    connection.execute(insert(events), rows)
    connection.execute(update(runs).where(runs.c.id == run_id).values(last_seq=first_seq + len(rows) - 1))


def read_digest(connection: Connection, run_id: int, seq: int) -> bytes | None:
    """Of the event there; None for what was written before there were any, and for no event."""
    digest = connection.execute(_DIGEST, {"of_run": run_id, "at_seq": seq}).scalar()
    return None if digest is None else bytes(digest)


def _payload(event: Event) -> bytes:
    """The event's JSON. Those of reports are plain values in dataclasses throughout, which orjson reads by itself in a
    tenth of the time; the bytes are the same.
    """
    if isinstance(event, RolloutsReported):
        return orjson.dumps({"groups": event.groups, "refused": event.refused, "deadline": event.deadline})
    return orjson.dumps(event.to_json())


def read_events(
    connection: Connection, run_id: int, after: int, upto: int | None = None
) -> Iterator[tuple[int, Event]]:
    """Events with their seq, in order. Raises SnapshotDamaged when the log has a gap, was changed or cannot be read."""
    expected, chain = after + 1, Chain(read_digest(connection, run_id, after))
    for seq, kind, at, payload, digest in read_event_rows(connection, run_id, after, upto):
        if seq != expected:
            raise SnapshotDamaged(f"event {expected} is missing")
        chain.follow(seq, kind, at, payload, digest)
        yield seq, event_from_json(kind, orjson.loads(payload))
        expected += 1


def first_revision(connection: Connection, run_id: int) -> int:
    """Of the pool, when the run began: the second event of every log."""
    query = select(events.c.payload).where(events.c.run_id == run_id, events.c.kind == PoolRevised.kind)
    payload = connection.execute(query.order_by(events.c.seq).limit(1)).scalar_one()
    return int(orjson.loads(bytes(payload))["revision"])


def restored_positions(connection: Connection, run_id: int) -> set[int]:
    """Where in a run's log its restores went back to."""
    query = select(events.c.payload).where(events.c.run_id == run_id, events.c.kind == Restored.kind)
    return {int(orjson.loads(bytes(payload))["position"]) for payload in connection.execute(query).scalars()}


def read_event_rows(
    connection: Connection, run_id: int, after: int, upto: int | None = None
) -> Iterator[tuple[int, str, float, bytes, bytes | None]]:
    """(seq, kind, unix seconds, JSON, digest) of events, fetched in parts."""
    while upto is None or after < upto:
        query = (
            select(events.c.seq, events.c.kind, events.c.at, events.c.payload, events.c.digest)
            .where(events.c.run_id == run_id, events.c.seq > after)
            .order_by(events.c.seq)
            .limit(EVENTS_PER_READ if upto is None else min(EVENTS_PER_READ, upto - after))
        )
        rows = connection.execute(query).all()
        if not rows:
            return
        for row in rows:
            digest = None if row.digest is None else bytes(row.digest)
            yield int(row.seq), str(row.kind), float(row.at), bytes(row.payload), digest
        after = int(rows[-1].seq)


def save_snapshot(connection: Connection, run_id: int, seq: int, kind: str, payload: bytes, at: float) -> None:
    """Stores a snapshot, in the place of one of the same kind and position."""
    where = (snapshots.c.run_id == run_id, snapshots.c.seq == seq, snapshots.c.kind == kind)
    connection.execute(delete(snapshots).where(*where))
    values = {"run_id": run_id, "seq": seq, "kind": kind, "at": at, "payload": payload}
    connection.execute(insert(snapshots).values(**values, sha256=hashlib.sha256(payload).hexdigest()))


def save_chunks(
    connection: Connection, run_id: int, seq: int, chunks: Mapping[str, bytes | memoryview], at: float
) -> None:
    """Stores the chunks of the full snapshot at this position that the run does not have yet, and what they all are."""
    known = _chunk_kinds(connection, run_id)
    for name in chunks.keys() - known:
        save_snapshot(connection, run_id, seq, name, bytes(chunks[name]), at)
    if chunks:
        save_snapshot(connection, run_id, seq, CHUNK_NAMES, "".join(chunks).encode(), at)


def read_chunk(connection: Connection, run_id: int, name: str) -> bytes:
    """A chunk by its name, or nothing: whoever joins chunks looks at their content."""
    query = select(snapshots.c.payload).where(snapshots.c.run_id == run_id, snapshots.c.kind == name)
    payload = connection.execute(query).scalar()
    return b"" if payload is None else bytes(payload)


def prune_chunks(connection: Connection, run_id: int) -> None:
    """Drops chunks that no full snapshot has."""
    drop_other_snapshots(connection, run_id, CHUNK_NAMES, read_snapshot_positions(connection, run_id, FULL))
    query = select(snapshots.c.payload).where(snapshots.c.run_id == run_id, snapshots.c.kind == CHUNK_NAMES)
    kept = set[str]()
    for payload in connection.execute(query).scalars():
        text = bytes(payload).decode()
        kept.update(text[start : start + NAME_BYTES] for start in range(0, len(text), NAME_BYTES))
    for name in _chunk_kinds(connection, run_id) - kept:
        connection.execute(delete(snapshots).where(snapshots.c.run_id == run_id, snapshots.c.kind == name))


def _chunk_kinds(connection: Connection, run_id: int) -> set[str]:
    others = (FULL, REWIND, CHUNK_NAMES)
    query = select(snapshots.c.kind).where(snapshots.c.run_id == run_id, snapshots.c.kind.not_in(others))
    return set(connection.execute(query).scalars())


def read_snapshots(connection: Connection, run_id: int, kind: str, upto: int | None = None) -> list[tuple[int, bytes]]:
    """Snapshots of a kind at or before a position, newest first; those whose bytes are damaged are left out."""
    query = select(snapshots.c.seq, snapshots.c.payload, snapshots.c.sha256)
    query = query.where(snapshots.c.run_id == run_id, snapshots.c.kind == kind)
    if upto is not None:
        query = query.where(snapshots.c.seq <= upto)
    rows = connection.execute(query.order_by(snapshots.c.seq.desc())).all()
    return [
        (int(row.seq), bytes(row.payload))
        for row in rows
        if hashlib.sha256(bytes(row.payload)).hexdigest() == row.sha256
    ]


def read_snapshot_positions(connection: Connection, run_id: int, kind: str) -> list[int]:
    """Where snapshots of a kind are, newest first."""
    query = select(snapshots.c.seq).where(snapshots.c.run_id == run_id, snapshots.c.kind == kind)
    return [int(seq) for seq in connection.execute(query.order_by(snapshots.c.seq.desc())).scalars()]


def drop_other_snapshots(connection: Connection, run_id: int, kind: str, kept: Collection[int]) -> None:
    """Drops snapshots of a kind but those at `kept` positions."""
    where = (snapshots.c.run_id == run_id, snapshots.c.kind == kind, snapshots.c.seq.not_in(kept))
    connection.execute(delete(snapshots).where(*where))


def prune_snapshots(connection: Connection, run_id: int, kind: str, keep_from: int) -> None:
    """Drops snapshots of a kind before a position."""
    connection.execute(
        delete(snapshots).where(snapshots.c.run_id == run_id, snapshots.c.kind == kind, snapshots.c.seq < keep_from)
    )


def _stored(row: dict[str, object]) -> StoredRun:
    return StoredRun(
        id=int(str(row["id"])),
        name=str(row["name"]),
        pool_id=int(str(row["pool_id"])),
        request=orjson.loads(str(row["request"])),
        completed=bool(row["completed"]),
        last_seq=int(str(row["last_seq"])),
        reads_features=reads_features(orjson.loads(str(row["config"]))["policy"]),
    )


def reads_features(policy: Mapping[str, Any]) -> bool:
    """Whether a run with this policy needs its pool's features, which may be larger than all else that it holds."""
    return ESTIMATORS[policy["estimator"]].reads_columns or policy.get("feature") is not None
