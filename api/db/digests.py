"""The chain of digests through a run's log: each entry's stands for its own bytes and for all entries before it.

`api.db.runs` writes and checks it. It guards against damage and against edits of single rows, not against someone who
may write the database and makes the whole chain anew.
"""

import struct
from hashlib import blake2b

from selector.errors import SnapshotDamaged

DIGEST_BYTES = 16
_PLACE = struct.Struct("<qdq")  # seq, unix seconds, length of the kind: where each part ends is part of what is hashed


def chained(before: bytes | None, seq: int, kind: str, at: float, payload: bytes) -> bytes:
    """The digest of an entry. before: that of the entry before it; None where the chain begins."""
    name = kind.encode()
    digest = blake2b(before or b"", digest_size=DIGEST_BYTES)
    digest.update(_PLACE.pack(seq, at, len(name)))
    digest.update(name)
    digest.update(payload)
    return digest.digest()


class Chain:
    """Follows a log entry by entry. The first entries of an old log have no digest; once one has, all have to."""

    def __init__(self, before: bytes | None) -> None:
        """before: digest of the last entry that is taken as read, None if it has none or there is none."""
        self._last = before

    def follow(self, seq: int, kind: str, at: float, payload: bytes, digest: bytes | None) -> None:
        """Raises SnapshotDamaged, naming the entry, for one that is not as it was written."""
        if digest is None and self._last is None:
            return
        if digest is None:
            raise SnapshotDamaged(f"event {seq} has lost its digest")
        if digest != chained(self._last, seq, kind, at, payload):
            raise SnapshotDamaged(f"event {seq} is not as it was written: its digest is that of other bytes")
        self._last = digest
