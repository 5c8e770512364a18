"""The composition root: one FastAPI application from one `Settings`. Nothing is opened before the lifespan.

`midband serve`, the in-process transport and the tests all run what this builds.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, RedirectResponse

from api.auth import ANY_KEY, Authentication, scopes_of
from api.body_limit import BodyLimit
from api.cluster.forwarding import Forwarding, Lookout, Send
from api.db.migrate import upgrade
from api.db.session import create_database, lock_database
from api.docs_page import docs_page
from api.document import install_document
from api.errors import install_error_handlers
from api.keyring import Keyring
from api.leases import Leases
from api.metrics import Metrics, RequestMetrics
from api.request_ids import HEADER as REQUEST_ID_HEADER
from api.response_headers import DOCS_PATH, ResponseHeaders
from api.routes import batches, costs, health, pools, progress, prompts, reading, reports, runs
from api.run_metrics import RunMetrics
from api.service import RunService
from api.settings import Settings, is_loopback
from api.store import RunStore

CAPABILITIES = (
    "pools",
    "runs",
    "batches",
    "reports",
    "steps",
    "signals",
    "checkpoints",
    "beliefs",
    "audit",
    "costs",
    "events",
    "curve",
    "diagnosis",
    "report",
    "comparisons",
    "prior_rollouts",
)
ROUTERS = tuple(module.router for module in (health, pools, prompts, runs, batches, reports, progress, reading, costs))

logger = logging.getLogger("midband.api")


def create_app(settings: Settings | None = None, *, send_on: Send | None = None) -> FastAPI:
    """The application; its database is opened, migrated and locked when its lifespan begins.

    With `send_on` it is the edge of a cluster: it owns no run, and calls about one are sent on to the run's process.
    """
    settings = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.enter_context(lock_database(settings.database_url))
            database = await asyncio.to_thread(create_database, settings.database_url)
            stack.callback(database.dispose)
            await asyncio.to_thread(upgrade, database)
            keyring = Keyring(database, open_without_keys=is_loopback(settings.host))
            stack.callback(keyring.close)
            leases = None
            if database.dialect.name == "postgresql":  # which other servers may have open too
                kind = Leases if send_on is None else Lookout
                leases = await asyncio.to_thread(kind.started, database, settings.address)
                stack.push_async_callback(asyncio.to_thread, leases.stop)
            service = RunService(RunStore(database, leases))
            await service.start()
            stack.push_async_callback(service.stop)
            app.state.metrics.watch(database)
            app.state.metrics.registry.register(RunMetrics(service.standings))
            app.state.database, app.state.keyring, app.state.service = database, keyring, service
            app.state.ready = True
            yield
            app.state.ready = False

    app = FastAPI(
        title="midband",
        summary="Prompt selection for reinforcement learning from verifiable rewards",
        version="1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.ready, app.state.settings, app.state.capabilities = False, settings, list(CAPABILITIES)
    app.state.metrics = Metrics()
    # From the inside out: who is calling is known before anything of a body is read.
    if send_on is not None:
        app.add_middleware(Forwarding, send=send_on)
    app.add_middleware(BodyLimit, max_body_bytes=settings.max_body_bytes, max_import_bytes=settings.max_import_bytes)
    app.add_middleware(Authentication, cors_origins=settings.cors_origins)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", REQUEST_ID_HEADER],
            expose_headers=[REQUEST_ID_HEADER, "Retry-After"],
        )
    app.add_middleware(ResponseHeaders)
    app.add_middleware(RequestMetrics, metrics=app.state.metrics)
    install_error_handlers(app)
    for router in ROUTERS:
        app.include_router(router)

    @app.get("/", include_in_schema=False, dependencies=[ANY_KEY])
    async def home() -> RedirectResponse:
        return RedirectResponse(DOCS_PATH)  # until there is a page

    @app.get(DOCS_PATH, include_in_schema=False, dependencies=[ANY_KEY])
    def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()))

    install_document(app, scopes_of(app.routes))
    return app
