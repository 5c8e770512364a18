"""The service behind the routes: pools and runs by name, commands to a run's one writer, answers ready to send.

Routes call it from the event loop; all maths and all database work happen in worker threads. One instance per process,
built in `create_app`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
import orjson
from sqlalchemy.exc import SQLAlchemyError

from api import batch_views, convert, fetching, schemas, views
from api.beginning import begin_run, is_there, learned_by
from api.db import pools as pool_queries
from api.db import runs as run_queries
from api.db.runs import StoredRun
from api.db.session import read
from api.errors import NotOwner, ServiceError, UnknownRun, no_run
from api.event_lines import event_lines
from api.hosting import Command, RunHost, Work
from api.response_headers import STATE_AGE_S
from api.run_metrics import Standing
from api.store import RunStore
from selector.audit.feature_parts import Parts
from selector.config import RunConfig
from selector.errors import RunComplete, SelectorError, UnknownBatch, UnknownConfig
from selector.run.events import WarmStarted
from selector.run.frozen import ALL_THAT_IS_READ, frozen
from selector.run.state import DrawnBatch, RunState

logger = logging.getLogger("midband.api")

T = TypeVar("T")
WORKERS = 8  # threads that carry out commands; one run never uses two at a time
SURVEYS = 2  # copies of runs at one time; that of a large run takes some hundred megabytes
EXPIRY_PERIOD_S = 1.0  # how often deadlines are looked at when nobody draws or reports


class RunService:
    """Runs by name. Coroutines only; safe to call from any number of requests at once."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self._executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="run")
        self._hosts: dict[str, RunHost] = {}
        self._pool_names: dict[str, str] = {}  # of runs that were asked for; a run keeps its pool
        self._surveys = asyncio.Semaphore(SURVEYS)
        self._expiry: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to watch deadlines."""
        self._expiry = asyncio.create_task(self._watch_deadlines())

    async def stop(self) -> None:
        """Waits for what is under way and stores a snapshot of every run in memory."""
        if self._expiry is not None:
            self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)
        await asyncio.to_thread(self._executor.shutdown)
        for host in self._hosts.values():
            await asyncio.to_thread(host.close)

    def standings(self) -> list[Standing]:
        """Where every run stands that was asked for, for figures. From any thread."""
        return [host.standing() for host in list(self._hosts.values())]

    async def create_run(self, request: schemas.RunRequest) -> tuple[dict[str, Any], bool]:
        """The answer, and whether the run is new. Raises UnknownPool, UnknownConfig, RunConflict, and UnknownRun or
        UnknownCheckpoint for what it is to start from.
        """
        if request.start_from is not None and not await asyncio.to_thread(is_there, self.store, request.name):
            config, warm = await self._warm_start(request, request.start_from)
            return await asyncio.to_thread(begin_run, self.store, request, config, warm)
        return await asyncio.to_thread(begin_run, self.store, request)

    async def command(self, run: str, command: Command[T]) -> T:
        """Carries out a command on a run, in turn. Raises UnknownRun, Busy, NotOwner and what the command raises."""
        with self.store.turns.foremost():
            host = await self._host(run)
            return await asyncio.wrap_future(host.submit(command))

    async def look(self, run: str, command: Command[T]) -> T:
        """The same for a command that changes nothing. On a run of another server it sees a copy; STATE_AGE_S then
        says in the caller's context how old that is.
        """
        with self.store.turns.foremost():
            host = await self._host(run)
            result, age_s = await asyncio.wrap_future(host.submit(lambda work: (command(work), work.age_s), reads=True))
        if age_s is not None:
            STATE_AGE_S.set(age_s)
        return result

    async def survey(self, run: str, read_state: Callable[[RunState], T], *, rollouts: bool = True) -> T:
        """What is read of all that a run has recorded. Only a copy is taken in the run's turn; the rest is done beside
        it, and keeps no draw waiting. rollouts: whether single ones are read.
        """
        async with self._surveys:
            columns = ALL_THAT_IS_READ if rollouts else ()
            state = await self.look(run, lambda work: frozen(work.engine.state, columns))
            return await asyncio.to_thread(read_state, state)

    async def audit(self, run: str, read_state: Callable[[RunState, Mapping[str, Parts]], T]) -> T:
        """A survey with the parts of the run's pool by its features, whether or not the run itself reads them."""
        stored = (await self._host(run)).run
        return await self.survey(run, lambda state: read_state(state, self.store.feature_parts(stored, state.pool)))

    async def draw(self, run: str, request: schemas.BatchRequest) -> bytes:
        """Draws a batch, or finds it when it was drawn before; as JSON, since batches can be large."""

        def command(work: Work) -> bytes:
            wanted = convert.to_draw(request, work.engine.state.config)
            try:
                event = work.engine.draw(wanted, now=work.now)
            except RunComplete:
                return orjson.dumps(batch_views.complete_batch(work.engine.state, wanted))
            if event is not None:
                work.apply(event)
            state = work.engine.state
            return self._batch(work, state.batches[state.surviving[wanted.key]], request.include)

        return await self.command(run, command)

    async def batch(
        self, run: str, index: int, *, purpose: str, refill: int, branch: int | None, include: list[str]
    ) -> bytes:
        """A batch that was drawn, as JSON. Raises UnknownBatch."""

        def command(work: Work) -> bytes:
            state = work.engine.state
            key = (purpose, index, refill)
            ordinal = state.by_branch.get((branch, *key)) if branch is not None else None
            if ordinal is None and (branch is None or branch <= state.branch):
                ordinal = state.surviving.get(key)
            if ordinal is None:
                raise UnknownBatch(f"run {run!r} has no {purpose} batch {index}, refill {refill}, on this branch")
            return self._batch(work, state.batches[ordinal], include)

        return await self.look(run, command)

    async def report(self, run: str, read_body: Callable[[], schemas.ReportRequest]) -> dict[str, Any]:
        """Adds a report. `read_body` parses it, in a thread, as bodies can be large."""

        def command(work: Work) -> dict[str, Any]:
            decision = work.engine.report(report, now=work.now)
            if decision.event is not None:
                work.apply(decision.event)
                work.keep(decision.bodies)
            return views.report_answer(work.engine.state, decision)

        with self.store.turns.foremost():
            report = await asyncio.to_thread(lambda: convert.to_report(read_body()))
            return await self.command(run, command)

    async def fetch(self, run: str, ids: list[str]) -> bytes:
        """What prior rollouts say, as JSON, since it can be large. Raises StoreOff, UnknownRollout, Expired."""

        def command(work: Work) -> bytes:
            wanted = fetching.find(work.engine.state, ids)
            with read(self.store.database) as connection:
                return fetching.answer(connection, self._hosts[run].run.id, work.engine.state, wanted)

        return await self.look(run, command)

    async def step(self, run: str, request: schemas.StepRequest) -> dict[str, Any]:
        def command(work: Work) -> dict[str, Any]:
            event, rejected = work.engine.record_step(convert.to_step(request))
            if event is not None:
                work.apply(event)
            return {
                "step": request.step,
                "branch": work.engine.state.branch,
                "state": "duplicate" if event is None else "recorded",
                "rejected": views.rejections(rejected),
            }

        return await self.command(run, command)

    async def push_signals(self, run: str, request: schemas.SignalsRequest) -> dict[str, Any]:
        """Adds numbers about prompts; those that do not count are named in the answer."""

        def command(work: Work) -> dict[str, Any]:
            with read(self.store.database) as connection:
                rows = pool_queries.find_rows(connection, self._pool_id_of(work), list(request.features))
            decision = work.engine.push_signals(convert.to_signals(request, rows, work.engine.state.num_rows))
            if decision.event is not None:
                work.apply(decision.event)
            return views.signals_answer(request.policy_version, decision)

        return await self.command(run, command)

    async def checkpoint(self, run: str, step: int) -> dict[str, Any]:
        def command(work: Work) -> dict[str, Any]:
            event, known = work.engine.checkpoint(step)
            if event is not None:
                work.apply(event)
            checkpoint = known or work.engine.state.checkpoints[-1]
            return {
                "step": step,
                "branch": checkpoint.branch,
                "position": checkpoint.seq,
                "created": event is not None,
            }

        return await self.command(run, command)

    async def restore(self, run: str, request: schemas.RestoreRequest) -> dict[str, Any]:
        def command(work: Work) -> dict[str, Any]:
            event = work.engine.restore(
                request.step,
                beliefs=request.beliefs,
                in_flight=request.in_flight,
                restore_id=request.restore_id,
                now=work.now,
                archive=work,
            )
            if event is not None:
                reopened = work.engine.state.completed
                work.apply(event)
                if reopened:  # changes of the pool passed it by
                    work.see_pool()
            return work.engine.restore_answer(request.restore_id)

        return await self.command(run, command)

    async def configure(self, run: str, request: schemas.ConfigRequest) -> dict[str, Any]:
        def command(work: Work) -> dict[str, Any]:
            event = work.engine.configure(convert.changed_config(work.engine.state.config, request))
            if event is not None:
                work.apply(event)
            return views.run_created(run, work.engine.state.config)

        return await self.command(run, command)

    async def complete(self, run: str) -> dict[str, Any]:
        def command(work: Work) -> dict[str, Any]:
            event = work.engine.complete()
            if event is not None:
                work.apply(event)
            return views.run_info(work.engine.state)

        return await self.command(run, command)

    async def tickets(
        self, run: str, *, batch: int | None, state: str | None, purpose: str, limit: int, cursor: int
    ) -> dict[str, Any]:
        def command(work: Work) -> dict[str, Any]:
            table = work.engine.state.book.tickets
            wanted = np.ones(table.size, bool)
            if batch is not None:
                ordinals = [
                    b.ordinal
                    for b in work.engine.state.batches
                    if b.event.index == batch and b.event.purpose == purpose
                ]
                wanted &= np.isin(table["batch"], ordinals)
            if state is not None:
                wanted &= table["state"] == ("open", "reported", "void").index(state)
            return views.ticket_page(work.engine.state, tickets=np.flatnonzero(wanted), limit=limit, cursor=cursor)

        return await self.look(run, command)

    async def runs(self) -> list[dict[str, Any]]:
        """All runs, in the order in which they were made."""

        def query() -> list[dict[str, Any]]:
            with read(self.store.database) as connection:
                stored = run_queries.list_runs(connection)
                names = {run.pool_id: run_queries.pool_head(connection, run.pool_id)[0] for run in stored}
            return [{"run": run.name, "pool": names[run.pool_id], "completed": run.completed} for run in stored]

        return await asyncio.to_thread(query)

    async def pool_of(self, run: str) -> str:
        """The name of a run's pool. Raises UnknownRun."""

        def query() -> str:
            stored = self._find(run)
            with read(self.store.database) as connection:
                return run_queries.pool_head(connection, stored.pool_id)[0]

        if run not in self._pool_names:
            self._pool_names[run] = await asyncio.to_thread(query)
        return self._pool_names[run]

    async def events(self, run: str, after: int) -> Iterator[bytes]:
        """Lines of the log after a position. Raises UnknownRun."""
        stored = await asyncio.to_thread(self._find, run)
        return event_lines(self.store.database, stored.id, after)

    async def prompt_view(self, run: str, pool: str, rows: list[int]) -> dict[int, dict[str, Any]]:
        """What a run adds to prompts of its pool: belief, state, counts; for one prompt also its groups."""

        def command(work: Work) -> dict[int, dict[str, Any]]:
            state = work.engine.state
            if state.pool.name != pool:
                raise UnknownRun(f"run {run!r} is not on pool {pool!r} but on {state.pool.name!r}")
            known = [row for row in rows if row < state.num_rows]
            fields = views.prompt_fields(state, np.asarray(known, np.int64))
            if len(known) == 1:
                fields[known[0]]["groups"] = views.prompt_groups(state, known[0])
            return fields

        return await self.look(run, command)

    async def pool_changed(self, pool: str) -> None:
        """Puts the pool's newest revision into the log of each of its runs that has not ended."""
        going = [run for run in await asyncio.to_thread(self._runs_on, pool) if not run.completed]
        for run in going:
            if run.name in self._hosts:  # loaded before the run's turn, which finds it at hand
                await asyncio.to_thread(self.store.pool, run.pool_id, with_features=False, gently=True)
                break
        for run in going:
            with suppress(NotOwner):  # its owner looks at the pool before it carries out anything
                await self.command(run.name, lambda work: work.see_pool())

    def _runs_on(self, pool: str) -> list[StoredRun]:
        with read(self.store.database) as connection:
            return run_queries.list_runs(connection, pool_queries.get_pool(connection, pool).id)

    async def _warm_start(self, request: schemas.RunRequest, start: schemas.StartFrom) -> tuple[RunConfig, WarmStarted]:
        """The run's configuration, with the other one's estimator if the request leaves it to the default and that is
        what the other has, and what it is to begin with, as the other stands now or stood at a checkpoint.
        """
        pool = await self.pool_of(start.run)
        if pool != request.pool:
            raise UnknownConfig(f"start_from: run {start.run!r} is on pool {pool!r}, and this one on {request.pool!r}")

        return await self.look(start.run, lambda work: learned_by(work, request, start))

    def _batch(self, work: Work, drawn: DrawnBatch, include: list[Any]) -> bytes:
        texts = None
        if include:
            with read(self.store.database) as connection:
                found = pool_queries.contents(connection, self._pool_id_of(work), drawn.event.row_K.tolist())
            texts = {row: {name: text[name] for name in include} for row, text in found.items()}
        return orjson.dumps(batch_views.batch(work.engine.state, drawn, texts))

    def _pool_id_of(self, work: Work) -> int:
        return self._hosts[work.engine.state.run].run.pool_id

    async def _host(self, name: str) -> RunHost:
        host = self._hosts.get(name)
        if host is None:
            stored = await asyncio.to_thread(self._find, name)
            if name not in self._hosts:
                self._hosts[name] = RunHost(stored, self.store, self._executor)
            host = self._hosts[name]
        return host

    def _find(self, name: str) -> StoredRun:
        with read(self.store.database) as connection:
            stored = run_queries.find_run(connection, name)
        if stored is None:
            raise no_run(name)
        return stored

    async def _watch_deadlines(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_PERIOD_S)
            for name, host in list(self._hosts.items()):
                if host.has_deadline_before(time.time()):
                    try:
                        with suppress(NotOwner):  # then they are another server's to look at
                            await self.command(name, lambda work: None)  # every command begins with the deadlines
                    except (SelectorError, ServiceError, SQLAlchemyError) as error:
                        logger.error("run %s: its deadlines could not be looked at: %s", name, error)
