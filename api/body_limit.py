"""Stops a request body that is too large, whether its length is declared or only shows while it streams in.

Added to the app by `create_app`. Pure ASGI: nothing is buffered, bytes are counted on their way.
"""

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import BodyTooLarge, error_response

IMPORT_PATH = re.compile(r"/v1/pools/[^/]+/prompts/?")


class BodyLimit:
    """ASGI middleware: 413 above `max_body_bytes`, or above `max_import_bytes` for an upload of prompts.

    Whatever the app answers once the limit is passed is replaced: a framework may turn the interrupted read into an
    answer of its own.
    """

    def __init__(self, app: ASGIApp, *, max_body_bytes: int, max_import_bytes: int) -> None:
        self.app = app
        self.max_body_bytes = max_body_bytes
        self.max_import_bytes = max_import_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        upload = scope["method"] == "PUT" and IMPORT_PATH.fullmatch(scope["path"]) is not None
        limit = self.max_import_bytes if upload else self.max_body_bytes
        refusal = error_response(BodyTooLarge(f"the body is larger than {limit} bytes"), scope)
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared) > limit:
            await refusal(scope, receive, send)
            return
        received, refused, answered = 0, False, False

        async def counted() -> Message:
            nonlocal received, refused
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > limit:
                    refused = True
                    raise _LimitPassed
            return message

        async def guarded(message: Message) -> None:
            nonlocal answered
            if refused and not answered:
                return
            answered = True
            await send(message)

        try:
            await self.app(scope, counted, guarded)
        except Exception:
            if not refused or answered:
                raise
        if refused and not answered:
            await refusal(scope, receive, send)


class _LimitPassed(Exception):
    """Ends the app's reading; never leaves this module."""
