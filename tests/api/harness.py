"""The service as its callers see it: short HTTP calls, in process, over a port, or to a process that can be killed.

Tests of `tests/api` and `tests/api/cases` use it. It knows the contract's paths and fields and nothing of the service's
inside.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import uvicorn
from sqlalchemy import Connection

from api.app import create_app
from api.db.session import create_database, write
from api.serve import listen
from api.settings import Settings
from trainer.transport import InProcessTransport

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60.0  # one call: what takes longer hangs
START_LIMIT_S = 60.0
POLL_S = 0.05

# Beliefs that can be worked out by hand: k passes of n rollouts make (1 + k) / (2 + n), whatever the other prompts did.
FLAT_BETA = {
    "preset": "midband",
    "estimator": "discounted_beta",
    "estimator_options": {"discount": 1.0, "process_noise": 0.0, "prior_successes": 1.0, "prior_failures": 1.0},
}

Json = dict[str, Any]


class Http:
    """One caller of one service. Every call is asserted to succeed, except through `send`."""

    def __init__(self, client: httpx.Client, key: str | None = None) -> None:
        self.client = client
        self.key = key

    def holding(self, key: str | None) -> "Http":
        """The same service, called with a key."""
        return Http(self.client, key)

    def send(self, method: str, path: str, body: object = None, **options: Any) -> httpx.Response:
        """One request as it is; a `body` of bytes goes out as they are, anything else as JSON."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        bearer = {} if self.key is None else {"authorization": f"Bearer {self.key}"}
        headers = {"content-type": "application/json", **bearer, **options.pop("headers", {})}
        return self.client.request(method, path, content=content, headers=headers, **options)

    def get(self, path: str, **query: Any) -> Json:
        return answered(self.send("GET", path, params=query))

    def post(self, path: str, body: object) -> Json:
        return answered(self.send("POST", path, body))

    # Pools

    def pool(self, rows: Iterable[Json], pool: str = "p", mode: str | None = None) -> Json:
        """Imports rows into a pool, made if need be; returns the import's answer."""
        self.post("/v1/pools", {"name": pool})
        return self.put(rows, pool, mode)

    def put(self, rows: Iterable[Json], pool: str = "p", mode: str | None = None) -> Json:
        lines = b"\n".join(orjson.dumps(row) for row in rows)
        query = {} if mode is None else {"mode": mode}
        headers = {"content-type": "application/x-ndjson"}
        return answered(self.send("PUT", f"/v1/pools/{pool}/prompts", lines, params=query, headers=headers))

    def quarantine(self, keys: Sequence[str], pool: str = "p", **options: Any) -> Json:
        return self.post(f"/v1/pools/{pool}/quarantine", {"keys": list(keys), "reason": "broken", **options})

    def prompt(self, key: str, pool: str = "p", run: str = "r") -> Json:
        return self.get(f"/v1/pools/{pool}/prompts/{key}", run=run)

    # Runs

    def run(self, run: str = "r", pool: str = "p", **options: Any) -> Json:
        return self.post("/v1/runs", {"name": run, "pool": pool, **options})

    def info(self, run: str = "r") -> Json:
        return self.get(f"/v1/runs/{run}")

    def draw(self, index: int, size: int, version: int = 0, run: str = "r", **options: Any) -> Json:
        body = {"index": index, "size": size, "policy_version": version, **options}
        return self.post(f"/v1/runs/{run}/batches", body)

    def report(self, *groups: Json, run: str = "r", **options: Any) -> Json:
        return self.post(f"/v1/runs/{run}/reports", {"groups": groups, **options})

    def tickets(self, run: str = "r", **query: Any) -> list[Json]:
        """All tickets of a run, page by page."""
        items, cursor = list[Json](), dict[str, str]()
        while True:
            page = self.get(f"/v1/runs/{run}/tickets", **query, **cursor)
            items += page["items"]
            if page["next_cursor"] is None:
                return items
            cursor = {"cursor": page["next_cursor"]}

    def ticket(self, name: str, run: str = "r") -> Json:
        return next(ticket for ticket in self.tickets(run) if ticket["ticket"] == name)

    def beliefs(self, run: str = "r") -> dict[str, Json]:
        """Beliefs by key."""
        text = self.send("GET", f"/v1/runs/{run}/beliefs", params={"format": "jsonl"}).text
        rows = [orjson.loads(line) for line in text.splitlines()]
        return {row["key"]: row for row in rows}

    def events(self, run: str = "r", after: int = 0) -> list[Json]:
        lines = self.send("GET", f"/v1/runs/{run}/events", params={"after": after}).content.splitlines()
        return [orjson.loads(line) for line in lines]


def answered(response: httpx.Response) -> Json:
    """The body of a request that succeeded."""
    assert response.is_success, f"{response.request.method} {response.request.url}: {response.text}"
    body = orjson.loads(response.content)
    assert isinstance(body, dict)
    return body


def refused(response: httpx.Response, status: int, code: str, *words: str) -> str:
    """Asserts the one shape of errors, with this status and code, and a detail that holds the words; returns it."""
    assert response.status_code == status, response.text
    body = orjson.loads(response.content)
    assert set(body) - {"owner"} == {"code", "detail", "retryable", "request_id"}
    assert body["code"] == code, body
    assert body["retryable"] is (status == 503 or code == "not_owner")
    assert body["request_id"] == response.headers["x-request-id"]
    missing = [word for word in words if word not in body["detail"]]
    assert not missing, f"{missing} not in {body['detail']!r}"
    return str(body["detail"])


def prompts(count: int, **fields: Any) -> list[Json]:
    """Rows p000, p001, ..."""
    return [{"key": f"p{i:03}", "content": f"question {i}", "answer": str(i), **fields} for i in range(count)]


def held_out(count: int) -> list[Json]:
    """Rows h000, h001, ... of the held-out split."""
    return [{"key": f"h{i:03}", "content": f"held-out question {i}", "split": "heldout"} for i in range(count)]


def letters(text: str = "abcd") -> list[Json]:
    """Rows named by one letter each."""
    return [{"key": key, "content": f"question {key}", "answer": key} for key in text]


def group(ticket: Json | str, outcomes: Sequence[float | None], **fields: Any) -> Json:
    """A whole group of a report: rollout 0 first."""
    name = ticket if isinstance(ticket, str) else ticket["ticket"]
    return {"ticket": name, "rollouts": [{"outcome": outcome, "tokens": 10} for outcome in outcomes], **fields}


def keys_of(batch: Json) -> list[str]:
    return [ticket["prompt"] for ticket in batch["tickets"]]


def ids_of(batch: Json) -> list[str]:
    return [ticket["ticket"] for ticket in batch["tickets"]]


def codes_of(report: Json) -> list[str]:
    return [rejection["code"] for rejection in report["rejected"]]


@contextmanager
def unchanged(http: Http, run: str = "r") -> Iterator[None]:
    """Asserts that nothing happens to a run and its pool."""

    def everything() -> tuple[Any, ...]:
        return http.info(run), http.events(run), http.get("/v1/pools/p"), http.get("/v1/pools"), http.get("/v1/runs")

    before = everything()
    yield
    assert everything() == before


def everything(http: Http, run: str = "r") -> tuple[Any, ...]:
    """All that can be read of a run."""
    reads = [http.get(f"/v1/runs/{run}/{name}") for name in ("costs", "audit", "checkpoints")]
    return http.info(run), http.beliefs(run), http.tickets(run), http.events(run), *reads


# Services


@contextmanager
def in_process(database_url: str, **settings: Any) -> Iterator[Http]:
    """A service inside this process, without a port."""
    app = create_app(Settings(database_url=database_url, **settings))
    with httpx.Client(transport=InProcessTransport(app), base_url="http://midband") as client:
        yield Http(client)


@contextmanager
def listening(database_url: str, **settings: Any) -> Iterator[str]:
    """The URL of a service in a thread of this process that listens on a free port."""
    at = Settings(database_url=database_url, port=0, **settings)
    config = uvicorn.Config(create_app(at), log_config=None, log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    with listen(at) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            wait_until_ready(url, thread.is_alive)
            yield url
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def caller(url: str) -> Iterator[Http]:
    """A caller with a connection of its own."""
    with httpx.Client(base_url=url, timeout=LIMIT_S) as client:
        yield Http(client)


@contextmanager
def stored(url: str) -> Iterator[Connection]:
    """What a service that is down has stored, to be damaged."""
    engine = create_database(url)
    try:
        with write(engine) as connection:
            yield connection
    finally:
        engine.dispose()


class Process:
    """`midband serve` as a process of its own, on a free port or on this one."""

    def __init__(self, database_url: str, log: Path, *flags: str, port: int | None = None) -> None:
        self.log = log
        port = port or free_port()
        self.url = f"http://127.0.0.1:{port}"
        with log.open("ab") as stream:
            arguments = ["serve", "--database-url", database_url, "--port", str(port), *flags]
            self._process = subprocess.Popen(command(*arguments), cwd=ROOT, stdout=stream, stderr=stream)
        wait_until_ready(self.url, lambda: self._process.poll() is None, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """No time for good-byes."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """It does nothing any more, and its connections stay."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """As a person stops it; returns the exit status."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(timeout=LIMIT_S)


@contextmanager
def process(database_url: str, folder: Path, *flags: str, port: int | None = None) -> Iterator[Process]:
    """A `midband serve` that is ended with the block, if it still runs."""
    server = Process(database_url, folder / "serve.log", *flags, port=port)
    try:
        yield server
    finally:
        server.kill()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def command(*arguments: str) -> list[str]:
    """The `midband` command of this checkout."""
    return [sys.executable, "-c", "import midband; midband.main()", *arguments]


def ended(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A `midband` command that ends by itself."""
    return subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def wait_until_ready(url: str, is_alive: Any, log: Path | None = None) -> None:
    limit_s = time.monotonic() + START_LIMIT_S
    while True:
        try:
            if httpx.get(f"{url}/readyz").is_success:
                return
        except httpx.TransportError:
            pass
        if not is_alive() or time.monotonic() > limit_s:
            raise RuntimeError(f"the service at {url} did not start: {log.read_text() if log else 'see above'}")
        time.sleep(POLL_S)
