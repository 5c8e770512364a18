"""One upload into a pool, in one transaction: all rows that are right, or nothing.

Called by the route in a worker thread. Rows come in chunks, so that memory stays bounded; for each chunk the prompts
that it may be about are looked up, `importing.resolve` decides, and the decisions are written in bulk.

New prompts get row numbers in an order shuffled within their chunk, keyed by pool and revision: neighbours in a file
are often alike, and the sampling design works in blocks of rows that should not be.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, Engine, bindparam, select, update

from api.db.columns import ChangedPrompt
from api.db.features import add_features
from api.db.models import prompts
from api.db.pools import Pool, add_delta, changeable_pool, close_revision, one_of
from api.db.session import write
from api.importing.resolve import Counts, Known, Lookup, Resolver
from api.importing.rows import VECTOR, PromptRow, RowFault, read_row

CHUNK_ROWS = 65_536
CHUNK_BYTES = 2**26  # of texts; rows with long ones come in smaller chunks
WRITTEN_AT_ONCE = 4_096  # rows handed to the driver together
CACHE_KIB = 131_072  # of SQLite's page cache while an upload is written

# What the rules need of a prompt, in the order of `Known`: not its content.
_LOOKED_UP = (
    prompts.c.row, prompts.c.key, prompts.c.content_hash, prompts.c.question_hash, prompts.c.category, prompts.c.split,
    prompts.c.features, prompts.c.parent, prompts.c.meta, prompts.c.absent, prompts.c.superseded, prompts.c.quarantined,
)  # fmt: skip

# What is written of a new one, past SQLAlchemy, whose care for each value takes as long as the database does.
_COLUMNS = (
    "pool_id", "row", "key", "content_hash", "question_hash", "content", "answer", "category", "split", "features",
    "parent", "meta", "absent", "superseded", "quarantined", "replaces_row", "created_revision", "revision",
)  # fmt: skip
_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)
_INSERT = f"INSERT INTO prompts ({_NAMES}) VALUES ({', '.join('?' * len(_COLUMNS))})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOutcome:
    """What an upload did. `revision` is the pool's afterwards; the same as before if nothing changed."""

    revision: int
    counts: Counts
    absent: int
    errors: list[RowFault]
    warnings: list[str]


def import_rows(engine: Engine, name: str, values: Iterable[object], *, replace: bool, at: float) -> ImportOutcome:
    """Applies decoded rows (or RowFaults) to a pool. `replace` marks every prompt absent that no row was about.

    Raises UnknownPool, PoolArchived, and whatever the iterator raises; then nothing was applied.
    """
    chunks = _chunks(values)
    # Read before the transaction begins: most uploads are one chunk, and others wait for as short as can be.
    first = next(chunks, [])
    with write(engine) as connection, _large_cache(connection):
        pool = changeable_pool(connection, name)
        upload = _Upload(connection, pool, replace=replace)
        for chunk in itertools.chain([first], chunks):
            upload.apply(chunk)
        absent = upload.mark_absent() if replace else 0
        revision = upload.close(at)
    resolver = upload.resolver
    return ImportOutcome(
        revision=revision, counts=resolver.counts, absent=absent, errors=resolver.errors, warnings=resolver.warnings()
    )


class _Upload:
    """The transaction's state between chunks."""

    def __init__(self, connection: Connection, pool: Pool, *, replace: bool) -> None:
        self.connection, self.pool, self.replace = connection, pool, replace
        self.revision = pool.revision + 1
        # An upload that replaces the pool may give a feature another length: prompts of the old one become absent.
        lengths = {} if replace else dict(pool.feature_lengths)
        self.resolver = Resolver(num_rows=pool.num_rows, feature_lengths=lengths, replace=replace)
        self.tallies = pool.tallies.copy()
        self.parts = self.num_changed = 0

    def apply(self, rows: Sequence[PromptRow | RowFault]) -> None:
        first = self.resolver.num_rows
        plan = self.resolver.resolve(rows, self._look_up(rows))
        numbers = first + _shuffled(len(plan.created), self.pool.name, self.revision, first)
        for known, row in zip(plan.created, numbers.tolist(), strict=True):
            known.row = row
        # Those that give up a key come before those that take it.
        changed = sorted(plan.changed.values(), key=lambda known: not known.superseded)
        self._update(changed)
        self._insert(plan.created)
        self.tallies.update(plan.tallies)
        self._add_features([*changed, *(known for known in plan.created if known.features)])
        self._add_delta([_changed(known) for known in (*changed, *plan.created)])

    def mark_absent(self) -> int:
        """Marks every current prompt absent that the upload had no row about; returns how many."""
        page = (
            select(*_LOOKED_UP)
            .where(prompts.c.pool_id == self.pool.id, ~prompts.c.superseded, ~prompts.c.absent)
            .where(prompts.c.row > bindparam("last"), prompts.c.row < self.resolver.first_new)
            .order_by(prompts.c.row)
            .limit(CHUNK_ROWS)
        )
        last, total = -1, 0
        while found := self.connection.execute(page, {"last": last}).all():
            last = found[-1].row
            total += self._mark([_known(row) for row in found if not self.resolver.is_mentioned(row.row)])
        return total

    def close(self, at: float) -> int:
        """Makes the new revision current, if there is anything new; returns the pool's revision."""
        if not self.num_changed:
            return self.pool.revision
        close_revision(
            self.connection,
            self.pool,
            kind="replace" if self.replace else "import",
            at=at,
            num_rows=self.resolver.num_rows,
            num_changed=self.num_changed,
            tallies=self.tallies,
            feature_lengths=self._feature_lengths(),
        )
        return self.revision

    def _feature_lengths(self) -> dict[str, int]:
        new, old = self.resolver.feature_lengths, self.pool.feature_lengths
        # After a replacement by the other kind, one vector or named features, the old kind is gone.
        return {**old, **new} if not new or not old or (VECTOR in new) == (VECTOR in old) else new

    def _look_up(self, rows: Sequence[PromptRow | RowFault]) -> Lookup:
        lookup = Lookup()
        if not self.resolver.num_rows:
            return lookup
        keys = list({row.key for row in rows if row.key is not None})
        questions = list({row.question_hash for row in rows if isinstance(row, PromptRow) and row.question_hash})
        pool_id, found = self.pool.id, dict[int, Known]()
        mine = select(*_LOOKED_UP).where(prompts.c.pool_id == pool_id)
        named = one_of(self.connection, prompts.c.key, keys)
        for query in (
            mine.where(~prompts.c.superseded, named),
            mine.where(prompts.c.superseded, named),
            mine.where(one_of(self.connection, prompts.c.question_hash, questions)),
        ):
            for row in self.connection.execute(query):
                if row.row not in found:
                    found[row.row] = _known(row)
        for known in found.values():
            lookup.add(known)
        return lookup

    def _insert(self, created: Sequence[Known]) -> None:
        for start in range(0, len(created), WRITTEN_AT_ONCE):
            values = [self._values(known) for known in created[start : start + WRITTEN_AT_ONCE]]
            if self.connection.dialect.name == "postgresql":
                _copy(self.connection, values)
            else:
                self.connection.exec_driver_sql(_INSERT, values)

    def _values(self, known: Known) -> tuple[object, ...]:
        """A new prompt in the order of _COLUMNS."""
        source = known.source
        assert source is not None
        return (
            self.pool.id,
            known.row,
            known.key,
            known.content_hash,
            known.question_hash,
            source.content,
            source.answer,
            known.category,
            known.split,
            known.features,
            known.parent,
            known.meta,
            False,
            False,
            False,
            known.replaces,
            self.revision,
            self.revision,
        )

    def _update(self, changed: Sequence[Known]) -> None:
        if not changed:
            return
        names = ("category", "split", "features", "parent", "meta", "absent", "superseded")
        statement = (
            update(prompts)
            .where(prompts.c.pool_id == self.pool.id, prompts.c.row == bindparam("at_row"))
            .values(revision=self.revision, **{name: bindparam(f"new_{name}") for name in names})
        )
        values = [{"at_row": k.row, **{f"new_{name}": getattr(k, name) for name in names}} for k in changed]
        self.connection.execute(statement, values)

    def _mark(self, gone: list[Known]) -> int:
        if not gone:
            return 0
        rows = [known.row for known in gone]
        self.connection.execute(
            update(prompts)
            .where(prompts.c.pool_id == self.pool.id, one_of(self.connection, prompts.c.row, rows))
            .values(absent=True, revision=self.revision)
        )
        for known in gone:
            self.tallies[known.cell] -= 1
            known.absent = True
            self.tallies[known.cell] += 1
        self._add_delta([_changed(known) for known in gone])
        return len(gone)

    def _add_features(self, known: Sequence[Known]) -> None:
        """Before the delta of the same part. A pool that never had features keeps having none."""
        if known and self._feature_lengths():
            rows, texts = [k.row for k in known], [k.features for k in known]
            add_features(self.connection, self.pool.id, self.revision, self.parts, rows, texts)

    def _add_delta(self, changed: Sequence[ChangedPrompt]) -> None:
        if changed:
            add_delta(self.connection, self.pool.id, self.revision, self.parts, changed)
            self.parts += 1
            self.num_changed += len(changed)


def _chunks(values: Iterable[object]) -> Iterator[list[PromptRow | RowFault]]:
    chunk: list[PromptRow | RowFault] = []
    num_bytes = 0
    for index, value in enumerate(values):
        row = value if isinstance(value, RowFault) else read_row(index, value)
        chunk.append(row)
        if isinstance(row, PromptRow):
            num_bytes += row.num_bytes
        if len(chunk) == CHUNK_ROWS or num_bytes >= CHUNK_BYTES:
            yield chunk
            chunk, num_bytes = [], 0
    if chunk:
        yield chunk


def _copy(connection: Connection, values: Sequence[tuple[object, ...]]) -> None:
    """PostgreSQL's own way to take rows in bulk: several times faster than statements."""
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy(f"COPY prompts ({_NAMES}) FROM STDIN") as copy:
        for row in values:
            copy.write_row(row)


@contextmanager
def _large_cache(connection: Connection) -> Iterator[None]:
    """Keeps SQLite's indexes in memory while they grow: their keys are hashes, so every row touches another page."""
    if connection.dialect.name != "sqlite":
        yield
        return
    usual = connection.exec_driver_sql("PRAGMA cache_size").scalar_one()
    connection.exec_driver_sql(f"PRAGMA cache_size=-{CACHE_KIB}")
    try:
        yield
    finally:
        connection.exec_driver_sql(f"PRAGMA cache_size={usual}")


def _shuffled(count: int, pool: str, revision: int, first: int) -> np.ndarray:
    """A permutation of 0..count-1 that depends on pool, revision and first row number, and on nothing else."""
    key = hashlib.sha256(f"midband rows 1/{pool}/{revision}/{first}".encode()).digest()[:16]
    generator = np.random.Generator(np.random.Philox(key=np.frombuffer(key, "<u8").astype(np.uint64)))
    return generator.permutation(count)


def _known(row: Any) -> Known:
    return Known(*row)


def _changed(known: Known) -> ChangedPrompt:
    return ChangedPrompt(
        known.row,
        known.key,
        known.split,
        known.category,
        known.absent,
        known.quarantined,
        known.superseded,
        known.content_hash,
    )
