"""How long a start takes on a run of many reported rollouts, what each of them takes in the database, and memory.

The run is made through the core and the store, as a service would make it but without HTTP: draws and whole reports, a
commit each, and full snapshots where the service takes them. Then it is loaded anew in a process of its own, from its
newest snapshot and the tail of the log. Seconds are shown by the clock and of the processor, which other load of the
machine does not change.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
from sqlalchemy import insert

from api.db.columns import ChangedPrompt
from api.db.migrate import upgrade
from api.db.models import prompts
from api.db.pools import add_delta, changeable_pool, close_revision, create_pool
from api.db.runs import find_run
from api.db.session import create_database, read, write
from api.hosting import SNAPSHOT_EVENTS, SNAPSHOT_ROLLOUTS
from api.store import RunStore
from selector.batches.drawing import DrawRequest
from selector.config import RunConfig
from selector.groups.reports import GroupIn, Report, RolloutIn
from selector.policies import PRESETS
from tests.benchmarks.language import Figure, arguments, show
from tests.benchmarks.serving import stored_bytes

NUM_PROMPTS, QUICK_PROMPTS = 100_000, 5_000
ROLLOUTS, QUICK_ROLLOUTS = 5_000_000, 100_000
BATCH_SIZE, GROUP_SIZE = 512, 8
ROWS_AT_ONCE = 10_000
NUM_CATEGORIES = 20


def main() -> None:
    parser = arguments("The start of a service on a run of many reported rollouts.")
    parser.add_argument("--load", help="load the run of this database and say how long that took; used by itself")
    options = parser.parse_args()
    if options.load:
        _load(options.load)
        return
    with tempfile.TemporaryDirectory() as folder:
        show(figures("sqlite", f"sqlite:///{folder}/recovery.db", quick=options.quick), as_json=options.json)


def figures(database: str, url: str, *, quick: bool) -> list[Figure]:
    """Of a run that is made in this empty database."""
    num_prompts = QUICK_PROMPTS if quick else NUM_PROMPTS
    made = _make(url, num_prompts, QUICK_ROLLOUTS if quick else ROLLOUTS)
    stored = stored_bytes(url)
    command = [sys.executable, "-m", "tests.benchmarks.recovery", "--load", url]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    setting = {
        "reported": made["reported"],
        "tail_events": made["tail"],
        "database": database,
        "group_size": GROUP_SIZE,
    }
    rows = [
        ("start", "seconds", found["seconds"], "s"),
        ("start", "seconds of the processor", found["cpu_s"], "s"),
        ("start", "peak memory", found["peak_mib"], "MiB"),
        ("snapshot", "longest, of the processor", made["longest_save_s"], "s"),
        ("reports", "core, store and commit, of the processor", made["groups_per_second"], "groups/s"),
        ("database", "bytes per rollout", stored / made["reported"], "B"),
        ("database", "of them snapshots", made["snapshot_bytes"] / made["reported"], "B"),
    ]
    return [
        Figure(
            benchmark="recovery", case=f"{case}, {database}", metric=metric, value=value, unit=unit, n=num_prompts,
            setting=setting,
        )
        for case, metric, value, unit in rows
    ]  # fmt: skip


def _make(url: str, num_prompts: int, rollouts: int) -> dict[str, float]:
    """A run in which so many rollouts were reported."""
    database = create_database(url)
    upgrade(database)
    pool, _ = create_pool(database, "pool", None, at=0.0)
    _fill(url, num_prompts)
    store = RunStore(database)
    policy = PRESETS["midband"].config
    run = store.begin("bench", pool.id, {"name": "bench"}, RunConfig(pool="pool", policy=policy), 0.0)
    token = store.claim(run)
    engine = store.load(run)
    saved_seq = saved = tail = 0
    longest = spent = 0.0
    rng = np.random.default_rng(0)
    rounds = -(-rollouts // (BATCH_SIZE * GROUP_SIZE))
    for index in range(rounds):
        request = DrawRequest(index=index, size=BATCH_SIZE, policy_version=index, group_size=GROUP_SIZE, short="fill")
        drawn = engine.draw(request, now=0.0)
        assert drawn is not None
        engine.apply(drawn)
        store.append(run, engine, [drawn], {}, 0.0, token=token)
        batch = engine.state.batches[-1]
        chance_K = np.repeat(np.clip(drawn.pass_rate_K, 0.05, 0.95)[:, None], GROUP_SIZE, axis=1)
        outcome_KG = (rng.random(chance_K.shape) < chance_K).astype(float).tolist()
        groups = [
            GroupIn(
                ticket=engine.state.ticket_id(batch.first_ticket + position),
                rollouts=[RolloutIn(outcome=outcome, reward=outcome, tokens=100) for outcome in outcome_G],
            )
            for position, outcome_G in enumerate(outcome_KG)
        ]
        begin = time.process_time()
        event = engine.report(Report(groups=groups, version=(index, index)), now=0.0).event
        assert event is not None
        engine.apply(event)
        store.append(run, engine, [event], {}, 0.0, token=token)
        spent += time.process_time() - begin
        reported = engine.state.ledger.statuses["reported"]
        due = reported - saved >= SNAPSHOT_ROLLOUTS or engine.state.seq - saved_seq >= SNAPSHOT_EVENTS
        if due:
            begin = time.process_time()
            store.save(run, engine, 0.0, token=token)
            longest = max(longest, time.process_time() - begin)
            saved_seq, saved = engine.state.seq, reported
        tail = engine.state.seq - saved_seq
    with read(database) as connection:
        query = "SELECT coalesce(sum(length(payload)), 0) FROM snapshots"
        snapshot_bytes = connection.exec_driver_sql(query).scalar_one()
    database.dispose()
    return {
        "reported": engine.state.ledger.statuses["reported"],
        "tail": tail,
        "longest_save_s": longest,
        "groups_per_second": rounds * BATCH_SIZE / spent,
        "snapshot_bytes": snapshot_bytes,
    }


def _fill(url: str, num_prompts: int) -> None:
    """Prompts that are keys alone, in one revision."""
    database = create_database(url)
    with write(database) as connection:
        pool = changeable_pool(connection, "pool")
        for part, first in enumerate(range(0, num_prompts, ROWS_AT_ONCE)):
            rows = range(first, min(first + ROWS_AT_ONCE, num_prompts))
            changed = [
                ChangedPrompt(row, f"p{row}", "train", f"c{row % NUM_CATEGORIES}", False, False, False, f"{row:064x}")
                for row in rows
            ]
            values = [
                {
                    "pool_id": pool.id, "row": c.row, "key": c.key, "content_hash": c.content_hash, "split": c.split,
                    "category": c.category, "absent": False, "superseded": False, "quarantined": False,
                    "created_revision": 1, "revision": 1,
                }
                for c in changed
            ]  # fmt: skip
            connection.execute(insert(prompts), values)
            add_delta(connection, pool.id, 1, part, changed)
        close_revision(
            connection, pool, kind="import", at=0.0, num_rows=num_prompts, num_changed=num_prompts,
            tallies=pool.tallies, feature_lengths={},
        )  # fmt: skip
    database.dispose()


def _load(url: str) -> None:
    database = create_database(url)
    with read(database) as connection:
        run = find_run(connection, "bench")
    assert run is not None
    begin, cpu_begin = time.perf_counter(), time.process_time()
    RunStore(database).load(run)
    seconds, cpu_s = time.perf_counter() - begin, time.process_time() - cpu_begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {"seconds": seconds, "cpu_s": cpu_s, "peak_mib": peak / (2**20 if sys.platform == "darwin" else 2**10)}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
