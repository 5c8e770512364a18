"""Two server processes on one PostgreSQL database: one dies, is paused or is stopped under load, the other goes on."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.api.harness import Http, Process, caller, letters, process, refused
from tests.api.load import RUNS, Load, all_of, check_afterwards, check_replay

pytestmark = [pytest.mark.slow, pytest.mark.postgres]
CALL_S = 2.0  # a caller gives up on one try: a paused server does not refuse, it says nothing
WORK = 200  # rollouts acknowledged between two troubles
LIMIT_S = 120.0


@contextmanager
def two_servers(url: str, folder: Path) -> Iterator[tuple[Process, Process]]:
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    with process(url, folder / "a") as a, process(url, folder / "b") as b:
        yield a, b


def until(holds: Callable[[], bool], load: Load | None = None) -> None:
    limit_s = time.monotonic() + LIMIT_S
    while not holds():
        if load is not None:
            load.raise_failure()
        assert time.monotonic() < limit_s
        time.sleep(0.05)


def more_is_acknowledged(load: Load) -> None:
    enough = load.num_acknowledged + WORK
    until(lambda: load.num_acknowledged >= enough, load)


def owner_of(http: Http, run: str) -> str | None:
    """The address that a write is sent on to; None where this server takes it."""
    response = http.send("POST", f"/v1/runs/{run}/checkpoints", {"step": 0})
    return None if response.is_success else str(response.json().get("owner"))


@pytest.mark.parametrize("trouble", ["killed", "paused", "stopped"])
def test_the_other_server_goes_on_and_nothing_is_lost_or_counted_twice(
    postgres_url: str, tmp_path: Path, trouble: str
) -> None:
    with two_servers(postgres_url, tmp_path) as (a, b):
        load = Load([a.url, b.url], timeout_s=CALL_S)
        with caller(a.url) as http, caller(b.url) as other:
            load.prepare(http)
            assert [owner_of(http, run) for run in RUNS] == [None] * len(RUNS)  # a has them all
            assert [owner_of(other, run) for run in RUNS] == [a.url] * len(RUNS)
            load.start()
            more_is_acknowledged(load)
            if trouble == "killed":
                a.kill()
            elif trouble == "paused":
                a.pause()
            else:
                a.stop()
            until(lambda: [owner_of(other, run) for run in RUNS] == [None] * len(RUNS), load)
            more_is_acknowledged(load)  # half of the callers know only the other address, and wait
            if trouble == "paused":
                a.wake()
                until(lambda: [owner_of(http, run) for run in RUNS] == [b.url] * len(RUNS), load)
            else:
                a = Process(postgres_url, tmp_path / "again.log", port=int(a.url.rpartition(":")[2]))
            more_is_acknowledged(load)
            load.finish()
            check_afterwards(other, load)
            live = all_of(other)
        a.kill()
        b.kill()
    check_replay(postgres_url, live)


def test_a_paused_owner_that_wakes_up_takes_nothing_it_was_sent_before(postgres_url: str, tmp_path: Path) -> None:
    with two_servers(postgres_url, tmp_path) as (a, b), caller(a.url) as http, caller(b.url) as other:
        http.pool(letters("abcdefgh"))
        http.run(group_size=2)
        first = http.draw(0, 2)
        http.post("/v1/runs/r/checkpoints", {"step": 0})
        a.pause()
        until(lambda: owner_of(other, "r") is None)
        second = other.draw(1, 2)
        assert other.draw(0, 2) == first
        assert other.post("/v1/runs/r/restore", {"step": 0})["branch"] == 1
        a.wake()
        # In its memory index 1 was never drawn, and branch 0 is the newest.
        body = {"index": 1, "size": 2, "policy_version": 0}
        refused(http.send("POST", "/v1/runs/r/batches", body), 409, "not_owner", b.url)
        assert http.info()["branch"] == 1
        assert other.draw(1, 2)["branch"] == 1
        assert second["branch"] == 0
        b.kill()
        until(lambda: owner_of(http, "r") is None)
        assert http.draw(1, 2) == http.get("/v1/runs/r/batches/1")
