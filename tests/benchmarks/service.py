"""The service over HTTP at 100,000 prompts: draws of 512 and reports of 512 groups, beside the bare framework.

`midband serve` and the bare endpoints run as processes of their own; requests to the two alternate, so that both meet
the same load of the machine. The bare endpoints parse the same bodies and answer the same bytes, without any work.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np

from tests.benchmarks.language import Figure, arguments, show

NUM_PROMPTS, QUICK_PROMPTS = 1_000_000, 5_000
BATCH_SIZE, GROUP_SIZE = 512, 8
DRAWS, QUICK_DRAWS = 60, 8
START_WAIT_S = 60.0
TIMEOUT_S = 600.0


def main() -> None:
    options = arguments("Draws and reports over HTTP, beside the bare framework.").parse_args()
    num_prompts = QUICK_PROMPTS if options.quick else NUM_PROMPTS
    draws = QUICK_DRAWS if options.quick else DRAWS
    with tempfile.TemporaryDirectory() as folder, midband_server(Path(folder)) as service:
        import_s = fill(service, num_prompts)
        show(_measure(service, Path(folder), num_prompts, draws, import_s), as_json=options.json)


def _measure(service: httpx.Client, folder: Path, num_prompts: int, draws: int, import_s: float) -> list[Figure]:
    batch, _ = _draw(service, "/v1/runs/bench/batches", 0)
    body = _report_body(json.loads(batch), 0)
    report, _ = _timed(service, "/v1/runs/bench/reports", body)
    (folder / "draw.json").write_bytes(batch)
    (folder / "report.json").write_bytes(report)
    times: dict[str, list[float]] = {"draw": [], "bare draw": [], "report": [], "bare report": []}
    with bare_server(folder) as bare:
        for index in range(1, draws + 1):
            batch, seconds = _draw(service, "/v1/runs/bench/batches", index)
            times["draw"].append(seconds)
            times["bare draw"].append(_draw(bare, "/batches", index)[1])
            body = _report_body(json.loads(batch), index)
            times["report"].append(_timed(service, "/v1/runs/bench/reports", body)[1])
            times["bare report"].append(_timed(bare, "/reports", body)[1])
    setting = {"batch_size": BATCH_SIZE, "group_size": GROUP_SIZE, "draws": draws, "database": "sqlite"}
    figures = []
    for name in ("draw", "report"):
        for metric, quantile in (("p50", 0.5), ("p99", 0.99)):
            ours, bare_ms = (1_000 * float(np.quantile(times[key], quantile)) for key in (name, f"bare {name}"))
            figures.append(
                Figure(
                    benchmark="service", case=f"{name} of {BATCH_SIZE}", metric=metric, value=ours, unit="ms",
                    reference_name="bare framework", reference_value=bare_ms, n=num_prompts, setting=setting,
                )
            )  # fmt: skip
    per_second = {key: BATCH_SIZE / float(np.median(times[key])) for key in ("report", "bare report")}
    figures.append(
        Figure(
            benchmark="service", case="durable reports", metric="groups_per_second", value=per_second["report"],
            unit="groups/s", reference_name="bare framework", reference_value=per_second["bare report"],
            n=num_prompts, setting=setting,
        )
    )  # fmt: skip
    figures.append(
        Figure(
            benchmark="service", case="import", metric="rows_per_second", value=num_prompts / import_s, unit="rows/s",
            n=num_prompts, setting={**setting, "format": "jsonl"},
        )
    )  # fmt: skip
    return figures


def fill(service: httpx.Client, num_prompts: int) -> float:
    """A pool of short prompts in 50 categories, and the run; returns the import's seconds."""
    rows = "".join(
        json.dumps({"key": f"p{i}", "content": f"What is {i} + {i}?", "answer": str(2 * i), "category": f"c{i % 50}"})
        + "\n"
        for i in range(num_prompts)
    )
    service.post("/v1/pools", json={"name": "bench"}).raise_for_status()
    began = time.perf_counter()
    headers = {"content-type": "application/x-ndjson"}
    service.put("/v1/pools/bench/prompts", content=rows.encode(), headers=headers).raise_for_status()
    seconds = time.perf_counter() - began
    service.post("/v1/runs", json={"name": "bench", "pool": "bench"}).raise_for_status()
    return seconds


def _draw(client: httpx.Client, path: str, index: int) -> tuple[bytes, float]:
    return _timed(client, path, json.dumps({"index": index, "size": BATCH_SIZE, "policy_version": index}).encode())


def _timed(client: httpx.Client, path: str, body: bytes) -> tuple[bytes, float]:
    began = time.perf_counter()
    response = client.post(path, content=body, headers={"content-type": "application/json"})
    seconds = time.perf_counter() - began
    response.raise_for_status()
    return response.content, seconds


def _report_body(batch: dict[str, list[dict[str, str]]], index: int) -> bytes:
    rng = np.random.default_rng(index)
    outcomes = rng.integers(0, 2, (len(batch["tickets"]), GROUP_SIZE)).tolist()
    groups = [
        {"ticket": ticket["ticket"], "rollouts": [{"outcome": outcome, "tokens": 100} for outcome in row]}
        for ticket, row in zip(batch["tickets"], outcomes, strict=True)
    ]
    return json.dumps({"policy_version": index, "groups": groups}).encode()


@contextmanager
def midband_server(folder: Path) -> Iterator[httpx.Client]:
    port = _free_port()
    code = "import midband; midband.main()"
    url = f"sqlite:///{folder}/bench.db"
    command = [sys.executable, "-c", code, "serve", "--port", str(port), "--database-url", url]
    with _process(command, port, "/readyz") as client:
        yield client


@contextmanager
def bare_server(folder: Path) -> Iterator[httpx.Client]:
    port = _free_port()
    files = [str(folder / "draw.json"), str(folder / "report.json")]
    with _process([sys.executable, "-m", "tests.benchmarks.bare", str(port), *files], port, "/openapi.json") as client:
        yield client


@contextmanager
def _process(command: list[str], port: int, ready_path: str) -> Iterator[httpx.Client]:
    """A server process that answers `ready_path`, and a client of it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_S) as client:
                deadline = time.monotonic() + START_WAIT_S
                while not _is_ready(client, ready_path):
                    if process.poll() is not None or time.monotonic() > deadline:
                        log.seek(0)
                        raise RuntimeError(f"{command} did not start: {log.read().decode(errors='replace')}")
                    time.sleep(0.1)
                yield client
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


if __name__ == "__main__":
    main()
