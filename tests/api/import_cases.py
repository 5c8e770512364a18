"""What the tests of uploads share: a pool in a bare database, uploads that are counted, and what is stored."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Engine, select

from api.db.columns import PoolColumns
from api.db.imports import ImportOutcome, import_rows
from api.db.models import metadata, prompts
from api.db.pools import (
    create_pool,
    find_rows,
    get_pool,
    load_pool_columns,
)
from api.db.session import read, write
from api.importing.resolve import MAX_ERRORS

Row = dict[str, Any]


def make_pool(engine: Engine) -> None:
    # Not by the migrations, whose tests show that they make the same tables: they take longer than most tests here.
    with write(engine) as connection:
        metadata.create_all(connection)
    create_pool(engine, "p", None, at=1.0)


def put(engine: Engine, rows: Iterable[object], *, replace: bool = False) -> ImportOutcome:
    outcome = import_rows(engine, "p", rows, replace=replace, at=2.0)
    c = outcome.counts
    assert c.received == c.created + c.updated + c.unchanged + c.merged + c.rejected
    assert len(outcome.errors) == min(c.rejected, MAX_ERRORS)
    return outcome


def counted(outcome: ImportOutcome) -> dict[str, int]:
    """The counts that are not zero, without `received`."""
    names = ("created", "updated", "unchanged", "merged", "rejected")
    return {name: getattr(outcome.counts, name) for name in names if getattr(outcome.counts, name)}


def faults(outcome: ImportOutcome) -> list[tuple[int, str]]:
    return [(fault.place, fault.code) for fault in outcome.errors]


def prompt(engine: Engine, key: str) -> Any:
    """The current prompt of a key."""
    with read(engine) as connection:
        pool = get_pool(connection, "p")
        row = find_rows(connection, pool.id, [key])[key]
        return connection.execute(select(prompts).where(prompts.c.pool_id == pool.id, prompts.c.row == row)).one()


def columns(engine: Engine, revision: int | None = None) -> PoolColumns:
    with read(engine) as connection:
        pool = get_pool(connection, "p")
        return load_pool_columns(connection, pool.id, pool.revision if revision is None else revision)


def hundred() -> list[Row]:
    return [{"key": f"p{i:03}", "content": f"question {i}", "answer": str(i)} for i in range(100)]


def assert_stored_agrees(engine: Engine) -> None:
    """Table, tallies and fold of the deltas say the same of every pool; one question is never in both splits."""
    with read(engine) as connection:
        pool = get_pool(connection, "p")
        stored = connection.execute(select(prompts).order_by(prompts.c.row)).all()
        folded = load_pool_columns(connection, pool.id, pool.revision)
    assert [p.row for p in stored] == list(range(pool.num_rows))
    assert folded.keys == [p.key for p in stored]
    assert folded.split_N.tolist() == [int(p.split == "heldout") for p in stored]
    assert [None if c < 0 else folded.categories[c] for c in folded.category_N] == [p.category for p in stored]
    assert folded.absent_N.tolist() == [p.absent for p in stored]
    assert folded.quarantined_N.tolist() == [p.quarantined for p in stored]
    assert folded.superseded_N.tolist() == [p.superseded for p in stored]
    assert [h.tobytes().hex() for h in folded.content_hash_N] == [p.content_hash for p in stored]
    current = [p for p in stored if not p.superseded]
    assert len({p.key for p in current}) == len(current)
    tallies = Counter((p.split, p.category, p.absent, p.quarantined) for p in current)
    assert {cell: n for cell, n in pool.tallies.items() if n} == dict(tallies)
    splits: dict[str, set[str]] = {}
    for p in current:
        if p.question_hash and not p.absent:
            splits.setdefault(p.question_hash, set()).add(p.split)
    assert all(len(found) == 1 for found in splits.values())


def revision_of(engine: Engine) -> int:
    with read(engine) as connection:
        return get_pool(connection, "p").revision
