"""What a report is made of: headings, sentences, tables, pictures, without a form.

`sections` and `audited` make them, `text` and `page` give them one.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells are words; the first column names the row."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An SVG element of its own, and in words what it shows."""

    svg: str
    caption: str


Block = str | Table | Picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One heading with what stands under it."""

    title: str
    blocks: Sequence[Block]
