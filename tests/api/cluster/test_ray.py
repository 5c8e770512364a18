"""`midband serve --ray` on a cluster of this machine: the service's own contract, and runs whose actors are killed."""

import importlib.util
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.cluster.cases import conversation
from tests.api.harness import POLL_S, ROOT, caller, command, free_port, in_process, refused
from tests.api.load import RUNS, Load, all_of, check_afterwards, check_replay
from tests.ray_cluster import ray_cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.postgres,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not tested: pip install 'midband[ray]'"),
]

LIMIT_S = 180.0  # for what takes seconds on an idle machine
KILLS = 2
WORK = 100  # rollouts acknowledged between two kills
RUN_LINE = re.compile(r"^  (?P<run>\S+)  \S+  process (?P<pid>\d+)  CPU$", re.MULTILINE)


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    with ray_cluster(num_cpus=2) as environment:
        yield environment


@contextmanager
def served(url: str, cluster: dict[str, str], folder: Path, *, replicas: int = 1) -> Iterator[str]:
    """The URL of a service on Ray, which ends in good order."""
    where = f"http://127.0.0.1:{free_port()}"
    arguments = [
        "serve",
        "--ray",
        "--database-url",
        url,
        "--port",
        where.rpartition(":")[2],
        "--replicas",
        f"{replicas}",
    ]
    with (folder / "serve.log").open("ab") as log:
        process = subprocess.Popen(command(*arguments), cwd=ROOT, env=os.environ | cluster, stdout=log, stderr=log)
    try:
        limit_s = time.monotonic() + LIMIT_S
        while not _ready(where):
            assert process.poll() is None, (folder / "serve.log").read_text()
            assert time.monotonic() < limit_s
            time.sleep(POLL_S)
        yield where
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0, (folder / "serve.log").read_text()
    finally:
        process.kill()
        process.wait()


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").is_success
    except httpx.TransportError:
        return False


def shown(cluster: dict[str, str]) -> str:
    done = subprocess.run(
        command("ray"), cwd=ROOT, env=os.environ | cluster, capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    return done.stdout


def actors(cluster: dict[str, str]) -> dict[str, int]:
    """The process of each run."""
    return {found["run"]: int(found["pid"]) for found in RUN_LINE.finditer(shown(cluster))}


def more_is_acknowledged(load: Load) -> None:
    enough, limit_s = load.num_acknowledged + WORK, time.monotonic() + LIMIT_S
    while load.num_acknowledged < enough:
        load.raise_failure()
        assert time.monotonic() < limit_s
        time.sleep(POLL_S)


def test_it_answers_what_the_service_answers_to_the_byte_and_says_where_things_run(
    postgres_server: Any, postgres_url: str, cluster: dict[str, str], tmp_path: Path
) -> None:
    with postgres_server.fresh_database() as other, in_process(other) as http:
        expected = conversation(http)
    with served(postgres_url, cluster, tmp_path, replicas=2) as url, caller(url) as http:
        assert conversation(http) == expected
        refused(http.send("GET", "/v1/runs/none/tickets"), 404, "unknown_run", "no run is called 'none'")
        lines = shown(cluster).splitlines()
        assert "  edge: 2 running" in lines
        assert list(actors(cluster)) == ["r"]
        body = {"name": "second", "pool": "p"}
        assert http.send("POST", "/v1/runs", body).status_code == 201
        done = subprocess.run(
            command("serve", "--ray", "--database-url", postgres_url, "--port", "0"),
            cwd=ROOT, env=os.environ | cluster, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert "midband: Ray Serve runs on this cluster already" in done.stderr
        batch, before = http.draw(0, 2, run="second"), http.info("second")
        os.kill(actors(cluster)["second"], signal.SIGKILL)  # while nobody asks
        assert http.draw(0, 2, run="second") == batch
        assert http.info("second") == before
    assert [line.strip() for line in shown(cluster).splitlines() if "CPU" not in line] == [
        "nodes", "edge", "runs", "workers"
    ]  # fmt: skip


def test_what_was_acknowledged_when_a_runs_actor_was_killed_counts_exactly_once(
    postgres_url: str, cluster: dict[str, str], tmp_path: Path
) -> None:
    with served(postgres_url, cluster, tmp_path, replicas=2) as url, caller(url) as http:
        load = Load([url], timeout_s=LIMIT_S)
        load.prepare(http)
        load.start()
        killed = set[int]()
        for _ in range(KILLS):
            more_is_acknowledged(load)
            found = actors(cluster)
            assert set(found) == set(RUNS)
            assert not killed & set(found.values())
            for pid in found.values():
                os.kill(pid, signal.SIGKILL)
            killed |= set(found.values())
        more_is_acknowledged(load)
        load.finish()
        check_afterwards(http, load)
        live = all_of(http)
    check_replay(postgres_url, live)
