"""Identity of prompts: the canonical form and its hashes."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.importing.content import Content, canonical_content, canonical_text, hash_without_content, hashes

TEXTS = st.text(alphabet="ab \t\r\n\u00a0é", max_size=30)


def slow_canonical(text: str) -> str:
    """The rule by character: white space is dropped if nothing else follows in its line, or at all."""
    unix = text.replace("\r\n", "\n").replace("\r", "\n")
    kept = []
    for place, character in enumerate(unix):
        rest_of_line = unix[place:].split("\n")[0]
        ends_line = character != "\n" and not rest_of_line.strip()
        if not ends_line and unix[place:].strip():
            kept.append(character)
    return "".join(kept)


def test_the_hash_is_that_of_the_documented_json() -> None:
    written = '{"answer":"4","content":"2 + 2 = ?\\nThink."}'
    question = '"2 + 2 = ?\\nThink."'
    assert hashes("2 + 2 = ? \r\nThink.\n\n", "4 ") == (
        hashlib.sha256(written.encode()).hexdigest(),
        hashlib.sha256(question.encode()).hexdigest(),
    )
    messages: Content = [{"role": "user", "content": "Hi "}]
    written = '{"answer":null,"content":[{"content":"Hi","role":"user"}]}'
    assert hashes(messages, None)[0] == hashlib.sha256(written.encode()).hexdigest()


def test_the_hash_without_content_is_that_of_the_documented_json() -> None:
    written = '{"answer":"4","content":null,"key":"k"}'
    assert hash_without_content("k", "4\n") == hashlib.sha256(written.encode()).hexdigest()
    assert hash_without_content("k", None) != hash_without_content("l", None)


@pytest.mark.parametrize(
    "same",
    ["What is 2 + 2?", "What is 2 + 2? ", "What is 2 + 2?\n\n", "What is 2 + 2?\t\r\n", "What is 2 + 2?\u00a0"],
)
def test_trailing_white_space_is_ignored(same: str) -> None:
    assert hashes(same, "4") == hashes("What is 2 + 2?", "4")
    assert hashes("q", same) == hashes("q", "What is 2 + 2?")


@pytest.mark.parametrize("other", [" a\nb", "a\n\nb", "a \n b", "A\nb", "a b", "a\nb."])
def test_any_other_difference_counts(other: str) -> None:
    assert hashes(other, None) != hashes("a\nb", None)


def test_white_space_before_a_line_end_and_the_kind_of_line_end_are_ignored() -> None:
    assert hashes("a  \r\nb", None) == hashes("a\nb", None) == hashes("a\rb", None)


def test_one_question_with_several_answers_shares_the_second_hash_only() -> None:
    first, second, none = hashes("q", "1"), hashes("q", "2"), hashes("q", None)
    assert len({first[0], second[0], none[0]}) == 3
    assert first[1] == second[1] == none[1]


def test_a_text_and_a_message_with_it_are_different_contents() -> None:
    assert hashes("q", None) != hashes([{"role": "user", "content": "q"}], None)


def test_order_of_messages_counts_and_order_of_their_names_does_not() -> None:
    one: dict[str, object] = {"role": "user", "content": "a"}
    two: dict[str, object] = {"role": "assistant", "content": "b"}
    assert hashes([one, two], None) != hashes([two, one], None)
    assert hashes([one], None) == hashes([dict(reversed(one.items()))], None)


def test_other_fields_and_parts_of_messages_count() -> None:
    plain = hashes([{"role": "user", "content": "a"}], None)
    assert hashes([{"role": "user", "content": "a", "name": "x"}], None) != plain
    parts: Content = [{"role": "user", "content": [{"type": "text", "text": "a "}]}]
    assert canonical_content(parts) == parts


@given(TEXTS)
def test_canonical_text_is_what_the_slow_rule_gives(text: str) -> None:
    assert canonical_text(text) == slow_canonical(text)


@given(TEXTS)
def test_canonical_text_is_its_own_canonical_text(text: str) -> None:
    assert canonical_text(canonical_text(text)) == canonical_text(text)


@given(st.text(max_size=50).filter(lambda t: "\x00" not in t), st.none() | st.text(max_size=20))
def test_the_hash_agrees_with_the_json_of_the_standard_library(content: str, answer: str | None) -> None:
    body = {"answer": None if answer is None else canonical_text(answer), "content": canonical_text(content)}
    written = json.dumps(body, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    # The two write DEL in different ways, and only that.
    if "\x7f" not in written:
        assert hashes(content, answer)[0] == hashlib.sha256(written.encode()).hexdigest()
