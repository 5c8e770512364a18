"""A server that is killed at any moment under load: whatever it acknowledged counts exactly once.

20 kills on each database. More by MIDBAND_TEST_KILLS, as before a release, which takes about 10 minutes a database:

    MIDBAND_TEST_KILLS=200 .venv/bin/pytest tests/api/test_kills.py -m slow
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.api.forked import forked
from tests.api.harness import LIMIT_S, caller, free_port
from tests.api.load import Load, all_of, check_afterwards, check_replay, check_while_running

KILLS = int(os.environ.get("MIDBAND_TEST_KILLS", "20"))
LONGEST_LIFE_S = 1.0  # between a start and the kill


@pytest.mark.slow
def test_what_was_acknowledged_when_the_server_was_killed_counts_exactly_once(
    database_url: str, tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    rng, port = np.random.default_rng(KILLS), free_port()
    load = Load([f"http://127.0.0.1:{port}"], timeout_s=LIMIT_S)
    with forked(database_url, tmp_path, port) as server, caller(server.url) as http:
        load.prepare(http)
    load.start()
    for _ in range(KILLS):
        acknowledged = load.num_acknowledged
        with forked(database_url, tmp_path, port) as server:
            with caller(server.url) as http:
                check_while_running(http, acknowledged)
            time.sleep(float(rng.random()) * LONGEST_LIFE_S)
            load.raise_failure()
            server.kill()
    with forked(database_url, tmp_path, port) as server:
        load.finish()
        with caller(server.url) as http:
            check_afterwards(http, load)
            live = all_of(http)
        server.kill()
    record_testsuite_property("kills", KILLS)
    record_testsuite_property("rollouts acknowledged", load.num_acknowledged)
    assert load.num_acknowledged > 10 * KILLS
    check_replay(database_url, live)
