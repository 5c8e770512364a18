r"""Right if its last number is the answer's number, however it is written.

Reads signs, thousands separators (1,234), decimals, exponents, fractions (3/4, \frac{3}{4}). What follows the last
`####`, or stands in the last `\boxed{...}`, goes before all else. Units and words around it are ignored.
"""

import re
from fractions import Fraction

RELATIVE_TOLERANCE = Fraction(1, 10**6)  # for what is no whole number; whole numbers must agree exactly
MAX_CHARACTERS = 60  # of one number: a longer one is right nowhere, and costs time to read

MARKER = "####"
BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
LATEX_FRACTION = re.compile(r"(-?)\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
UNSIGNED = r"(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{1,2}(?!\d))?"
# A minus after a letter, a digit or a bracket is a subtraction, not a sign.
NUMBER = re.compile(rf"((?:(?<![\w)\]])[-+−])?{UNSIGNED})(?:\s*/\s*({UNSIGNED}))?")


def numeric(completion: str, answer: str | None) -> float | None:
    """1.0 if the numbers agree, else 0.0, also where the completion has none; None without an answer.

    Two whole numbers must be equal; others may differ by a millionth of the answer. Raises ValueError if the answer
    holds no number: its prompt is not one for this grader.
    """
    if answer is None:
        return None
    expected = last_number(answer)
    if expected is None:
        raise ValueError(f"the answer {answer!r} holds no number: grade its prompts with another grader")
    found = last_number(completion)
    if found is None:
        return 0.0
    if found.denominator == expected.denominator == 1:
        return float(found == expected)
    return float(abs(found - expected) <= RELATIVE_TOLERANCE * abs(expected))


def last_number(text: str) -> Fraction | None:
    """The number that a text ends up with, exactly; None if there is none that can be read."""
    text = text.rpartition(MARKER)[2]
    if boxed := BOXED.findall(text):
        text = boxed[-1]
    text = LATEX_FRACTION.sub(r" \1\2/\3 ", text)
    last = None
    for last in NUMBER.finditer(text):  # noqa: B007
        pass
    if last is None or len(last[0]) > MAX_CHARACTERS:
        return None
    above, below = _fraction(last[1]), _fraction(last[2] or "1")
    return above / below if below else None


def _fraction(text: str) -> Fraction:
    return Fraction(text.replace(",", "").replace("−", "-"))
