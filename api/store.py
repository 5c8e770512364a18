"""Runs in the database: begin one, load its engine, add to its log, and find the attached parts of its events.

`RunHost` calls it from worker threads; nothing here is asynchronous. State at any point = newest sound snapshot +
tail of the log; a damaged snapshot is passed over, a damaged log stops the run with a message.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
from sqlalchemy import Connection, Engine

from api.db import pools as pool_queries
from api.db import runs as run_queries
from api.db.columns import PoolColumns
from api.db.features import read_features
from api.db.runs import FULL, REWIND, StoredRun
from api.db.session import read, write
from api.version import installed_version
from predictors.registry import ESTIMATORS
from selector.config import RunConfig
from selector.engine import RunEngine
from selector.errors import SnapshotDamaged
from selector.events import Event, Restored, RunCompleted
from selector.pool import PoolState
from selector.replay import replay
from selector.snapshot import pack, restore_snapshot, snapshot, unpack

POOLS_KEPT = 4  # revisions of pools in memory that no engine holds
SNAPSHOTS_KEPT = 2
Checkpoints = dict[int, dict[str, np.ndarray]]  # position in the log -> what a restore to it takes back


class RunStore:
    """All runs of one database. Thread safe."""

    def __init__(self, database: Engine) -> None:
        self.database = database
        self._pools: OrderedDict[tuple[int, int], PoolColumns] = OrderedDict()
        self._lock = threading.Lock()

    def pool(self, pool_id: int, revision: int | None = None, *, estimator: str) -> PoolState:
        """A pool at a revision, by default the newest, with features if this estimator reads them."""
        with read(self.database) as connection:
            name, newest = run_queries.pool_head(connection, pool_id)
            wanted = newest if revision is None else revision
            with self._lock:
                known = self._pools.get((pool_id, wanted))
                earlier = max((r for p, r in self._pools if p == pool_id and r < wanted), default=None)
                base = None if earlier is None else self._pools[pool_id, earlier]
            if known is None:
                known = pool_queries.load_pool_columns(connection, pool_id, wanted, base)
        with self._lock:
            columns = self._pools.setdefault((pool_id, wanted), known)
            self._pools.move_to_end((pool_id, wanted))
            while len(self._pools) > POOLS_KEPT:
                self._pools.popitem(last=False)
        state = columns.state(name)
        if not ESTIMATORS[estimator].reads_columns:
            return state
        with read(self.database) as connection:
            return replace(state, features=read_features(connection, pool_id, wanted, len(state)))

    def begin(self, name: str, pool_id: int, request: dict[str, object], config: RunConfig, at: float) -> StoredRun:
        """A new run with the first events of its log, in one transaction."""
        _, events = RunEngine.begin(name, config, self.pool(pool_id, estimator=config.policy.estimator))
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
        estimator = config.policy.estimator
        return StoredRun(id=run_id, name=name, pool_id=pool_id, request=request, completed=False, estimator=estimator)

    def append(
        self, run: StoredRun, engine: RunEngine, events: Sequence[Event], checkpoints: Checkpoints, at: float
    ) -> None:
        """Adds events that the engine has applied, in one transaction, and the state at each checkpoint."""
        first_seq = engine.state.seq - len(events) + 1
        with write(self.database) as connection:
            run_queries.append_events(connection, run.id, first_seq, events, at)
            for position, rewindable in checkpoints.items():
                run_queries.save_snapshot(connection, run.id, position, REWIND, pack(rewindable, {}), at)
            if any(isinstance(event, (RunCompleted, Restored)) for event in events):
                run_queries.set_completed(connection, run.id, engine.state.completed)

    def save(self, run: StoredRun, engine: RunEngine, at: float) -> None:
        """Stores a full snapshot and drops those no longer needed."""
        payload = snapshot(engine.state, made_by=installed_version())
        with write(self.database) as connection:
            run_queries.save_snapshot(connection, run.id, engine.state.seq, FULL, payload, at)
            kept = run_queries.read_snapshot_positions(connection, run.id, FULL)[:SNAPSHOTS_KEPT]
            run_queries.prune_snapshots(connection, run.id, FULL, kept[-1])

    def load(self, run: StoredRun) -> RunEngine:
        """The engine as it was at the last event of the log. Raises SnapshotDamaged when the log cannot be read."""
        return self._load_upto(run, None)

    def _load_upto(self, run: StoredRun, upto: int | None) -> RunEngine:
        archive, position = RunArchive(self, run), 0

        def tail(connection: Connection) -> Iterator[Event]:
            nonlocal position
            for seq, event in run_queries.read_events(connection, run.id, position, upto):
                position = seq
                yield event

        with read(self.database) as connection:
            engine = self._newest_sound(run, archive, run_queries.read_snapshots(connection, run.id, FULL, upto))
            try:
                if engine is None:
                    return replay(tail(connection), archive)
                position = engine.state.seq
                if not any(run_queries.read_event_rows(connection, run.id, position - 1, position)):
                    raise SnapshotDamaged("the log ends before its snapshot")
                return replay(tail(connection), archive, engine)
            except (SnapshotDamaged, LookupError, TypeError, ValueError, OverflowError) as error:
                raise SnapshotDamaged(
                    f"the log of run {run.name!r} cannot be read behind event {position}: {error}; "
                    "restore the database from a backup"
                ) from error

    def _newest_sound(self, run: StoredRun, archive: "RunArchive", stored: list[tuple[int, bytes]]) -> RunEngine | None:
        for _, payload in stored:
            try:
                return RunEngine.resume(restore_snapshot(payload, archive.pool))
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

    def pool(self, revision: int) -> PoolState:
        return self._store.pool(self._run.pool_id, revision, estimator=self._run.estimator)

    def rewound(self, position: int) -> Mapping[str, np.ndarray]:
        return self._store.rewound(self._run, position)
