"""Stops a request body that is too slow, or too large: by its declared length, or when that shows while it streams in.

Added to the app by `create_app`. Pure ASGI: nothing is buffered, bytes are counted on their way.
"""

import asyncio
import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import ApiError, BodyTooLarge, BodyTooSlow, error_response

BODY_TIME_S = 60.0  # from the first byte that is waited for to the last; 64 MiB take 10 s at 50 Mbit/s
IMPORT_TIME_S = 3_600.0  # the same for an upload of prompts, as long as our client waits for one
IMPORT_PATH = re.compile(r"/v1/pools/[^/]+/prompts/?")


class BodyLimit:
    """ASGI middleware: 413 above `max_body_bytes`, or above `max_import_bytes` for an upload of prompts; 408 for a body
    that is not there within `body_time_s`, or `import_time_s`.

    Whatever the app answers once a limit is passed is replaced: a framework may turn the interrupted read into an
    answer of its own.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_body_bytes: int,
        max_import_bytes: int,
        body_time_s: float = BODY_TIME_S,
        import_time_s: float = IMPORT_TIME_S,
    ) -> None:
        self.app = app
        self.body_limits = max_body_bytes, body_time_s
        self.import_limits = max_import_bytes, import_time_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        upload = scope["method"] == "PUT" and IMPORT_PATH.fullmatch(scope["path"]) is not None
        limit, time_s = self.import_limits if upload else self.body_limits
        too_large = BodyTooLarge(f"the body is larger than {limit} bytes")
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared) > limit:
            await error_response(too_large, scope)(scope, receive, send)
            return
        refusal: ApiError | None = None
        received, complete, answered = 0, False, False
        until = asyncio.get_running_loop().time() + time_s

        async def counted() -> Message:
            nonlocal received, complete, refusal
            try:
                # Behind the body comes the word that the caller hung up, which has no time of its own.
                async with asyncio.timeout_at(None if complete else until):
                    message = await receive()
            except TimeoutError:
                refusal = BodyTooSlow(f"the body was not there within {time_s:g} s; {received} bytes were")
                raise _LimitPassed from None
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                if received > limit:
                    refusal = too_large
                    raise _LimitPassed
            return message

        async def guarded(message: Message) -> None:
            nonlocal answered
            if refusal is not None and not answered:
                return
            answered = True
            await send(message)

        try:
            await self.app(scope, counted, guarded)
        except Exception:
            if refusal is None or answered:
                raise
        if refusal is not None and not answered:
            await error_response(refusal, scope)(scope, receive, send)


class _LimitPassed(Exception):
    """Ends the app's reading; never leaves this module."""
