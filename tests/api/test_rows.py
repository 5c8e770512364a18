"""One row of an upload: what is accepted, and each refusal with its code, its field and its value."""

import math

import pytest

from api.importing.content import hashes
from api.importing.rows import (
    MAX_CATEGORY_LENGTH,
    MAX_CONTENT_BYTES,
    MAX_FEATURES,
    MAX_META_BYTES,
    PromptRow,
    RowFault,
    read_row,
)
from api.schemas import MAX_KEY_LENGTH


def taken(value: object) -> PromptRow:
    row = read_row(0, value)
    assert isinstance(row, PromptRow), row
    return row


def refused(value: object) -> RowFault:
    fault = read_row(7, value)
    assert isinstance(fault, RowFault), fault
    assert fault.place == 7
    return fault


def test_a_full_row_is_taken_over() -> None:
    row = taken(
        {
            "key": "math/1", "content": "1 + 1", "answer": "2", "category": "sum", "split": "heldout",
            "features": {"b": 1, "a": [1, 2.5]}, "parent": "math/0", "meta": {"z": None, "a": [1, {"b": "c"}]},
        }
    )  # fmt: skip
    assert (row.key, row.has_key, row.has_content) == ("math/1", True, True)
    assert (row.content, row.answer, row.category, row.split) == ('"1 + 1"', "2", "sum", "heldout")
    assert (row.content_hash, row.question_hash) == hashes("1 + 1", "2")
    assert (row.features, row.feature_lengths) == ('{"a":[1.0,2.5],"b":1.0}', {"a": 2, "b": 0})
    assert (row.parent, row.meta) == ("math/0", '{"a":[1,{"b":"c"}],"z":null}')


def test_the_default_key_is_the_content_hash() -> None:
    row = taken({"content": "1 + 1 ", "answer": "2"})
    assert (row.key, row.has_key) == (hashes("1 + 1", "2")[0], False)


def test_a_key_alone_stands_for_a_prompt_whose_text_the_caller_keeps() -> None:
    row = taken({"key": "a"})
    assert (row.content, row.question_hash, row.has_content) == (None, None, False)
    assert row.content_hash != taken({"key": "b"}).content_hash


def test_null_says_nothing_and_an_empty_text_or_object_says_none() -> None:
    silent = taken({"key": "a", "content": "x", "category": None, "features": None, "parent": None, "meta": None})
    assert (silent.category, silent.features, silent.parent, silent.meta, silent.split) == (None,) * 5
    empty = taken({"key": "a", "content": "x", "category": "", "features": {}, "parent": "", "meta": {}})
    assert (empty.category, empty.features, empty.parent, empty.meta) == ("", "", "", "")


def test_a_blank_answer_is_none() -> None:
    assert taken({"content": "x", "answer": " "}).content_hash == taken({"content": "x"}).content_hash


def test_a_bare_vector_is_kept_as_a_list() -> None:
    row = taken({"key": "a", "features": [1, 2, 3]})
    assert (row.features, row.feature_lengths) == ("[1.0,2.0,3.0]", {"": 3})


def test_messages_are_kept_as_they_came() -> None:
    row = taken({"content": [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": "Hi"}]})
    assert row.content == '[{"role":"system","content":"Be brief. "},{"role":"user","content":"Hi"}]'


def test_a_key_may_hold_slashes_spaces_and_any_letters() -> None:
    for key in ("a/b/c", "Größe 5", "日本語", "a\u00a0b", "x" * MAX_KEY_LENGTH):
        assert taken({"key": key}).key == key


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        (5, "wrong_type", "a row is an object with named fields, got 5"),
        (["a"], "wrong_type", "a list of 1"),
        (None, "wrong_type", "got None"),
        ({}, "missing_content", "neither `key` nor `content`"),
        ({"answer": "4"}, "missing_content", "neither"),
        ({"key": "a", "promt": "x"}, "unknown_field", "'promt' is not a field of a prompt; known are key, content"),
        ({"key": 5}, "wrong_type", "key is a text, got 5"),
        ({"key": ""}, "empty", "key is empty"),
        ({"key": "x" * (MAX_KEY_LENGTH + 1)}, "too_long", "key has 513 characters, allowed are 512"),
        ({"key": "a\nb"}, "bad_text", "control character"),
        ({"key": "a\x00"}, "bad_text", "control character"),
        ({"key": "a\ud800"}, "bad_text", "half a surrogate pair"),
        ({"content": 5}, "wrong_type", "content is a text or a list of chat messages, got 5"),
        ({"content": {}}, "wrong_type", "content is a text or a list"),
        ({"content": " \n"}, "empty", "content is empty"),
        ({"content": []}, "empty", "a list without messages"),
        ({"content": ["hi"]}, "wrong_type", "content.0 is a message with a `role`, got 'hi'"),
        ({"content": [{"content": "hi"}]}, "wrong_type", "content.0 is a message with a `role`"),
        ({"content": [{"role": "user", "content": 5}]}, "wrong_type", "content.0.content is a text or a list, got 5"),
        ({"content": [{"role": "user", "content": "a", "x": math.nan}]}, "not_finite", "content.0.x is nan"),
        ({"content": "a\ud800"}, "bad_text", "cannot be written as JSON in UTF-8"),
        ({"content": "x" * (MAX_CONTENT_BYTES + 1)}, "too_long", "content has 1048579 bytes as JSON"),
        ({"key": "a", "answer": 4}, "wrong_type", "answer is a text, got 4"),
        ({"key": "a", "answer": "a\x00"}, "bad_text", "answer holds a NUL"),
        ({"key": "a", "answer": "a\ud800"}, "bad_text", "cannot be written as JSON in UTF-8"),
        ({"key": "a", "answer": "x" * (MAX_CONTENT_BYTES + 1)}, "too_long", "answer has 1048577 characters"),
        ({"key": "a", "category": 3}, "wrong_type", "category is a text, got 3"),
        ({"key": "a", "category": "c" * (MAX_CATEGORY_LENGTH + 1)}, "too_long", "category has 201 characters"),
        ({"key": "a", "split": "test"}, "bad_value", "split is `train` or `heldout`, got 'test'"),
        ({"key": "a", "split": 1}, "wrong_type", "split is a text, got 1"),
        ({"key": "a", "split": ["train"]}, "wrong_type", "split is a text, got a list of 1"),
        ({"key": "a", "features": "long"}, "wrong_type", "features is an object of numbers or a list of numbers"),
        ({"key": "a", "features": {"x": "1"}}, "wrong_type", "features.'x' is a number, got '1'"),
        ({"key": "a", "features": {"x": True}}, "wrong_type", "features.'x' is a number, got True"),
        ({"key": "a", "features": {"x": None}}, "wrong_type", "features.'x' is a number, got None"),
        ({"key": "a", "features": {"x": math.nan}}, "not_finite", "features.'x' is nan"),
        ({"key": "a", "features": {"x": [1.0, math.inf]}}, "not_finite", "features.'x'.1 is inf"),
        ({"key": "a", "features": {"x": 10**400}}, "not_finite", "features.'x'"),
        ({"key": "a", "features": {"x": []}}, "empty", "a vector without numbers"),
        ({"key": "a", "features": []}, "empty", "a vector without numbers"),
        ({"key": "a", "features": {"": 1.0}}, "empty", "a feature's name is empty"),
        ({"key": "a", "features": [0.0] * (MAX_FEATURES + 1)}, "too_long", "features holds 4097 numbers"),
        ({"key": "a", "parent": 3}, "wrong_type", "parent is a text, got 3"),
        ({"key": "a", "meta": "x"}, "wrong_type", "meta is an object, got 'x'"),
        ({"key": "a", "meta": {"x": {"y": [math.inf]}}}, "not_finite", "meta.x.y.0 is inf"),
        ({"key": "a", "meta": {"x": 2**70}}, "bad_text", "meta cannot be written as JSON"),
        ({"key": "a", "meta": {"x": "y" * MAX_META_BYTES}}, "too_long", "meta has 65544 bytes as JSON"),
        ({"key": "a", "meta": {"x": object()}}, "wrong_type", "meta.x is not a JSON value"),
    ],
)  # fmt: skip
def test_a_bad_row_is_refused_by_code_and_field(value: object, code: str, words: str) -> None:
    fault = refused(value)
    assert fault.code == code
    assert words in fault.detail


def test_what_is_just_within_the_limits_is_taken_over() -> None:
    taken({"content": "x" * (MAX_CONTENT_BYTES - 2), "answer": "y" * MAX_CONTENT_BYTES})
    taken({"key": "a", "category": "c" * MAX_CATEGORY_LENGTH, "features": [0.0] * MAX_FEATURES})
    taken({"key": "a", "meta": {"x": "y" * (MAX_META_BYTES - 8)}})


def test_deep_nesting_is_refused_before_anything_recurses_too_far() -> None:
    deep: object = 1
    for _ in range(900):
        deep = [deep]
    assert refused({"key": "a", "meta": {"x": deep}}).code == "too_long"


def test_a_refused_row_names_its_key_where_that_could_be_read() -> None:
    assert refused({"key": "a", "split": "test"}).key == "a"
    assert refused({"key": "a", "extra": 1}).key == "a"
    assert refused({"key": 5}).key is None


def test_a_long_value_is_cut_in_the_message_and_contents_are_not_repeated() -> None:
    assert len(refused({"key": "x" * 100_000}).detail) < 200
    assert len(refused({"key": "a", "split": "x" * 100_000}).detail) < 200
    assert "secret" not in refused({"content": "secret" * 300_000}).detail
    assert "secret" not in refused({"content": [{"content": "secret"}]}).detail
