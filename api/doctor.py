"""`midband doctor`: looks at a database, says what is wrong with it and what to do; `midband backup`: a copy of it.

Called by the command, also while a server has the database open. Looking changes nothing: each run's whole log is
replayed and compared with what is stored beside it. `rebuild` writes anew what can be made from the log, and never
touches the log.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text

from api import projections
from api.db import pools as pool_queries
from api.db import runs as run_queries
from api.db.migrate import VERSION_TABLE, alembic_config, upgrade
from api.db.projections import projected_seq
from api.db.runs import FULL, REWIND, StoredRun
from api.db.session import create_database, lock_database, read, sqlite_path
from api.errors import DatabaseUnusable, ServiceError
from api.leases import Leases
from api.settings import Settings, shown_url
from api.store import RunStore
from api.version import installed_version
from selector.engine import RunEngine
from selector.errors import SnapshotDamaged
from selector.run.snapshot import made_on, snapshot, unpack


@dataclass(slots=True)
class Findings:
    """What was looked at, a line each. `rebuildable`: runs of which something can be made anew from their logs."""

    lines: list[str] = field(default_factory=list)
    healthy: bool = True
    rebuildable: list[StoredRun] = field(default_factory=list)

    def good(self, what: str) -> None:
        self.lines.append(f"ok     {what}")

    def bad(self, what: str) -> None:
        self.healthy = False
        self.lines.append(f"WRONG  {what}")


class BackupRefused(ServiceError):
    """A place that is taken, or a database that this command does not copy."""


def examine(settings: Settings) -> Findings:
    """Looks at everything. Raises DatabaseUnusable for a database that cannot be opened at all."""
    findings = Findings()
    with _opened(settings) as database:
        findings.good(f"database {shown_url(settings.database_url)} answers")
        if _tables_are_current(database, findings):
            _look_at_file(database, findings)
            _look_at_pools(database, findings)
            _look_at_runs(database, findings)
    return findings


def rebuild(settings: Settings, findings: Findings) -> list[str]:
    """Makes anew what `examine` found rebuildable; returns what to say of it.

    Raises DatabaseLocked or NotOwner where a server has the database or a run.
    """
    said = []
    with lock_database(settings.database_url), _opened(settings) as database:
        upgrade(database)
        leases = Leases.started(database, "midband doctor") if database.dialect.name == "postgresql" else None
        try:
            store = RunStore(database, leases)
            for run in findings.rebuildable:
                store.rebuild(run, token=store.claim(run))
                said.append(f"run {run.name!r}: snapshots and table entries were made anew from its log")
        finally:
            if leases is not None:
                leases.stop()
    return said


def backup(settings: Settings, target: Path) -> str:
    """Copies a SQLite database as it is at one moment, also while a server writes it; returns what to say.

    Raises BackupRefused, or DatabaseUnusable if the file is not there.
    """
    source = sqlite_path(settings.database_url)
    if source is None:
        raise BackupRefused(
            f"{shown_url(settings.database_url)} is no SQLite file: PostgreSQL has its own tools, as in "
            "`pg_dump --format=custom --file=midband.dump DATABASE`, which may run while servers do"
        )
    if not source.is_file():
        raise DatabaseUnusable(f"there is no database at {source}: set MIDBAND_DATABASE_URL to the one that is meant")
    if target.exists():
        raise BackupRefused(f"{target} exists and was left as it is: name a file that does not")
    part = target.with_name(target.name + ".part")
    try:
        with closing(sqlite3.connect(source)) as origin, closing(sqlite3.connect(part)) as copy:
            origin.backup(copy)
            fault = str(copy.execute("PRAGMA quick_check").fetchone()[0])
        if fault != "ok":
            raise BackupRefused(f"{source} is damaged ({fault}), and so was its copy, which was not kept")
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.link(part, target)  # unlike a rename it never takes the place of a file that came in between
    except (sqlite3.Error, OSError) as error:
        raise BackupRefused(f"{source} could not be copied to {target}: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    size_mb = target.stat().st_size / 1e6
    return f"{target}: {size_mb:.1f} MB, to be used as MIDBAND_DATABASE_URL=sqlite:///{target.resolve()}"


@contextmanager
def _opened(settings: Settings) -> Iterator[Engine]:
    path = sqlite_path(settings.database_url)
    if path is not None and not path.is_file():
        raise DatabaseUnusable(f"there is no database at {path}: set MIDBAND_DATABASE_URL to the one that is meant")
    database = create_database(settings.database_url)
    try:
        yield database
    finally:
        database.dispose()


def _tables_are_current(database: Engine, findings: Findings) -> bool:
    with read(database) as connection:
        present = VERSION_TABLE in inspect(connection).get_table_names()
        heads = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_heads()
    scripts = ScriptDirectory.from_config(alembic_config())
    known = {script.revision for script in scripts.walk_revisions()}
    if not present or not heads:
        findings.bad("it has no tables of midband: `midband serve` makes them; is the URL the one that is meant?")
    elif not set(heads) <= known:
        findings.bad(f"schema {', '.join(heads)} is newer than this version knows: install the midband that made it")
    elif heads != tuple(scripts.get_heads()):
        findings.bad(
            f"schema {heads[0]} is that of an earlier version: back it up, then start `midband serve`, which "
            f"brings it to {scripts.get_current_head()}"
        )
    else:
        findings.good(f"schema {heads[0]} is this version's")
        return True
    return False


def _look_at_file(database: Engine, findings: Findings) -> None:
    if database.dialect.name != "sqlite":
        return
    with read(database) as connection:
        faults = [str(row[0]) for row in connection.execute(text("PRAGMA quick_check(3)"))]
    if faults == ["ok"]:
        findings.good("the file is sound")
    else:
        findings.bad(f"the file is damaged: {'; '.join(faults)}: stop the server and restore a backup")


def _look_at_pools(database: Engine, findings: Findings) -> None:
    for pool in pool_queries.list_pools(database, archived=True):
        try:
            with read(database) as connection:
                columns = pool_queries.load_pool_columns(connection, pool.id, pool.revision)
        except (ServiceError, ValueError, KeyError) as error:
            findings.bad(f"pool {pool.name!r}: {error}")
        else:
            findings.good(f"pool {pool.name!r}: revision {pool.revision}, {len(columns)} rows")


def _look_at_runs(database: Engine, findings: Findings) -> None:
    store = RunStore(database)
    with read(database) as connection:
        runs = run_queries.list_runs(connection)
    for run in runs:
        with read(database) as connection:
            _look_at_run(store, connection, run, findings)


def _look_at_run(store: RunStore, connection: Connection, run: StoredRun, findings: Findings) -> None:
    stored = {
        (kind, seq): payload for kind in (FULL, REWIND) for seq, payload in _snapshots(connection, run, kind).items()
    }
    faults: list[str] = []
    chunk = partial(run_queries.read_chunk, connection, run.id)
    projected = projected_seq(connection, run.id)

    def compare(engine: RunEngine) -> None:
        seq = engine.state.seq
        if seq == projected:
            differing = projections.differing(connection, run.id, engine.state)
            faults.extend(f"the table {name} is not what the log says" for name in differing)
        for kind in (FULL, REWIND):
            if (kind, seq) in stored:
                fault = _difference(stored.pop((kind, seq)), engine, chunk, whole=kind == FULL)
                if fault is not None:
                    faults.append(f"the {kind} snapshot at event {seq} {fault}")

    try:
        engine = store.replay_alone(run, compare)
    except (SnapshotDamaged, ServiceError) as error:
        findings.bad(f"run {run.name!r}: its log cannot be read: {error}: stop the server and restore a backup")
        return
    faults += [f"the {kind} snapshot at event {seq} is of no event" for kind, seq in stored]
    if projected > engine.state.seq:
        faults.append(f"the tables for queries are said to be of event {projected}, which there is not")
    if engine.state.completed is not run.completed:
        faults.append(f"the table says {'' if run.completed else 'not '}completed, and the log does not")
    if faults:
        findings.rebuildable.append(run)
        findings.bad(f"run {run.name!r}: {'; '.join(faults)}: stop the server and run `midband doctor --rebuild`")
    else:
        findings.good(f"run {run.name!r}: {engine.state.seq} events, replayed")


def _snapshots(connection: Connection, run: StoredRun, kind: str) -> dict[int, bytes | None]:
    """Payload by position; None where the row's checksum is not that of its bytes."""
    sound = dict(run_queries.read_snapshots(connection, run.id, kind))
    return {seq: sound.get(seq) for seq in run_queries.read_snapshot_positions(connection, run.id, kind)}


def _difference(payload: bytes | None, engine: RunEngine, chunk: Callable[[str], bytes], *, whole: bool) -> str | None:
    """What is wrong with a snapshot, given the state that the log leads to."""
    if payload is None:
        return "fails its checksum"
    try:
        arrays, document = unpack(payload, chunk)
    except (SnapshotDamaged, ValueError, KeyError, OSError) as error:
        return f"cannot be read ({error})"
    if document["made_on"] != made_on() or (whole and document["made_by"] != installed_version()):
        return None  # states are the same to the bit on one version and platform only
    wanted: dict[str, Any] = dict(engine.state.rewindable())
    if whole:
        wanted, other = unpack(snapshot(engine.state, made_by=installed_version()))
        if other != document:
            return "is not what the log says"
    same = wanted.keys() == arrays.keys() and all(np.array_equal(arrays[k], wanted[k], equal_nan=True) for k in wanted)
    return None if same else "is not what the log says"
