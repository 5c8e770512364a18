"""Reading a run: beliefs, audit, costs, the log. What its quality cost is in `costs`."""

import csv
import io
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from api import schemas, views
from api.audits import audit_info
from api.auth import READ
from api.routes.answers import Json, service_of
from selector.audit.auditing import LEVEL

router = APIRouter(prefix="/v1", tags=["reading"])
Format = Literal["jsonl", "csv", "parquet"]


@router.get("/runs/{run}/audit", response_model=schemas.AuditInfo, dependencies=[READ])
async def get_audit(request: Request, run: str, level: Annotated[float, Query(gt=0.5, lt=1)] = LEVEL) -> Json:
    return Json(await service_of(request).audit(run, lambda state, features: audit_info(state, level, features)))


@router.get("/runs/{run}/costs", response_model=schemas.CostsInfo, dependencies=[READ])
async def get_costs(request: Request, run: str) -> Json:
    return Json(await service_of(request).look(run, lambda work: views.costs_info(work.engine.state)))


@router.get("/runs/{run}/beliefs", dependencies=[READ])
async def get_beliefs(request: Request, run: str, format: Format = "jsonl") -> Response:
    columns = await service_of(request).look(run, lambda work: views.beliefs(work.engine.state))
    if format == "parquet":
        return Response(await run_in_threadpool(_parquet, columns), media_type="application/vnd.apache.parquet")
    if format == "csv":
        return StreamingResponse(_csv(columns), media_type="text/csv")
    return StreamingResponse(_jsonl(columns), media_type="application/x-ndjson")


@router.get("/runs/{run}/events", dependencies=[READ])
async def get_events(request: Request, run: str, after: schemas.Count = 0) -> StreamingResponse:
    """The log from an event on, one JSON object a line."""
    return StreamingResponse(await service_of(request).events(run, after), media_type="application/x-ndjson")


def _rows(columns: dict[str, Any], size: int = 1_000) -> Iterator[list[tuple[Any, ...]]]:
    for start in range(0, len(columns["key"]), size):
        parts = (column[start : start + size] for column in columns.values())
        yield list(zip(*(_plain(p) for p in parts), strict=True))


def _plain(values: Any) -> list[Any]:
    """A list; what is not known is None, not NaN."""
    if not isinstance(values, np.ndarray):
        return list(values)
    if values.dtype.kind == "f" and np.isnan(values).any():
        return [None if value != value else value for value in values.tolist()]
    return list(values.tolist())


def _jsonl(columns: dict[str, Any]) -> Iterator[bytes]:
    names = list(columns)
    for rows in _rows(columns):
        yield b"".join(orjson.dumps(dict(zip(names, row, strict=True))) + b"\n" for row in rows)


def _csv(columns: dict[str, Any]) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(columns)
    for rows in _rows(columns):
        writer.writerows(rows)
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _parquet(columns: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()}), sink)
    return sink.getvalue()
