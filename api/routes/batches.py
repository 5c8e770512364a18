"""Batches and tickets: draw, read again, see what became of them."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request

from api import schemas
from api.auth import DRAW, READ
from api.errors import InvalidCursor
from api.routes.answers import Json, service_of

router = APIRouter(prefix="/v1/runs/{run}", tags=["batches"])


@router.post("/batches", response_model=schemas.Batch, dependencies=[DRAW])
async def draw_batch(request: Request, run: str, body: schemas.BatchRequest) -> Json:
    return Json(await service_of(request).draw(run, body))


@router.get("/batches/{index}", response_model=schemas.Batch, dependencies=[READ])
async def get_batch(
    request: Request,
    run: str,
    index: schemas.Count,
    purpose: schemas.PurposeName = "train",
    refill: Annotated[int, Query(ge=0)] = 0,
    branch: schemas.Count | None = None,
    include: Annotated[list[Literal["content", "answer"]] | None, Query()] = None,
) -> Json:
    return Json(
        await service_of(request).batch(
            run, index, purpose=purpose, refill=refill, branch=branch, include=list(include or [])
        )
    )


@router.get("/tickets", response_model=schemas.TicketPage, dependencies=[READ])
async def list_tickets(
    request: Request,
    run: str,
    batch: schemas.Count | None = None,
    purpose: schemas.PurposeName = "train",
    state: Literal["open", "reported", "void"] | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
    cursor: str | None = None,
) -> Json:
    if cursor is not None and not (cursor.isascii() and cursor.isdigit()):
        raise InvalidCursor(f"cursor {cursor[:40]!r} was not made by this list")
    return Json(
        await service_of(request).tickets(
            run, batch=batch, state=state, purpose=purpose, limit=limit, cursor=int(cursor or 0)
        )
    )


@router.post("/rollouts/fetch", response_model=schemas.FetchAnswer, dependencies=[READ])
async def fetch_rollouts(request: Request, run: str, body: schemas.FetchRequest) -> Json:
    return Json(await service_of(request).fetch(run, body.ids))
