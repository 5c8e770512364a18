"""The name of one request, for finding it in the log: taken from X-Request-ID where that is sane, else made here.

Error answers, middlewares and logs ask `request_id_of`; the middleware puts the name on every answer.
"""

import re
import uuid
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "X-Request-ID"
# Anything else could forge lines of a log or break a header; such a name is replaced, not repaired.
SANE = re.compile(r"[A-Za-z0-9._:-]{1,100}")


def request_id_of(scope: MutableMapping[str, Any]) -> str:
    """The request's name; made at the first call, the same at every later one."""
    state = scope.setdefault("state", {})
    if "request_id" not in state:
        given = Headers(scope=scope).get(HEADER, "")
        state["request_id"] = given if SANE.fullmatch(given) else uuid.uuid4().hex
    request_id: str = state["request_id"]
    return request_id


class RequestIds:
    """ASGI middleware: every answer carries the request's name."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = request_id_of(scope)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        await self.app(scope, receive, send_with_id)
