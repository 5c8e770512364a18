"""A run's log as it is sent: lines of JSON, read from the database part by part.

`RunService.events` hands the lines to the answer. Knows no event: what the log holds is sent as it was written.
"""

from collections.abc import Iterator

import orjson
from sqlalchemy import Engine

from api.db import runs as run_queries
from api.db.session import read

EVENTS_PER_PART = 500  # of the log, in one piece of a streamed answer


def event_lines(database: Engine, run_id: int, after: int) -> Iterator[bytes]:
    """The lines after a position, some hundred at a time."""
    position, more = after, True
    while more:
        with read(database) as connection:
            rows = run_queries.read_event_rows(connection, run_id, position, position + EVENTS_PER_PART)
            part = [event_line(seq, kind, at, payload) for seq, kind, at, payload, _ in rows]
        yield b"".join(part)
        position, more = position + EVENTS_PER_PART, len(part) == EVENTS_PER_PART


def event_line(seq: int, kind: str, at: float, payload: bytes) -> bytes:
    """One event of the log as a line of JSON."""
    return b'{"seq":%d,"kind":%b,"at":%b,"event":%b}\n' % (seq, orjson.dumps(kind), orjson.dumps(at), payload)
