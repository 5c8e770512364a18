"""A report as one HTML page with its pictures inside: no script, no outside resource, so it can be kept and sent on."""

from collections.abc import Mapping
from html import escape
from typing import Any

from api.reporting.blocks import Block, Picture, Table
from api.reporting.sections import sections, title

# Its own style, and nothing else.
PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
table { border-collapse: collapse; margin: 1rem 0 } caption, figcaption { color: #555; text-align: left }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top }
figure { margin: 1rem 0 } svg { max-width: 100%; height: auto } h2 { margin-top: 2.5rem }
"""


def html_page(found: Mapping[str, Any]) -> str:
    body = "".join(
        f"<section><h2>{escape(section.title)}</h2>{''.join(map(_block, section.blocks))}</section>"
        for section in sections(found)
    )
    name = escape(title(found))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title><style>{STYLE}</style></head>'
        f"<body><h1>{name}</h1>{body}</body></html>"
    )


def _block(block: Block) -> str:
    if isinstance(block, Picture):
        return f"<figure>{block.svg}<figcaption>{escape(block.caption)}</figcaption></figure>"
    if isinstance(block, Table):
        head = "".join(f"<th>{escape(cell)}</th>" for cell in block.header)
        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in block.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<p>{escape(block)}</p>"
