"""Every query on a pool as a whole: made, found, listed, archived, quarantined, and its columns at any revision.

Called by the routes and the service, from worker threads. What an upload does is in `imports.py`, queries on single
prompts are in `prompts.py`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, Engine, Row, Select, bindparam, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.types import Integer, String, Text

from api.db.changing import Transaction, held, remove_hidden
from api.db.columns import ChangedPrompt, PoolColumns, PoolDelta
from api.db.models import pool_deltas, pool_revisions, pools, prompts
from api.db.session import read, write
from api.errors import PoolArchived, PoolConflict, no_pool, shown
from api.turns import paced

# How many prompts there are by (split, category, absent, quarantined); superseded versions do not count.
Tallies = Counter[tuple[str, str | None, bool, bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool as stored."""

    id: int
    name: str
    description: str | None
    archived: bool
    revision: int
    num_rows: int
    tallies: Tallies
    feature_lengths: dict[str, int]  # feature -> length of its vectors, 0 for a number

    @property
    def num_prompts(self) -> int:
        """Prompts that are there: neither absent nor superseded."""
        return sum(n for (_, _, absent, _), n in self.tallies.items() if not absent)

    def counts(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """(by split, by category, by state) of the prompts that are there; absent ones stand under their state."""
        splits, categories = {"train": 0, "heldout": 0}, Counter[str]()
        states = {"quarantined": 0, "absent": 0}
        for (split, category, absent, quarantined), n in self.tallies.items():
            if absent:
                states["absent"] += n
                continue
            splits[split] += n
            states["quarantined"] += n if quarantined else 0
            if category is not None:
                categories[category] += n
        return splits, dict(sorted(categories.items())), states


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPool:
    """A pool that nobody else changes, as it stands, and what opens each transaction that writes the change."""

    pool: Pool
    transaction: Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """What a call of quarantine did; `unknown` are the keys that no prompt has."""

    revision: int
    changed: int
    unchanged: int
    unknown: list[str]


def create_pool(engine: Engine, name: str, description: str | None, *, at: float) -> tuple[Pool, bool]:
    """The pool, and whether it was made just now. A description that is not given does not conflict.

    Raises PoolConflict or PoolArchived for a name that is taken.
    """
    values = {
        "name": name,
        "description": description,
        "created_at": at,
        "archived": False,
        "revision": 0,
        "num_rows": 0,
        "tallies": "[]",
        "feature_lengths": "{}",
    }
    with write(engine) as connection:
        # Of two callers at the same time one makes it, and the other finds it.
        insert = sqlite.insert if engine.dialect.name == "sqlite" else postgresql.insert
        made = insert(pools).values(values).on_conflict_do_nothing(index_elements=["name"]).returning(pools.c.id)
        created = connection.execute(made).scalar_one_or_none() is not None
        found = get_pool(connection, name)
    if found.archived:
        raise PoolArchived(f"the pool {name!r} was archived; take another name")
    if description is not None and description != found.description:
        raise PoolConflict(f"the pool {name!r} exists with the description {shown(found.description)}")
    return found, created


def get_pool(connection: Connection, name: str, *, for_update: bool = False) -> Pool:
    """Raises UnknownPool. `for_update` keeps other writers off this pool until the transaction ends."""
    query = select(pools).where(pools.c.name == name)
    found = _find(connection, query.with_for_update() if for_update else query)
    if found is None:
        raise no_pool(name)
    return found


def changeable_pool(connection: Connection, name: str) -> Pool:
    """The pool, for a transaction that changes its prompts. Raises UnknownPool or PoolArchived."""
    return _not_archived(get_pool(connection, name, for_update=True))


@contextmanager
def changing(engine: Engine, name: str) -> Iterator[HeldPool]:
    """Holds a pool while the block changes it. Raises UnknownPool, PoolArchived, and Busy if another change takes long.

    What the block leaves hidden when it raises is removed.
    """
    with held(engine, _open_pool(engine, name).id, name) as transaction:
        pool = _open_pool(engine, name)
        beyond = {"num_rows": pool.num_rows, "revision": pool.revision}
        remove_hidden(engine, transaction, pool.id, **beyond)
        try:
            yield HeldPool(pool=pool, transaction=transaction)
        except BaseException:
            with suppress(SQLAlchemyError):  # then the next change removes it; what failed first is what is raised
                remove_hidden(engine, transaction, pool.id, **beyond)
            raise


def _open_pool(engine: Engine, name: str) -> Pool:
    with read(engine) as connection:
        return _not_archived(get_pool(connection, name))


def _not_archived(pool: Pool) -> Pool:
    if pool.archived:
        raise PoolArchived(f"the pool {pool.name!r} was archived and can no longer be changed")
    return pool


def list_pools(engine: Engine, *, archived: bool = False) -> list[Pool]:
    """All pools by name; archived ones only when asked for."""
    query = select(pools).order_by(pools.c.name)
    with read(engine) as connection:
        rows = connection.execute(query if archived else query.where(~pools.c.archived)).all()
    return [_pool(row) for row in rows]


def archive_pool(engine: Engine, name: str) -> Pool:
    """Closes a pool to changes. Again changes nothing."""
    with write(engine) as connection:
        pool = get_pool(connection, name, for_update=True)
        connection.execute(update(pools).where(pools.c.id == pool.id).values(archived=True))
        return get_pool(connection, name)


def set_quarantine(engine: Engine, name: str, keys: Sequence[str], reason: str, *, lift: bool, at: float) -> Quarantine:
    """Takes prompts out of every draw, or lets them in again. An upload does not change it.

    A prompt that already stands as asked for, reason included, is unchanged.
    """
    with changing(engine, name) as own, own.transaction() as connection:
        pool = changeable_pool(connection, name)
        by_key = find_rows(connection, pool.id, keys)
        rows = sorted(set(by_key.values()))
        found = connection.execute(
            select(prompts).where(prompts.c.pool_id == pool.id, one_of(connection, prompts.c.row, rows))
        ).all()
        changed = [p for p in found if p.quarantined == lift or (not lift and p.quarantine_reason != reason)]
        revision = pool.revision
        if changed:
            revision += 1
            connection.execute(
                update(prompts)
                .where(prompts.c.pool_id == pool.id, one_of(connection, prompts.c.row, [p.row for p in changed]))
                .values(quarantined=not lift, quarantine_reason=None if lift else reason, revision=revision)
            )
            tallies = pool.tallies.copy()
            for p in changed:
                tallies[p.split, p.category, p.absent, p.quarantined] -= 1
                tallies[p.split, p.category, p.absent, not lift] += 1
            now = [
                ChangedPrompt(p.row, p.key, p.split, p.category, p.absent, not lift, False, p.content_hash)
                for p in changed
            ]
            add_delta(connection, pool.id, revision, 0, now)
            close_revision(
                connection,
                pool,
                kind="lift" if lift else "quarantine",
                at=at,
                num_rows=pool.num_rows,
                num_changed=len(changed),
                tallies=tallies,
                feature_lengths=pool.feature_lengths,
            )
    unknown = list(dict.fromkeys(key for key in keys if key not in by_key))
    return Quarantine(revision=revision, changed=len(changed), unchanged=len(found) - len(changed), unknown=unknown)


def find_rows(connection: Connection, pool_id: int, keys: Sequence[str]) -> dict[str, int]:
    """Key -> row of its current prompt; unknown keys are left out."""
    query = select(prompts.c.key, prompts.c.row).where(
        prompts.c.pool_id == pool_id, ~prompts.c.superseded, one_of(connection, prompts.c.key, keys), visible(pool_id)
    )
    return {row.key: row.row for row in connection.execute(query)}


def visible(pool_id: int) -> ColumnElement[bool]:
    """Whether a prompt is of a revision that is there: rows further on are of an upload that is under way."""
    # A sum, so that neither database takes this for a way to find the rows: it only leaves some out.
    num_rows = select(pools.c.num_rows).where(pools.c.id == pool_id).scalar_subquery()
    return prompts.c.row + 0 < num_rows


def contents(connection: Connection, pool_id: int, rows: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Row -> {"content": as it was uploaded, a text, messages or None; "answer"}."""
    query = select(prompts.c.row, prompts.c.content, prompts.c.answer).where(
        prompts.c.pool_id == pool_id, one_of(connection, prompts.c.row, rows)
    )
    return {
        row: {"content": None if content is None else orjson.loads(content), "answer": answer}
        for row, content, answer in connection.execute(query)
    }


def load_pool_columns(
    connection: Connection,
    pool_id: int,
    revision: int,
    base: PoolColumns | None = None,
    look: Callable[[], None] | None = None,
) -> PoolColumns:
    """The pool's columns at a revision, on top of those at an earlier one where they are at hand. `look` is called
    after every few thousand prompts.

    Raises DamagedData if a stored change fails its checksum, and ValueError for a revision that does not exist.
    """
    base = base or PoolColumns.empty()
    if revision == base.revision:
        return base
    num_rows = connection.execute(
        select(pool_revisions.c.num_rows).where(
            pool_revisions.c.pool_id == pool_id, pool_revisions.c.revision == revision
        )
    ).scalar_one_or_none()
    if num_rows is None or revision < base.revision:
        raise ValueError(f"pool {pool_id} has no revision {revision} after {base.revision}")
    deltas = _deltas(connection, pool_id, after=base.revision, up_to=revision)
    if look is not None:
        deltas = paced(deltas, look, every=1)
    return base.after(deltas, revision=revision, num_rows=num_rows)


def add_delta(connection: Connection, pool_id: int, revision: int, part: int, changed: Sequence[ChangedPrompt]) -> None:
    """Stores a part of what a revision changes."""
    payload, sha256 = PoolDelta.of(changed).encode()
    connection.execute(
        pool_deltas.insert().values(pool_id=pool_id, revision=revision, part=part, payload=payload, sha256=sha256)
    )


def close_revision(
    connection: Connection,
    pool: Pool,
    *,
    kind: str,
    at: float,
    num_rows: int,
    num_changed: int,
    tallies: Tallies,
    feature_lengths: dict[str, int],
) -> None:
    """Makes the revision after `pool.revision` the current one. Its deltas are stored by now."""
    revision = pool.revision + 1
    connection.execute(
        pool_revisions.insert().values(
            pool_id=pool.id, revision=revision, at=at, kind=kind, num_rows=num_rows, num_changed=num_changed
        )
    )
    cells = [[*cell, n] for cell, n in tallies.items() if n]
    connection.execute(
        update(pools)
        .where(pools.c.id == pool.id)
        .values(
            revision=revision,
            num_rows=num_rows,
            tallies=orjson.dumps(cells).decode(),
            feature_lengths=orjson.dumps(feature_lengths).decode(),
        )
    )


def one_of(connection: Connection, column: Any, values: Sequence[str] | Sequence[int]) -> Any:
    """`column IN values` for any number of values, as one parameter: both databases limit how many there may be."""
    if connection.dialect.name == "sqlite":
        each = func.json_each(orjson.dumps(list(values)).decode()).table_valued("value")
        return column.in_(select(each.c.value))
    kind = ARRAY(Text if isinstance(column.type, String) else Integer)
    return column == func.any(bindparam(None, list(values), type_=kind))


def _deltas(connection: Connection, pool_id: int, *, after: int, up_to: int) -> Iterable[PoolDelta]:
    query = (
        select(pool_deltas.c.payload, pool_deltas.c.sha256)
        .where(pool_deltas.c.pool_id == pool_id, pool_deltas.c.revision > after, pool_deltas.c.revision <= up_to)
        .where(pool_deltas.c.part >= 0)  # below are features
        .order_by(pool_deltas.c.revision, pool_deltas.c.part)
    )
    for payload, sha256 in connection.execute(query):
        yield PoolDelta.decode(payload, sha256)


def _find(connection: Connection, query: Select[Any]) -> Pool | None:
    row = connection.execute(query).one_or_none()
    return None if row is None else _pool(row)


def _pool(row: Row[Any]) -> Pool:
    cells = orjson.loads(row.tallies)
    return Pool(
        id=row.id,
        name=row.name,
        description=row.description,
        archived=row.archived,
        revision=row.revision,
        num_rows=row.num_rows,
        tallies=Counter(
            {(split, category, absent, quarantined): n for split, category, absent, quarantined, n in cells}
        ),
        feature_lengths=orjson.loads(row.feature_lengths),
    )
