from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.graders import numeric
from trainer.graders.numeric import last_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", 42),
        ("the answer is 1,234.50 euro", Fraction("1234.5")),
        ("first 7, then 12", 12),
        ("it is 12%.", 12),
        ("5-3", 3),  # a subtraction
        ("(a)-3", 3),
        ("x = -3", -3),
        ("(−5)", -5),
        ("+7", 7),
        (".5", Fraction(1, 2)),
        ("-.5", Fraction(-1, 2)),
        ("3.", 3),
        ("1e3", 1000),
        ("1.5e-2", Fraction(3, 200)),
        ("-3/4", Fraction(-3, 4)),
        ("3 / 4", Fraction(3, 4)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"-\dfrac{1}{2}", Fraction(-1, 2)),
        ("1,2,3", 3),  # a list, not thousands
        ("#### 12 dollars", 12),
        ("7 #### 12 #### 13", 13),
        (r"so \boxed{\frac{3}{4}}, checked 7 times", Fraction(3, 4)),
        (r"\boxed{1} no, \boxed{2}", 2),
    ],
)
def test_the_last_number_is_read_however_it_is_written(text: str, number: Fraction) -> None:
    assert last_number(text) == number


@pytest.mark.parametrize("text", ["", "none", "-", "1/0", "9" * 5000, "1" + "0" * 40 + "/" + "3" * 40, r"5 \boxed{x}"])
def test_what_is_no_number_is_none(text: str) -> None:
    assert last_number(text) is None


def test_an_exponent_beyond_two_digits_is_not_followed() -> None:
    # 1e999999999 as an exact number would take a gigabyte.
    assert last_number("1e999999999") == 999_999_999


@pytest.mark.parametrize(
    ("completion", "answer", "outcome"),
    [
        ("1,000", "1000", 1.0),
        ("1000000", "1000001", 0.0),  # within a millionth, but whole numbers agree or not
        ("0.33333333", "1/3", 1.0),
        ("0.333", "1/3", 0.0),
        ("-2", "2", 0.0),
        ("0.0", "0", 1.0),
        ("0.0000001", "0", 0.0),  # relative to 0 nothing is near
        ("no idea", "4", 0.0),
        ("4", None, None),
    ],
)
def test_numbers_agree_or_not(completion: str, answer: str | None, outcome: float | None) -> None:
    assert numeric(completion, answer) == outcome


def test_an_answer_without_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="the answer 'blue' holds no number"):
        numeric("4", "blue")


@given(st.fractions(max_denominator=10**6), st.text(max_size=20))
def test_a_fraction_survives_being_written_and_read(number: Fraction, words: str) -> None:
    assert last_number(f"{words} #### {number}") == number


@given(st.text())
def test_no_text_makes_it_fail(text: str) -> None:
    assert numeric(text, "4") in (0.0, 1.0)
