"""What talking to the service costs a trainer: a draw, a report and a step of 1,024 groups, 100,000 prompts behind it.

The engine is none: outcomes are made up beforehand, so every second measured is spent by the client, the wire or the
service. Beside it, in turns, the same bodies go to bare endpoints that parse them and answer the same bytes, as ready
bytes and by plain httpx: what is left there is the framework's. The client's own part is measured once more against
answers that are ready in this process. Processor seconds of client and service together are given too: on a machine
that others use they say more than the clock.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
import numpy as np

import midband
from api.schemas import Batch, GroupReport, Ticket
from tests.benchmarks.language import Figure, arguments, show
from tests.benchmarks.serving import bare_server, fill, midband_server, write_rows
from trainer.client import Client

NUM_PROMPTS, QUICK_PROMPTS = 100_000, 2_000
BATCH_SIZE, QUICK_BATCH = 1_024, 64
STEPS, QUICK_STEPS = 30, 3
GROUP_SIZE = 8
PHASES = ("draw", "report", "step")
TARGET_MS = 350.0


def main() -> None:
    options = arguments("A trainer's seconds with the service in a step.").parse_args()
    num_prompts, size, steps = (
        (QUICK_PROMPTS, QUICK_BATCH, QUICK_STEPS) if options.quick else (NUM_PROMPTS, BATCH_SIZE, STEPS)
    )
    with tempfile.TemporaryDirectory() as folder, midband_server(f"sqlite:///{folder}/bench.db") as server:
        rows = Path(folder) / "rows.jsonl"
        write_rows(rows, num_prompts)
        fill(server.client, rows)
        show(_measure(server.client, Path(folder), num_prompts, size, steps), as_json=options.json)


def _measure(service: httpx.Client, folder: Path, num_prompts: int, size: int, steps: int) -> list[Figure]:
    seconds: dict[str, list[float]] = {name: [] for name in (*PHASES, "all", "bare", "client")}
    with Client(str(service.base_url)) as client:
        first = service.post("/v1/runs/bench/batches", json=_draw_body(0, size)).content
        batch = Batch.model_validate_json(first)
        answer = client.report("bench", _groups(batch.tickets, 0), policy_version=0)
        (folder / "draw.json").write_bytes(first)
        (folder / "report.json").write_text(answer.model_dump_json())
        ready = _ready_client(first, answer.model_dump_json().encode())
        processor_s = 0.0
        with bare_server(folder) as bare_process:
            bare = bare_process.client
            for index in range(1, steps + 1):
                before_s = _processor_s(service) + time.process_time()
                took = _step(client, index, size)
                processor_s += _processor_s(service) + time.process_time() - before_s
                for name, value in zip(PHASES, took, strict=True):
                    seconds[name].append(value)
                seconds["all"].append(sum(took))
                seconds["client"].append(sum(_step(ready, index, size)))
                seconds["bare"].append(_bare_step(bare, batch, index, size))
    setting = {
        "batch_size": size, "group_size": GROUP_SIZE, "steps": steps, "database": "sqlite", "engine": "none",
        "target_ms": TARGET_MS,
    }  # fmt: skip
    cases = [("whole step", "all"), *((name, name) for name in PHASES), ("client alone", "client")]
    bare_ms = 1_000 * float(np.median(seconds["bare"]))
    processor = Figure(
        benchmark="trainer_step",
        case="whole step",
        metric="processor, client and service, mean",
        value=1_000 * processor_s / steps,
        unit="ms",
        n=num_prompts,
        setting=setting,
    )
    return [
        processor,
        *_figures(cases, seconds, bare_ms, num_prompts, setting),
    ]


def _figures(
    cases: Sequence[tuple[str, str]],
    seconds: Mapping[str, Sequence[float]],
    bare_ms: float,
    num_prompts: int,
    setting: Mapping[str, object],
) -> list[Figure]:
    return [
        Figure(
            benchmark="trainer_step",
            case=case,
            metric=metric,
            value=1_000 * float(np.quantile(seconds[key], quantile)),
            unit="ms",
            reference_name="bare HTTP, draw and report, p50",
            reference_value=bare_ms,
            n=num_prompts,
            setting=setting,
        )
        for case, key in cases
        for metric, quantile in (("p50", 0.5), ("p90", 0.9))
    ]


def _step(client: Client, index: int, size: int) -> tuple[float, float, float]:
    """Seconds of the three calls. Groups are made inside the report's: that is the client's work, too."""
    began_s = time.perf_counter()
    batch = client.draw("bench", index, size, index)
    drawn_s = time.perf_counter()
    client.report("bench", _groups(batch.tickets, index), policy_version=index)
    reported_s = time.perf_counter()
    trained = [ticket.ticket for ticket in batch.tickets]
    client.step("bench", index, policy_version=index + 1, trained=trained, costs={"update_s": 0.0})
    return drawn_s - began_s, reported_s - drawn_s, time.perf_counter() - reported_s


def _processor_s(service: httpx.Client) -> float:
    """Processor seconds that the service's process has used so far."""
    lines = service.get("/metrics").raise_for_status().text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("process_cpu_seconds_total "))


def _groups(tickets: Sequence[Ticket], index: int) -> list[GroupReport]:
    outcomes = np.random.default_rng(index).integers(0, 2, (len(tickets), GROUP_SIZE)).astype(float).tolist()
    tokens = [100] * GROUP_SIZE
    return [midband.group(ticket, row, tokens=tokens) for ticket, row in zip(tickets, outcomes, strict=True)]


def _bare_step(bare: httpx.Client, batch: Batch, index: int, size: int) -> float:
    report = {
        "policy_version": index,
        "groups": [group.model_dump(exclude_unset=True) for group in _groups(batch.tickets, index)],
    }
    body = httpx.Request("POST", "http://bare/", json=report).read()
    began_s = time.perf_counter()
    bare.post("/batches", json=_draw_body(index, size)).raise_for_status()
    bare.post("/reports", content=body, headers={"content-type": "application/json"}).raise_for_status()
    return time.perf_counter() - began_s


def _ready_client(draw: bytes, report: bytes) -> Client:
    """A client whose answers are there at once."""
    step = b'{"step": 0, "branch": 0, "state": "recorded", "rejected": []}'
    answers = {"batches": draw, "reports": report, "steps": step}

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=answers[request.url.path.rpartition("/")[2]])

    return Client("http://ready", transport=httpx.MockTransport(answer))


def _draw_body(index: int, size: int) -> dict[str, int]:
    return {"index": index, "size": size, "policy_version": index}


if __name__ == "__main__":
    main()
