"""The awaited client: the blocking one's calls, all of them, and what becomes of an await that is given up."""

import asyncio
import inspect
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

import midband
from tests.trainer.factories import batch_body, ok
from trainer import async_client
from trainer.async_client import AsyncClient
from trainer.client import Client
from trainer.errors import InvalidRequest, ServiceUnavailable
from trainer.transport import InProcessTransport


@pytest.fixture
def transport(tmp_path: object) -> Iterator[InProcessTransport]:
    from api.app import create_app
    from api.settings import Settings

    with InProcessTransport(create_app(Settings(database_url=f"sqlite:///{tmp_path}/a.db"))) as transport:
        yield transport


def public(kind: type) -> set[str]:
    return {name for name, value in inspect.getmembers(kind, callable) if not name.startswith("_")}


def test_every_call_of_the_client_can_be_awaited() -> None:
    assert public(AsyncClient) - {"aclose"} == public(Client) - {"close"}
    assert midband.AsyncClient is AsyncClient
    assert AsyncClient.draw.__doc__ == Client.draw.__doc__


def test_the_loop_of_a_trainer_as_tasks(transport: InProcessTransport) -> None:
    async def train() -> tuple[int, list[int], int]:
        async with AsyncClient("http://in-process", transport=transport) as client:
            await client.create_pool("p")
            await client.put_prompts("p", [{"key": f"p{n}"} for n in range(40)])
            await client.create_run("r", pool="p", group_size=2)
            batches = await asyncio.gather(*(client.draw("r", index, 4, 0) for index in range(5)))
            await asyncio.gather(
                *(client.report("r", [midband.group(ticket, [0, 1]) for ticket in batch.tickets]) for batch in batches)
            )
            log = [event["seq"] async for event in client.events("r")]
            return (await client.run("r")).tickets.reported, log, (await client.run("r")).tickets.open

    reported, log, still_open = asyncio.run(train())
    assert (reported, still_open) == (20, 0)
    assert log == sorted(log)
    assert len(log) >= 10


def test_a_long_log_comes_in_parts_without_a_gap(
    transport: InProcessTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_client, "EVENTS_AT_ONCE", 2)

    async def read() -> tuple[list[int], list[int]]:
        async with AsyncClient("http://in-process", transport=transport) as client:
            await client.create_pool("p")
            await client.put_prompts("p", [{"key": f"p{n}"} for n in range(40)])
            await client.create_run("r", pool="p")
            for index in range(5):
                await client.draw("r", index, 2, 0)
            whole = [event["seq"] async for event in client.events("r")]
            return whole, [event["seq"] async for event in client.events("r", after=whole[1])]

    whole, rest = asyncio.run(read())
    assert len(whole) > 4
    assert rest == whole[2:]


def test_errors_are_those_of_the_client() -> None:
    async def ask() -> None:
        async with AsyncClient("http://midband", transport=httpx.MockTransport(lambda request: ok({}))) as client:
            with pytest.raises(InvalidRequest, match="size"):
                await client.draw("r", 0, 0, 0)

    asyncio.run(ask())
    with pytest.raises(InvalidRequest, match="threads must be >= 1, got 0"):
        AsyncClient(threads=0)


def test_a_service_that_stays_away_is_an_error_after_the_patience() -> None:
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async def ask() -> None:
        async with AsyncClient("http://midband", transport=httpx.MockTransport(away), patience_s=0.05) as client:
            await client.runs()

    with pytest.raises(ServiceUnavailable, match="refused"):
        asyncio.run(ask())


def test_a_call_that_was_given_up_is_not_tried_again() -> None:
    tries = list[float]()
    tried = threading.Event()

    def away(request: httpx.Request) -> httpx.Response:
        tries.append(time.monotonic())
        tried.set()
        raise httpx.ConnectError("refused")

    async def give_up() -> None:
        async with AsyncClient("http://midband", transport=httpx.MockTransport(away), patience_s=600) as client:
            call = asyncio.create_task(client.draw("r", 0, 4, 0))
            await asyncio.to_thread(tried.wait, 20)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            # Leaving the block waits for the threads: with tries going on it would last for the patience.

    asyncio.run(asyncio.wait_for(give_up(), 60))
    assert len(tries) <= 2


def test_no_more_calls_are_under_way_than_there_are_threads() -> None:
    lock, now, most = threading.Lock(), 0, 0

    def slow(request: httpx.Request) -> httpx.Response:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1
        return ok(batch_body("a"))

    async def ask() -> None:
        async with AsyncClient("http://midband", transport=httpx.MockTransport(slow), threads=2) as client:
            await asyncio.gather(*(client.draw("r", 0, 1, 0) for _ in range(8)))

    asyncio.run(ask())
    assert most == 2
