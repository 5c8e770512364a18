r"""Right if it chooses the answer's letter, as `(B)`, `Answer: b`, `\boxed{B}`, or a letter that stands alone.

What follows the last `####`, or stands in the last `\boxed{...}`, goes before all else; then the last choice that is
named as one; then the last capital letter that stands alone. Letters run from A to J.
"""

import re

MARKER = "####"
BOXED = re.compile(r"\\boxed\s*\{\s*(?:\\text\s*\{)?\s*\(?([A-Ja-j])\)?\s*\}?\s*\}")
NAMED = re.compile(r"\b(?:answer|option|choice)\b(?:\s+is)?\s*:?\s*\(?\s*([A-Ja-j])\b\)?", re.IGNORECASE)
BRACKETED = re.compile(r"\(([A-Ja-j])\)")
ALONE = re.compile(r"(?<![\w'\u2019])([A-J])(?![\w'\u2019])")
WHOLE = re.compile(r"\s*\(?([A-Ja-j])\)?[.:)]?(?:\s.*)?", re.DOTALL)


def choice(completion: str, answer: str | None) -> float | None:
    """1.0 if the letters agree, else 0.0, also where the completion chooses none; None without an answer.

    The answer is a letter, in brackets or not, and may be followed by its text. Raises ValueError for any other.
    """
    if answer is None:
        return None
    expected = WHOLE.fullmatch(answer)
    if expected is None:
        raise ValueError("the answer is no letter from A to J: grade its prompts with another grader")
    return float(chosen(completion) == expected[1].upper())


def chosen(text: str) -> str | None:
    """The letter that a text ends up with; None if there is none."""
    text = text.rpartition(MARKER)[2]
    for pattern in (BOXED, NAMED, BRACKETED, ALONE):
        if found := pattern.findall(text):
            return str(found[-1]).upper()
    whole = WHOLE.fullmatch(text)
    return whole[1].upper() if whole and len(text.strip(" ().:\n\t")) == 1 else None
