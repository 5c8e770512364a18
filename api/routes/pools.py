"""Endpoints on pools: make, list, look at, archive, and upload prompts into them.

`create_app` mounts the router. An endpoint parses, calls a query in a worker thread and converts; after an upload it
tells the service. It expects on `app.state`: `settings`, `database`, `service`. Single prompts are in `prompts`.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Literal, cast

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel

from api.auth import MANAGE, READ, access_of, permit_new_pool
from api.db.imports import ImportOutcome, import_rows
from api.db.pools import Pool, archive_pool, create_pool, list_pools
from api.errors import (
    BodyTooLarge,
    InvalidRequest,
    PoolArchived,
    PoolConflict,
    UnknownPool,
    UnreadableBody,
    UnsupportedFormat,
)
from api.importing.readers import CONTENT_TYPES, RowFormat, format_of, read_rows
from api.routes.answers import errors_of, service_of
from api.routes.pool_requests import database_of, pool_of, turns_of
from api.schemas import ImportReport, PoolInfo, PoolRequest, RowError

MEMORY_BYTES = 2**23  # of an upload before it moves to a temporary file
WRITE_BYTES = 2**20  # of an upload gathered before it is written there


class PoolList(BaseModel):
    items: list[PoolInfo]


router = APIRouter(prefix="/v1/pools", tags=["pools"])


@router.post(
    "",
    response_model=PoolInfo,
    status_code=201,
    dependencies=[MANAGE],
    responses=errors_of(PoolConflict, PoolArchived, InvalidRequest),
)
async def post_pool(body: PoolRequest, request: Request, response: Response) -> PoolInfo:
    """Makes a pool; 200 if it is there already."""
    await permit_new_pool(request, body.name)
    pool, created = await run_in_threadpool(
        lambda: create_pool(database_of(request), body.name, body.description, at=time.time())
    )
    response.status_code = 201 if created else 200
    return _info(pool)


@router.get("", response_model=PoolList, dependencies=[READ])
def get_pools(request: Request, archived: bool = False) -> PoolList:
    """All pools by name; archived ones only when asked for."""
    pools = list_pools(database_of(request), archived=archived)
    return PoolList(items=[_info(pool) for pool in pools if access_of(request).reaches_pool(pool.name)])


@router.get("/{pool}", response_model=PoolInfo, dependencies=[READ], responses=errors_of(UnknownPool))
def get_one_pool(pool: str, request: Request) -> PoolInfo:
    """A pool with its counts by split, category and state."""
    return _info(pool_of(request, pool))


@router.delete("/{pool}", response_model=PoolInfo, dependencies=[MANAGE], responses=errors_of(UnknownPool))
def delete_pool(pool: str, request: Request) -> PoolInfo:
    """Archives a pool: it can be read and no longer changed. Its prompts and runs stay."""
    return _info(archive_pool(database_of(request), pool))


@router.put(
    "/{pool}/prompts",
    response_model=ImportReport,
    dependencies=[MANAGE],
    response_model_exclude_none=True,
    responses=errors_of(UnknownPool, PoolArchived, BodyTooLarge, UnsupportedFormat, UnreadableBody),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {name: {"schema": {"type": "string", "format": "binary"}} for name in CONTENT_TYPES},
        }
    },
)
async def put_prompts(pool: str, request: Request, mode: Literal["merge", "replace"] = "merge") -> ImportReport:
    """Takes over every row that is right, all at once. `replace` marks absent what the upload does not have."""
    form = format_of(request.headers.get("content-type"), request.headers.get("content-encoding"))
    await run_in_threadpool(pool_of, request, pool)
    replace = mode == "replace"
    # A JSON list is held whole, so it has the limit of other bodies.
    limit = request.app.state.settings.max_body_bytes if form is RowFormat.JSON else None
    async with _spooled(request, limit) as file:
        outcome = await run_in_threadpool(
            lambda: import_rows(
                database_of(request),
                pool,
                read_rows(file, form),
                replace=replace,
                at=time.time(),
                turns=turns_of(request),
            )
        )
    await service_of(request).pool_changed(pool)
    return _report(outcome, replace=replace)


@asynccontextmanager
async def _spooled(request: Request, limit: int | None) -> AsyncIterator[BinaryIO]:
    """The body in a file that can be sought in: in memory while it is small. Nothing is written by the event loop."""
    total, gathered = 0, bytearray()
    with SpooledTemporaryFile(max_size=MEMORY_BYTES) as file:
        async for part in request.stream():
            total += len(part)
            if limit is not None and total > limit:
                raise BodyTooLarge(f"a JSON list may have {limit} bytes: send JSON Lines, which are not held whole")
            gathered += part
            if len(gathered) >= WRITE_BYTES:
                await run_in_threadpool(file.write, bytes(gathered))
                gathered.clear()
        await run_in_threadpool(file.write, bytes(gathered))
        file.seek(0)
        yield cast(BinaryIO, file)


def _info(pool: Pool) -> PoolInfo:
    splits, categories, states = pool.counts()
    return PoolInfo(
        name=pool.name,
        description=pool.description,
        revision=pool.revision,
        archived=pool.archived,
        prompts=pool.num_prompts,
        splits=splits,
        categories=categories,
        states=states,
    )


def _report(outcome: ImportOutcome, *, replace: bool) -> ImportReport:
    counts = outcome.counts
    return ImportReport(
        received=counts.received,
        created=counts.created,
        updated=counts.updated,
        unchanged=counts.unchanged,
        merged=counts.merged,
        rejected=counts.rejected,
        errors=[RowError(row=fault.place, code=fault.code, detail=fault.detail) for fault in outcome.errors],
        warnings=outcome.warnings,
        matched=counts.matched if replace else None,
        linked=counts.linked if replace else None,
        absent=outcome.absent if replace else None,
    )
