"""The composition root: one FastAPI application from one `Settings`. Nothing is opened before the lifespan.

`midband serve`, the in-process transport and the tests all run what this builds.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import RedirectResponse

from api import schemas
from api.body_limit import BodyLimit
from api.db.migrate import upgrade
from api.db.session import create_database, lock_database
from api.errors import install_error_handlers
from api.routes import batches, health, pools, progress, reading, reports, runs
from api.service import RunService
from api.settings import Settings
from api.store import RunStore

CAPABILITIES = ("pools", "runs", "batches", "reports", "steps", "checkpoints", "beliefs", "audit", "costs", "events")
ROUTERS = (health.router, pools.router, runs.router, batches.router, reports.router, progress.router, reading.router)

logger = logging.getLogger("midband.api")


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application; its database is opened, migrated and locked when its lifespan begins."""
    settings = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.enter_context(lock_database(settings.database_url))
            database = await asyncio.to_thread(create_database, settings.database_url)
            stack.callback(database.dispose)
            await asyncio.to_thread(upgrade, database)
            service = RunService(RunStore(database))
            await service.start()
            stack.push_async_callback(service.stop)
            app.state.database, app.state.service, app.state.ready = database, service, True
            yield
            app.state.ready = False

    app = FastAPI(
        title="midband",
        summary="Prompt selection for reinforcement learning from verifiable rewards",
        version="1",
        lifespan=lifespan,
    )
    app.state.ready, app.state.settings, app.state.capabilities = False, settings, list(CAPABILITIES)
    app.state.metrics = health.new_registry()
    install_error_handlers(app)
    app.add_middleware(BodyLimit, max_body_bytes=settings.max_body_bytes, max_import_bytes=settings.max_import_bytes)
    for router in ROUTERS:
        app.include_router(router)

    @app.get("/", include_in_schema=False)
    async def home() -> RedirectResponse:
        return RedirectResponse("/docs")  # until there is a page

    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """Adds to the OpenAPI document the bodies that endpoints parse by themselves."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
            components = document.setdefault("components", {}).setdefault("schemas", {})
            schema = schemas.ReportRequest.model_json_schema(ref_template="#/components/schemas/{model}")
            components |= schema.pop("$defs", {})
            components["ReportRequest"] = schema
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
