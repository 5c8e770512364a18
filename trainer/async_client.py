"""The client for callers that live in an event loop: the same calls under the same names and types, to be awaited.

Each call is the blocking client's own, run on one of a few threads. So there is one body of every call, one set of
rules for retries and for following a run to its owner, and the checking of thousands of rollouts on the way out and in
does not hold up the loop, which a client with sockets of the loop's own would do.

What that means for cancelling: a try that is on the wire cannot be called back. An await that is cancelled returns at
once; its try comes to its own end, at the latest by its time-out, no further one follows, and what the service did with
it stands. Every call is idempotent, so making it again is safe.
"""

import asyncio
import contextvars
import copy
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from trainer.bodies import JsonObject
from trainer.client import DEFAULT_URL, TIMEOUT_S, Client
from trainer.errors import InvalidRequest, MidbandError
from trainer.retry import PATIENCE_S, Backoff

THREADS = 8  # calls at a time; a trainer has one or two under way, a crowd of rollout workers some more
EVENTS_AT_ONCE = 1_000  # of the log, read on a thread before the loop sees them

P = ParamSpec("P")
T = TypeVar("T")

# Whether the await that the current thread works for has been given up. Each call has one of its own.
_given_up: contextvars.ContextVar[threading.Event] = contextvars.ContextVar("midband_given_up")


class _GivenUp(MidbandError):
    """Ends the retries of a call that nobody waits for any more; never seen by a caller."""


def _awaited(
    call: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    """The same call on a thread of an `AsyncClient`."""

    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(lambda: call(self._client, *args, **kwargs))

    method.__name__, method.__doc__ = call.__name__, call.__doc__
    method.__qualname__ = f"AsyncClient.{call.__name__}"
    return method


class AsyncClient:
    """A connection to one midband service for tasks of an event loop. The arguments are those of `Client`.

    `threads`: how many calls may be under way; further ones wait their turn. Close it with `await aclose()`, or use it
    in an `async with`.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        key: str | None = None,
        transport: httpx.BaseTransport | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        threads: int = THREADS,
    ) -> None:
        if threads < 1:
            raise InvalidRequest(f"threads must be >= 1, got {threads}")
        self._client = Client(
            base_url,
            key=key,
            transport=transport,
            timeout_s=timeout_s,
            backoff=Backoff(patience_s=patience_s, sleep=_sleep_unless_given_up),
        )
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="midband-client")

    def __repr__(self) -> str:
        return f"Async{self._client!r}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    def waiting(self, patience_s: float) -> "AsyncClient":
        """A client on the same connection and threads with another patience; closing either closes both."""
        twin = copy.copy(self)
        twin._client = self._client.waiting(patience_s)
        return twin

    async def aclose(self) -> None:
        """Wait for the tries under way, then let go of the connection. Calling it again does nothing."""
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._client.close)

    version = _awaited(Client.version)

    create_pool = _awaited(Client.create_pool)
    pools = _awaited(Client.pools)
    pool = _awaited(Client.pool)
    archive_pool = _awaited(Client.archive_pool)
    put_prompts = _awaited(Client.put_prompts)
    prompts = _awaited(Client.prompts)
    prompt = _awaited(Client.prompt)
    export_prompts = _awaited(Client.export_prompts)
    quarantine = _awaited(Client.quarantine)

    create_run = _awaited(Client.create_run)
    configure = _awaited(Client.configure)
    runs = _awaited(Client.runs)
    presets = _awaited(Client.presets)
    run = _awaited(Client.run)
    complete = _awaited(Client.complete)

    draw = _awaited(Client.draw)
    batch = _awaited(Client.batch)
    tickets = _awaited(Client.tickets)
    fetch_rollouts = _awaited(Client.fetch_rollouts)
    report = _awaited(Client.report)

    step = _awaited(Client.step)
    push_signals = _awaited(Client.push_signals)
    checkpoint = _awaited(Client.checkpoint)
    checkpoints = _awaited(Client.checkpoints)
    restore = _awaited(Client.restore)

    audit = _awaited(Client.audit)
    costs = _awaited(Client.costs)
    curve = _awaited(Client.curve)
    diagnosis = _awaited(Client.diagnosis)
    report_text = _awaited(Client.report_text)
    compare = _awaited(Client.compare)
    beliefs = _awaited(Client.beliefs)

    async def events(self, run: str, *, after: int = 0) -> AsyncIterator[JsonObject]:
        """The run's log, oldest first, behind position `after`; each event holds its own position as `seq`."""
        log = self._client.events(run, after=after)
        while some := await self._run(lambda: list(islice(log, EVENTS_AT_ONCE))):
            for event in some:
                yield event

    async def _run(self, call: Callable[[], T]) -> T:
        given_up = threading.Event()
        context = contextvars.copy_context()
        context.run(_given_up.set, given_up)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, context.run, call)
        finally:
            given_up.set()


def _sleep_unless_given_up(seconds: float) -> None:
    if _given_up.get().wait(seconds):
        raise _GivenUp("nobody waits for this call any more")
