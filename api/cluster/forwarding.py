"""Which calls an edge sends on to a run's own process, how they travel, and what becomes of one whose process ends.

The edge is the ordinary app with `Forwarding` as its innermost middleware: who calls and how large a body may be is
settled there, and pools, uploads, lists and comparisons are answered there, from the database. The process of a run is
the same app again, which `answer_of` calls. How a call reaches that process is the `Send` that it is given; Ray is one
(`api.cluster.ray`), and nothing here knows it.
"""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope
from starlette.types import Send as AsgiSend

from api.errors import ApiError, Busy, NotOwner, OutcomeUnknown, ServiceError, error_response
from api.leases import Leases
from api.request_ids import HEADER, request_id_of

# The log is read from the database, in parts: it needs nobody, and may be longer than one answer should be.
OF_A_RUN = re.compile(r"/v1/runs/(?P<run>[^/]+)(?!/events/?\Z)(/.*)?")
RESTORE = re.compile(r"/v1/runs/[^/]+/restore/?")
# Of ASGI's scope, what is plain data. The rest belongs to the server that made it.
CARRIED = (
    "type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path", "headers",
    "client", "server",
)  # fmt: skip
PATIENCE_S = 60.0  # with a process that begins anew; callers then come back by themselves
ANSWER_S = 300.0  # of one call: what takes longer hangs
PAUSE_S = 0.2

logger = logging.getLogger("midband.api")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a run, as it travels."""

    run: str
    scope: dict[str, Any]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a run's process said. `route`: as the contract writes it, for figures."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    route: str | None


class Gone(Exception):
    """The run's process ended before it answered, or there is none; whether it did what it was asked is not known."""


Send = Callable[[Call], Awaitable[Answer]]  # raises Gone


class Lookout(Leases):
    """Of a server that owns no run: what it is asked to look at it reads from a copy, as of another server's run."""

    @classmethod
    def started(cls, database: Engine, address: str) -> Self:
        return cls(database, address)

    def stop(self) -> None:
        """Nothing is held."""

    def claim(self, run_id: int, run: str) -> int:
        raise NotOwner(f"run {run!r} is written by a process of its own; send it again")


class Forwarding:
    """ASGI middleware: a call about a run that exists is answered by the run's process, all others by this app.

    Name a run that does not exist, and no process is begun for it.
    """

    def __init__(self, app: ASGIApp, *, send: Send) -> None:
        self.app, self.send_on = app, send

    async def __call__(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        named = OF_A_RUN.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if named is None or not await _exists(scope, named["run"]):
            await self.app(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            return
        try:
            answer = await until_answered(self.send_on, _call(named["run"], scope, body))
        except ApiError as error:
            await error_response(error, scope)(scope, receive, send)
            return
        if answer.route is not None:
            scope["route"] = SimpleNamespace(path=answer.route)
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.body})


class OneName:
    """ASGI middleware, around the whole app of an edge: leaves the request's name to the server in front, which gives
    it to the app and puts it on every answer, whatever stands there.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        async def send_without(message: Message) -> None:
            if message["type"] == "http.response.start":
                del MutableHeaders(scope=message)[HEADER]
            await send(message)

        await self.app(scope, receive, send_without)


async def until_answered(
    send: Send, call: Call, *, patience_s: float = PATIENCE_S, answer_s: float = ANSWER_S, pause_s: float = PAUSE_S
) -> Answer:
    """The answer of the run's process, asked again where that is safe.

    Raises Busy when patience has ended, and OutcomeUnknown where a call may not be sent again.
    """
    now = asyncio.get_running_loop().time
    until = now() + patience_s
    while True:
        try:
            async with asyncio.timeout(answer_s):
                return await send(call)
        except Gone as error:
            if not is_repeatable(call):
                raise _unknown(call, "ended") from error
            if now() >= until:
                raise Busy(f"the process of run {call.run!r} ended and is not there again; send it again") from error
            await asyncio.sleep(pause_s)
        except TimeoutError as error:
            if not is_repeatable(call):
                raise _unknown(call, f"has not answered for {answer_s:g} s") from error
            raise Busy(f"the process of run {call.run!r} has not answered for {answer_s:g} s; send it again") from error


def is_repeatable(call: Call) -> bool:
    """Whether a call may be carried out twice: all of the contract's, but a restore without a `restore_id`, each of
    which begins a branch of its own.
    """
    if call.scope["method"] != "POST" or RESTORE.fullmatch(call.scope["path"]) is None:
        return True
    try:
        asked = json.loads(call.body)
    except ValueError:
        return False
    return isinstance(asked, dict) and asked.get("restore_id") is not None


async def answer_of(app: ASGIApp, call: Call) -> Answer:
    """What this app answers, whole."""
    asked, never = False, asyncio.Event()
    status: int | None = None
    headers: list[tuple[bytes, bytes]] = []
    body = bytearray()

    async def receive() -> Message:
        nonlocal asked
        if asked:
            await never.wait()  # the caller is the edge, and does not hang up
        asked = True
        return {"type": "http.request", "body": call.body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], [(bytes(name), bytes(value)) for name, value in message["headers"]]
        else:
            body.extend(message.get("body", b""))

    scope = {**call.scope, "headers": list(call.scope["headers"])}
    try:
        await app(scope, receive, send)
    except Exception:
        if status is None:
            raise
        logger.exception("a call about run %s failed; its caller was told", call.run)
    if status is None:
        raise RuntimeError(f"a call about run {call.run!r} came to no answer")
    route = getattr(scope.get("route"), "path", None)
    return Answer(status=status, headers=headers, body=bytes(body), route=route)


async def _exists(scope: Scope, run: str) -> bool:
    try:
        await scope["app"].state.service.pool_of(run)
    except (ServiceError, SQLAlchemyError):  # the app meets the same, and has the words for it
        return False
    return True


async def _body(receive: Receive) -> bytes | None:
    """All of it; None where the caller hung up."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body.extend(message.get("body", b""))
        more = message.get("more_body", False)
    return bytes(body)


def _call(run: str, scope: Scope, body: bytes) -> Call:
    carried = {name: scope[name] for name in CARRIED if name in scope}
    carried["headers"] = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
    MutableHeaders(raw=carried["headers"])[HEADER] = request_id_of(scope)  # one name, here and there
    return Call(run=run, scope=carried, body=body)


def _unknown(call: Call, what: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the process of run {call.run!r} {what} before it answered a restore without `restore_id`: look whether the "
        "run has a new branch, and give a `restore_id` so that a restore can be sent again"
    )
