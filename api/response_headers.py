"""What every answer tells a browser: take nothing for what it does not say it is, show it in no frame, keep no copy.

`create_app` adds the middleware, and `api.errors` writes the same headers on answers that no middleware sees. An
answer's own header stands: a page that loads scripts brings its own policy. An answer from a copy of a run says how old
that is.
"""

from collections.abc import Mapping
from contextvars import ContextVar

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECURITY_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",  # answers hold prompts, and what is true now
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

# Set where an answer comes from a copy of a run that another server writes: seconds since it followed the log.
STATE_AGE_S: ContextVar[float | None] = ContextVar("state_age_s", default=None)
STATE_AGE = "Midband-State-Age"

DOCS_PATH = "/docs"


class ResponseHeaders:
    """ASGI middleware: adds what an answer does not have."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if (age_s := STATE_AGE_S.get()) is not None:
                    headers[STATE_AGE] = f"{age_s:.3f}"
            await send(message)

        await self.app(scope, receive, send_with_headers)
