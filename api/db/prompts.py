"""Every query on single prompts: a page of a list, one prompt with what it is linked to, and rows for an export.

Called by the routes, from worker threads. It shows what the pool knows; what a run knows of a prompt comes from the
service.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import orjson
from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, func, or_, select

from api.db.models import prompt_questions, prompts
from api.db.pools import Pool, find_rows, one_of, visible
from api.db.session import read
from api.errors import InvalidCursor, UnknownPrompt, shown

EXPORT_PAGE_ROWS = 500  # some milliseconds of work, between which an export gives way
MAX_LINKED = 100  # variants and versions listed for one prompt

PromptRowData = Row[Any]


class Sort(StrEnum):
    """The orders that the pool itself knows."""

    KEY = "key"
    ROW = "row"
    CATEGORY = "category"
    SPLIT = "split"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFilter:
    """Which prompts to list: those that are there, unless absent ones are asked for."""

    category: str | None = None
    split: str | None = None
    search: str | None = None  # part of key, content or answer; ASCII letters in either case
    absent: bool = False
    quarantined: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPage:
    """`total` counts all that fit the filter; `next_cursor` is None on the last page."""

    items: list[PromptRowData]
    next_cursor: str | None
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLinks:
    """What one prompt is linked to, at most MAX_LINKED of each."""

    variants: list[str]  # keys of prompts with the same question, whatever their answer
    versions: list[PromptRowData]  # superseded versions of the key, newest first


def list_prompts(
    engine: Engine,
    pool: Pool,
    wanted: PromptFilter,
    *,
    sort: Sort = Sort.KEY,
    descending: bool = False,
    limit: int = 100,
    cursor: str | None = None,
    offset: int = 0,
) -> PromptPage:
    """One page, from after `cursor` on (or from place `offset`, to jump).

    Raises InvalidCursor for a cursor of another list.
    """
    fits = _fits(pool, wanted)
    mark = _fingerprint(pool, wanted, sort, descending)
    value = func.coalesce(prompts.c.category, "") if sort is Sort.CATEGORY else prompts.c[sort.value]
    order = (value.desc(), prompts.c.row.desc()) if descending else (value, prompts.c.row)
    query = select(prompts).where(fits).order_by(*order).limit(limit + 1)
    if cursor is not None:
        last_value, last_row = _opened(cursor, mark, int if sort is Sort.ROW else str, int)
        further = value < last_value if descending else value > last_value
        further_row = prompts.c.row < last_row if descending else prompts.c.row > last_row
        query = query.where(or_(further, and_(value == last_value, further_row)))
    elif offset:
        query = query.offset(offset)
    with read(engine) as connection:
        found = list(connection.execute(query).all())
        total = connection.execute(select(func.count()).select_from(prompts).where(fits)).scalar_one()
    items = found[:limit]
    more = len(found) > limit
    end = (
        [(items[-1].category or "") if sort is Sort.CATEGORY else getattr(items[-1], sort.value), items[-1].row]
        if more
        else []
    )
    return PromptPage(items=items, next_cursor=_sealed(mark, end) if more else None, total=total)


def list_in_order(
    engine: Engine,
    pool: Pool,
    wanted: PromptFilter,
    rows: np.ndarray,
    *,
    order: str,
    limit: int = 100,
    cursor: str | None = None,
    offset: int = 0,
) -> PromptPage:
    """One page of `rows`, which a run has chosen by the filter and ordered; only `search` is left to be done here.

    `order` names run, state and sort, for the cursor; it holds a place in the order, which may move as the run goes on.
    """
    mark = _fingerprint(pool, wanted, order, False)
    start = int(_opened(cursor, mark, int)[0]) if cursor is not None else offset
    with read(engine) as connection:
        if wanted.search:
            found = connection.execute(select(prompts.c.row).where(_fits(pool, wanted))).scalars().all()
            rows = rows[np.isin(rows, np.array(found, np.int64))]
        by_row = _by_row(connection, pool, rows[start : start + limit].tolist())
    end = start + limit
    # A prompt that was just edited is in its run's order for a moment longer than among the current ones.
    items = [by_row[row] for row in rows[start:end].tolist() if row in by_row]
    return PromptPage(items=items, next_cursor=_sealed(mark, [end]) if end < len(rows) else None, total=len(rows))


def get_prompt(engine: Engine, pool: Pool, key: str) -> tuple[PromptRowData, PromptLinks]:
    """The current prompt of a key, and what it is linked to. Raises UnknownPrompt."""
    with read(engine) as connection:
        row = find_rows(connection, pool.id, [key]).get(key)
        if row is None:
            raise UnknownPrompt(f"the pool {pool.name!r} has no prompt {shown(key)}")
        prompt = _by_row(connection, pool, [row])[row]
        asked = prompt_questions.c
        same = select(asked.row).where(asked.pool_id == pool.id, asked.question_hash == prompt.question_hash)
        seen = and_(prompts.c.pool_id == pool.id, visible(pool.id))
        variants = select(prompts.c.key).where(
            seen, prompts.c.row.in_(same), prompts.c.row != row, ~prompts.c.superseded
        )
        versions = select(prompts).where(seen, prompts.c.superseded, prompts.c.key == prompt.key)
        links = PromptLinks(
            variants=list(connection.execute(variants.order_by(prompts.c.key).limit(MAX_LINKED)).scalars()),
            versions=list(connection.execute(versions.order_by(prompts.c.row.desc()).limit(MAX_LINKED)).all()),
        )
    return prompt, links


def export_pages(engine: Engine, pool: Pool) -> Iterator[list[PromptRowData]]:
    """All prompts that are there, by row, in pages. Each page is a transaction of its own, so that a slow reader of the
    export holds nothing up; prompts that are uploaded meanwhile are left out."""
    last = -1
    query = select(prompts).where(_fits(pool, PromptFilter())).order_by(prompts.c.row).limit(EXPORT_PAGE_ROWS)
    while True:
        with read(engine) as connection:
            page = list(connection.execute(query.where(prompts.c.row > last, prompts.c.row < pool.num_rows)).all())
        if not page:
            return
        yield page
        last = page[-1].row


def decoded(text: str | None) -> Any:
    """A stored JSON text as a value; None stays None."""
    return None if text is None else orjson.loads(text)


def _by_row(connection: Connection, pool: Pool, rows: Sequence[int]) -> dict[int, PromptRowData]:
    query = select(prompts).where(
        prompts.c.pool_id == pool.id, ~prompts.c.superseded, one_of(connection, prompts.c.row, rows)
    )
    return {row.row: row for row in connection.execute(query)}


def _fits(pool: Pool, wanted: PromptFilter) -> ColumnElement[bool]:
    terms: list[ColumnElement[bool]] = [prompts.c.pool_id == pool.id, ~prompts.c.superseded, visible(pool.id)]
    terms.append(prompts.c.absent if wanted.absent else ~prompts.c.absent)
    if wanted.category is not None:
        # An empty text asks for those without a category.
        terms.append(prompts.c.category == wanted.category if wanted.category else prompts.c.category.is_(None))
    if wanted.split is not None:
        terms.append(prompts.c.split == wanted.split)
    if wanted.quarantined is not None:
        terms.append(prompts.c.quarantined if wanted.quarantined else ~prompts.c.quarantined)
    if wanted.search:
        # Contents are stored as JSON: a quotation mark or a line end is escaped there, so it is in what is looked for.
        as_json = orjson.dumps(wanted.search).decode()[1:-1]
        terms.append(
            or_(
                prompts.c.key.icontains(wanted.search, autoescape=True),
                prompts.c.content.icontains(as_json, autoescape=True),
                prompts.c.answer.icontains(wanted.search, autoescape=True),
            )
        )
    return and_(*terms)


def _fingerprint(pool: Pool, wanted: PromptFilter, order: str, descending: bool) -> str:
    named = orjson.dumps([pool.id, asdict(wanted), order, descending])
    return hashlib.sha256(named).hexdigest()[:12]


def _sealed(mark: str, end: list[Any]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([mark, *end])).decode().rstrip("=")


def _opened(cursor: str, mark: str, *kinds: type) -> list[Any]:
    try:
        found = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except ValueError:
        found = None
    if not isinstance(found, list) or found[:1] != [mark] or [type(part) for part in found[1:]] != list(kinds):
        raise InvalidCursor(f"the cursor {shown(cursor)} is not of this list: leave it out to begin at the start")
    return found[1:]
