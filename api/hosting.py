"""One run in memory: commands queue up, one thread at a time works through them, and what they add shares one commit.

`RunService` submits commands from the event loop and awaits their futures. A command decides and applies through
`Work`; its answer is released only when the database has its events. If a commit fails, the engine is dropped and
loaded anew from the log, so that memory never runs ahead of it.

Where several servers share the database, each round is the owner's: what it adds is fenced by its token, and where it
adds nothing the token is looked at again before it answers. Commands that only read are carried out without owning the
run too, on a copy that follows the log.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from sqlalchemy.exc import SQLAlchemyError

from api.db.runs import StoredRun
from api.errors import Busy, NotOwner, ServiceError
from api.run_metrics import Standing
from api.store import Bodies, Checkpoints, RunArchive, RunStore
from selector.engine import RunEngine
from selector.errors import SelectorError
from selector.pool import PoolState
from selector.run.events import CheckpointMade, Event, PoolRevised

MAX_WAITING = 4_096  # commands of one run; beyond it callers are told to come back
MAX_SHARED = 256  # commands that share a commit
SNAPSHOT_EVENTS = 2_000  # a full snapshot after so many events
SNAPSHOT_ROLLOUTS = 2**19  # or after so many rollouts that came in: a start replays them in some seconds
FOLLOWED_EVERY_S = 1.0  # how old a copy may be that a run of another server is read from

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
    bodies: Bodies = field(default_factory=dict)  # on their way to the rollout store
    age_s: float | None = None  # of a copy, since it last followed the log; None for the run itself

    def apply(self, event: Event) -> None:
        self.engine.apply(event)
        self.added.append(event)
        if isinstance(event, CheckpointMade):
            self.checkpoints[self.engine.state.seq] = self.engine.state.rewindable()

    def keep(self, bodies: Mapping[tuple[int, int, int], bytes]) -> None:
        """Puts what rollouts say on its way to the rollout store, once the report that brought it was applied."""
        if bodies:
            held = self.engine.state.held
            places = held.places_of(bodies)  # without what the bounds let go of at once
            self.bodies |= {int(held["serial"][place]): bodies[name] for name, place in places.items()}

    def pool(self, revision: int) -> PoolState:
        return self.archive.pool(revision)

    def rewound(self, position: int) -> Mapping[str, np.ndarray]:
        known = self.checkpoints.get(position)
        return self.archive.rewound(position) if known is None else known

    def see_pool(self) -> None:
        """Puts the pool's newest revision into the log. Changes of the pool pass by a run that has ended."""
        revision = self.archive.newest_revision()
        if revision > self.engine.state.pool.revision and not self.engine.state.completed:
            self.apply(PoolRevised(revision=revision, pool=self.pool(revision)))

    def expire(self) -> None:
        """Ends tickets whose deadline has passed."""
        event = self.engine.expire(self.now)
        if event is not None:
            self.apply(event)


T = TypeVar("T")
Command = Callable[[Work], T]


@dataclass(slots=True)
class _Asked:
    """A command in the queue."""

    command: Command[Any]
    future: Future[Any]
    reads: bool


class RunHost:
    """One run. Thread safe."""

    def __init__(self, run: StoredRun, store: RunStore, executor: Executor) -> None:
        self.run = run
        self._store, self._executor = store, executor
        self._archive = RunArchive(store, run)
        self._engine: RunEngine | None = None
        self._token = 0  # that the engine was loaded under
        self._saved_seq = self._saved_rollouts = 0
        self._saved_at: float | None = None  # unix seconds; of a snapshot that this process made
        self._written_at = 0.0  # unix seconds of the last commit
        self._copy: RunEngine | None = None  # of a run that another server owns
        self._copied_s = 0.0  # when it last followed the log, by the monotonic clock
        self._waiting: deque[_Asked] = deque()
        self._lock = threading.Lock()
        self._draining = False

    def submit(self, command: Command[T], *, reads: bool = False) -> Future[T]:
        """Queues a command. With `reads` it changes nothing, and may be carried out on a copy of the run.

        Raises Busy when too many wait. The future raises NotOwner where another server has the run.
        """
        future: Future[T] = Future()
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                raise Busy(f"{len(self._waiting)} commands wait for run {self.run.name!r}; come back in a second")
            self._waiting.append(_Asked(command, future, reads))
            if not self._draining:
                self._draining = True
                self._executor.submit(self._drain)
        return future

    def has_deadline_before(self, now: float) -> bool:
        """Whether a ticket of the run, if it is in memory, has a deadline that has passed."""
        engine = self._engine
        return engine is not None and engine.state.book.next_deadline <= now

    def standing(self) -> Standing:
        """For figures that are shown: the state may be one event ahead of the rest."""
        engine = self._engine
        state = None if engine is None else engine.state
        unsaved = 0 if state is None else state.seq - self._saved_seq
        return Standing(self.run.name, state, len(self._waiting), unsaved, self._saved_at, self._written_at)

    def close(self) -> None:
        """Stores a snapshot, so that the next start has no log to replay. Call it once nothing is submitted any
        more.
        """
        if self._engine is not None and self._engine.state.seq > self._saved_seq:
            with suppress(NotOwner):  # then it is another server's to store
                self._store.save(self.run, self._engine, time.time(), token=self._token)
                self._saved_seq = self._engine.state.seq

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._draining = False
                    return
                shared = [self._waiting.popleft() for _ in range(min(MAX_SHARED, len(self._waiting)))]
            self._carry_out([asked for asked in shared if asked.future.set_running_or_notify_cancel()])

    def _carry_out(self, shared: list[_Asked]) -> None:
        """Runs the commands, commits what they added, then answers all of them."""
        if self._fresh_copy and all(asked.reads for asked in shared):  # no need to ask whose the run is by now
            self._read_copy(shared)
            return
        results: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            loaded = self._engine is None
            engine = self._engine or self._load()
            work = Work(engine=engine, archive=self._archive, now=time.time())
            if loaded or self._store.shared:  # else whoever changes the pool says so
                work.see_pool()
            for asked in shared:
                work.expire()  # a fact of its own: it stands also when the command is refused
                before = len(work.added)
                try:
                    results.append((asked.future, asked.command(work), None))
                except (SelectorError, ServiceError) as error:
                    if len(work.added) > before:
                        raise  # it changed the state and then failed: none of this round may stand
                    results.append((asked.future, None, error))
            if work.added:
                self._store.append(
                    self.run, engine, work.added, work.checkpoints, work.now, token=self._token, bodies=work.bodies
                )
                self._written_at = work.now
                self._snapshot_when_due(engine, work.now)
            else:
                self._store.confirm(self.run, self._token)
        except NotOwner as error:
            self._engine = None
            self._decline(shared, error)
            return
        except BaseException as error:
            self._engine = None
            for asked in shared:
                asked.future.set_exception(error)
            return
        _answer(results)

    def _load(self) -> RunEngine:
        """Claims the run and takes it into memory. Raises NotOwner while another server has it."""
        self._token = self._store.claim(self.run)
        self._engine, self._copy = self._store.load(self.run), None
        self._saved_seq, self._saved_rollouts = self._engine.state.seq, self._engine.state.ledger.statuses["reported"]
        return self._engine

    def _decline(self, shared: list[_Asked], error: NotOwner) -> None:
        """Another server owns the run: what only reads is answered from a copy, everything else is sent there."""
        for asked in shared:
            if not asked.reads:
                asked.future.set_exception(error)
        readers = [asked for asked in shared if asked.reads]
        if readers:
            self._read_copy(readers)

    def _read_copy(self, readers: list[_Asked]) -> None:
        results: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            engine = self._followed()
            age_s = time.monotonic() - self._copied_s
            work = Work(engine=engine, archive=self._archive, now=time.time(), age_s=age_s)
            for asked in readers:
                try:
                    results.append((asked.future, asked.command(work), None))
                except (SelectorError, ServiceError) as refusal:
                    results.append((asked.future, None, refusal))
            if work.added:
                raise RuntimeError("a command that was to read only has changed its run")
        except BaseException as failure:
            self._copy = None
            for asked in readers:
                asked.future.set_exception(failure)
            return
        _answer(results)

    @property
    def _fresh_copy(self) -> bool:
        return self._copy is not None and time.monotonic() - self._copied_s < FOLLOWED_EVERY_S

    def _followed(self) -> RunEngine:
        """A copy of the run no older than FOLLOWED_EVERY_S."""
        asked_s = time.monotonic()
        if self._copy is None:
            self._copy, self._copied_s = self._store.load(self.run), asked_s
        elif not self._fresh_copy:
            self._copy, self._copied_s = self._store.follow(self.run, self._copy), asked_s
        return self._copy

    def _snapshot_when_due(self, engine: RunEngine, now: float) -> None:
        rollouts = engine.state.ledger.statuses["reported"]
        due = engine.state.seq - self._saved_seq >= SNAPSHOT_EVENTS
        if due or rollouts - self._saved_rollouts >= SNAPSHOT_ROLLOUTS:
            self._saved_seq, self._saved_rollouts = engine.state.seq, rollouts
            try:
                self._store.save(self.run, engine, now, token=self._token)
                self._saved_at = now
            except (SQLAlchemyError, NotOwner) as error:
                # Nothing depends on it but the length of the next start; the events are stored and must be answered.
                logger.error("run %s: no snapshot at event %d: %s", self.run.name, self._saved_seq, error)


def _answer(results: list[tuple[Future[Any], Any, BaseException | None]]) -> None:
    for future, result, failure in results:
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
