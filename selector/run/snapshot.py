"""A run's whole state as named arrays and one JSON document, and both as checked bytes.

`api` stores snapshots so that a start replays only the tail of the log. Never pickle: arrays are plain numbers in
numpy's own format. A snapshot records the midband, numpy and platform it was made on, as states are bit-identical
only there.

Tickets and rollouts only grow and old ones hardly change. So long columns may be kept beside the snapshot, in chunks
that are named by their content: what the one before had too is not stored again.
"""

import hashlib
import io
import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from selector.config import RunConfig
from selector.errors import SnapshotDamaged
from selector.ledger import Ledger
from selector.pool import PoolState
from selector.run.events import BatchDrawn, RefusedEvidence, event_from_json
from selector.run.state import Checkpoint, DrawnBatch, RunState, make_estimator

SCHEMA = 1
CHUNKED_SCHEMA = 2  # with chunks beside it, which earlier versions could not find
CHUNK_ROWS = 2**16
_BATCH_ARRAYS = (
    "row_K",
    "audit_K",
    "inclusion_K",
    "weight_K",
    "ht_weight_K",
    "credit_K",
    "pass_rate_K",
    "variance_K",
    "informative_K",
    "tokens_K",
)
_PLAIN = ("seq", "branch", "segment_start", "lifecycle_start", "controller_start", "completed", "ever_held")


def pack(
    arrays: Mapping[str, np.ndarray], document: Mapping[str, Any], chunks: dict[str, memoryview] | None = None
) -> bytes:
    """Checksum, then an uncompressed npz of the arrays with the document beside them.

    With `chunks`, every full CHUNK_ROWS rows of a column go there, under their name, and only the rest is packed.
    """
    long = [name for name, array in arrays.items() if array.ndim == 1 and len(array) >= CHUNK_ROWS]
    chunked = {} if chunks is None else {name: _cut(arrays[name], chunks) for name in long}
    rest = {**arrays, **{name: arrays[name][len(names) * CHUNK_ROWS :] for name, names in chunked.items()}}
    more = {"schema": CHUNKED_SCHEMA, "chunked": chunked} if chunked else {"schema": SCHEMA}
    buffer = io.BytesIO()
    text = json.dumps({**document, **more, "made_on": made_on()}, separators=(",", ":")).encode()
    np.savez(buffer, allow_pickle=False, **{"document": np.frombuffer(text, np.uint8)}, **rest)
    body = buffer.getvalue()
    return hashlib.sha256(body).digest() + body


def unpack(data: bytes, chunk: Callable[[str], bytes] | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The inverse of `pack`; `chunk` gives a chunk by its name. Raises SnapshotDamaged for a wrong checksum, another
    schema or a chunk that is not what its name says.
    """
    checksum, body = data[:32], data[32:]
    if hashlib.sha256(body).digest() != checksum:
        raise SnapshotDamaged("the snapshot's checksum does not match its content")
    with np.load(io.BytesIO(body), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    document = json.loads(arrays.pop("document").tobytes())
    schema, chunked = document["schema"], document.pop("chunked", {})
    if schema not in (SCHEMA, CHUNKED_SCHEMA):
        raise SnapshotDamaged(f"the snapshot has schema {schema}, this version reads {SCHEMA} and {CHUNKED_SCHEMA}")
    document["schema"] = SCHEMA
    for name, names in chunked.items():
        if chunk is None:
            raise SnapshotDamaged("the snapshot has chunks beside it, and they are not there")
        arrays[name] = np.concatenate([*(_joinable(chunk(of), of, arrays[name].dtype) for of in names), arrays[name]])
    return arrays, document


def _cut(array: np.ndarray, chunks: dict[str, memoryview]) -> list[str]:
    """Puts the full chunks of a column where they belong; their names, in order."""
    names = []
    for start in range(0, len(array) - CHUNK_ROWS + 1, CHUNK_ROWS):
        part = np.ascontiguousarray(array[start : start + CHUNK_ROWS]).view(np.uint8).data
        names.append(chunk_name(part))
        chunks[names[-1]] = part
    return names


def chunk_name(content: bytes | memoryview) -> str:
    """128 bits of SHA-256."""
    return hashlib.sha256(content).hexdigest()[:32]


def _joinable(content: bytes, name: str, dtype: np.dtype[Any]) -> np.ndarray:
    if chunk_name(content) != name:
        raise SnapshotDamaged(f"chunk {name} of the snapshot is damaged")
    return np.frombuffer(content, dtype)


def made_on() -> dict[str, str]:
    """Where states are bit-identical: the same numpy on the same kind of machine."""
    return {"numpy": np.__version__, "machine": platform.machine(), "system": platform.system()}


def snapshot(state: RunState, *, made_by: str = "", chunks: dict[str, memoryview] | None = None) -> bytes:
    """The whole state, with `chunks` but for what went there. The pool is named by its revision and not stored.
    `made_by`: the midband that made it.
    """
    arrays = {
        **{f"rewindable.{name}": array for name, array in state.rewindable().items()},
        **state.book.state(),
        "revisit_position_N": state.revisit_position_N,
        "quarantined_N": state.quarantined_N,
    }
    for name in _BATCH_ARRAYS:
        columns = [_batch_column(batch.event, name) for batch in state.batches]
        arrays[f"batches.{name}"] = np.concatenate(columns) if columns else np.zeros(0)
    document = {
        "made_by": made_by,
        "run": state.run,
        "config": state.config.to_dict(),
        "config_hash": state.config_hash,
        "pool_revision": state.pool.revision,
        "plain": {name: getattr(state, name) for name in _PLAIN},
        "batches": [_batch_document(batch) for batch in state.batches],
        "ledger": state.ledger.to_json(),
        "steps": list(state.steps.values()),
        "checkpoints": [[c.step, c.branch, c.seq] for c in state.checkpoints],
        "restores": state.restores,
        "alarms": state.alarms,
        "started_from": state.started_from,
        "refused": [asdict(refused) for refusals in state.refused.values() for refused in refusals],
    }
    return pack(arrays, document, chunks)


def restore_snapshot(
    data: bytes, pool: Callable[[int], PoolState], chunk: Callable[[str], bytes] | None = None
) -> RunState:
    """The state again. `pool` gives the pool at a revision, `chunk` a chunk by its name. Raises SnapshotDamaged."""
    arrays, document = unpack(data, chunk)
    try:
        return _state_of(arrays, document, pool(document["pool_revision"]))
    except (KeyError, ValueError, TypeError) as error:
        raise SnapshotDamaged(f"the snapshot cannot be read: {error}") from error


def _state_of(arrays: dict[str, np.ndarray], document: dict[str, Any], pool: PoolState) -> RunState:
    config = RunConfig.from_dict(document["config"])
    state = RunState(
        run=document["run"],
        config=config,
        config_hash=document["config_hash"],
        pool=pool,
        estimator=make_estimator(config),
    )
    state.revisit_position_N = arrays["revisit_position_N"]
    state.quarantined_N = arrays.get("quarantined_N", np.zeros(0, bool))  # none as an older version has it
    state.see_pool(pool)
    state.started_from = document.get("started_from")  # none as an older version has it
    prefix = "rewindable."
    state.rewind({name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)})
    state.book.load_state(arrays)
    np.add.at(state.in_flight_N, state.book.tickets["row"][list(state.book.open)], 1)
    for name in _PLAIN:
        setattr(state, name, document["plain"].get(name, 0))  # 0 as an older version has it
    _load_batches(state, arrays, document["batches"])
    state.ledger = Ledger.from_json(document["ledger"])
    state.steps = {(step["branch"], step["step"]): step for step in document["steps"]}
    state.checkpoints = [Checkpoint(*values) for values in document["checkpoints"]]
    state.restores = document["restores"]
    state.alarms = document["alarms"]
    for values in document["refused"]:
        state.refused.setdefault(values["ticket"], []).append(RefusedEvidence(**values))
    return state


def _batch_column(event: BatchDrawn, name: str) -> np.ndarray:
    column: np.ndarray | None = getattr(event, name)
    return np.full(len(event.row_K), np.nan) if column is None else column


def _batch_document(batch: DrawnBatch) -> dict[str, Any]:
    scalars = {name: value for name, value in batch.event.to_json().items() if name not in _BATCH_ARRAYS}
    return {
        "event": scalars,
        "size": len(batch.event.row_K),
        "has_weight": batch.event.weight_K is not None,
        "seq": batch.seq,
        "first_ticket": batch.first_ticket,
        "alive": batch.alive,
    }


def _load_batches(state: RunState, arrays: Mapping[str, np.ndarray], documents: list[dict[str, Any]]) -> None:
    start = 0
    for ordinal, stored in enumerate(documents):
        stop = start + stored["size"]
        stored_columns = (name for name in _BATCH_ARRAYS if name != "tokens_K")
        columns: dict[str, Any] = {name: arrays[f"batches.{name}"][start:stop] for name in stored_columns}
        if "batches.tokens_K" in arrays:  # which an older version does not have
            tokens_K = arrays["batches.tokens_K"][start:stop]
            columns["tokens_K"] = None if np.isnan(tokens_K).any() else tokens_K
        if not stored["has_weight"]:
            columns["weight_K"] = None
        event = event_from_json(BatchDrawn.kind, {**stored["event"], **columns})
        assert isinstance(event, BatchDrawn)
        batch = DrawnBatch(ordinal, event, stored["seq"], stored["first_ticket"], stored["alive"])
        state.batches.append(batch)
        state.by_branch[event.branch, *batch.key] = ordinal
        if batch.alive:
            state.surviving[batch.key] = ordinal
        start = stop
