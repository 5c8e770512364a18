"""A pool over time: replaced, quarantined, changed by several at once, and what is stored of it at each revision."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, func, select, text, update

from api.db import imports
from api.db.columns import PoolDelta
from api.db.models import pool_deltas, pool_revisions, prompts
from api.db.pools import (
    contents,
    create_pool,
    get_pool,
    load_pool_columns,
    one_of,
    set_quarantine,
)
from api.db.session import create_database, read, write
from api.errors import DamagedData
from tests.api.import_cases import Row, assert_stored_agrees, columns, counted, hundred, make_pool, prompt, put


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database with one empty pool `p`."""
    engine = create_database(database_url)
    make_pool(engine)
    yield engine
    assert_stored_agrees(engine)
    engine.dispose()


# Replacing


def test_a_changed_data_set_is_matched_by_content(engine: Engine) -> None:
    put(engine, hundred())
    rows_before = {key: row for row, key in enumerate(columns(engine).keys)}
    changed = [row for row in hundred() if not "p020" <= row["key"] <= "p029" and row["key"] >= "p005"]
    for row in changed:
        if "p010" <= row["key"] <= "p019":
            row["content"] += ", edited"
    changed += [{"key": f"n{i}", "content": f"new question {i}"} for i in range(10)]
    outcome = put(engine, np.random.default_rng(1).permutation(np.array(changed, object)).tolist(), replace=True)
    assert (outcome.counts.matched, outcome.counts.linked, outcome.absent, outcome.counts.created) == (75, 10, 15, 10)
    assert counted(outcome) == {"created": 10, "updated": 10, "unchanged": 75}
    assert prompt(engine, "p050").row == rows_before["p050"]
    assert (prompt(engine, "p010").replaces_row, prompt(engine, "p010").row) == (
        rows_before["p010"],
        prompt(engine, "p010").row,
    )
    assert [prompt(engine, key).absent for key in ("p000", "p025", "p050")] == [True, True, False]
    with read(engine) as connection:
        assert get_pool(connection, "p").num_prompts == 95


def test_without_keys_an_edited_answer_and_a_named_parent_are_links(engine: Engine) -> None:
    put(engine, [{"content": "q", "answer": "1"}, {"content": "r"}, {"key": "k", "content": "s"}])
    rows = [{"content": "q", "answer": "2"}, {"content": "r!", "parent": columns(engine).keys[0]}, {"key": "k"}]
    rows[1]["parent"] = "k"
    outcome = put(engine, rows, replace=True)
    assert (outcome.counts.created, outcome.counts.linked, outcome.absent) == (2, 2, 2)
    assert outcome.warnings == []


def test_an_absent_prompt_comes_back_with_its_history(engine: Engine) -> None:
    put(engine, [{"key": "a", "content": "q"}, {"key": "b", "content": "r"}])
    assert put(engine, [{"key": "a"}], replace=True).absent == 1
    again = put(engine, [{"key": "a"}], replace=True)
    assert (again.absent, again.counts.matched, again.revision) == (0, 1, 2)
    row = prompt(engine, "b").row
    assert counted(put(engine, [{"content": "r"}])) == {"updated": 1}
    assert (prompt(engine, "b").row, prompt(engine, "b").absent) == (row, False)


def test_a_rejected_row_does_not_make_its_prompt_absent(engine: Engine) -> None:
    put(engine, [{"key": "a", "content": "q"}, {"key": "b", "content": "r"}, {"key": "c", "content": "s"}])
    outcome = put(engine, [{"key": "a", "content": "q", "split": "test"}, {"key": "b"}, 5], replace=True)
    assert (outcome.absent, prompt(engine, "a").absent, prompt(engine, "c").absent) == (1, False, True)
    assert outcome.warnings == ["Rejected rows that name no prompt, so that theirs may now be marked absent: 1."]


def test_an_empty_upload_that_replaces_makes_all_absent(engine: Engine) -> None:
    put(engine, hundred())
    assert put(engine, [], replace=True).absent == 100
    assert counted(put(engine, hundred())) == {"updated": 100}


# At the same time


def at_once(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(8) as threads:
        return [future.result() for future in [threads.submit(call) for call in calls]]


def test_uploads_at_the_same_time_come_one_after_the_other(engine: Engine) -> None:
    outcomes = at_once(partial(put, engine, [*hundred(), {"key": f"own {i}"}]) for i in range(4))
    assert sorted(o.counts.created for o in outcomes) == [1, 1, 1, 101]
    assert sorted(o.counts.unchanged for o in outcomes) == [0, 100, 100, 100]
    assert sorted(o.revision for o in outcomes) == [1, 2, 3, 4]


def test_a_pool_made_by_several_at_the_same_time_is_made_once(engine: Engine) -> None:
    made = at_once(lambda: create_pool(engine, "q", "one", at=1.0) for _ in range(8))
    assert sorted(created for _, created in made) == [False] * 7 + [True]
    assert len({pool.id for pool, _ in made}) == 1


def test_readers_see_a_pool_before_or_after_an_upload_and_never_between(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "CHUNK_ROWS", 10)
    put(engine, [{"key": "first"}])
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> Iterator[object]:
        for i, row in enumerate(hundred()):
            if i == 50:
                begun.set()
                assert go_on.wait(timeout=60)
            yield row

    with ThreadPoolExecutor(1) as thread:
        upload = thread.submit(put, engine, slow(), replace=True)
        assert begun.wait(timeout=60)
        assert columns(engine).keys == ["first"]
        go_on.set()
        assert upload.result().revision == 2
    assert (len(columns(engine)), prompt(engine, "first").absent) == (101, True)


# Quarantine and history


def test_quarantine_survives_every_upload(engine: Engine) -> None:
    put(engine, hundred())
    done = set_quarantine(engine, "p", ["p001", "p002", "p001", "nobody"], "broken", lift=False, at=3.0)
    assert (done.changed, done.unchanged, done.unknown) == (2, 0, ["nobody"])
    put(engine, hundred(), replace=True)
    put(engine, [{"key": "p001", "category": "c"}])
    assert (prompt(engine, "p001").quarantined, prompt(engine, "p001").quarantine_reason) == (True, "broken")
    again = set_quarantine(engine, "p", ["p001"], "broken", lift=False, at=3.0)
    assert (again.changed, again.unchanged) == (0, 1)
    assert set_quarantine(engine, "p", ["p001"], "the answer is wrong", lift=False, at=3.0).changed == 1
    lifted = set_quarantine(engine, "p", ["p001", "p003"], "mended", lift=True, at=4.0)
    assert (lifted.changed, lifted.unchanged) == (1, 1)
    assert (prompt(engine, "p001").quarantined, prompt(engine, "p001").quarantine_reason) == (False, None)


def test_every_revision_can_be_had_again(engine: Engine) -> None:
    put(engine, [{"key": "a", "content": "q", "category": "c"}, {"key": "b", "content": "r", "split": "heldout"}])
    seen = [columns(engine)]
    set_quarantine(engine, "p", ["a"], "broken", lift=False, at=1.0)
    seen.append(columns(engine))
    put(engine, [{"key": "a", "content": "q2", "category": "d"}], replace=True)
    seen.append(columns(engine))
    for known in seen:
        found = columns(engine, known.revision)
        for name in ("keys", "categories"):
            assert getattr(found, name) == getattr(known, name)
        for name in ("split_N", "category_N", "absent_N", "quarantined_N", "superseded_N", "content_hash_N"):
            assert np.array_equal(getattr(found, name), getattr(known, name))
    with read(engine) as connection:
        pool = get_pool(connection, "p")
        on_top = load_pool_columns(connection, pool.id, 3, base=seen[0])
        assert on_top.keys == seen[2].keys
        assert np.array_equal(on_top.absent_N, seen[2].absent_N)
        assert seen[0].keys == on_top.keys[:2]
        second = select(pool_deltas.c.payload, pool_deltas.c.sha256).where(pool_deltas.c.revision == 2)
        assert PoolDelta.decode(*connection.execute(second).one()).quarantined_D.tolist() == [True]
        with pytest.raises(ValueError, match="no revision 9"):
            load_pool_columns(connection, pool.id, 9)
        kinds = connection.execute(select(pool_revisions.c.kind).order_by(pool_revisions.c.revision)).scalars().all()
    assert list(kinds) == ["import", "quarantine", "replace"]


def test_a_stored_change_that_was_tampered_with_is_refused(engine: Engine) -> None:
    put(engine, [{"key": "a", "content": "q"}])
    with read(engine) as connection:
        payload = connection.execute(select(pool_deltas.c.payload)).scalar_one()
    with write(engine) as connection:
        connection.execute(update(pool_deltas).values(payload=payload[:-1] + bytes([payload[-1] ^ 1])))
    with pytest.raises(DamagedData, match="fails its checksum"):
        columns(engine)
    with write(engine) as connection:
        connection.execute(update(pool_deltas).values(payload=payload))


def test_a_stored_change_that_is_missing_is_noticed(engine: Engine) -> None:
    put(engine, [{"key": "a", "content": "q"}])
    with read(engine) as connection:
        kept = connection.execute(select(pool_deltas)).one()._asdict()
    with write(engine) as connection:
        connection.execute(text("DELETE FROM pool_deltas"))
    with pytest.raises(DamagedData, match="lack row 0"):
        columns(engine)
    with write(engine) as connection:
        connection.execute(pool_deltas.insert().values(kept))


# Rows


def test_rows_are_shuffled_within_an_upload_and_the_same_way_each_time(engine: Engine, tmp_path: Path) -> None:
    put(engine, hundred())
    keys = columns(engine).keys
    assert sorted(keys) == [row["key"] for row in hundred()]
    moved = np.abs(np.argsort([int(key[1:]) for key in keys]) - np.arange(100))
    # A permutation of n moves a row by (n² - 1) / 3n on average, here 33 with a standard deviation of about 1.7.
    assert moved.mean() > 25
    other = create_database(f"sqlite:///{tmp_path}/other.db")
    make_pool(other)
    put(other, hundred())
    assert columns(other).keys == keys
    other.dispose()


def test_contents_come_by_row(engine: Engine) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    put(engine, [{"key": "a", "content": "q", "answer": "1"}, {"key": "b", "content": messages}, {"key": "c"}])
    by_key = {key: row for row, key in enumerate(columns(engine).keys)}
    with read(engine) as connection:
        found = contents(connection, get_pool(connection, "p").id, [0, 1, 2])
        assert contents(connection, get_pool(connection, "p").id, []) == {}
    assert {key: found[row] for key, row in by_key.items()} == {
        "a": {"content": "q", "answer": "1"},
        "b": {"content": messages, "answer": None},
        "c": {"content": None, "answer": None},
    }


def test_any_number_of_values_is_one_parameter(engine: Engine) -> None:
    put(engine, hundred())
    with read(engine) as connection:
        keys = [f"p{i:03}" for i in range(100_000)]
        count = select(func.count()).select_from(prompts)
        assert connection.execute(count.where(one_of(connection, prompts.c.key, keys))).scalar_one() == 100
        assert connection.execute(count.where(one_of(connection, prompts.c.row, list(range(50))))).scalar_one() == 50


def test_odd_texts_are_kept_as_they_are(engine: Engine) -> None:
    odd = 'tab\t "quoted" \\N \\. back\\slash\r\n☃ \U0001f600 NULL'
    put(engine, [{"key": "a/b%c_d'e\"", "content": odd, "answer": odd, "category": "c\\d", "meta": {"x": odd}}])
    with read(engine) as connection:
        pool = get_pool(connection, "p")
        assert contents(connection, pool.id, [0])[0] == {"content": odd, "answer": odd}
    assert prompt(engine, "a/b%c_d'e\"").category == "c\\d"


# Any history of uploads

KEYS = st.sampled_from(["a", "b", "c", None])
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "key": KEYS,
        "content": st.sampled_from(["q", "q ", "r", "s", None]),
        "answer": st.sampled_from(["1", "2"]),
        "split": st.sampled_from(["train", "heldout"]),
        "category": st.sampled_from(["x", "y", ""]),
        "parent": KEYS,
    },
)
UPLOADS = st.lists(st.tuples(st.lists(ROWS, max_size=6), st.booleans()), max_size=5)


@given(UPLOADS, st.integers(1, 4))
@settings(max_examples=30)
def test_after_any_uploads_what_is_stored_agrees_with_itself(uploads: list[tuple[list[Row], bool]], chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imports, "CHUNK_ROWS", chunk)
        engine = create_database("sqlite://")
        make_pool(engine)
        held_out: set[str] = set()
        for rows, replace in uploads:
            put(engine, rows, replace=replace)
            assert_stored_agrees(engine)
            again = put(engine, rows)
            assert again.counts.created == 0 or again.counts.rejected or replace
            with read(engine) as connection:
                stored = connection.execute(select(prompts)).all()
            in_train = {p.question_hash for p in stored if p.split == "train" and not (p.absent or p.superseded)}
            assert not in_train & held_out
            held_out |= {p.question_hash for p in stored if p.split == "heldout" and p.question_hash}
        engine.dispose()
