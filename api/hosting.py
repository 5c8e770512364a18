"""One run in memory: commands queue up, one thread at a time works through them, and what they add shares one commit.

`RunService` submits commands from the event loop and awaits their futures. A command decides and applies through
`Work`; its answer is released only when the database has its events. If a commit fails, the engine is dropped and
loaded anew from the log, so that memory never runs ahead of it.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from sqlalchemy.exc import SQLAlchemyError

from api.db.runs import StoredRun
from api.errors import Busy, ServiceError
from api.store import Checkpoints, RunArchive, RunStore
from selector.engine import RunEngine
from selector.errors import SelectorError
from selector.events import CheckpointMade, Event
from selector.pool import PoolState

MAX_WAITING = 4_096  # commands of one run; beyond it callers are told to come back
MAX_SHARED = 256  # commands that share a commit
SNAPSHOT_EVENTS = 2_000  # a full snapshot after so many events

logger = logging.getLogger("midband.api")


@dataclass(slots=True)
class Work:
    """What a command may use: the engine, the time, and `apply`, which also puts the event on its way to the log.

    It is the engine's archive too, as a checkpoint and a restore to it may share a commit.
    """

    engine: RunEngine
    archive: RunArchive
    now: float
    added: list[Event] = field(default_factory=list)
    checkpoints: Checkpoints = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        self.engine.apply(event)
        self.added.append(event)
        if isinstance(event, CheckpointMade):
            self.checkpoints[self.engine.state.seq] = self.engine.state.rewindable()

    def pool(self, revision: int) -> PoolState:
        return self.archive.pool(revision)

    def rewound(self, position: int) -> Mapping[str, np.ndarray]:
        known = self.checkpoints.get(position)
        return self.archive.rewound(position) if known is None else known

    def expire(self) -> None:
        """Ends tickets whose deadline has passed."""
        event = self.engine.expire(self.now)
        if event is not None:
            self.apply(event)


T = TypeVar("T")
Command = Callable[[Work], T]


class RunHost:
    """One run. Thread safe."""

    def __init__(self, run: StoredRun, store: RunStore, executor: Executor) -> None:
        self.run = run
        self._store, self._executor = store, executor
        self._archive = RunArchive(store, run)
        self._engine: RunEngine | None = None
        self._saved_seq = 0
        self._waiting: deque[tuple[Command[Any], Future[Any]]] = deque()
        self._lock = threading.Lock()
        self._draining = False

    def submit(self, command: Command[T]) -> Future[T]:
        """Queues a command. Raises Busy when too many wait."""
        future: Future[T] = Future()
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                raise Busy(f"{len(self._waiting)} commands wait for run {self.run.name!r}; come back in a second")
            self._waiting.append((command, future))
            if not self._draining:
                self._draining = True
                self._executor.submit(self._drain)
        return future

    def has_deadline_before(self, now: float) -> bool:
        """Whether a ticket of the run, if it is in memory, has a deadline that has passed."""
        engine = self._engine
        return engine is not None and engine.state.book.next_deadline <= now

    def close(self) -> None:
        """Stores a snapshot, so that the next start has no log to replay. Call it once nothing is submitted any
        more.
        """
        if self._engine is not None and self._engine.state.seq > self._saved_seq:
            self._store.save(self.run, self._engine, time.time())
            self._saved_seq = self._engine.state.seq

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._draining = False
                    return
                shared = [self._waiting.popleft() for _ in range(min(MAX_SHARED, len(self._waiting)))]
            self._carry_out([(command, future) for command, future in shared if future.set_running_or_notify_cancel()])

    def _carry_out(self, shared: list[tuple[Command[Any], Future[Any]]]) -> None:
        """Runs the commands, commits what they added, then answers all of them."""
        results: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            if self._engine is None:
                self._engine = self._store.load(self.run)
                self._saved_seq = self._engine.state.seq
            work = Work(engine=self._engine, archive=self._archive, now=time.time())
            for command, future in shared:
                work.expire()  # a fact of its own: it stands also when the command is refused
                before = len(work.added)
                try:
                    results.append((future, command(work), None))
                except (SelectorError, ServiceError) as error:
                    if len(work.added) > before:
                        raise  # it changed the state and then failed: none of this round may stand
                    results.append((future, None, error))
            if work.added:
                self._store.append(self.run, self._engine, work.added, work.checkpoints, work.now)
                self._snapshot_when_due(self._engine, work.now)
        except BaseException as error:
            self._engine = None
            for _, future in shared:
                future.set_exception(error)
            return
        for future, result, failure in results:
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)

    def _snapshot_when_due(self, engine: RunEngine, now: float) -> None:
        if engine.state.seq - self._saved_seq >= SNAPSHOT_EVENTS:
            self._saved_seq = engine.state.seq
            try:
                self._store.save(self.run, engine, now)
            except SQLAlchemyError as error:
                # Nothing depends on it but the length of the next start; the events are stored and must be answered.
                logger.error("run %s: no snapshot at event %d: %s", self.run.name, self._saved_seq, error)
