"""Right if it is the answer, letter by letter."""


def exact(completion: str, answer: str | None) -> float | None:
    """1.0 if both are the same text but for white space around them, else 0.0; None without an answer."""
    if answer is None:
        return None
    return float(completion.strip() == answer.strip())
