"""How a report writes numbers: what is not known is called missing, never left blank or guessed.

`sections`, `answers` and `audited` use it. Knows values of the content, no section.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from api.reporting.content import percent

QUANTITY_WORDS = {"pass_rate": "pass rate", "degenerate": "share of groups that teach nothing"}


def rate(value: Mapping[str, Any] | None) -> str:
    if value is None or value["estimate"] is None:
        return "missing"
    return f"{percent(value['estimate'])} ({percent(value['interval'][0])} to {percent(value['interval'][1])})"


def estimate(value: Mapping[str, Any]) -> str:
    return rate(value) if value["estimate"] is not None else "–"


def between(value: float, interval: Sequence[float]) -> str:
    return f"{value:+.3f} ({interval[0]:+.3f} to {interval[1]:+.3f})"


def hours(seconds: float | None) -> str:
    return "missing" if seconds is None else f"{seconds / 3600:,.4g}"


def number(value: float | None, missing: str = "missing") -> str:
    """Four digits that count, and whole numbers from a thousand on."""
    if value is None:
        return missing
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def counted(count: int, share: float | None) -> str:
    return f"{count:,}" if share is None else f"{count:,} ({percent(share)})"
