"""A report in Markdown. The tables hold what the pictures of the page show, so they are left out here."""

from collections.abc import Mapping, Sequence
from typing import Any

from api.reporting.blocks import Picture, Section, Table
from api.reporting.sections import sections, title

SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#"})


def markdown(found: Mapping[str, Any]) -> str:
    return "\n\n".join([f"# {escaped(title(found))}", *(_section(section) for section in sections(found))]) + "\n"


def escaped(text: str) -> str:
    """Names come from callers: none of them is markup."""
    return " ".join(text.split()).translate(SPECIAL)


def _section(section: Section) -> str:
    parts = [f"## {escaped(section.title)}"]
    for block in section.blocks:
        if isinstance(block, Table):
            parts.append(_table(block))
        elif not isinstance(block, Picture):
            parts.append(escaped(block))
    return "\n\n".join(parts)


def _table(table: Table) -> str:
    return "\n".join([_row(table.header), _row(["---"] * len(table.header), plain=True), *map(_row, table.rows)])


def _row(cells: Sequence[str], *, plain: bool = False) -> str:
    return f"| {' | '.join(cell if plain else escaped(cell) for cell in cells)} |"
