from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete, select

from api.db.imports import import_rows
from api.db.migrate import upgrade
from api.db.models import snapshots
from api.db.pools import create_pool
from api.db.runs import CHUNK_NAMES, FULL, read_snapshots
from api.db.session import create_database, read, write
from api.hosting import RunHost, Work
from api.store import RunStore
from api.version import installed_version
from selector.batches.drawing import DrawRequest
from selector.config import RunConfig
from selector.policies import PRESETS
from selector.run.snapshot import snapshot, unpack


class OneRound(Executor):
    """Holds back what is submitted until `go`, so that commands of a run wait together and share a commit."""

    def __init__(self) -> None:
        self._held: list[Any] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._held.append(fn)
        return Future()

    def go(self) -> None:
        held, self._held = self._held, []
        with ThreadPoolExecutor(1) as pool:
            for fn in held:
                pool.submit(fn).result()


def test_a_restore_finds_a_checkpoint_that_shares_its_commit(tmp_path: Path) -> None:
    database = create_database(f"sqlite:///{tmp_path}/m.db")
    upgrade(database)
    pool, _ = create_pool(database, "p", None, at=0.0)
    import_rows(database, "p", [{"key": f"k{i}"} for i in range(20)], replace=False, at=0.0)
    store = RunStore(database)
    run = store.begin("r", pool.id, {"name": "r"}, RunConfig(pool="p", policy=PRESETS["uniform"].config), 0.0)
    executor = OneRound()
    host = RunHost(run, store, executor)

    def draw(work: Work) -> None:
        event = work.engine.draw(
            DrawRequest(index=len(work.engine.state.batches), size=4, policy_version=7, group_size=8), now=0.0
        )
        assert event is not None
        work.apply(event)

    def checkpoint(work: Work) -> None:
        event, _ = work.engine.checkpoint(1)
        assert event is not None
        work.apply(event)

    def restore(work: Work) -> None:
        event = work.engine.restore(1, beliefs="rewind", in_flight="reissue", restore_id="once", now=0.0, archive=work)
        assert event is not None
        work.apply(event)

    futures = [host.submit(command) for command in (draw, checkpoint, draw, restore)]
    executor.go()
    for future in futures:
        future.result(timeout=0)
    loaded = store.load(run).state
    assert (loaded.branch, loaded.policy_version, loaded.train_draws, len(loaded.book.open)) == (1, 7, 1, 4)
    live = host.submit(lambda work: work.engine.state)
    executor.go()
    assert np.array_equal(live.result(timeout=0).rows["credit_N"], loaded.rows["credit_N"])
    database.dispose()


def test_a_stored_snapshot_names_the_midband_that_made_it(tmp_path: Path) -> None:
    database = create_database(f"sqlite:///{tmp_path}/m.db")
    upgrade(database)
    pool, _ = create_pool(database, "p", None, at=0.0)
    store = RunStore(database)
    run = store.begin("r", pool.id, {"name": "r"}, RunConfig(pool="p", policy=PRESETS["uniform"].config), 0.0)
    store.save(run, store.load(run), 0.0, token=store.claim(run))
    with read(database) as connection:
        ((_, payload),) = read_snapshots(connection, run.id, FULL)
    assert unpack(payload)[1]["made_by"] == installed_version()
    database.dispose()


def test_a_snapshot_stores_the_chunks_that_are_new_and_drops_those_that_no_snapshot_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selector.run.snapshot.CHUNK_ROWS", 16)
    database = create_database(f"sqlite:///{tmp_path}/m.db")
    upgrade(database)
    pool, _ = create_pool(database, "p", None, at=0.0)
    import_rows(database, "p", [{"key": f"k{i}"} for i in range(40)], replace=False, at=0.0)
    store = RunStore(database)
    run = store.begin("r", pool.id, {"name": "r"}, RunConfig(pool="p", policy=PRESETS["uniform"].config), 0.0)
    token = store.claim(run)
    engine = store.load(run)

    def chunks_after_a_draw(index: int) -> set[str]:
        request = DrawRequest(index=index, size=12, policy_version=index, group_size=4)
        event = engine.draw(request, now=0.0)
        assert event is not None
        engine.apply(event)
        store.append(run, engine, [event], {}, 0.0, token=token)
        store.save(run, engine, 0.0, token=token)
        assert snapshot(store.load(run).state, made_by="m") == snapshot(engine.state, made_by="m")
        with read(database) as connection:
            query = select(snapshots.c.kind).where(snapshots.c.kind.not_in((FULL, CHUNK_NAMES)))
            return set(connection.execute(query).scalars())

    first, second, third = (chunks_after_a_draw(index) for index in range(3))
    assert first & second & third
    assert second - first
    assert first - third  # only the last two snapshots are kept
    with write(database) as connection:
        connection.execute(delete(snapshots).where(snapshots.c.kind == next(iter(third - second))))
    assert snapshot(store.load(run).state) == snapshot(engine.state)  # from the snapshot before, and the log
    database.dispose()
