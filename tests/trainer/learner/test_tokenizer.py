import pytest

pytest.importorskip("tokenizers", reason="the tokenizer needs the trainer extra")

from hypothesis import given
from hypothesis import strategies as st

from trainer.learner.tasks import OPERATIONS, pool_rows
from trainer.learner.tokenizer import ALPHABET, UNKNOWN, VOCABULARY, character_tokenizer


@given(st.text(ALPHABET))
def test_each_character_is_one_token_and_decoding_brings_the_text_back(text: str) -> None:
    tokenizer = character_tokenizer()
    ids = tokenizer.encode(text).ids
    assert ids == [VOCABULARY[character] for character in text]
    assert tokenizer.decode(ids) == text


def test_other_characters_become_the_unknown_one_each() -> None:
    unknown = VOCABULARY[UNKNOWN]
    assert character_tokenizer().encode("Ä1\n").ids == [unknown, VOCABULARY["1"], unknown]


def test_the_alphabet_holds_every_prompt_and_answer() -> None:
    rows = pool_rows("mild", num_train=3 * len(OPERATIONS), num_heldout=0, seed=0)
    assert set("".join(row["content"] + row["answer"] for row in rows)) <= set(ALPHABET)
