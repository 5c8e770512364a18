"""What an upload is going to write, kept beside the database until all of it is known.

Called by `imports`. A private SQLite database that is in memory while it is small and in a temporary file otherwise, so
an upload of any size stays within bounded memory and keeps no lock while it is decided. It has each prompt that the
upload makes or changes, as it will be, and gives them back in the order in which the database is best written. It ends
with the upload.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields
from operator import attrgetter
from typing import Self

import numpy as np
import orjson

from api.importing.known import Known

CACHE_KIB = 65_536  # of the staged prompts and their indexes in memory

_COLUMNS = tuple(field.name for field in fields(Known))  # `row` first
# Last. What is looked up again is without them: the upload changes no prompt that it has made.
_TEXTS = ("content", "answer")
_PUT = f"INSERT OR REPLACE INTO touched VALUES ({', '.join('?' * len(_COLUMNS))})"
_LOOKED_UP = ", ".join(f'"{name}"' for name in _COLUMNS[: -len(_TEXTS)])
_ALL = ", ".join(f'"{name}"' for name in _COLUMNS)
_SCHEMA = f"""
PRAGMA journal_mode=OFF;
PRAGMA synchronous=OFF;
PRAGMA cache_size=-{CACHE_KIB};
CREATE TABLE touched ("row" INTEGER PRIMARY KEY, {", ".join(f'"{name}"' for name in _COLUMNS[1:])});
CREATE TABLE placed (question_hash, "row");
"""
# Made when something is looked up for the first time: many uploads have no prompt twice.
_INDEXES = """
CREATE INDEX IF NOT EXISTS touched_key ON touched (key);
CREATE INDEX IF NOT EXISTS touched_question ON touched (question_hash);
"""


class Staged:
    """The prompts that one upload touches. Of one thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._seen = np.zeros(0, np.int64)  # hashes of keys and questions, in order
        self.num_touched = 0

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[Self]:
        # An empty name is a temporary file of its own, made when the cache is full and removed at the end.
        with closing(sqlite3.connect("", isolation_level=None)) as connection:
            connection.executescript(_SCHEMA)
            yield cls(connection)

    def put(self, known: Sequence[Known]) -> None:
        """Keeps how these prompts will stand, in the place of what was kept of them."""
        self._connection.execute("BEGIN")
        self._connection.executemany(_PUT, map(attrgetter(*_COLUMNS), known))
        self._connection.execute("COMMIT")
        self.num_touched += len(known)
        texts = [text for k in known for text in (k.key, k.question_hash) if text is not None]
        self._seen = np.sort(np.concatenate([self._seen, np.sort(_hashes(texts))]), kind="stable")

    def overlay(self, found: dict[int, Known], keys: Sequence[str], questions: Sequence[str]) -> None:
        """Adds to prompts found in the database those that the upload has with one of these keys or questions, or puts
        them in their place."""
        for name, values in (("key", self._maybe(keys)), ("question_hash", self._maybe(questions))):
            if not values:
                continue
            self._connection.executescript(_INDEXES)
            query = f"SELECT {_LOOKED_UP} FROM touched WHERE {name} IN (SELECT value FROM json_each(?))"
            for row in self._connection.execute(query, (orjson.dumps(values).decode(),)):
                known = _known(row)
                found[known.row] = known

    def created(self) -> Iterator[Known]:
        """New prompts, with their texts, in the order of their keys."""
        # The sign keeps an index from being used: it would lead from place to place, and sorting goes straight on.
        query = f"SELECT {_ALL} FROM touched WHERE is_new ORDER BY +key"
        return map(_known, self._connection.execute(query))

    def changed(self) -> Iterator[Known]:
        """Prompts that were there before: those that give up a key come before those that take it."""
        query = f"SELECT {_LOOKED_UP} FROM touched WHERE NOT is_new ORDER BY superseded DESC, row"
        return map(_known, self._connection.execute(query))

    def place(self, rows: Sequence[tuple[str, int]]) -> None:
        """Keeps the questions of new prompts with the rows that these were given."""
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO placed VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")

    def placed(self) -> Iterator[tuple[str, int]]:
        """The same in the order of the questions."""
        yield from self._connection.execute("SELECT * FROM placed ORDER BY question_hash, row")

    def _maybe(self, texts: Sequence[str]) -> list[str]:
        """Those texts that the upload may have as a key or question; the others it has not."""
        if not len(self._seen) or not texts:
            return []
        hashes = _hashes(texts)
        places = np.minimum(np.searchsorted(self._seen, hashes), len(self._seen) - 1)
        return [texts[place] for place in np.flatnonzero(self._seen[places] == hashes).tolist()]


def _hashes(texts: Sequence[str]) -> np.ndarray:
    return np.fromiter(map(hash, texts), np.int64, len(texts))


def _known(row: Sequence[object]) -> Known:
    make: Callable[..., Known] = Known
    known = make(*row)
    # SQLite gives back numbers.
    known.absent, known.superseded = bool(known.absent), bool(known.superseded)
    known.quarantined, known.is_new = bool(known.quarantined), bool(known.is_new)
    return known
