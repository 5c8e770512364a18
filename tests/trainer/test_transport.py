import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from trainer.transport import InProcessTransport

ROOT = Path(__file__).resolve().parents[2]


async def echo(request: Request) -> Response:
    body = await request.body()
    return JSONResponse(
        {"path": request.url.path, "query": request.url.query, "body": body.decode(), "number": request.state.number}
    )


async def together(request: Request) -> Response:
    """Answers when as many requests wait as are expected: only possible if they run at the same time."""
    request.state.log.append("arrived")
    await asyncio.wait_for(request.state.barrier.wait(), timeout=30)
    return Response()


async def stream(request: Request) -> Response:
    async def parts() -> AsyncIterator[bytes]:
        for part in (b"one ", b"two ", b"three"):
            yield part

    return StreamingResponse(parts())


async def fail(request: Request) -> Response:
    raise ValueError("a bug")


def make_app(log: list[str], lifespan: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None) -> Starlette:
    @asynccontextmanager
    async def logged(app: Starlette) -> AsyncIterator[dict[str, object]]:
        log.append(f"start on {threading.current_thread().name}")
        async with asyncio.timeout(600):  # must be left in the task that entered it
            yield {"number": 7, "barrier": asyncio.Barrier(8), "log": log}
        log.append("stop")

    routes = [Route("/together", together), Route("/stream", stream), Route("/fail", fail)]
    routes.append(Route("/{rest:path}", echo, methods=["GET", "PUT"]))
    return Starlette(routes=routes, lifespan=lifespan or logged)


def client_of(app: Starlette) -> httpx.Client:
    return httpx.Client(base_url="http://midband", transport=InProcessTransport(app))


def test_the_app_is_started_before_the_first_request_and_stopped_by_close() -> None:
    log: list[str] = []
    client = client_of(make_app(log))
    assert log == ["start on midband in-process service"]
    client.close()
    assert log[1:] == ["stop"]
    client.close()
    assert log[1:] == ["stop"]


def test_a_request_arrives_whole_and_sees_what_the_start_left() -> None:
    with client_of(make_app([])) as client:
        answer = client.put("/p/a%2Fb", params={"x": "1"}, content=iter([b"one ", b"two"])).json()
        assert answer == {"path": "/p/a/b", "query": "x=1", "body": "one two", "number": 7}
        assert client.get("/stream").text == "one two three"


def test_an_error_in_the_app_is_an_answer_as_over_a_network() -> None:
    with client_of(make_app([])) as client:
        assert client.get("/fail").status_code == 500
        assert client.get("/").status_code == 200


def test_threads_share_one_service_and_are_answered_at_the_same_time() -> None:
    with client_of(make_app([])) as client, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: client.get("/together").status_code, range(8)))
    assert answers == [200] * 8


def test_it_can_be_used_where_an_event_loop_runs_already() -> None:
    async def inside() -> int:
        with client_of(make_app([])) as client:
            return client.get("/").status_code

    assert asyncio.run(inside()) == 200


def test_a_start_that_fails_is_the_callers_error() -> None:
    @asynccontextmanager
    async def failing(app: Starlette | None) -> AsyncIterator[None]:
        if app is not None:
            raise OSError("the database is locked")
        yield

    with pytest.raises(OSError, match="the database is locked"):
        client_of(make_app([], failing))


def test_a_shutdown_that_fails_is_the_callers_error() -> None:
    @asynccontextmanager
    async def failing(app: Starlette) -> AsyncIterator[None]:
        yield
        raise OSError("the disk is full")

    transport = InProcessTransport(make_app([], failing))
    with pytest.raises(OSError, match="the disk is full"):
        transport.close()


def test_a_closed_service_says_so() -> None:
    transport = InProcessTransport(make_app([]))
    transport.close()
    with pytest.raises(RuntimeError, match="is closed"):
        transport.handle_request(httpx.Request("GET", "http://midband/"))


def test_a_forked_process_is_told_to_make_its_own_and_ends_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    with InProcessTransport(make_app([])) as transport:
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: -1)
            with pytest.raises(RuntimeError, match="after forking"):
                transport.handle_request(httpx.Request("GET", "http://midband/"))
            transport.close()
        assert transport.handle_request(httpx.Request("GET", "http://midband/")).status_code == 200


def test_a_call_under_way_when_the_service_is_closed_ends_with_a_reason() -> None:
    log: list[str] = []
    transport = InProcessTransport(make_app(log))
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(transport.handle_request, httpx.Request("GET", "http://midband/together"))
        while "arrived" not in log:
            time.sleep(0.01)
        transport.close()
        with pytest.raises(RuntimeError, match="closed while it was answering"):
            waiting.result(timeout=30)


def test_a_program_that_forgets_to_close_still_ends_and_shuts_the_app_down() -> None:
    code = (
        "from tests.trainer.test_transport import client_of, make_app, asynccontextmanager\n"
        "import asyncio\n"
        "@asynccontextmanager\n"
        "async def lifespan(app):\n"
        "    yield {'number': 7}\n"
        "    await asyncio.to_thread(print, 'a thread still works', flush=True)\n"
        "    print('shut down', flush=True)\n"
        "client = client_of(make_app([], lifespan))\n"
        "print(client.get('/').status_code, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.split("\n"), done.stderr) == (
        0,
        ["200", "a thread still works", "shut down", ""],
        "",
    )
