"""What quality cost: curve, diagnosis and report of a run, and comparisons of runs."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from api import measuring, schemas
from api.auth import READ, permit_named_runs
from api.errors import InvalidRequest
from api.reporting.content import run_report
from api.reporting.page import PAGE_POLICY, html_page
from api.reporting.text import markdown
from api.routes.answers import Json, service_of
from selector.heldout.comparing import compare

router = APIRouter(prefix="/v1", tags=["costs"])


@router.get("/runs/{run}/curve", response_model=schemas.CurveInfo, dependencies=[READ])
async def get_curve(
    request: Request, run: str, q: Annotated[float | None, Query(ge=0, le=1, allow_inf_nan=False)] = None
) -> Json:
    """Held-out quality against what training had cost, and, with `q`, between which looks it first got there."""
    return Json(await service_of(request).survey(run, lambda state: measuring.curve_info(state, q)))


@router.get("/runs/{run}/diagnosis", response_model=schemas.DiagnosisInfo, dependencies=[READ])
async def get_diagnosis(request: Request, run: str) -> Json:
    """Which constraint binds, and what each remedy could save at most."""
    return Json(await service_of(request).survey(run, measuring.diagnosis_info, rollouts=False))


@router.get("/runs/{run}/report", dependencies=[READ])
async def get_report(request: Request, run: str, format: Literal["md", "json", "html"] = "md") -> Response:
    """The measurement protocol, filled from what the run has recorded; what is missing is named."""
    found = await service_of(request).audit(run, run_report)
    if format == "json":
        return Json(found)
    if format == "html":
        page = await run_in_threadpool(html_page, found)
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": PAGE_POLICY})
    return Response(await run_in_threadpool(markdown, found), media_type="text/markdown")


@router.post("/comparisons", response_model=schemas.ComparisonInfo, dependencies=[READ])
async def compare_runs(request: Request, body: schemas.ComparisonRequest) -> Json:
    """Cost to reach a quality, and quality at the same cost, over configurations and their seeds."""
    controls = body.controls or []
    asked = [run for seeds in (*body.runs, *controls) for run in seeds]
    twice = sorted({run for run in asked if asked.count(run) > 1})
    if twice:
        raise InvalidRequest(f"runs stand in one place each; named more than once: {', '.join(twice)}")
    names = body.names or [f"{seeds[0]} ×{len(seeds)}" for seeds in body.runs]
    shown = {*names, *(measuring.control_name(name) for name in names)}
    if len(names) != len(body.runs) or len(shown) != 2 * len(names) or len(controls) not in (0, len(body.runs)):
        raise InvalidRequest(
            f"names and controls have one entry for each of the {len(body.runs)} configurations, and names differ, "
            f"from those of controls too: got {len(names)} names, {', '.join(names)}, and {len(controls)} controls"
        )
    await permit_named_runs(request, asked)
    service = service_of(request)
    found = {run: await service.survey(run, measuring.measured) for run in asked}

    def compared() -> dict[str, Any]:
        try:
            result = compare(
                measuring.arms(body.runs, controls, names, found), target=body.quality.target, unit=body.unit
            )
        except ValueError as error:
            raise InvalidRequest(f"unit: {error}") from error
        return measuring.comparison_info(result, found)

    return Json(await run_in_threadpool(compared))
