"""Draws, reports, uploads and a start over HTTP, beside the bare framework, on both databases.

The server is a process on one core, with its files in a temporary folder; the client is this process. Every call that
goes to the service goes to a bare endpoint too, in turns, which parses the same body, does nothing, and answers as many
bytes. Draws beside an upload or an export are compared with draws alone of the same run, which come right before them:
the calls that they are beside are another process's.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.benchmarks import recovery
from tests.benchmarks.language import Figure, arguments, show
from tests.benchmarks.serving import (
    BATCH_SIZE,
    GROUP_SIZE,
    Server,
    bare_server,
    draw,
    fill,
    midband_server,
    report_body,
    stored_bytes,
    timed,
    upload,
    write_rows,
)
from tests.postgres import PostgresServer, find_programs

NUM_PROMPTS, QUICK_PROMPTS = 1_000_000, 5_000
DRAWS, QUICK_DRAWS = 60, 8
BESIDE_DRAWS, QUICK_BESIDE = 200, 8  # alone, beside an export, and beside an upload
CALLERS = 8  # that report single rollouts at one time
SINGLES, QUICK_SINGLES = 2_048, 128
DRAW_PATH, REPORT_PATH = "/v1/runs/bench/batches", "/v1/runs/bench/reports"
DATABASES = ("sqlite", "postgresql")


def main() -> None:
    parser = arguments("Draws, reports, uploads and a start over HTTP, beside the bare framework.")
    parser.add_argument("--database", nargs="+", choices=DATABASES, default=list(DATABASES), help="on which to run")
    parser.add_argument("--prompts", type=int, help=f"in the pool; {NUM_PROMPTS:,} if left out")
    parser.add_argument("--no-recovery", action="store_true", help="leave out the start after five million rollouts")
    options = parser.parse_args()
    size = Size.quick() if options.quick else Size(num_prompts=options.prompts or NUM_PROMPTS)
    figures: list[Figure] = []
    for name in options.database:
        with tempfile.TemporaryDirectory() as folder, database_urls(name, Path(folder)) as (url, other):
            figures += _Measurement(name, url, Path(folder), size).figures()
            if not options.no_recovery:
                figures += recovery.figures(name, other, quick=options.quick)
    show(figures, as_json=options.json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    num_prompts: int
    draws: int = DRAWS
    beside: int = BESIDE_DRAWS
    singles: int = SINGLES

    @classmethod
    def quick(cls) -> "Size":
        return cls(num_prompts=QUICK_PROMPTS, draws=QUICK_DRAWS, beside=QUICK_BESIDE, singles=QUICK_SINGLES)


@contextmanager
def database_urls(name: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Two empty databases of a kind. That of PostgreSQL waits for the disk as one in production does."""
    if name == "sqlite":
        yield f"sqlite:///{folder}/bench.db", f"sqlite:///{folder}/recovery.db"
        return
    programs = find_programs()
    if programs is None:
        raise SystemExit("PostgreSQL's programs are not installed; leave it out by --database sqlite")
    with (
        PostgresServer.started(programs, durable=True) as server,
        server.fresh_database() as url,
        server.fresh_database() as other,
    ):
        yield url, other


@dataclass(slots=True)
class _Measurement:
    """Of one database."""

    database: str
    url: str
    folder: Path
    size: Size
    index: int = 0
    found: list[Figure] = field(default_factory=list)

    def figures(self) -> list[Figure]:
        rows = self.folder / "rows.jsonl"
        write_rows(rows, self.size.num_prompts)
        with midband_server(self.url) as server:
            empty_mib = server.memory_mib()
            import_s = fill(server.client, rows)
            import_mib = server.memory_mib(peak=True)
            batch = self._draw(server.client)
            answer, _ = timed(server.client, REPORT_PATH, report_body(batch, self.index))
            (self.folder / "draw.json").write_bytes(batch)
            (self.folder / "report.json").write_bytes(answer)
            with bare_server(self.folder) as bare:
                self._import(bare, rows, import_s, import_mib)
                million = self.size.num_prompts / 1e6
                # What the answers above left in memory is little beside the pool and the run.
                self._add("memory", "per million prompts", (server.memory_mib() - empty_mib) / million, "MiB")
                self._whole_reports(server.client, bare.client)
                self._single_reports(server.client, bare.client)
            alone = self._draws(server.client, self.size.beside)
            for kind in ("export", "import"):
                self._beside(server, kind, rows, alone)
        return self.found

    def _import(self, bare: Server, rows: Path, import_s: float, peak_mib: float) -> None:
        per_s = self.size.num_prompts / import_s
        bare_per_s = self.size.num_prompts / upload(bare.client, "/prompts", rows)
        self._add("import", "rows_per_second", per_s, "rows/s", bare_per_s, format="jsonl")
        self._add("import", "seconds", import_s, "s", self.size.num_prompts / bare_per_s, format="jsonl")
        self._add("import", "peak memory", peak_mib, "MiB", bare.memory_mib(peak=True), format="jsonl")

    def _whole_reports(self, client: httpx.Client, bare: httpx.Client) -> None:
        times: dict[str, list[float]] = {"draw": [], "bare draw": [], "report": [], "bare report": []}
        before = stored_bytes(self.url)
        for _ in range(self.size.draws):
            times["bare draw"].append(draw(bare, "/batches", self.index)[1])
            self.index += 1
            batch, seconds = draw(client, DRAW_PATH, self.index)
            times["draw"].append(seconds)
            body = report_body(batch, self.index)
            times["report"].append(timed(client, REPORT_PATH, body)[1])
            times["bare report"].append(timed(bare, "/reports", body)[1])
        stored = stored_bytes(self.url) - before
        for name in ("draw", "report"):
            for metric, quantile in (("p50", 0.5), ("p99", 0.99)):
                ours, bare_ms = (1_000 * float(np.quantile(times[key], quantile)) for key in (name, f"bare {name}"))
                self._add(f"{name} of {BATCH_SIZE}", metric, ours, "ms", bare_ms, draws=self.size.draws)
                self._add(f"{name} of {BATCH_SIZE}", f"{metric} over bare", ours - bare_ms, "ms", draws=self.size.draws)
        per_s, bare_per_s = (BATCH_SIZE / float(np.median(times[key])) for key in ("report", "bare report"))
        self._add("durable reports", "groups_per_second", per_s, "groups/s", bare_per_s)
        rollouts = self.size.draws * BATCH_SIZE * GROUP_SIZE
        self._add("database", "bytes per rollout", stored / rollouts, "B", draws=self.size.draws)

    def _single_reports(self, client: httpx.Client, bare: httpx.Client) -> None:
        """Rollouts one by one, from several callers at once, each over a connection of its own."""
        tickets = [t for _ in range(-(-self.size.singles // (BATCH_SIZE * GROUP_SIZE))) for t in self._tickets(client)]
        bodies = [
            json.dumps(
                {"policy_version": self.index, "groups": [{"ticket": ticket, "rollouts": [{"n": n, "outcome": n % 2}]}]}
            ).encode()
            for ticket in tickets
            for n in range(GROUP_SIZE)
        ][: self.size.singles]
        ours, ours_ms = _at_once(str(client.base_url), REPORT_PATH, bodies)
        framework, bare_ms = _at_once(str(bare.base_url), "/reports", bodies)
        setting: dict[str, Any] = {"callers": CALLERS, "rollouts": len(bodies)}
        self._add("single-rollout reports", "reports_per_second", ours, "reports/s", framework, **setting)
        for metric, quantile in (("p50", 0.5), ("p99", 0.99)):
            values = (float(np.quantile(times, quantile)) for times in (ours_ms, bare_ms))
            self._add("single-rollout reports", metric, next(values), "ms", next(values), **setting)

    def _beside(self, server: Server, kind: str, rows: Path, alone: Sequence[float]) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.beside", kind, str(server.client.base_url), str(rows)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                time.sleep(1.0)  # it has begun to send or receive
                taken = self._draws(server.client, self.size.beside)
            finally:
                process.terminate()
            calls = process.stdout.read().count("done") if process.stdout else 0
        for metric, quantile in (("p50", 0.5), ("p99", 0.99)):
            values = (1_000 * float(np.quantile(times, quantile)) for times in (taken, alone))
            name = f"draw of {BATCH_SIZE} beside an {kind}"
            self._add(
                name, metric, next(values), "ms", next(values), against="draws alone", draws=len(taken), calls=calls
            )

    def _draws(self, client: httpx.Client, count: int) -> list[float]:
        """Seconds of draws, each followed by its report."""
        taken = []
        for _ in range(count):
            self.index += 1
            batch, seconds = draw(client, DRAW_PATH, self.index)
            taken.append(seconds)
            timed(client, REPORT_PATH, report_body(batch, self.index))
        return taken

    def _draw(self, client: httpx.Client) -> bytes:
        self.index += 1
        return draw(client, DRAW_PATH, self.index)[0]

    def _tickets(self, client: httpx.Client) -> list[str]:
        return [ticket["ticket"] for ticket in json.loads(self._draw(client))["tickets"]]

    def _add(
        self, case: str, metric: str, value: float, unit: str, reference: float | None = None, *,
        against: str = "bare framework", **more: object,
    ) -> None:  # fmt: skip
        setting: Mapping[str, object] = {"database": self.database, "batch_size": BATCH_SIZE, **more}
        self.found.append(
            Figure(
                benchmark="service", case=f"{case}, {self.database}", metric=metric, value=value, unit=unit,
                reference_name=None if reference is None else against, reference_value=reference,
                n=self.size.num_prompts, setting=setting,
            )
        )  # fmt: skip


def _at_once(url: str, path: str, bodies: Sequence[bytes]) -> tuple[float, list[float]]:
    """Calls a second, and the milliseconds of each."""

    def work(mine: Sequence[bytes]) -> list[float]:
        with httpx.Client(base_url=url, timeout=60.0) as client:
            return [1_000 * timed(client, path, body)[1] for body in mine]

    with ThreadPoolExecutor(CALLERS) as executor:
        began = time.perf_counter()
        taken = list(executor.map(work, [bodies[caller::CALLERS] for caller in range(CALLERS)]))
        seconds = time.perf_counter() - began
    return len(bodies) / seconds, [one for each in taken for one in each]


if __name__ == "__main__":
    main()
