"""Multiple choice: the letter that a text ends up with."""

import pytest

from trainer.graders import choice


@pytest.mark.parametrize(
    ("completion", "outcome"),
    [
        ("B", 1.0),
        ("(b)", 1.0),
        ("b.", 1.0),
        ("The answer is (B).", 1.0),
        ("Answer: b", 1.0),
        ("so \\boxed{B}", 1.0),
        ("\\boxed{\\text{(B)}}", 1.0),
        ("A is wrong, C is wrong. Hence B", 1.0),
        ("Option A looks right. #### B", 1.0),
        ("(A) would be too small, so (B)", 1.0),
        ("The answer is C, not B?", 0.0),
        ("A", 0.0),
        ("", 0.0),
        ("none of these", 0.0),
        ("it's a boy", 0.0),
    ],
)
def test_the_last_letter_named_as_the_choice_counts(completion: str, outcome: float) -> None:
    assert choice(completion, "B") == outcome


@pytest.mark.parametrize("answer", ["B", "b", "(B)", "B.", "B) the second one"])
def test_an_answer_is_a_letter_with_or_without_its_text(answer: str) -> None:
    assert choice("B", answer) == 1.0


def test_without_an_answer_there_is_no_score() -> None:
    assert choice("B", None) is None


def test_an_answer_that_is_no_letter_is_refused_without_quoting_it() -> None:
    with pytest.raises(ValueError, match="no letter from A to J") as caught:
        choice("B", "17 apples")
    assert "17" not in str(caught.value)
