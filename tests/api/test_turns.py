"""Long work gives way to what is foremost, for a bounded time, and not at all when nothing is."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from api import convert, turns
from api.hosting import RunHost
from api.turns import Turns, paced
from tests.api.harness import in_process, prompts

LIMIT_S = 60.0


def test_nobody_waits_while_nothing_is_foremost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LONGEST_S", LIMIT_S)
    began = time.monotonic()
    Turns().give_way()
    assert time.monotonic() - began < LIMIT_S / 2


def test_work_waits_until_the_last_of_what_is_foremost_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LONGEST_S", LIMIT_S)
    shared, passed = Turns(), threading.Event()

    def work() -> None:
        shared.give_way()
        passed.set()

    with shared.foremost():
        with shared.foremost():
            thread = threading.Thread(target=work)
            thread.start()
            assert not passed.wait(0.05)
        assert not passed.wait(0.05)
    assert passed.wait(LIMIT_S)
    thread.join()


def test_what_is_foremost_and_fails_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LONGEST_S", LIMIT_S)
    shared = Turns()
    with pytest.raises(ValueError, match="failed"), shared.foremost():
        raise ValueError("failed")
    began = time.monotonic()
    shared.give_way()
    assert time.monotonic() - began < LIMIT_S / 2


def test_work_goes_on_under_any_load_after_a_while() -> None:
    shared = Turns()
    with shared.foremost():
        shared.give_way()  # returns


def test_a_pace_gives_way_when_a_slice_is_over_and_begins_a_new_one() -> None:
    now, ways = 0.0, list[float]()

    class Counted(Turns):
        def give_way(self) -> None:
            ways.append(now)

    look = Counted().pace(lambda: now)
    for step in range(1, 11):
        now = step * turns.SLICE_S * 0.4
        look()
    assert [round(at / turns.SLICE_S, 1) for at in ways] == [1.2, 2.4, 3.6]


def test_paced_items_are_all_there_with_a_look_after_every_few() -> None:
    looks = list[int]()
    seen = list(paced(range(10), lambda: looks.append(1), every=4))
    assert (seen, len(looks)) == (list(range(10)), 3)


def test_a_call_of_a_run_is_foremost_from_before_it_is_read_until_it_is_answered(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: list[None] = []
    seen: list[tuple[str, bool]] = []

    @contextmanager
    def foremost(self: Turns) -> Iterator[None]:
        under_way.append(None)
        try:
            yield
        finally:
            under_way.pop()

    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watching(*arguments: Any) -> Any:
            seen.append((name, bool(under_way)))
            return call(*arguments)

        return watching

    monkeypatch.setattr(Turns, "foremost", foremost)
    monkeypatch.setattr(convert, "to_report", watched("read", convert.to_report))
    monkeypatch.setattr(RunHost, "_carry_out", watched("carried out", RunHost._carry_out))
    with in_process(sqlite_url) as http:
        http.pool(prompts(4))
        http.run()
        ticket = http.draw(0, 1)["tickets"][0]["ticket"]
        seen.clear()
        http.post("/v1/runs/r/reports", {"groups": [{"ticket": ticket, "rollouts": [{"n": 0, "outcome": 1}]}]})
        assert seen == [("read", True), ("carried out", True)]
        assert http.send("GET", "/v1/runs/r/batches/7").status_code == 404
        assert seen[2:] == [("carried out", True)]
        assert not under_way
