"""Right if it is mathematically the same, by the library math-verify: sets, intervals, matrices, symbolic expressions.

The library comes with the extra `math` and is imported at the first call. It has time limits of its own that need the
main thread of a process and Unix signals; they are switched off, as the pool of graders has one for each answer.
"""

import logging

from trainer.errors import MissingExtra


def math(completion: str, answer: str | None) -> float | None:
    """1.0 if they are equal, else 0.0, also where nothing can be read in the completion; None without an answer.

    Raises ValueError if the answer cannot be read: its prompt is not one for this grader. Raises MissingExtra without
    the library.
    """
    if answer is None:
        return None
    try:
        from math_verify import parse, verify
    except ImportError as error:
        raise MissingExtra("grader 'math' needs math-verify: pip install 'midband[math]'") from error
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns of the missing limit at every first call
    expected = parse(_as_latex(answer), parsing_timeout=None)
    if all(isinstance(one, str) for one in expected):
        raise ValueError("the answer holds no mathematics that can be read: grade its prompts with another grader")
    found = parse(completion, parsing_timeout=None)
    return float(bool(found) and bool(verify(expected, found, timeout_seconds=None)))


def _as_latex(answer: str) -> str:
    """A bare answer as the formula that it is: the library reads LaTeX between dollars or in a box only."""
    return answer if "$" in answer or "\\boxed" in answer else f"${answer}$"
