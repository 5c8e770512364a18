"""Long work gives way to what is foremost, for a bounded time, and not at all when nothing is."""

import threading
import time

import pytest

from api import turns
from api.turns import Turns, paced

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
