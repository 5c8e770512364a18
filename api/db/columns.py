"""A pool as columns: the delta that one change of a pool leaves behind, and the fold of all deltas up to a revision.

Written by the import and by quarantine, read by the service to give its engines a pool at any revision. A delta is a
numpy archive without pickles, stored beside its SHA-256, which is checked whenever it is read. It knows no SQL.
"""

import hashlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np

from api.errors import DamagedData
from selector.pool import PoolState
from selector.types import Split

FORMAT = 1  # raised whenever the arrays of a delta change
HASH_BYTES = 32
SPLITS: tuple[str, ...] = tuple(split.name.lower() for split in Split)  # as the database and the contract write them
SPLIT_CODES = {name: code for code, name in enumerate(SPLITS)}


class ChangedPrompt(NamedTuple):
    """One prompt as it stands after a change."""

    row: int
    key: str
    split: str
    category: str | None
    absent: bool
    quarantined: bool
    superseded: bool
    content_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDelta:
    """D prompts after a change; every other prompt is as it was. A superseded prompt is absent as well."""

    rows_D: np.ndarray  # (D,) int64
    keys: Sequence[str]  # (D,)
    split_D: np.ndarray  # (D,) uint8, Split
    category_D: np.ndarray  # (D,) int32, index into `categories`, -1 for none
    categories: tuple[str, ...]
    absent_D: np.ndarray  # (D,) bool
    quarantined_D: np.ndarray  # (D,) bool
    superseded_D: np.ndarray  # (D,) bool
    content_hash_D: np.ndarray  # (D, 32) uint8

    @classmethod
    def of(cls, prompts: Sequence[ChangedPrompt]) -> Self:
        """The delta that says how these prompts stand now."""
        names: dict[str, int] = {}
        category = [-1 if p.category is None else names.setdefault(p.category, len(names)) for p in prompts]
        digests = b"".join([bytes.fromhex(p.content_hash) for p in prompts])
        return cls(
            rows_D=np.array([p.row for p in prompts], np.int64),
            keys=[p.key for p in prompts],
            split_D=np.array([SPLIT_CODES[p.split] for p in prompts], np.uint8),
            category_D=np.array(category, np.int32),
            categories=tuple(names),
            absent_D=np.array([p.absent or p.superseded for p in prompts], bool),
            quarantined_D=np.array([p.quarantined for p in prompts], bool),
            superseded_D=np.array([p.superseded for p in prompts], bool),
            content_hash_D=np.frombuffer(digests, np.uint8).reshape(-1, HASH_BYTES),
        )

    def encode(self) -> tuple[bytes, str]:
        """The delta as bytes, and their SHA-256. A key that is the hash of its content is not written twice."""
        digests = self.content_hash_D.tobytes().hex()
        width = 2 * HASH_BYTES
        own = [digests[width * i : width * (i + 1)] == key for i, key in enumerate(self.keys)]
        key_text, key_ends = _pack(["" if is_hash else key for key, is_hash in zip(self.keys, own, strict=True)])
        category_text, category_ends = _pack(self.categories)
        flags = self.absent_D + 2 * self.quarantined_D + 4 * self.superseded_D + 8 * np.array(own, bool)
        file = io.BytesIO()
        np.savez(
            file,
            format=np.array(FORMAT, np.int64),
            rows=self.rows_D,
            key_text=key_text,
            key_ends=key_ends,
            split=self.split_D,
            category=self.category_D,
            category_text=category_text,
            category_ends=category_ends,
            flags=flags.astype(np.uint8),
            content_hash=self.content_hash_D,
        )
        payload = file.getvalue()
        return payload, hashlib.sha256(payload).hexdigest()

    @classmethod
    def decode(cls, payload: bytes, sha256: str) -> Self:
        """Raises DamagedData if the bytes are not those that were written, or in a form this version does not know."""
        if hashlib.sha256(payload).hexdigest() != sha256:
            raise DamagedData("a stored change of a pool fails its checksum: restore a backup of the database")
        with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
            if int(arrays["format"]) != FORMAT:
                raise DamagedData(f"a stored change of a pool has format {int(arrays['format'])}, known is {FORMAT}")
            flags = arrays["flags"]
            digests = arrays["content_hash"]
            keys = _unpack(arrays["key_text"], arrays["key_ends"])
            for place in np.flatnonzero(flags & 8).tolist():
                keys[place] = digests[place].tobytes().hex()
            return cls(
                rows_D=arrays["rows"],
                keys=keys,
                split_D=arrays["split"],
                category_D=arrays["category"],
                categories=tuple(_unpack(arrays["category_text"], arrays["category_ends"])),
                absent_D=(flags & 1).astype(bool),
                quarantined_D=(flags & 2).astype(bool),
                superseded_D=(flags & 4).astype(bool),
                content_hash_D=digests,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolColumns:
    """All N prompts of a pool at one revision, by row. Rows only ever grow, and a row keeps its key and content."""

    revision: int
    keys: list[str]  # (N,) never changed. Of two equal keys the one that is not superseded is current
    split_N: np.ndarray  # (N,) uint8, Split
    category_N: np.ndarray  # (N,) int32, index into `categories`, -1 for none
    categories: tuple[str, ...]
    absent_N: np.ndarray  # (N,) bool
    quarantined_N: np.ndarray  # (N,) bool
    superseded_N: np.ndarray  # (N,) bool
    content_hash_N: np.ndarray  # (N, 32) uint8

    @classmethod
    def empty(cls) -> Self:
        """The pool before its first import."""
        return cls(
            revision=0,
            keys=[],
            split_N=np.zeros(0, np.uint8),
            category_N=np.zeros(0, np.int32),
            categories=(),
            absent_N=np.zeros(0, bool),
            quarantined_N=np.zeros(0, bool),
            superseded_N=np.zeros(0, bool),
            content_hash_N=np.zeros((0, HASH_BYTES), np.uint8),
        )

    def __len__(self) -> int:
        return len(self.split_N)

    def after(self, deltas: Iterable[PoolDelta], *, revision: int, num_rows: int) -> Self:
        """The pool once `deltas` are applied in order; self is not changed.

        Raises DamagedData if a row that `num_rows` counts is in no delta.
        """
        added = num_rows - len(self)
        keys = self.keys + [""] * added if added else self.keys
        known = np.concatenate([np.ones(len(self), bool), np.zeros(added, bool)])
        split, absent = _grown(self.split_N, added), _grown(self.absent_N, added)
        quarantined, superseded = _grown(self.quarantined_N, added), _grown(self.superseded_N, added)
        category, digests = _grown(self.category_N, added), _grown(self.content_hash_N, added)
        names = {name: code for code, name in enumerate(self.categories)}
        for delta in deltas:
            rows = delta.rows_D
            if len(rows) and int(rows.max()) >= num_rows:
                raise DamagedData(f"a change of revision {revision} names row {int(rows.max())} of {num_rows}")
            # Index -1 is "none" on both sides of the table.
            codes = np.array([names.setdefault(name, len(names)) for name in delta.categories] + [-1], np.int32)
            split[rows], absent[rows], category[rows] = delta.split_D, delta.absent_D, codes[delta.category_D]
            quarantined[rows], superseded[rows] = delta.quarantined_D, delta.superseded_D
            digests[rows] = delta.content_hash_D
            fresh = ~known[rows]
            known[rows] = True
            for place in np.flatnonzero(fresh).tolist():
                keys[int(rows[place])] = delta.keys[place]
        if not known.all():
            raise DamagedData(f"the changes up to revision {revision} lack row {int(np.argmin(known))}")
        return type(self)(
            revision=revision,
            keys=keys,
            split_N=split,
            category_N=category,
            categories=tuple(names),
            absent_N=absent,
            quarantined_N=quarantined,
            superseded_N=superseded,
            content_hash_N=digests,
        )

    def state(self, name: str) -> PoolState:
        """The pool as the engine sees it."""
        return PoolState(
            name=name,
            revision=self.revision,
            keys=self.keys,
            split_N=self.split_N,
            category_N=self.category_N,
            categories=self.categories,
            absent_N=self.absent_N,
            quarantined_N=self.quarantined_N,
        )


def _grown(array: np.ndarray, added: int) -> np.ndarray:
    return np.concatenate([array, np.zeros((added, *array.shape[1:]), array.dtype)])


def _pack(texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Texts as one run of UTF-8 bytes and the place where each ends."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([len(part) for part in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), ends


def _unpack(joined: np.ndarray, ends: np.ndarray) -> list[str]:
    data = joined.tobytes()
    stops = ends.tolist()
    return [data[start:stop].decode() for start, stop in pairwise([0, *stops])]
