"""Servers that benchmarks measure, each a process on one core, what they are asked, and what they take.

`service` and `trainer_step` use it. It knows the contract's paths and nothing of the service's inside.
"""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import psycopg
from sqlalchemy import make_url

BATCH_SIZE, GROUP_SIZE = 512, 8
JSON = {"content-type": "application/json"}
JSON_LINES = {"content-type": "application/x-ndjson"}
START_WAIT_S = 60.0
TIMEOUT_S = 1_800.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running server and a client of it."""

    client: httpx.Client
    pid: int

    def memory_mib(self, *, peak: bool = False) -> float:
        """What the process holds now, or the most that it has held."""
        name = "VmHWM" if peak else "VmRSS"
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) / 1_024 for line in lines if line.startswith(f"{name}:"))


@contextmanager
def midband_server(url: str) -> Iterator[Server]:
    port = _free_port()
    code = "import midband; midband.main()"
    with _process([sys.executable, "-c", code, "serve", "--port", str(port), "--database-url", url], port) as server:
        yield server


@contextmanager
def bare_server(folder: Path) -> Iterator[Server]:
    """The framework alone: answers what is in draw.json and report.json of the folder."""
    port = _free_port()
    files = [str(folder / "draw.json"), str(folder / "report.json")]
    with _process([sys.executable, "-m", "tests.benchmarks.bare", str(port), *files], port, "/openapi.json") as server:
        yield server


def write_rows(path: Path, num_prompts: int) -> None:
    """Short prompts in 50 categories, as JSON Lines."""
    with path.open("w", encoding="utf-8") as file:
        for i in range(num_prompts):
            row = {"key": f"p{i}", "content": f"What is {i} + {i}?", "answer": str(2 * i), "category": f"c{i % 50}"}
            file.write(json.dumps(row) + "\n")


def upload(client: httpx.Client, path: str, rows: Path) -> float:
    """Puts a file there; returns the seconds that took."""
    began = time.perf_counter()
    with rows.open("rb") as file:
        client.put(path, content=file, headers=JSON_LINES).raise_for_status()
    return time.perf_counter() - began


def fill(client: httpx.Client, rows: Path) -> float:
    """A pool of these rows, and a run on it; returns the import's seconds."""
    client.post("/v1/pools", json={"name": "bench"}).raise_for_status()
    seconds = upload(client, "/v1/pools/bench/prompts", rows)
    client.post("/v1/runs", json={"name": "bench", "pool": "bench"}).raise_for_status()
    return seconds


def draw(client: httpx.Client, path: str, index: int, **fields: object) -> tuple[bytes, float]:
    """A batch, and the seconds it took."""
    body = {"index": index, "size": BATCH_SIZE, "policy_version": index, **fields}
    return timed(client, path, json.dumps(body).encode())


def timed(client: httpx.Client, path: str, body: bytes) -> tuple[bytes, float]:
    began = time.perf_counter()
    response = client.post(path, content=body, headers=JSON)
    seconds = time.perf_counter() - began
    response.raise_for_status()
    return response.content, seconds


def report_body(batch: bytes, index: int) -> bytes:
    """Whole groups of made-up outcomes for a batch."""
    tickets = json.loads(batch)["tickets"]
    outcomes = np.random.default_rng(index).integers(0, 2, (len(tickets), GROUP_SIZE)).tolist()
    groups = [
        {"ticket": ticket["ticket"], "rollouts": [{"outcome": outcome, "tokens": 100} for outcome in row]}
        for ticket, row in zip(tickets, outcomes, strict=True)
    ]
    return json.dumps({"policy_version": index, "groups": groups}).encode()


def stored_bytes(url: str) -> int:
    """What a database takes on the disk."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        with closing(sqlite3.connect(str(parsed.database), timeout=TIMEOUT_S)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return os.stat(str(parsed.database)).st_size
    with psycopg.connect(parsed.set(drivername="postgresql").render_as_string(hide_password=False)) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        return 0 if row is None else int(row[0])


@contextmanager
def _process(command: list[str], port: int, ready_path: str = "/readyz") -> Iterator[Server]:
    """A server process that answers `ready_path`, on the first core that we may use."""
    core = min(os.sched_getaffinity(0))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            ["taskset", "--cpu-list", str(core), *command], env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_S) as client:
                deadline = time.monotonic() + START_WAIT_S
                while not _is_ready(client, ready_path):
                    if process.poll() is not None or time.monotonic() > deadline:
                        log.seek(0)
                        raise RuntimeError(f"{command} did not start: {log.read().decode(errors='replace')}")
                    time.sleep(0.1)
                yield Server(client, process.pid)
        finally:
            process.terminate()
            process.wait()


def _is_ready(client: httpx.Client, path: str) -> bool:
    try:
        return client.get(path).status_code == 200
    except httpx.ConnectError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
