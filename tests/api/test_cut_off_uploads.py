"""Uploads in many transactions: nobody waits for one, and nobody sees any of it before all of it, however it ends."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, func, select

from api.db import changing, imports
from api.db.models import pool_deltas, prompt_questions, prompts
from api.db.pools import archive_pool, find_rows, get_pool, set_quarantine
from api.db.prompts import PromptFilter, export_pages, get_prompt, list_prompts
from api.db.session import create_database, read, write
from api.errors import Busy, PoolArchived, UnknownPrompt
from tests.api.forked import FORKS
from tests.api.harness import group, ids_of, in_process, refused
from tests.api.harness import prompts as rows_of
from tests.api.import_cases import Row, assert_stored_agrees, columns, counted, hundred, make_pool, prompt, put

LIMIT_S = 60.0


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_database(database_url)
    make_pool(engine)
    yield engine
    engine.dispose()


def small_steps() -> None:
    """As many transactions for a hundred rows as for hundreds of thousands."""
    imports.CHUNK_ROWS = imports.WRITTEN_AT_ONCE = 20


@pytest.fixture
def in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "CHUNK_ROWS", 20)
    monkeypatch.setattr(imports, "WRITTEN_AT_ONCE", 20)


def before() -> list[Row]:
    return [{"key": f"p{i:03}", "content": f"question {i}", "answer": str(i)} for i in range(30)]


def upload() -> list[Row]:
    """Ten of the thirty as they were, ten edited, ten left out; and ninety new ones."""
    rows = [{**row, "answer": "corrected"} if i >= 10 else row for i, row in enumerate(before()[:20])]
    return rows + [{"key": f"new {i}", "content": f"new question {i}"} for i in range(90)]


OUTCOME = ({"created": 90, "updated": 10, "unchanged": 10}, 10)


def _dies(url: str, where: int | str) -> None:
    """A process that is killed in the middle of an upload: at a step that writes (5 times texts and a part of the
    revision, a part of what changes, 5 times questions), before the last transaction, or inside it."""
    small_steps()
    engine = create_database(url)

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    steps = imports._Upload._steps

    def some(self: Any) -> Iterator[imports.Step]:
        for number, step in enumerate(steps(self)):
            if number == where:
                die()
            yield step
        if where == "before the last":
            die()

    imports._Upload._steps = some  # type: ignore[method-assign]
    if where == "inside the last":
        imports._Upload._apply_changes = die  # type: ignore[method-assign]
    put(engine, upload(), replace=True)


def hidden(engine: Engine) -> tuple[int, int, int]:
    """(prompts, questions, parts of revisions) that nobody can see."""
    with read(engine) as connection:
        pool = get_pool(connection, "p")
        counts = (
            (prompts, prompts.c.row >= pool.num_rows),
            (prompt_questions, prompt_questions.c.row >= pool.num_rows),
            (pool_deltas, pool_deltas.c.revision > pool.revision),
        )
        found = [
            connection.execute(select(func.count()).select_from(table).where(beyond)).scalar_one()
            for table, beyond in counts
        ]
    return found[0], found[1], found[2]


def assert_as_before(engine: Engine) -> None:
    """Nothing that can be asked of the pool shows anything of the upload."""
    with read(engine) as connection:
        pool = get_pool(connection, "p")
        assert find_rows(connection, pool.id, ["new 3"]) == {}
        assert len(find_rows(connection, pool.id, [row["key"] for row in before()])) == 30
    assert (pool.revision, pool.num_rows, pool.num_prompts) == (1, 30, 30)
    assert sorted(columns(engine).keys) == [row["key"] for row in before()]
    assert prompt(engine, "p015").answer == "15"
    listed = list_prompts(engine, pool, PromptFilter())
    assert (listed.total, [item.key for item in listed.items]) == (30, [row["key"] for row in before()])
    assert sum(len(page) for page in export_pages(engine, pool)) == 30
    found, links = get_prompt(engine, pool, "p015")
    assert (found.answer, links.variants, links.versions) == ("15", [], [])
    with pytest.raises(UnknownPrompt):
        get_prompt(engine, pool, "new 3")


# Killed


@pytest.mark.parametrize("where", [3, 5, 10, 13, "before the last", "inside the last"])
def test_an_upload_that_was_killed_has_changed_nothing_and_the_next_one_removes_what_it_left(
    database_url: str, engine: Engine, where: int | str
) -> None:
    put(engine, before())
    process = FORKS.Process(target=_dies, args=(database_url, where))
    process.start()
    process.join(LIMIT_S)
    assert process.exitcode == -signal.SIGKILL
    left = hidden(engine)
    assert (left[0] > 0) == (where != 3)  # the first few are put together, in case they are all
    if isinstance(where, str):
        assert left == (100, 100, 6)
    assert_as_before(engine)
    outcome = put(engine, upload(), replace=True)
    assert (counted(outcome), outcome.absent) == OUTCOME
    assert hidden(engine) == (0, 0, 0)
    assert_stored_agrees(engine)
    assert prompt(engine, "p015").answer == "corrected"
    again = put(engine, upload(), replace=True)
    assert (counted(again), again.revision) == ({"unchanged": 110}, 2)


def test_a_quarantine_after_an_upload_that_was_killed_is_the_next_revision(database_url: str, engine: Engine) -> None:
    put(engine, before())
    process = FORKS.Process(target=_dies, args=(database_url, "before the last"))
    process.start()
    process.join(LIMIT_S)
    done = set_quarantine(engine, "p", ["p015", "new 3"], "broken", lift=False, at=3.0)
    assert (done.revision, done.changed, done.unknown) == (2, 1, ["new 3"])
    assert hidden(engine) == (0, 0, 0)
    assert_stored_agrees(engine)


def test_many_transactions_leave_the_same_as_one(engine: Engine, tmp_path: Path) -> None:
    put(engine, before())
    put(engine, upload(), replace=True)
    other = create_database(f"sqlite:///{tmp_path}/other.db")
    make_pool(other)
    with pytest.MonkeyPatch.context() as patch:
        put(other, before())
        patch.setattr(imports, "WRITTEN_AT_ONCE", 7)  # the order of rows is the chunks', of which there is one here too
        outcome = put(other, upload(), replace=True)
    assert (counted(outcome), outcome.absent) == OUTCOME
    assert_stored_agrees(other)
    one, many = columns(engine), columns(other)
    assert one.keys == many.keys
    assert one.superseded_N.tolist() == many.superseded_N.tolist()
    assert one.absent_N.tolist() == many.absent_N.tolist()
    with read(engine) as first, read(other) as second:
        asked = select(prompt_questions).order_by(prompt_questions.c.question_hash, prompt_questions.c.row)
        assert first.execute(asked).all() == second.execute(asked).all()
    other.dispose()


# Refused on the way


@pytest.mark.usefixtures("in_small_steps")
def test_a_pool_that_is_archived_while_it_is_written_keeps_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(engine, before())
    steps = imports._Upload._steps

    def archiving(self: Any) -> Iterator[imports.Step]:
        yield from steps(self)
        assert hidden(engine)[0] > 0
        archive_pool(engine, "p")

    monkeypatch.setattr(imports._Upload, "_steps", archiving)
    with pytest.raises(PoolArchived):
        put(engine, upload(), replace=True)
    assert hidden(engine) == (0, 0, 0)
    assert (len(columns(engine)), columns(engine).revision) == (30, 1)


@pytest.mark.usefixtures("in_small_steps")
def test_a_failure_between_two_transactions_leaves_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    put(engine, before())
    steps = imports._Upload._steps

    def failing(self: Any) -> Iterator[imports.Step]:
        for number, step in enumerate(steps(self)):
            if number == 9:
                assert hidden(engine)[0] > 0
                raise OSError("no space left")
            yield step

    monkeypatch.setattr(imports._Upload, "_steps", failing)
    with pytest.raises(OSError, match="no space left"):
        put(engine, upload(), replace=True)
    assert hidden(engine) == (0, 0, 0)
    assert_as_before(engine)


# At the same time


class Halted:
    """An upload that stops between two of its transactions until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self.reached, self._go = threading.Event(), threading.Event()
        steps = imports._Upload._steps

        def halting(upload: Any) -> Iterator[imports.Step]:
            for place, step in enumerate(steps(upload)):
                if place == number:
                    self.reached.set()
                    assert self._go.wait(LIMIT_S)
                yield step

        monkeypatch.setattr(imports._Upload, "_steps", halting)

    def __enter__(self) -> "Halted":
        return self

    def __exit__(self, *_: object) -> None:
        self._go.set()


@pytest.mark.usefixtures("in_small_steps")
def test_others_write_and_read_while_an_upload_is_half_written(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    put(engine, before())
    with ThreadPoolExecutor(1) as thread, Halted(monkeypatch, 9) as halted:
        outcome = thread.submit(put, engine, upload(), replace=True)
        assert halted.reached.wait(LIMIT_S)
        assert hidden(engine)[0] > 0
        with write(engine) as connection:
            _touch(connection)
        assert_as_before(engine)
        halted.__exit__()
        assert outcome.result().revision == 2
    assert_stored_agrees(engine)


@pytest.mark.usefixtures("in_small_steps")
def test_a_change_that_waits_too_long_for_another_is_told_to_come_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(engine, before())
    monkeypatch.setattr(changing, "WAIT_S", 0.2)
    with ThreadPoolExecutor(1) as thread, Halted(monkeypatch, 9) as halted:
        outcome = thread.submit(put, engine, upload(), replace=True)
        assert halted.reached.wait(LIMIT_S)
        with pytest.raises(Busy, match="an upload into the pool 'p', or another change of it, is under way"):
            put(engine, hundred())
        with pytest.raises(Busy, match="is under way"):
            set_quarantine(engine, "p", ["p001"], "broken", lift=False, at=1.0)
        halted.__exit__()
        outcome.result()
    assert counted(put(engine, upload())) == {"unchanged": 110}


def test_a_service_draws_reports_and_lists_while_an_upload_is_half_written(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_process(database_url) as http:
        http.pool(rows_of(30))
        http.run()
        monkeypatch.setattr(imports, "CHUNK_ROWS", 20)
        monkeypatch.setattr(imports, "WRITTEN_AT_ONCE", 20)
        monkeypatch.setattr(changing, "WAIT_S", 0.2)
        with ThreadPoolExecutor(1) as thread, Halted(monkeypatch, 5) as halted:
            put_all = thread.submit(http.put, [{"key": f"new {i}", "content": f"new {i}"} for i in range(90)])
            assert halted.reached.wait(LIMIT_S)
            for index in range(3):
                batch = http.draw(index, 8, include=["content"])
                assert (batch["frame"], batch["returned"]) == (30, 8)
                assert all(ticket["content"].startswith("question") for ticket in batch["tickets"])
                assert http.report(*(group(ticket, [1.0, 0.0] * 4) for ticket in ids_of(batch)))["applied"] == 64
            assert http.get("/v1/pools/p")["prompts"] == 30
            assert http.get("/v1/pools/p/prompts", search="new")["total"] == 0
            refused(http.send("GET", "/v1/pools/p/prompts/new 3"), 404, "unknown_prompt")
            body = {"keys": ["p001"], "reason": "broken"}
            refused(http.send("POST", "/v1/pools/p/quarantine", body), 503, "busy", "is under way")
            halted.__exit__()
            assert put_all.result()["created"] == 90
        assert http.draw(3, 8)["frame"] == 120
        assert http.get("/v1/pools/p/prompts", search="new")["total"] == 90


def _touch(connection: Connection) -> None:
    connection.exec_driver_sql("UPDATE pools SET description = 'seen' WHERE name = 'p'")
