"""Uploads into a pool: what becomes of each row, and that what is stored agrees with itself afterwards."""

import threading
from collections import Counter
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
from api.db.columns import PoolColumns
from api.db.imports import ImportOutcome, import_rows
from api.db.models import metadata, pool_deltas, pool_revisions, prompts
from api.db.pools import (
    archive_pool,
    contents,
    create_pool,
    find_rows,
    get_pool,
    load_pool_columns,
    one_of,
    pool_delta,
    set_quarantine,
)
from api.db.session import create_database, read, write
from api.errors import DamagedData, PoolArchived, UnknownPool
from api.importing.resolve import MAX_ERRORS
from api.importing.rows import RowFault

Row = dict[str, Any]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database with one empty pool `p`."""
    engine = create_database(database_url)
    make_pool(engine)
    yield engine
    assert_stored_agrees(engine)
    engine.dispose()


def make_pool(engine: Engine) -> None:
    # Not by the migrations, whose tests show that they make the same tables: they take longer than most tests here.
    with write(engine) as connection:
        metadata.create_all(connection)
    create_pool(engine, "p", None, at=1.0)


def put(engine: Engine, rows: Iterable[object], *, replace: bool = False) -> ImportOutcome:
    outcome = import_rows(engine, "p", rows, replace=replace, at=2.0)
    c = outcome.counts
    assert c.received == c.created + c.updated + c.unchanged + c.merged + c.rejected
    assert len(outcome.errors) == min(c.rejected, MAX_ERRORS)
    return outcome


def counted(outcome: ImportOutcome) -> dict[str, int]:
    """The counts that are not zero, without `received`."""
    names = ("created", "updated", "unchanged", "merged", "rejected")
    return {name: getattr(outcome.counts, name) for name in names if getattr(outcome.counts, name)}


def faults(outcome: ImportOutcome) -> list[tuple[int, str]]:
    return [(fault.place, fault.code) for fault in outcome.errors]


def prompt(engine: Engine, key: str) -> Any:
    """The current prompt of a key."""
    with read(engine) as connection:
        pool = get_pool(connection, "p")
        row = find_rows(connection, pool.id, [key])[key]
        return connection.execute(select(prompts).where(prompts.c.pool_id == pool.id, prompts.c.row == row)).one()


def columns(engine: Engine, revision: int | None = None) -> PoolColumns:
    with read(engine) as connection:
        pool = get_pool(connection, "p")
        return load_pool_columns(connection, pool.id, pool.revision if revision is None else revision)


def hundred() -> list[Row]:
    return [{"key": f"p{i:03}", "content": f"question {i}", "answer": str(i)} for i in range(100)]


def assert_stored_agrees(engine: Engine) -> None:
    """Table, tallies and fold of the deltas say the same of every pool; one question is never in both splits."""
    with read(engine) as connection:
        pool = get_pool(connection, "p")
        stored = connection.execute(select(prompts).order_by(prompts.c.row)).all()
        folded = load_pool_columns(connection, pool.id, pool.revision)
    assert [p.row for p in stored] == list(range(pool.num_rows))
    assert folded.keys == [p.key for p in stored]
    assert folded.split_N.tolist() == [int(p.split == "heldout") for p in stored]
    assert [None if c < 0 else folded.categories[c] for c in folded.category_N] == [p.category for p in stored]
    assert folded.absent_N.tolist() == [p.absent for p in stored]
    assert folded.quarantined_N.tolist() == [p.quarantined for p in stored]
    assert folded.superseded_N.tolist() == [p.superseded for p in stored]
    assert [h.tobytes().hex() for h in folded.content_hash_N] == [p.content_hash for p in stored]
    current = [p for p in stored if not p.superseded]
    assert len({p.key for p in current}) == len(current)
    tallies = Counter((p.split, p.category, p.absent, p.quarantined) for p in current)
    assert {cell: n for cell, n in pool.tallies.items() if n} == dict(tallies)
    splits: dict[str, set[str]] = {}
    for p in current:
        if p.question_hash and not p.absent:
            splits.setdefault(p.question_hash, set()).add(p.split)
    assert all(len(found) == 1 for found in splits.values())


# Counting


def test_an_upload_of_nothing_changes_nothing(engine: Engine) -> None:
    outcome = put(engine, [])
    assert (counted(outcome), outcome.revision, outcome.warnings) == ({}, 0, [])


def test_new_rows_are_created_and_the_same_upload_again_is_unchanged(engine: Engine) -> None:
    first = put(engine, hundred())
    assert (counted(first), first.revision) == ({"created": 100}, 1)
    again = put(engine, hundred())
    assert (counted(again), again.revision, again.warnings) == ({"unchanged": 100}, 1, [])


def test_ten_rows_with_duplicates_of_every_kind_add_up(engine: Engine) -> None:
    rows: list[Row] = [{"content": f"other {i}"} for i in range(4)]
    rows += [{"content": "same", "answer": "1"}, {"content": "same", "answer": "1"}]
    rows += [{"content": "blanks"}, {"content": "blanks  \n"}]
    rows += [{"content": "disputed", "answer": "1"}, {"content": "disputed", "answer": "2"}]
    outcome = put(engine, rows)
    assert counted(outcome) == {"created": 8, "merged": 2}
    answers, merged = outcome.warnings
    assert answers.startswith("Questions with different answers, kept as prompts of their own and linked: 1, ")
    assert "merged with it: 2, for example row 5, row 7." in merged
    again = put(engine, rows)
    assert counted(again) == {"unchanged": 8, "merged": 2}
    assert again.warnings[0].startswith(
        "Questions with different answers, kept as prompts of their own and linked: 1, "
    )


def test_more_than_a_chunk_is_one_upload(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "CHUNK_ROWS", 16)
    rows = [*hundred(), *hundred()[:5], {"key": "x", "content": "question 99", "answer": "99"}]
    outcome = put(engine, rows)
    assert counted(outcome) == {"created": 101, "merged": 5}
    with read(engine) as connection:
        assert connection.execute(select(func.count()).select_from(pool_deltas)).scalar_one() == 7
    assert counted(put(engine, rows)) == {"unchanged": 101, "merged": 5}
    assert put(engine, hundred()[:3], replace=True).absent == 98


def test_long_texts_make_smaller_chunks(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "CHUNK_BYTES", 5_000)
    put(engine, [{"content": "x" * 2_000 + str(i)} for i in range(9)])
    with read(engine) as connection:
        assert connection.execute(select(func.count()).select_from(pool_deltas)).scalar_one() == 3


def test_what_a_row_says_anew_updates_its_prompt_and_what_it_does_not_say_stays(engine: Engine) -> None:
    full = {"key": "a", "content": "q", "category": "c", "features": {"x": 1}, "parent": "z", "meta": {"m": 1}}
    put(engine, [full])
    assert counted(put(engine, [{"key": "a", "content": "q", "category": "d"}])) == {"updated": 1}
    found = prompt(engine, "a")
    assert (found.category, found.features, found.parent, found.meta) == ("d", '{"x":1.0}', "z", '{"m":1}')
    assert counted(put(engine, [{"key": "a", "content": "q", "features": {"x": 2}}])) == {"updated": 1}
    assert counted(put(engine, [{"key": "a", "content": "q ", "category": "", "meta": {}, "parent": ""}])) == {
        "updated": 1
    }
    found = prompt(engine, "a")
    assert (found.row, found.category, found.features, found.parent, found.meta) == (0, None, '{"x":2.0}', None, None)


def test_a_row_without_content_leaves_the_content_of_a_known_key(engine: Engine) -> None:
    put(engine, [{"key": "a", "content": "q", "answer": "1"}])
    assert counted(put(engine, [{"key": "a", "category": "c"}])) == {"updated": 1}
    assert (prompt(engine, "a").content, prompt(engine, "a").answer) == ('"q"', "1")
    outcome = put(engine, [{"key": "a", "answer": "2"}])
    assert faults(outcome) == [(0, "missing_content")]


def test_prompts_without_content_are_told_apart_by_key(engine: Engine) -> None:
    assert counted(put(engine, [{"key": "a"}, {"key": "b"}, {"key": "a"}])) == {"created": 2, "merged": 1}
    assert counted(put(engine, [{"key": "a"}, {"key": "b", "answer": "1"}])) == {"unchanged": 1, "updated": 1}


def test_a_later_copy_in_an_upload_takes_nothing_and_is_said_to_differ(engine: Engine) -> None:
    outcome = put(
        engine, [{"key": "a", "content": "q", "category": "c"}, {"key": "a", "content": "q", "category": "d"}]
    )
    assert counted(outcome) == {"created": 1, "merged": 1}
    assert prompt(engine, "a").category == "c"
    assert any("an earlier row has the same prompt: 1, for example a." in warning for warning in outcome.warnings)


def test_the_same_key_with_other_content_in_one_upload_is_refused(engine: Engine) -> None:
    outcome = put(engine, [{"key": "a", "content": "q"}, {"key": "a", "content": "r"}])
    assert faults(outcome) == [(1, "duplicate_key")]
    assert prompt(engine, "a").content == '"q"'


# Bad rows


def test_a_bad_row_is_rejected_by_number_and_the_rest_applies(engine: Engine) -> None:
    rows: list[object] = [{"key": "a"}, {"key": "b", "split": "test"}, RowFault(2, "bad_json", "broken"), {"key": "c"}]
    outcome = put(engine, rows)
    assert counted(outcome) == {"created": 2, "rejected": 2}
    assert faults(outcome) == [(1, "bad_value"), (2, "bad_json")]


def test_only_so_many_errors_are_listed_and_the_rest_is_counted(engine: Engine) -> None:
    outcome = put(engine, [5] * (MAX_ERRORS + 23))
    assert outcome.counts.rejected == MAX_ERRORS + 23
    assert outcome.warnings == ["Rejected rows beyond the 1000 that are listed under errors: 23."]


def test_a_failure_in_the_middle_leaves_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "CHUNK_ROWS", 10)
    put(engine, hundred()[:5])

    def broken() -> Iterator[object]:
        yield from hundred()
        raise RuntimeError("the body ends here")

    with pytest.raises(RuntimeError, match="the body ends here"):
        put(engine, broken(), replace=True)
    assert (len(columns(engine)), columns(engine).revision) == (5, 1)


def test_an_unknown_or_archived_pool_takes_nothing(engine: Engine) -> None:
    with pytest.raises(UnknownPool, match="no pool 'q'"):
        import_rows(engine, "q", [{"key": "a"}], replace=False, at=1.0)
    archive_pool(engine, "p")
    with pytest.raises(PoolArchived, match="'p' was archived"):
        put(engine, [{"key": "a"}])


def test_a_feature_has_one_shape_in_a_pool(engine: Engine) -> None:
    put(engine, [{"key": "a", "features": {"x": 1, "v": [1, 2]}}])
    outcome = put(
        engine,
        [
            {"key": "b", "features": {"x": [1]}},
            {"key": "c", "features": {"v": [1, 2, 3]}},
            {"key": "d", "features": [1, 2]},
            {"key": "e", "features": {"x": 2, "new": 1}},
            {"key": "f", "features": {"new": [1]}},
        ],
    )
    assert faults(outcome) == [(0, "wrong_length"), (1, "wrong_length"), (2, "wrong_type"), (4, "wrong_length")]
    assert "features.v is a vector of 3, elsewhere in the pool it is a vector of 2" in outcome.errors[1].detail


def test_an_upload_that_replaces_the_pool_may_reshape_its_features(engine: Engine) -> None:
    put(engine, [{"key": "a", "features": {"x": 1}}])
    assert counted(put(engine, [{"key": "b", "features": {"x": [1, 2]}}], replace=True)) == {"created": 1}
    assert counted(put(engine, [{"key": "b", "features": [1.0]}], replace=True)) == {"updated": 1}
    with read(engine) as connection:
        assert get_pool(connection, "p").feature_lengths == {"": 1}


# Splits


def test_a_prompt_never_moves_from_heldout_to_train(engine: Engine) -> None:
    put(engine, [{"key": "a", "content": "q", "split": "heldout"}])
    for row in (
        {"key": "a", "content": "q", "split": "train"},
        {"key": "a", "split": "train"},
        {"key": "a", "content": "edited", "split": "train"},
    ):
        assert faults(put(engine, [row])) == [(0, "heldout_to_train")]
    assert counted(put(engine, [{"key": "a", "content": "q", "category": "c"}])) == {"updated": 1}
    assert counted(put(engine, [{"key": "a", "content": "edited"}])) == {"updated": 1}
    assert prompt(engine, "a").split == "heldout"


def test_content_that_was_ever_held_out_is_not_trained_on(engine: Engine) -> None:
    put(engine, [{"key": "a", "content": "q", "split": "heldout"}, {"key": "b", "content": "r", "split": "heldout"}])
    put(engine, [{"key": "b", "content": "edited"}], replace=True)
    new: list[Row] = [{"key": "x", "content": "q"}, {"key": "x", "content": "r"}, {"key": "x", "content": "edited"}]
    assert faults(put(engine, new)) == [(0, "heldout_to_train"), (1, "heldout_to_train"), (2, "split_conflict")]
    assert counted(put(engine, [{"key": "x", "content": "q", "split": "heldout"}])) == {"created": 1}


@pytest.mark.parametrize("second", ["1", "2", None])
def test_one_question_in_both_splits_is_refused_whatever_its_answer(engine: Engine, second: str | None) -> None:
    first = {"key": "a", "content": "q", "answer": "1"}
    outcome = put(engine, [first, {"key": "b", "content": "q ", "answer": second, "split": "heldout"}])
    assert faults(outcome) == [(1, "split_conflict")]
    assert "its content is in train as the prompt 'a'; split is heldout" in outcome.errors[0].detail
    outcome = put(engine, [{"key": "b", "content": "q", "answer": second, "split": "heldout"}])
    assert faults(outcome) == [(0, "split_conflict")]


def test_the_same_row_in_both_splits_of_one_upload_is_refused(engine: Engine) -> None:
    rows: list[Row] = [{"content": "q", "split": "heldout"}, {"content": "q"}, {"content": "q", "split": "train"}]
    outcome = put(engine, rows)
    assert (counted(outcome), faults(outcome)) == (
        {"created": 1, "rejected": 2},
        [(1, "split_conflict"), (2, "split_conflict")],
    )
    # Without a word on the split, a known prompt stays where it is.
    assert counted(put(engine, [{"content": "q"}, {"content": "q"}])) == {"unchanged": 1, "merged": 1}


def test_a_prompt_moves_from_train_to_heldout_with_a_warning(engine: Engine) -> None:
    put(engine, [{"key": "a", "content": "q"}])
    outcome = put(engine, [{"key": "a", "content": "q", "split": "heldout"}])
    assert counted(outcome) == {"updated": 1}
    assert outcome.warnings == [
        "Prompts moved from train to heldout, which may have been trained on before: 1, for example a."
    ]


# Keys and contents


def test_given_keys_are_kept_apart_even_where_they_share_their_content(engine: Engine) -> None:
    outcome = put(engine, [{"key": "a", "content": "q"}, {"key": "b", "content": "q "}])
    assert counted(outcome) == {"created": 2}
    assert outcome.warnings == [
        "New keys that share their content with another key, kept as prompts of their own (without `key` they would be "
        "merged): 1, for example b = a."
    ]
    again = put(engine, [{"key": "b", "content": "q"}, {"key": "a", "content": "q"}])
    assert (counted(again), again.warnings) == ({"unchanged": 2}, [])


def test_a_row_without_a_key_is_the_prompt_that_has_its_content(engine: Engine) -> None:
    put(engine, [{"key": "a", "content": "q"}, {"key": "b", "content": "q"}])
    assert counted(put(engine, [{"content": "q", "category": "c"}])) == {"updated": 1}
    assert {prompt(engine, "a").category, prompt(engine, "b").category} == {None, "c"}
    assert counted(put(engine, [{"content": "q"}, {"content": "q "}])) == {"unchanged": 1, "merged": 1}


def test_a_row_without_a_key_does_not_move_anothers_prompt_between_splits(engine: Engine) -> None:
    put(engine, [{"key": "a", "content": "q"}, {"key": "h", "content": "r", "split": "heldout"}])
    outcome = put(engine, [{"content": "q", "split": "heldout"}, {"content": "r"}, {"content": "r", "split": "train"}])
    assert faults(outcome) == [(0, "split_conflict"), (1, "split_conflict"), (2, "split_conflict")]


def test_an_edit_is_a_new_prompt_that_takes_the_key_over(engine: Engine) -> None:
    put(engine, [{"key": "a", "content": "q", "category": "c"}])
    set_quarantine(engine, "p", ["a"], "the answer is wrong", lift=False, at=1.0)
    outcome = put(engine, [{"key": "a", "content": "q, corrected"}])
    assert (counted(outcome), outcome.counts.linked) == ({"updated": 1}, 1)
    found = prompt(engine, "a")
    assert (found.row, found.replaces_row, found.category, found.quarantined) == (1, 0, None, False)
    pool = columns(engine)
    assert (pool.keys, pool.superseded_N.tolist(), pool.absent_N.tolist()) == (["a", "a"], [True, False], [True, False])


def test_an_edit_of_the_answer_alone_is_an_edit(engine: Engine) -> None:
    put(engine, [{"key": "a", "content": "q", "answer": "1"}])
    outcome = put(engine, [{"key": "a", "content": "q", "answer": "2"}])
    assert (counted(outcome), outcome.warnings, prompt(engine, "a").row) == ({"updated": 1}, [], 1)


def test_going_back_to_an_earlier_version_takes_its_history_up_again(engine: Engine) -> None:
    put(engine, [{"key": "a", "content": "one"}])
    put(engine, [{"key": "a", "content": "two"}])
    assert counted(put(engine, [{"key": "a", "content": "one"}])) == {"updated": 1}
    assert prompt(engine, "a").row == 0
    put(engine, [{"key": "a", "content": "two"}])
    assert (prompt(engine, "a").row, len(columns(engine))) == (1, 2)


def test_a_prompt_without_content_goes_back_to_an_earlier_answer(engine: Engine) -> None:
    for answer in ("1", "2", "1"):
        put(engine, [{"key": "a", "answer": answer}])
    assert (prompt(engine, "a").row, len(columns(engine))) == (0, 2)


def test_renumbered_rows_do_not_inherit_each_others_history(engine: Engine) -> None:
    put(engine, [{"key": "0", "content": "q"}, {"key": "1", "content": "r"}])
    outcome = put(engine, [{"key": "0", "content": "r"}, {"key": "1", "content": "q"}])
    assert counted(outcome) == {"updated": 2}
    assert {prompt(engine, "0").row, prompt(engine, "1").row} == {2, 3}
    assert any("as if rows had been renumbered" in warning for warning in outcome.warnings)


def test_a_key_that_looks_like_anothers_hash_is_its_own(engine: Engine) -> None:
    put(engine, [{"content": "q"}])
    key = columns(engine).keys[0]
    assert counted(put(engine, [{"key": key, "content": "other"}])) == {"updated": 1}
    assert prompt(engine, key).content == '"other"'


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
        (part,) = pool_delta(connection, pool.id, 2)
        assert part.quarantined_D.tolist() == [True]
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
