"""The service inside the caller's own process, behind the same blocking client.

`midband.in_process()` builds it around the real app, so validation, errors and storage are those of a server; only the
socket is missing. The app runs in an event loop on a thread of its own: any number of caller threads may use it, also
from inside another event loop. It knows ASGI and nothing of what the app does.
"""

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401  its exit hook must be there before ours: the last to come runs first
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Self

import httpx

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]


class InProcessTransport(httpx.BaseTransport):
    """Runs an ASGI app: started when this object is made, shut down by `close` or at the latest when Python exits.

    Raises what the app raises while it starts. An error in a request is a 500, as over a network.
    """

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._state: dict[str, Any] = {}  # what the app's start leaves for its requests (the lifespan state of ASGI)
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._ended: Future[None] = Future()
        self._closing = threading.Lock()
        self._process = os.getpid()
        self._stop: asyncio.Event
        self._inner = httpx.ASGITransport(app=self._with_state, raise_app_exceptions=False)
        # Daemon, as a caller that forgets to close must still be able to exit; it is then closed in good order.
        self._thread = threading.Thread(target=self._run, name="midband in-process service", daemon=True)
        self._thread.start()
        self._loop = self._started.result()
        _at_exit(weakref.WeakMethod(self.close))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if os.getpid() != self._process:
            raise RuntimeError(
                "this in-process service lives in the parent process: make the client after forking, or run "
                "`midband serve` and give every process a client of its URL"
            )
        if self._ended.done() or self._stop.is_set():
            raise RuntimeError("this in-process service is closed; make a new one")
        request.read()
        try:
            return asyncio.run_coroutine_threadsafe(self._respond(request), self._loop).result()
        except CancelledError as error:
            raise RuntimeError("this in-process service was closed while it was answering") from error

    def close(self) -> None:
        """Shut the app down and wait for it; calling it again does nothing. Raises what the shutdown raised."""
        if os.getpid() != self._process:
            return
        with self._closing:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._stop.set)
                self._thread.join()
        self._ended.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.close()

    async def _respond(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        content = b"".join([part async for part in response.aiter_raw()])
        return httpx.Response(response.status_code, headers=response.headers, stream=httpx.ByteStream(content))

    async def _with_state(self, scope: Message, receive: Receive, send: Send) -> None:
        await self._app({**scope, "state": dict(self._state)}, receive, send)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            # To whoever waits: the maker while the app starts, `close` afterwards.
            waiting = self._ended if self._started.done() else self._started
            waiting.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _live(self) -> None:
        """The app's lifespan, entered and left in one task, as context managers inside the app need."""
        self._stop = asyncio.Event()
        messages = iter(("startup", "shutdown"))

        async def receive() -> Message:
            stage = next(messages)
            if stage == "shutdown":
                await self._stop.wait()
            return {"type": f"lifespan.{stage}"}

        async def send(message: Message) -> None:
            match message["type"]:
                case "lifespan.startup.complete":
                    self._started.set_result(asyncio.get_running_loop())
                case "lifespan.startup.failed" | "lifespan.shutdown.failed":
                    failure.append(str(message.get("message", "")))

        failure: list[str] = []
        scope: Message = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        await self._app(scope, receive, send)
        if failure or not self._started.done():
            raise RuntimeError(f"the service did not start or end in good order: {''.join(failure) or 'no word of it'}")


def _at_exit(close: "weakref.WeakMethod[Callable[[], None]]") -> None:
    """Close what is still there when the program ends, while thread pools still take work.

    An ordinary atexit function comes too late for that: pools are shut before, and an app that ends in good order uses
    them. The earlier hook is Python's own and has no public name.
    """

    def close_if_there() -> None:
        if (method := close()) is not None:
            method()

    getattr(threading, "_register_atexit", atexit.register)(close_if_there)
