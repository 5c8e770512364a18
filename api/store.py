"""Runs in the database: begin one, load its engine, add to its log, and find the attached parts of its events.

`RunHost` calls it from worker threads; nothing here is asynchronous. State at any point = newest sound snapshot +
tail of the log; a damaged snapshot is passed over, a damaged log stops the run with a message. Where several servers
share the database, a run is claimed first, and whatever writes it names the token that it was claimed with.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import numpy as np
from sqlalchemy import Connection, Engine

from api import projections
from api.db import bodies as body_queries
from api.db import pools as pool_queries
from api.db import runs as run_queries
from api.db.columns import PoolColumns
from api.db.features import read_features
from api.db.runs import FULL, REWIND, StoredRun, reads_features
from api.db.session import ask, read, write
from api.leases import Leases
from api.turns import Turns
from api.version import installed_version
from selector.audit.feature_parts import MOST_FEATURES, Parts, feature_parts
from selector.config import RunConfig
from selector.engine import RunEngine
from selector.errors import SnapshotDamaged
from selector.pool import PoolState
from selector.replay import replay
from selector.run.events import Event, Restored, RunCompleted, WarmStarted
from selector.run.snapshot import pack, restore_snapshot, snapshot, unpack

PARTS_KEPT = 4  # pools cut into parts by their features, a byte a prompt and number each
POOLS_KEPT = 4  # revisions of pools in memory that no engine holds
SNAPSHOTS_KEPT = 2
Checkpoints = dict[int, dict[str, np.ndarray]]  # position in the log -> what a restore to it takes back
Bodies = dict[int, bytes]  # serial in the rollout store -> what the rollout says


class RunStore:
    """All runs of one database. Thread safe. Without `leases` this is the only server, and every run is its own."""

    def __init__(self, database: Engine, leases: Leases | None = None) -> None:
        self.database, self._leases = database, leases
        self.turns = Turns()  # between commands of runs and long work on pools
        self._pools: OrderedDict[tuple[int, int], PoolColumns] = OrderedDict()
        self._parts: OrderedDict[tuple[int, int], dict[str, Parts]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def shared(self) -> bool:
        """Whether other servers may write this database too."""
        return self._leases is not None

    def claim(self, run: StoredRun) -> int:
        """The token that writes the run from now on. Raises NotOwner while another server has it."""
        return 0 if self._leases is None else self._leases.claim(run.id, run.name)

    def confirm(self, run: StoredRun, token: int) -> None:
        """Raises NotOwner if the run was claimed with a later token."""
        if self._leases is not None:
            self._leases.confirm(run.id, run.name, token)

    @contextmanager
    def _writing(self, run: StoredRun, token: int) -> Iterator[Connection]:
        with write(self.database) as connection:
            if self._leases is None:
                yield connection
            else:
                with self._leases.fenced(connection, run.id, run.name, token):
                    yield connection

    def pool_revision(self, pool_id: int) -> int:
        """The newest revision of a pool."""
        with ask(self.database) as connection:
            return run_queries.pool_head(connection, pool_id)[1]

    def pool(
        self, pool_id: int, revision: int | None = None, *, with_features: bool, gently: bool = False
    ) -> PoolState:
        """A pool at a revision, by default the newest. `gently`: giving way to commands meanwhile, so not in one."""
        with read(self.database) as connection:
            name, newest = run_queries.pool_head(connection, pool_id)
            wanted = newest if revision is None else revision
            with self._lock:
                known = self._pools.get((pool_id, wanted))
                earlier = max((r for p, r in self._pools if p == pool_id and r < wanted), default=None)
                base = None if earlier is None else self._pools[pool_id, earlier]
            if known is None:
                look = self.turns.give_way if gently else None
                known = pool_queries.load_pool_columns(connection, pool_id, wanted, base, look)
        with self._lock:
            columns = self._pools.setdefault((pool_id, wanted), known)
            self._pools.move_to_end((pool_id, wanted))
            while len(self._pools) > POOLS_KEPT:
                self._pools.popitem(last=False)
        state = columns.state(name)
        if not with_features:
            return state
        with read(self.database) as connection:
            return replace(state, features=read_features(connection, pool_id, wanted, len(state)))

    def begin(
        self,
        name: str,
        pool_id: int,
        request: dict[str, object],
        config: RunConfig,
        at: float,
        warm: WarmStarted | None = None,
    ) -> StoredRun:
        """A new run with the first events of its log, in one transaction; warm: what it begins with."""
        with_features = reads_features(config.to_dict()["policy"])
        engine, events = RunEngine.begin(name, config, self.pool(pool_id, with_features=with_features), warm)
        with write(self.database) as connection:
            run_id = run_queries.insert_run(
                connection,
                name=name,
                pool_id=pool_id,
                request=request,
                config=config.to_dict(),
                config_hash=config.config_hash(),
                at=at,
            )
            run_queries.append_events(connection, run_id, 1, events, at)
            projections.write(connection, run_id, engine.state, events)
        last = len(events)
        return StoredRun(
            id=run_id,
            name=name,
            pool_id=pool_id,
            request=request,
            completed=False,
            last_seq=last,
            reads_features=with_features,
        )

    def append(
        self,
        run: StoredRun,
        engine: RunEngine,
        events: Sequence[Event],
        checkpoints: Checkpoints,
        at: float,
        *,
        token: int,
        bodies: Bodies | None = None,
    ) -> None:
        """Adds events that the engine has applied, in one transaction, the state at each checkpoint, and what the
        rollout store took; what it let go of is deleted.

        Raises NotOwner, and stores nothing, if the run was claimed with a later token.
        """
        first_seq = engine.state.seq - len(events) + 1
        with self._writing(run, token) as connection:
            run_queries.append_events(connection, run.id, first_seq, events, at)
            projections.write(connection, run.id, engine.state, events)
            for position, rewindable in checkpoints.items():
                run_queries.save_snapshot(connection, run.id, position, REWIND, pack(rewindable, {}), at)
            if engine.state.config.rollout_store is not None:
                body_queries.keep_bodies(connection, run.id, bodies or {}, engine.state.held.serials)
            if any(isinstance(event, (RunCompleted, Restored)) for event in events):
                run_queries.set_completed(connection, run.id, engine.state.completed)

    def feature_parts(self, run: StoredRun, pool: PoolState) -> dict[str, Parts]:
        """The pool as a run sees it, cut into parts by its features as they were when the run began."""
        key = run.id, pool.revision
        with self._lock:
            if key in self._parts:
                self._parts.move_to_end(key)
                return self._parts[key]
        with read(self.database) as connection:
            begun = run_queries.first_revision(connection, run.id)
            now = read_features(connection, run.pool_id, pool.revision, len(pool), numbers=MOST_FEATURES)
        start = self.pool(run.pool_id, begun, with_features=False)
        at_start = None
        if now and begun != pool.revision:
            with read(self.database) as connection:
                at_start = read_features(connection, run.pool_id, begun, len(start), numbers=MOST_FEATURES)
        parts = feature_parts(now, start.frame_N, at_start)
        with self._lock:
            self._parts[key] = parts
            while len(self._parts) > PARTS_KEPT:
                self._parts.popitem(last=False)
        return parts

    def save(self, run: StoredRun, engine: RunEngine, at: float, *, token: int) -> None:
        """Stores a full snapshot and drops those no longer needed. Raises NotOwner like `append`."""
        chunks = dict[str, memoryview]()
        payload = snapshot(engine.state, made_by=installed_version(), chunks=chunks)
        with self._writing(run, token) as connection:
            run_queries.save_snapshot(connection, run.id, engine.state.seq, FULL, payload, at)
            run_queries.save_chunks(connection, run.id, engine.state.seq, chunks, at)
            kept = run_queries.read_snapshot_positions(connection, run.id, FULL)[:SNAPSHOTS_KEPT]
            run_queries.prune_snapshots(connection, run.id, FULL, kept[-1])
            run_queries.prune_chunks(connection, run.id)

    def rebuild(self, run: StoredRun, *, token: int) -> None:
        """Makes what stands beside a run's log anew from the log alone: a full snapshot, those of its checkpoints,
        whether it has ended, and what people query. Raises SnapshotDamaged when the log cannot be read.
        """
        kept, now = set[int](), time.time()

        def keep(engine: RunEngine) -> None:
            position = engine.state.seq
            if any(checkpoint.seq == position for checkpoint in engine.state.checkpoints[-1:]):
                with self._writing(run, token) as connection:
                    payload = pack(engine.state.rewindable(), {})
                    run_queries.save_snapshot(connection, run.id, position, REWIND, payload, now)
                kept.add(position)

        engine = self.replay_alone(run, keep)
        self.save(run, engine, now, token=token)
        with self._writing(run, token) as connection:
            run_queries.set_completed(connection, run.id, engine.state.completed)
            projections.write_all(connection, run.id, engine.state)
            run_queries.drop_other_snapshots(connection, run.id, FULL, {engine.state.seq})
            run_queries.drop_other_snapshots(connection, run.id, REWIND, kept)
            run_queries.prune_chunks(connection, run.id)

    def replay_alone(self, run: StoredRun, watch: Callable[[RunEngine], None]) -> RunEngine:
        """The engine from the whole log and nothing else, `watch`ed after each event. Raises SnapshotDamaged."""

        def seen(engine: RunEngine) -> None:
            archive.note(engine)
            watch(engine)

        with read(self.database) as connection:
            try:
                archive = LogArchive(self, run, run_queries.restored_positions(connection, run.id))
                log = (event for _, event in run_queries.read_events(connection, run.id, 0))
                engine = replay(log, archive, watch=seen)
            except (LookupError, TypeError, ValueError, OverflowError) as error:
                raise SnapshotDamaged(str(error)) from error
            written = run_queries.log_length(connection, run.id)
        if engine.state.seq < written:
            raise SnapshotDamaged(f"event {written} was written, and the log ends before it")
        return engine

    def load(self, run: StoredRun) -> RunEngine:
        """The engine as it was at the last event of the log. Raises SnapshotDamaged when the log cannot be read."""
        return self._load_upto(run, None)

    def follow(self, run: StoredRun, engine: RunEngine) -> RunEngine:
        """The engine after what was added to the log since: for reading a run that another server writes."""
        with read(self.database) as connection:
            tail = (event for _, event in run_queries.read_events(connection, run.id, engine.state.seq))
            return replay(tail, RunArchive(self, run), engine)

    def _load_upto(self, run: StoredRun, upto: int | None) -> RunEngine:
        archive, position = RunArchive(self, run), 0

        def tail(connection: Connection) -> Iterator[Event]:
            nonlocal position
            for seq, event in run_queries.read_events(connection, run.id, position, upto):
                position = seq
                yield event

        with read(self.database) as connection:
            stored = run_queries.read_snapshots(connection, run.id, FULL, upto)
            engine = self._newest_sound(archive, stored, partial(run_queries.read_chunk, connection, run.id))
            try:
                position = 0 if engine is None else engine.state.seq
                if engine is not None and not any(
                    run_queries.read_event_rows(connection, run.id, position - 1, position)
                ):
                    raise SnapshotDamaged("the log ends before its snapshot")
                engine = replay(tail(connection), archive, engine)
                written = run_queries.log_length(connection, run.id)
                if engine.state.seq < (written if upto is None else min(written, upto)):
                    raise SnapshotDamaged(f"event {written} was written, and the log ends before it")
                return engine
            except (SnapshotDamaged, LookupError, TypeError, ValueError, OverflowError) as error:
                raise SnapshotDamaged(
                    f"the log of run {run.name!r} cannot be read behind event {position}: {error}; "
                    "restore the database from a backup"
                ) from error

    def _newest_sound(
        self, archive: "RunArchive", stored: list[tuple[int, bytes]], chunk: Callable[[str], bytes]
    ) -> RunEngine | None:
        for _, payload in stored:
            try:
                return RunEngine.resume(restore_snapshot(payload, archive.pool, chunk))
            except SnapshotDamaged:
                continue  # an older snapshot, or the whole log, gives the same state
        return None

    def rewound(self, run: StoredRun, position: int) -> Mapping[str, np.ndarray]:
        """The rewindable state right after an event: stored beside its checkpoint, or replayed."""
        with read(self.database) as connection:
            for seq, payload in run_queries.read_snapshots(connection, run.id, REWIND, position):
                if seq != position:
                    break
                with suppress(SnapshotDamaged):
                    return unpack(payload)[0]
        return self._load_upto(run, position).state.rewindable()


class RunArchive:
    """Attached parts of one run's events."""

    def __init__(self, store: RunStore, run: StoredRun) -> None:
        self._store, self._run = store, run

    def newest_revision(self) -> int:
        """Of the run's pool, as it is now."""
        return self._store.pool_revision(self._run.pool_id)

    def pool(self, revision: int) -> PoolState:
        return self._store.pool(self._run.pool_id, revision, with_features=self._run.reads_features)

    def rewound(self, position: int) -> Mapping[str, np.ndarray]:
        return self._store.rewound(self._run, position)


class LogArchive(RunArchive):
    """The same without any snapshot: what restores take back is noted while the log is replayed."""

    def __init__(self, store: RunStore, run: StoredRun, positions: Container[int]) -> None:
        super().__init__(store, run)
        self._positions, self._noted = positions, dict[int, dict[str, np.ndarray]]()

    def note(self, engine: RunEngine) -> None:
        if engine.state.seq in self._positions:
            self._noted[engine.state.seq] = {name: array.copy() for name, array in engine.state.rewindable().items()}

    def rewound(self, position: int) -> Mapping[str, np.ndarray]:
        return self._noted[position]
