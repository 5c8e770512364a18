"""Reports: what the rollouts of tickets scored."""

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from api import schemas
from api.auth import REPORT
from api.routes.answers import Json, body_of, service_of

router = APIRouter(prefix="/v1/runs/{run}", tags=["reports"])


@router.post(
    "/reports",
    response_model=schemas.ReportAnswer,
    dependencies=[REPORT],
    openapi_extra=dict(body_of(schemas.ReportRequest)),
)
async def report(request: Request, run: str) -> Json:
    body = await request.body()
    return Json(await service_of(request).report(run, lambda: _parse(body)))


def _parse(body: bytes) -> schemas.ReportRequest:
    """In a thread: a report of a large batch takes longer to read than the event loop may be held."""
    try:
        return schemas.ReportRequest.model_validate_json(body, strict=True)
    except ValidationError as error:
        raise RequestValidationError(
            [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors(include_url=False)]
        ) from error
