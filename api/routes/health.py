"""Endpoints for those who run the service: alive, ready, metrics, version.

`create_app` mounts the router. It expects on `app.state`: `ready` (bool, false while recovering), `metrics`
(`api.metrics.Metrics`) and `capabilities` (names of what is built).
"""

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from api.auth import ANY_KEY, NO_KEY, READ_ALL
from api.errors import NotAvailable
from api.response_headers import DOCS_PATH
from api.schemas import CONTRACT, VersionInfo
from api.version import installed_version

router = APIRouter(tags=["service"])


@router.get("/healthz", dependencies=[NO_KEY])
def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "alive"}


@router.get("/readyz", dependencies=[NO_KEY])
def readyz(request: Request) -> JSONResponse:
    """200 once everything is recovered and requests are served; 503 before."""
    ready = bool(request.app.state.ready)
    return JSONResponse({"ready": ready}, status_code=200 if ready else 503)


@router.get("/metrics", response_class=Response, dependencies=[READ_ALL])
def metrics(request: Request) -> Response:
    """The service's figures in Prometheus' text format."""
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/version", response_model=VersionInfo, dependencies=[ANY_KEY])
def version(request: Request) -> VersionInfo:
    """What is running, which contract it speaks, and which parts of it are built."""
    return VersionInfo(
        version=installed_version(), contract=CONTRACT, capabilities=list(request.app.state.capabilities)
    )


@router.get("/ui", status_code=501, response_model=None, dependencies=[NO_KEY])
def web_page() -> None:
    """The place of the web page, which is not built yet."""
    raise NotAvailable(
        f"the web page is not built yet: {DOCS_PATH} describes every call, and GET /v1/runs/{{run}}/report shows a run"
    )
