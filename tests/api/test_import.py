"""Uploads into a pool: what becomes of each row, and that what is stored agrees with itself afterwards."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, func, select

from api.db import imports
from api.db.imports import import_rows
from api.db.models import pool_deltas
from api.db.pools import (
    archive_pool,
    get_pool,
    set_quarantine,
)
from api.db.session import create_database, read
from api.errors import PoolArchived, UnknownPool
from api.importing.resolve import MAX_ERRORS
from api.importing.rows import RowFault
from tests.api.import_cases import Row, assert_stored_agrees, columns, counted, faults, hundred, make_pool, prompt, put


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database with one empty pool `p`."""
    engine = create_database(database_url)
    make_pool(engine)
    yield engine
    assert_stored_agrees(engine)
    engine.dispose()


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
