"""Runs: create, list, look at, change in mid-run, complete."""

from typing import Any

from fastapi import APIRouter, Request

from api import schemas, views
from api.auth import ANY_KEY, MANAGE, READ, access_of, permit_new_run
from api.routes.answers import Json, service_of
from selector.policies import PRESETS

router = APIRouter(prefix="/v1", tags=["runs"])


@router.post("/runs", response_model=schemas.RunCreated, status_code=201, dependencies=[MANAGE])
async def create_run(request: Request, body: schemas.RunRequest) -> Json:
    await permit_new_run(request, body)
    answer, created = await service_of(request).create_run(body)
    return Json(answer, status_code=201 if created else 200)


@router.get("/runs", dependencies=[READ])
async def list_runs(request: Request) -> Json:
    access = access_of(request)
    runs = await service_of(request).runs()
    return Json({"items": [run for run in runs if access.reaches_run(run["run"], run["pool"])]})


@router.get("/runs/{run}", response_model=schemas.RunInfo, dependencies=[READ])
async def get_run(request: Request, run: str) -> Json:
    return Json(await service_of(request).look(run, lambda work: views.run_info(work.engine.state)))


@router.post("/runs/{run}/config", response_model=schemas.RunCreated, dependencies=[MANAGE])
async def change_config(request: Request, run: str, body: schemas.ConfigRequest) -> Json:
    return Json(await service_of(request).configure(run, body))


@router.post("/runs/{run}/complete", response_model=schemas.RunInfo, dependencies=[MANAGE])
async def complete_run(request: Request, run: str) -> Json:
    return Json(await service_of(request).complete(run))


@router.get("/presets", dependencies=[ANY_KEY])
async def list_presets() -> Json:
    return Json({"items": [_preset(name) for name in PRESETS]})


def _preset(name: str) -> dict[str, Any]:
    preset = PRESETS[name]
    return {
        "preset": name,
        "config": preset.config.to_dict(),
        "group_size": preset.group_size,
        "claim": views.preset_claim(preset.config, preset.group_size),
        "source": preset.source,
        "description": preset.sentence,
    }
