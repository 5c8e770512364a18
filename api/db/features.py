"""Features of a pool as columns for estimators: what each change of the pool leaves behind, and all of it up to a
revision.

Written by the import beside the deltas of `columns`. Read whole only for runs whose estimator reads features, as they
can be larger than everything else, and a few numbers of them by every audit. They share the table of deltas: parts of
features count down from -1. Pools that were imported by a version without this have none until their rows change.
"""

import hashlib
import io
from collections.abc import Mapping, Sequence

import numpy as np
import orjson
from sqlalchemy import Connection, func, select

from api.db.models import pool_deltas
from api.errors import DamagedData
from predictors.columns import projected

FORMAT = 1  # raised whenever the arrays of a part change
MAX_NAMES = 256  # columns of a pool that estimators are given, the first in the order of their names
NAME_OF_VECTOR = "features"  # a bare vector, to estimators
FEW_BYTES = 2**30  # of a pool's features, which a run holds without having been told to

Columns = dict[str, np.ndarray]  # name -> (N,) float64, or (N, F) float32; NaN where there is none


def add_features(
    connection: Connection, pool_id: int, revision: int, part: int, rows: Sequence[int], texts: Sequence[str | None]
) -> None:
    """Stores the features of rows, JSON as the import keeps it, that a part of a revision changes."""
    columns = _columns_of(texts)
    arrays: dict[str, np.ndarray] = {
        "format": np.array(FORMAT, np.int64),
        "rows": np.asarray(rows, np.int64),
        "names": np.frombuffer(orjson.dumps(list(columns)), np.uint8),
        **{f"column_{place}": column for place, column in enumerate(columns.values())},
    }
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    payload = file.getvalue()
    digest = hashlib.sha256(payload).hexdigest()
    values = {"pool_id": pool_id, "revision": revision, "part": -1 - part, "payload": payload, "sha256": digest}
    connection.execute(pool_deltas.insert().values(values))


def read_features(
    connection: Connection, pool_id: int, revision: int, num_rows: int, *, numbers: int | None = None
) -> Columns:
    """All features of a pool at a revision; with `numbers` so many of them at most, the first by name, and so many
    places of a vector, so that no more is held. Raises DamagedData if a stored part fails its checksum.
    """
    query = (
        select(pool_deltas.c.payload, pool_deltas.c.sha256)
        .where(pool_deltas.c.pool_id == pool_id, pool_deltas.c.revision <= revision, pool_deltas.c.part < 0)
        .order_by(pool_deltas.c.revision, pool_deltas.c.part.desc())
    )
    columns: Columns = {}
    for payload, digest in connection.execute(query):
        rows, changed = _decode(bytes(payload), digest)
        for name in columns:
            columns[name][rows] = np.nan
        for name, whole in changed.items():
            values = whole if whole.ndim == 1 else whole[:, :numbers]
            known = columns.get(name)
            if known is None or known.shape[1:] != values.shape[1:]:  # a pool that was replaced may change lengths
                known = columns[name] = np.full((num_rows, *values.shape[1:]), np.nan, values.dtype)
            known[rows] = values
        if numbers is not None:
            columns = {name: columns[name] for name in sorted(columns)[:numbers]}
    return {name: columns[name] for name in sorted(columns)[:MAX_NAMES]}


def has_few_features(connection: Connection, pool_id: int, revision: int) -> bool:
    """Whether a pool has features at a revision, or had some before, and all of them are stored in FEW_BYTES."""
    stored = select(func.sum(func.length(pool_deltas.c.payload))).where(
        pool_deltas.c.pool_id == pool_id, pool_deltas.c.revision <= revision, pool_deltas.c.part < 0
    )
    return 0 < (connection.execute(stored).scalar_one() or 0) <= FEW_BYTES


def _columns_of(texts: Sequence[str | None]) -> Columns:
    """Numbers as they are; vectors in float32, long ones projected as estimators would."""
    found: dict[str, tuple[list[int], list[float | list[float]]]] = {}
    for place, text in enumerate(texts):
        for name, value in _named(text).items():
            places, values = found.setdefault(name, ([], []))
            places.append(place)
            values.append(value)
    columns: Columns = {}
    for name, (places, values) in found.items():
        numbers = np.array(values, np.float64)
        if numbers.ndim == 2:
            numbers = projected(numbers).astype(np.float32)
        columns[name] = np.full((len(texts), *numbers.shape[1:]), np.nan, numbers.dtype)
        columns[name][places] = numbers
    return columns


def _named(text: str | None) -> Mapping[str, float | list[float]]:
    """The features of a prompt by name."""
    found = orjson.loads(text) if text else {}
    return {NAME_OF_VECTOR: found} if isinstance(found, list) else found


def _decode(payload: bytes, digest: str) -> tuple[np.ndarray, Columns]:
    if hashlib.sha256(payload).hexdigest() != digest:
        raise DamagedData("stored features of a pool fail their checksum: restore a backup of the database")
    with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
        if int(arrays["format"]) != FORMAT:
            raise DamagedData(f"stored features of a pool have format {int(arrays['format'])}, known is {FORMAT}")
        names = orjson.loads(arrays["names"].tobytes())
        return arrays["rows"], {name: arrays[f"column_{place}"] for place, name in enumerate(names)}
