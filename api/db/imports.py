"""One upload into a pool: all rows that are right, or nothing, and nobody waits for it.

Called by the route in a worker thread. First it is decided: rows come in chunks, so that memory stays bounded; for each
chunk the prompts that it may be about are looked up, `importing.resolve` decides, and the decisions are staged beside
the database. Then it is written: new prompts in small transactions, hidden until the last one, which is short, makes
the pool's new revision the current one, and applies what changes in prompts that were there before. Between two
transactions, and while it computes, an upload gives way to the commands of runs.

New prompts are written in the order of their keys, and their questions in the order of those: in any other order, each
row would change other pages of an index, and hundreds of times what is written would go to the disk. They get row
numbers in an order shuffled within a chunk, keyed by pool and revision: neighbours are often alike, and the sampling
design works in blocks of rows that should not be.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from sqlalchemy import Connection, Engine, bindparam, select

from api.db.columns import ChangedPrompt
from api.db.features import add_features
from api.db.models import prompt_questions, prompts
from api.db.pools import HeldPool, add_delta, changeable_pool, changing, close_revision, one_of
from api.db.session import read
from api.db.staging import Staged
from api.importing.known import Known, Lookup
from api.importing.resolve import Counts, Resolver
from api.importing.rows import VECTOR, PromptRow, RowFault, read_row
from api.turns import Turns, paced

CHUNK_ROWS = 16_384
CHUNK_BYTES = 2**26  # of texts; rows with long ones come in smaller chunks
WRITTEN_AT_ONCE = 2_048  # rows in one transaction, which keeps other writers waiting
BYTES_AT_ONCE = 2**20  # of texts in one transaction

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
_QUESTION_COLUMNS = ("pool_id", "question_hash", "row")
_CHANGED_COLUMNS = ("category", "split", "features", "parent", "meta", "absent", "superseded", "revision")

T = TypeVar("T")
Step = Callable[[Connection], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOutcome:
    """What an upload did. `revision` is the pool's afterwards; the same as before if nothing changed."""

    revision: int
    counts: Counts
    absent: int
    errors: list[RowFault]
    warnings: list[str]


def import_rows(
    engine: Engine, name: str, values: Iterable[object], *, replace: bool, at: float, turns: Turns | None = None
) -> ImportOutcome:
    """Applies decoded rows (or RowFaults) to a pool. `replace` marks every prompt absent that no row was about.

    Raises UnknownPool, PoolArchived, Busy while another change of the pool goes on, and whatever the iterator raises;
    then nothing was applied.
    """
    turns = turns or Turns()
    chunks = _chunks(paced(values, turns.pace()))
    # Read before the pool is held: most uploads are one chunk, and other changes wait for as short as can be.
    first = next(chunks, [])
    with changing(engine, name) as held, Staged.opened() as staged:
        upload = _Upload(engine, held, staged, turns, replace=replace)
        for chunk in itertools.chain([first], chunks):
            upload.decide(chunk)
        absent = upload.mark_absent() if replace else 0
        revision = upload.write(at)
    resolver = upload.resolver
    return ImportOutcome(
        revision=revision, counts=resolver.counts, absent=absent, errors=resolver.errors, warnings=resolver.warnings()
    )


class _Upload:
    """The upload's state between chunks."""

    def __init__(self, engine: Engine, held: HeldPool, staged: Staged, turns: Turns, *, replace: bool) -> None:
        self.engine, self.pool, self.transaction = engine, held.pool, held.transaction
        self.staged, self.turns, self.replace = staged, turns, replace
        self.look = turns.pace()
        self.revision = self.pool.revision + 1
        # An upload that replaces the pool may give a feature another length: prompts of the old one become absent.
        lengths = {} if replace else dict(self.pool.feature_lengths)
        self.resolver = Resolver(num_rows=self.pool.num_rows, feature_lengths=lengths, replace=replace)
        self.tallies = self.pool.tallies.copy()
        self.parts = self.num_changed = 0
        self.edited: list[int] = []  # rows of new versions

    # Deciding

    def decide(self, rows: Sequence[PromptRow | RowFault]) -> None:
        plan = self.resolver.resolve(paced(rows, self.look), self._look_up(rows))
        for touched in _in_batches([*plan.changed.values(), *plan.created]):
            self.staged.put(touched)
            self.look()
        self.tallies.update(plan.tallies)

    def mark_absent(self) -> int:
        """Marks every current prompt absent that the upload had no row about; returns how many."""
        page = (
            select(*_LOOKED_UP)
            .where(prompts.c.pool_id == self.pool.id, ~prompts.c.superseded, ~prompts.c.absent)
            .where(prompts.c.row > bindparam("last"), prompts.c.row < self.resolver.first_new)
            .order_by(prompts.c.row)
            .limit(WRITTEN_AT_ONCE)
        )
        last, total = -1, 0
        while True:
            with read(self.engine) as connection:
                found = connection.execute(page, {"last": last}).all()
            if not found:
                return total
            last = found[-1].row
            gone = [_known(row) for row in found if not self.resolver.is_mentioned(row.row)]
            for known in gone:
                self.tallies[known.cell] -= 1
                known.absent = True
                self.tallies[known.cell] += 1
            self.staged.put(gone)
            total += len(gone)
            self.look()

    def _look_up(self, rows: Sequence[PromptRow | RowFault]) -> Lookup:
        lookup, found = Lookup(), dict[int, Known]()
        keys = list({row.key for row in rows if row.key is not None})
        questions = list({row.question_hash for row in rows if isinstance(row, PromptRow) and row.question_hash})
        if self.pool.num_rows:
            self._look_up_stored(found, keys, questions)
        self.staged.overlay(found, keys, questions)
        for known in found.values():
            lookup.add(known)
        return lookup

    def _look_up_stored(self, found: dict[int, Known], keys: list[str], questions: list[str]) -> None:
        mine, asked = select(*_LOOKED_UP).where(prompts.c.pool_id == self.pool.id), prompt_questions.c
        of_question = (asked.pool_id == prompts.c.pool_id) & (asked.row == prompts.c.row)
        with read(self.engine) as connection:
            named = one_of(connection, prompts.c.key, keys)
            for query in (
                mine.where(~prompts.c.superseded, named),
                mine.where(prompts.c.superseded, named),
                mine.join(prompt_questions, of_question).where(
                    asked.pool_id == self.pool.id, one_of(connection, asked.question_hash, questions)
                ),
            ):
                for row in connection.execute(query):
                    if row.row not in found:
                        found[row.row] = _known(row)
                    self.look()

    # Writing

    def write(self, at: float) -> int:
        """Writes what was decided and makes the new revision current, if there is anything new; returns the pool's
        revision."""
        if not self.staged.num_touched:
            return self.pool.revision
        steps = self._steps()
        # A short upload is one transaction.
        last = list(itertools.islice(steps, 4))
        if len(last) == 4:
            for step in itertools.chain(last, steps):
                with self.transaction(hidden=True) as connection:
                    step(connection)
                self.turns.give_way()
            last = []
        with self.transaction() as connection:
            changeable_pool(connection, self.pool.name)  # it may have been archived meanwhile
            for step in last:
                step(connection)
            self._apply_changes(connection)
            close_revision(
                connection,
                self.pool,
                kind="replace" if self.replace else "import",
                at=at,
                num_rows=self.resolver.num_rows,
                num_changed=self.num_changed,
                tallies=self.tallies,
                feature_lengths=self._feature_lengths(),
            )
        return self.revision

    def _steps(self) -> Iterator[Step]:
        """All that stays hidden until the revision is current, each part small enough for a transaction."""
        first = self.pool.num_rows
        for chunk in _in_chunks(self.staged.created()):
            order = _shuffled(len(chunk), self.pool.name, self.revision, first)
            for new, row in zip(chunk, (first + order).tolist(), strict=True):
                new.row = row
            first += len(chunk)
            self.edited += [new.row for new in chunk if new.replaces is not None]
            self.staged.place([(new.question_hash, new.row) for new in chunk if new.question_hash is not None])
            for batch in _in_batches(chunk):
                values = [self._values(new) for new in batch]
                yield partial(_insert, table="prompts", names=_COLUMNS, values=values)
            yield partial(self._add_delta, known=chunk, only_with_features=True)
        for changed in _in_chunks(self.staged.changed()):
            yield partial(self._add_delta, known=changed, only_with_features=False)
        for placed in _in_batches(self.staged.placed()):
            values = [(self.pool.id, question, row) for question, row in placed]
            yield partial(_insert, table="prompt_questions", names=_QUESTION_COLUMNS, values=values)

    def _values(self, new: Known) -> tuple[object, ...]:
        """A new prompt in the order of _COLUMNS. The version before it has the key until the revision is current."""
        return (
            self.pool.id,
            new.row,
            new.key,
            new.content_hash,
            new.question_hash,
            new.content,
            new.answer,
            new.category,
            new.split,
            new.features,
            new.parent,
            new.meta,
            False,
            new.replaces is not None,
            False,
            new.replaces,
            self.revision,
            self.revision,
        )

    def _add_delta(self, connection: Connection, *, known: Sequence[Known], only_with_features: bool) -> None:
        """A part of the revision; its features come first. A pool that never had features keeps having none."""
        featured = [k for k in known if k.features] if only_with_features else known
        if featured and self._feature_lengths():
            # What is absent gives up its features: a vector of the length of before would not fit the others.
            rows, texts = [k.row for k in featured], [None if k.absent else k.features for k in featured]
            add_features(connection, self.pool.id, self.revision, self.parts, rows, texts)
        add_delta(connection, self.pool.id, self.revision, self.parts, [_changed(k) for k in known])
        self.parts += 1
        self.num_changed += len(known)

    def _apply_changes(self, connection: Connection) -> None:
        """What changes in prompts that were there before, those that give up a key first, and who has it now."""
        mark = "%s" if connection.dialect.name == "postgresql" else "?"
        at = f'WHERE pool_id = {mark} AND "row" = {mark}'
        assigned = ", ".join(f'"{name}" = {mark}' for name in _CHANGED_COLUMNS)
        for changed in _in_batches(self.staged.changed()):
            values = [
                (k.category, k.split, k.features, k.parent, k.meta, k.absent, k.superseded, self.revision,
                 self.pool.id, k.row)
                for k in changed
            ]  # fmt: skip
            connection.exec_driver_sql(f"UPDATE prompts SET {assigned} {at}", values)
        if self.edited:
            current = [(False, self.pool.id, row) for row in self.edited]
            connection.exec_driver_sql(f"UPDATE prompts SET superseded = {mark} {at}", current)

    def _feature_lengths(self) -> dict[str, int]:
        new, old = self.resolver.feature_lengths, self.pool.feature_lengths
        # After a replacement by the other kind, one vector or named features, the old kind is gone.
        return {**old, **new} if not new or not old or (VECTOR in new) == (VECTOR in old) else new


def _chunks(values: Iterable[object]) -> Iterator[list[PromptRow | RowFault]]:
    rows = (v if isinstance(v, RowFault) else read_row(place, v) for place, v in enumerate(values))
    return _in_chunks(rows)


def _in_chunks(items: Iterable[T]) -> Iterator[list[T]]:
    return _split(items, CHUNK_ROWS, CHUNK_BYTES)


def _in_batches(items: Iterable[T]) -> Iterator[list[T]]:
    return _split(items, WRITTEN_AT_ONCE, BYTES_AT_ONCE)


def _split(items: Iterable[T], count: int, num_bytes: int) -> Iterator[list[T]]:
    """Lists of so many items, or fewer where what they say passes so many bytes."""
    batch: list[T] = []
    held = 0
    for item in items:
        batch.append(item)
        held += getattr(item, "num_bytes", 0)
        if len(batch) == count or held >= num_bytes:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _insert(connection: Connection, *, table: str, names: Sequence[str], values: Sequence[tuple[object, ...]]) -> None:
    listed = ", ".join(f'"{name}"' for name in names)
    if connection.dialect.name == "postgresql":
        # Its own way to take rows in bulk, several times faster than statements.
        driver: Any = connection.connection.driver_connection
        with driver.cursor() as cursor, cursor.copy(f"COPY {table} ({listed}) FROM STDIN") as copy:
            for row in values:
                copy.write_row(row)
    else:
        marks = ", ".join("?" * len(names))
        connection.exec_driver_sql(f"INSERT INTO {table} ({listed}) VALUES ({marks})", list(values))


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
