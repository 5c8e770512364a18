"""Who may call what: the middleware that asks for a key, and the guard that each route states its scope with.

`create_app` adds the middleware and has `scopes_of` look at every route: one that states no scope stops the start. A
route says `dependencies=[READ]` (or another of the names below); the guard then asks for the scope, keeps what lies
outside the key's binding hidden, and writes changes into the trail. Names that a route takes from a body it gives to
`permit_new_pool` and `permit_new_run` itself.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from api import schemas
from api.db.keys import insert_call
from api.db.session import write
from api.errors import ApiError, ForeignOrigin, MissingScope, UnknownRun, error_response, no_pool, no_run
from api.keyring import Keyring
from api.keys import EVERYTHING, Access, Scope
from api.routes.answers import service_of

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/ui"})  # for probes and browsers, which have no keys and learn nothing
# Routes of the framework's own, which can state no scope: any key opens them.
FRAMEWORK_PATHS = frozenset({"/openapi.json"})
# What paths may name. Bindings look at `pool` and `run`: under another name either of them would slip by.
PATH_PARAMETERS = frozenset({"index", "key", "pool", "run"})
TARGET_CHARACTERS = 200  # of a name in the trail; those that exist are shorter

logger = logging.getLogger("midband.api")


class Authentication:
    """ASGI middleware: finds out who is calling before anything of the request is read. 401 where nobody is found."""

    def __init__(self, app: ASGIApp, *, cors_origins: Iterable[str]) -> None:
        self.app, self.cors_origins = app, frozenset(cors_origins)

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self.app(scope, receive, send)
            return
        keyring: Keyring = scope["app"].state.keyring
        headers = Headers(scope=scope)
        try:
            access = await keyring.access(_presented(headers))
            if access is EVERYTHING:
                self._refuse_foreign_page(headers)
        except ApiError as error:
            await error_response(error, scope)(scope, receive, send)
            return
        scope.setdefault("state", {})["access"] = access
        await self.app(scope, receive, send)

    def _refuse_foreign_page(self, headers: Headers) -> None:
        """A browser sends what any website tells it to, to this machine too; it says which one in `Origin`."""
        origin = headers.get("origin")
        if origin is None or origin in self.cors_origins or urlsplit(origin).netloc == headers.get("host"):
            return
        raise ForeignOrigin("a page of another website sent this: set MIDBAND_CORS_ORIGINS if it may")


@dataclass(frozen=True, kw_only=True)
class Guard:
    """What a route asks of its caller: a scope, or any key. `unbound`: a key that is bound to no pool and no run."""

    scope: Scope | None
    unbound: bool = False
    open: bool = False  # asks for nothing, not even a key

    async def __call__(self, request: Request) -> None:
        """Raises MissingScope, UnknownPool or UnknownRun."""
        if self.open:
            return
        access = access_of(request)
        if self.scope is not None and self.scope not in access.scopes:
            has = ", ".join(sorted(access.scopes))
            self._refuse(request, f"the key {access.prefix} has the scopes {has}; this call asks for {self.scope}")
        if self.unbound and access.bound:
            self._refuse(request, f"the key {access.prefix} is bound to pools or runs, and this speaks of all of them")
        pools = [request.path_params["pool"]] if "pool" in request.path_params else []
        named = [request.path_params["run"]] if "run" in request.path_params else []
        for pool in pools:
            _permit_pool(access, pool)
        for run in (*named, *request.query_params.getlist("run")):
            await _permit_run(request, access, run)
        if self.scope is Scope.MANAGE:
            for target in (*(f"pool {pool}" for pool in pools), *(f"run {run}" for run in named)):
                await _record(request, target)

    def _refuse(self, request: Request, detail: str) -> None:
        logger.warning("refused %s %s: %s", request.method, request.scope["route"].path, detail)
        raise MissingScope(detail)


NO_KEY = Depends(Guard(scope=None, open=True))
ANY_KEY = Depends(Guard(scope=None))
READ = Depends(Guard(scope=Scope.READ))
READ_ALL = Depends(Guard(scope=Scope.READ, unbound=True))
DRAW = Depends(Guard(scope=Scope.DRAW))
REPORT = Depends(Guard(scope=Scope.REPORT))
MANAGE = Depends(Guard(scope=Scope.MANAGE))


def access_of(request: Request) -> Access:
    """What the caller may do, as the middleware found out."""
    access: Access = request.state.access
    return access


async def permit_new_pool(request: Request, name: str) -> None:
    """Before a pool is made: raises UnknownPool where it is out of the key's reach, else writes it into the trail."""
    _permit_pool(access_of(request), name)
    await _record(request, f"pool {name}")


async def permit_new_run(request: Request, body: schemas.RunRequest) -> None:
    """Before a run is made, or asked for again: raises UnknownPool or UnknownRun for what is out of the key's reach,
    and MissingScope where it is to begin with what another run knows and the key may not read.

    A key that is bound to runs alone may ask again for a run that is there, and begin none: it reaches no pool.
    """
    access = access_of(request)
    if body.start_from is not None and Scope.READ not in access.scopes:
        has = ", ".join(sorted(access.scopes))
        raise MissingScope(f"the key {access.prefix} has the scopes {has}; start_from asks for {Scope.READ} too")
    if access.bound:
        # Names of runs are shared by all pools: a run out of reach may have this one already.
        there = await _pool_of(request, body.name)
        if (access.runs or there is not None) and not access.reaches_run(body.name, there):
            raise no_run(body.name)
        if not access.reaches_pool(body.pool) and body.pool != there:
            raise no_pool(body.pool)
        if body.start_from is not None:
            await _permit_run(request, access, body.start_from.run)
    await _record(request, f"run {body.name}")


async def permit_named_runs(request: Request, runs: Iterable[str]) -> None:
    """Before runs that a body names are read: raises UnknownRun for one that is out of the key's reach."""
    for run in runs:
        await _permit_run(request, access_of(request), run)


def scopes_of(routes: Iterable[BaseRoute]) -> dict[tuple[str, str], Guard]:
    """The guard of every route by (path, method). Raises TypeError for a route that does not have exactly one."""
    found: dict[tuple[str, str], Guard] = {}
    for route in _leaves(routes):
        path = getattr(route, "path", None)
        if not isinstance(route, APIRoute):
            if path not in FRAMEWORK_PATHS:
                raise TypeError(
                    f"the route {path!r} cannot state a scope: make it an endpoint with a guard of api.auth"
                )
            continue
        guards = [each.dependency for each in route.dependencies if isinstance(each.dependency, Guard)]
        if len(guards) != 1:
            raise TypeError(
                f"the route {path!r} states {len(guards)} scopes: give it one guard of api.auth, such as READ"
            )
        if guards[0].open is not (path in OPEN_PATHS):
            raise TypeError(
                f"the route {path!r}: those without a key are {', '.join(sorted(OPEN_PATHS))}, and no others"
            )
        strange = sorted(set(route.param_convertors) - PATH_PARAMETERS)
        if strange:
            raise TypeError(
                f"the route {path!r} names {strange[0]}: a binding knows {', '.join(sorted(PATH_PARAMETERS))}"
            )
        found |= {(route.path_format, method.lower()): guards[0] for method in route.methods or ()}
    return found


def describe_keys(document: dict[str, Any], scopes: dict[tuple[str, str], Guard]) -> None:
    """Adds to an OpenAPI document that calls ask for a key, with which scope, and how they are refused."""
    components = document.setdefault("components", {})
    components["securitySchemes"] = {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "description": "A key made with `midband key create`. While none exists, the service listens on its own "
            "machine only and asks for none.",
        }
    }
    refusal = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            guard = scopes[path, method]
            if guard.open:
                operation["security"] = []
                continue
            # The empty one: without keys nothing is asked for.
            operation["security"] = [{"key": [] if guard.scope is None else [str(guard.scope)]}, {}]
            operation["responses"].setdefault(
                "401", {"description": "`unauthenticated`: no key, or none that is in force", "content": refusal}
            )
            operation["responses"].setdefault(
                "403", {"description": "`missing_scope`, `foreign_origin`", "content": refusal}
            )


def _leaves(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """Routes, also those of routers that the framework keeps as they were included."""
    for route in routes:
        router = getattr(route, "original_router", None)
        if router is None:
            yield route
        else:
            yield from _leaves(router.routes)


def _presented(headers: Headers) -> str | None:
    """What the call brings as a key."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def _permit_pool(access: Access, pool: str) -> None:
    if not access.reaches_pool(pool):
        raise no_pool(pool)


async def _permit_run(request: Request, access: Access, run: str) -> None:
    pool = await _pool_of(request, run) if access.bound_by_pool else None
    if not access.reaches_run(run, pool):
        raise no_run(run)


async def _pool_of(request: Request, run: str) -> str | None:
    try:
        return await service_of(request).pool_of(run)
    except UnknownRun:
        return None


async def _record(request: Request, target: str) -> None:
    """Into the trail, before it is done: nothing is changed that the trail does not have."""
    action = f"{request.method} {request.scope['route'].path}"
    engine, key, at = request.app.state.database, access_of(request).prefix, time.time()

    def insert() -> None:
        with write(engine) as connection:
            insert_call(connection, at=at, key=key, action=action, target=target[:TARGET_CHARACTERS])

    await run_in_threadpool(insert)
