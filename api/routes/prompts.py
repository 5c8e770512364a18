"""Endpoints on the prompts of a pool: list them, look at one, quarantine, export.

`create_app` mounts the router. An endpoint parses, calls a query in a worker thread and converts; what a run knows of
prompts it asks of the service, and after a quarantine it tells the service. It expects on `app.state`: `database`,
`service`.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from api.auth import MANAGE, READ
from api.db.pools import Pool, set_quarantine
from api.db.prompts import (
    PromptFilter,
    PromptLinks,
    PromptPage,
    Sort,
    decoded,
    export_pages,
    get_prompt,
    list_in_order,
    list_prompts,
)
from api.errors import (
    InvalidCursor,
    InvalidRequest,
    PoolArchived,
    UnknownPool,
    UnknownPrompt,
    shown,
)
from api.importing.readers import RowFormat
from api.importing.writers import MEDIA_TYPES, View, Writer, make_writer, view_columns_of
from api.prompt_order import rows_in_order
from api.routes.answers import Json, errors_of, service_of
from api.routes.pool_requests import database_of, pool_of, turns_of
from api.schemas import QuarantineReport, QuarantineRequest
from api.turns import Turns
from selector.audit.paid import Paid, paid

LIST_CONTENT_CHARACTERS = 4_096  # of a content's JSON shown whole in a list
PREVIEW_CHARACTERS = 300
# States that belong to the pool; the others belong to a run.
POOL_STATES = ("quarantined", "absent")


class PromptQuery(BaseModel):
    """How to list prompts. A sort or a state that belongs to a run needs `run`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str | None = None
    state: Literal["new", "active", "mastered", "deferred", "quarantined", "absent"] | None = None
    category: str | None = Field(default=None, max_length=200, description="empty: prompts without a category")
    split: Literal["train", "heldout"] | None = None
    search: str | None = Field(default=None, max_length=500, description="part of key, content or answer")
    sort: str = Field(default="key", pattern="^[a-z][a-z_]{0,39}$")
    order: Literal["asc", "desc"] = "asc"
    limit: int = Field(default=100, ge=1, le=1_000)
    cursor: str | None = Field(default=None, max_length=4_000)
    offset: int = Field(default=0, ge=0, lt=2**31, description="jump to this place; only without cursor")


class PromptList(BaseModel):
    items: list[dict[str, Any]]
    next_cursor: str | None
    total: int


router = APIRouter(prefix="/v1/pools", tags=["pools"])


@router.get(
    "/{pool}/prompts",
    response_model=PromptList,
    dependencies=[READ],
    responses=errors_of(UnknownPool, InvalidCursor, InvalidRequest),
)
async def get_prompts(pool: str, request: Request, query: Annotated[PromptQuery, Query()]) -> Response:
    """A page of prompts. Long contents are left out of it: `preview` has how they begin."""
    stored = await run_in_threadpool(pool_of, request, pool)
    page = await _page(request, stored, query)
    views = await _views(request, query.run, pool, [item.row for item in page.items])
    items = [{**_summary(item), **views.get(item.row, {})} for item in page.items]
    return Json({"items": items, "next_cursor": page.next_cursor, "total": page.total})


@router.get(
    "/{pool}/prompts/{key:path}",
    response_model=dict[str, Any],
    dependencies=[READ],
    responses=errors_of(UnknownPool, UnknownPrompt),
)
async def get_one_prompt(pool: str, key: str, request: Request, run: str | None = None) -> Response:
    """One prompt with all that is known of it."""
    stored = await run_in_threadpool(pool_of, request, pool)
    prompt, links = await run_in_threadpool(get_prompt, database_of(request), stored, key)
    views = await _views(request, run, pool, [prompt.row])
    return Json({**_detail(prompt, links), **views.get(prompt.row, {})})


@router.post(
    "/{pool}/quarantine",
    response_model=QuarantineReport,
    dependencies=[MANAGE],
    responses=errors_of(UnknownPool, PoolArchived, InvalidRequest),
)
async def post_quarantine(pool: str, body: QuarantineRequest, request: Request) -> QuarantineReport:
    """Takes prompts out of every draw, or lets them in again; later uploads do not change it."""
    done = await run_in_threadpool(
        lambda: set_quarantine(database_of(request), pool, body.keys, body.reason, lift=body.lift, at=time.time())
    )
    await service_of(request).pool_changed(pool)
    return QuarantineReport(changed=done.changed, unchanged=done.unchanged, unknown=done.unknown)


@router.get("/{pool}/export", response_class=StreamingResponse, dependencies=[READ], responses=errors_of(UnknownPool))
async def get_export(
    pool: str,
    request: Request,
    form: Annotated[Literal["jsonl", "csv", "parquet"], Query(alias="format")] = "jsonl",
    run: str | None = None,
) -> StreamingResponse:
    """All prompts that are there. Without `run`, what is streamed can be uploaded again and changes nothing."""
    stored = await run_in_threadpool(pool_of, request, pool)
    pages = _giving_way(export_pages(database_of(request), stored), turns_of(request))
    # The first page comes before the answer begins, so that an unknown run is still a proper error.
    first: list[Any] = await run_in_threadpool(next, pages, [])

    spent = None if run is None else await service_of(request).survey(run, paid)

    async def fetch(rows: list[int]) -> dict[int, View]:
        # A prompt's groups, which come when it is alone, do not belong in a table.
        found = await _views(request, run, pool, rows)
        return {
            row: {**{name: v for name, v in view.items() if name != "groups"}, **_paid_for(row, spent)}
            for row, view in found.items()
        }

    views = await fetch([row.row for row in first])
    columns = view_columns_of([views.get(row.row, {}) for row in first])
    writer = await run_in_threadpool(make_writer, RowFormat(form), stored.feature_lengths, columns)

    headers = {"Content-Disposition": f'attachment; filename="{pool}.{form}"'}
    body = _written(writer, first, views, pages, fetch)
    return StreamingResponse(body, media_type=MEDIA_TYPES[RowFormat(form)], headers=headers)


def _giving_way(pages: Iterator[list[Any]], turns: Turns) -> Iterator[list[Any]]:
    for page in pages:
        yield page
        turns.give_way()


async def _written(
    writer: Writer,
    page: list[Any],
    views: dict[int, View],
    pages: Iterator[list[Any]],
    fetch: Callable[[list[int]], Any],
) -> AsyncIterator[bytes]:
    while page:
        yield await run_in_threadpool(writer.page, page, [views.get(row.row, {}) for row in page])
        page = await run_in_threadpool(next, pages, [])
        views = await fetch([row.row for row in page])
    yield await run_in_threadpool(writer.end)


async def _page(request: Request, pool: Pool, query: PromptQuery) -> PromptPage:
    """The page, in the pool's own order or in one that a run knows."""
    if query.cursor is not None and query.offset:
        raise InvalidRequest("give cursor or offset, not both")
    # A run has a quarantine of its own beside the pool's.
    of_run = query.state == "quarantined" and query.run is not None
    of_pool = query.state is None or (query.state in POOL_STATES and not of_run)
    wanted = PromptFilter(
        category=query.category,
        split=query.split,
        search=query.search,
        absent=query.state == "absent",
        quarantined=True if query.state == "quarantined" and not of_run else None,
    )
    descending = query.order == "desc"
    place: dict[str, Any] = {"limit": query.limit, "cursor": query.cursor, "offset": query.offset}
    engine = database_of(request)
    if of_pool and query.sort in list(Sort):
        return await run_in_threadpool(
            lambda: list_prompts(engine, pool, wanted, sort=Sort(query.sort), descending=descending, **place)
        )
    if query.run is None:
        own = f"{', '.join(Sort)} and the states {', '.join(POOL_STATES)}"
        raise InvalidRequest(
            f"sort={query.sort}, state={query.state}: the pool knows {own}; others belong to a run, which `run` names"
        )
    if wanted.absent:
        raise InvalidRequest(f"sort={query.sort}: absent prompts belong to no run's order, sort by {', '.join(Sort)}")
    state = None if of_pool else query.state
    rows = await service_of(request).look(
        query.run,
        lambda work: rows_in_order(
            work.engine.state, pool.name, wanted, stage=state, sort=query.sort, descending=descending
        ),
    )
    order = f"{query.run} {state} {query.sort} {query.order}"
    return await run_in_threadpool(lambda: list_in_order(engine, pool, wanted, rows, order=order, **place))


async def _views(request: Request, run: str | None, pool: str, rows: list[int]) -> dict[int, View]:
    return {} if run is None else await service_of(request).prompt_view(run, pool, rows)


def _paid_for(row: int, spent: Paid | None) -> View:
    """Tokens of a prompt, as they were when the export began; none of one that came later."""
    if spent is None:
        return {}
    known = row < len(spent.tokens_N)
    return {
        "paid_tokens": int(spent.tokens_N[row]) if known else 0,
        "untrained_tokens": int(spent.untrained_N[row]) if known else 0,
    }


def _summary(row: Any) -> dict[str, Any]:
    """A prompt in a list: its content whole if it is short, and how it begins in any case."""
    content = row.content
    short = content is None or len(content) <= LIST_CONTENT_CHARACTERS
    return {
        "key": row.key,
        "row": row.row,
        "category": row.category,
        "split": row.split,
        "content": decoded(content) if short else None,
        "preview": _preview(content),
        "answer": row.answer if row.answer is None or len(row.answer) <= LIST_CONTENT_CHARACTERS else None,
        "meta": decoded(row.meta) if row.meta is None or len(row.meta) <= LIST_CONTENT_CHARACTERS else None,
        "content_hash": row.content_hash,
        "absent": row.absent,
        "quarantined": row.quarantined,
        "quarantine_reason": row.quarantine_reason,
    }


def _detail(row: Any, links: PromptLinks) -> dict[str, Any]:
    return {
        **_summary(row),
        "content": decoded(row.content),
        "answer": row.answer,
        "features": decoded(row.features),
        "parent": row.parent,
        "meta": decoded(row.meta),
        "variants": links.variants,
        "replaces": row.replaces_row,
        "versions": [
            {"row": old.row, "content_hash": old.content_hash, "content": decoded(old.content), "answer": old.answer}
            for old in links.versions
        ],
    }


def _preview(content: str | None) -> str | None:
    """How a content begins: the text, or the last message's."""
    value = decoded(content)
    if isinstance(value, list):
        value = value[-1].get("content") or ""
    if value is None:
        return None
    text = value if isinstance(value, str) else shown(value)
    return text if len(text) <= PREVIEW_CHARACTERS else text[: PREVIEW_CHARACTERS - 1] + "…"
