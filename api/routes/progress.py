"""Steps, checkpoints, restore, signals: where the trainer is, and how it goes back."""

from fastapi import APIRouter, Request

from api import schemas, views
from api.auth import MANAGE, READ, REPORT
from api.routes.answers import Json, service_of

router = APIRouter(prefix="/v1/runs/{run}", tags=["progress"])


@router.post("/steps", response_model=schemas.StepAnswer, dependencies=[REPORT])
async def record_step(request: Request, run: str, body: schemas.StepRequest) -> Json:
    return Json(await service_of(request).step(run, body))


@router.post("/checkpoints", response_model=schemas.CheckpointInfo, dependencies=[REPORT])
async def make_checkpoint(request: Request, run: str, body: schemas.CheckpointRequest) -> Json:
    return Json(await service_of(request).checkpoint(run, body.step))


@router.get("/checkpoints", dependencies=[READ])
async def list_checkpoints(request: Request, run: str) -> Json:
    items = await service_of(request).look(run, lambda work: views.checkpoints(work.engine.state))
    return Json({"items": items})


@router.post("/restore", response_model=schemas.RestoreAnswer, dependencies=[MANAGE])
async def restore(request: Request, run: str, body: schemas.RestoreRequest) -> Json:
    return Json(await service_of(request).restore(run, body))


@router.post("/signals", response_model=schemas.SignalsAnswer, dependencies=[REPORT])
async def push_signals(request: Request, run: str, body: schemas.SignalsRequest) -> Json:
    return Json(await service_of(request).push_signals(run, body))
