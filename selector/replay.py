"""Replay: the state of a run from its log, or from a snapshot and the log's tail.

The one way back after a crash, a restore or an audit. Attached parts of events come from an `Archive`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from selector.config import RunConfig
from selector.engine import Archive, RunEngine
from selector.errors import SnapshotDamaged
from selector.pool import PoolState
from selector.run.events import Event, PoolRevised, Restored, RunBegun


def attach(event: Event, archive: Archive) -> Event:
    """The event with what its JSON form leaves out."""
    if isinstance(event, PoolRevised) and event.pool is None:
        return replace(event, pool=archive.pool(event.revision))
    if isinstance(event, Restored) and event.rewound is None:
        return replace(event, rewound=archive.rewound(event.position))
    return event


def replay(
    events: Iterable[Event],
    archive: Archive,
    engine: RunEngine | None = None,
    *,
    watch: Callable[[RunEngine], None] | None = None,
) -> RunEngine:
    """Applies a log, from its start or to an engine that has seen the events before. `watch` is called after each
    event.

    Raises SnapshotDamaged for a log that does not begin with `run_begun`.
    """
    for event in events:
        if engine is None:
            if not isinstance(event, RunBegun):
                raise SnapshotDamaged(f"a log begins with run_begun, this one with {event.kind}")
            engine = RunEngine(event.run, RunConfig.from_dict(event.config), event.config_hash)
        engine.apply(attach(event, archive))
        if watch is not None:
            watch(engine)
    if engine is None:
        raise SnapshotDamaged("the log is empty")
    return engine


class MemoryArchive:
    """An archive for logs kept in memory: pools by revision, and the log itself to replay to any position."""

    def __init__(self, pools: Mapping[int, PoolState], log: list[Event]) -> None:
        """`log` is kept, not copied: what is appended to it is seen."""
        self._pools, self._log = pools, log
        # A log with k restores would otherwise be replayed up to 2^k times: each asks for the ones before it again.
        self._rewound: dict[int, Mapping[str, np.ndarray]] = {}

    def pool(self, revision: int) -> PoolState:
        return self._pools[revision]

    def rewound(self, position: int) -> Mapping[str, np.ndarray]:
        if position not in self._rewound:
            self._rewound[position] = replay(self._log[:position], self).state.rewindable()
        return self._rewound[position]
