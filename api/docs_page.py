"""The page that describes every call, made from the OpenAPI document: plain HTML without script, style or picture.

`create_app` mounts it at DOCS_PATH. Nothing is loaded from anywhere, so it works where no network is, and it needs no
other content policy than every answer has. What it shows is the document's, escaped; programs read /openapi.json.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

Document = Mapping[str, Any]
REFERENCE = "#/components/schemas/"


def docs_page(document: Document) -> str:
    """The whole document as one page, calls first, then the objects that they send and answer."""
    title = escape(f"{document['info']['title']}, contract {document['info']['version']}")
    calls = [(path, method, call) for path, item in document["paths"].items() for method, call in item.items()]
    schemas = document["components"]["schemas"]
    return "".join(
        [
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head><body>',
            f"<h1>{title}</h1><p>{escape(document['info'].get('summary', ''))}.",
            ' The same for programs: <a href="/openapi.json">openapi.json</a>.</p><h2>Calls</h2><ul>',
            *(
                f'<li><a href="#{_id(call)}"><code>{_name(method, path)}</code></a></li>'
                for path, method, call in calls
            ),
            "</ul>",
            *(part for path, method, call in calls for part in _call(path, method, call)),
            "<h2>Objects</h2>",
            *(part for name, schema in sorted(schemas.items()) for part in _object(name, schema)),
            "</body></html>",
        ]
    )


def _call(path: str, method: str, call: Document) -> Iterator[str]:
    yield f'<h3 id="{_id(call)}"><code>{_name(method, path)}</code></h3>'
    yield _text(call.get("description") or call.get("summary"))
    scopes = [scope for entry in call.get("security", ()) for scope in entry.get("key", ())]
    yield f"<p>Key: {escape(', '.join(scopes) or ('any' if call.get('security') else 'none'))}</p>"
    if parameters := call.get("parameters"):
        yield _table(
            ("parameter", "in", "type", "meaning"),
            [
                (
                    escape(p["name"]) + (" *" if p.get("required") else ""),
                    escape(p["in"]),
                    _type(p["schema"]),
                    escape(p.get("description") or p["schema"].get("description", "")),
                )
                for p in parameters
            ],
        )
    if body := call.get("requestBody"):
        rows = [(escape(media), _type(content.get("schema", {}))) for media, content in body["content"].items()]
        yield _table(("body", "type"), rows)
    yield _table(
        ("status", "answer", "meaning"),
        [
            (
                escape(status),
                "<br>".join(_type(content.get("schema", {})) for content in answer.get("content", {}).values()),
                escape(answer.get("description", "")),
            )
            for status, answer in call["responses"].items()
        ],
    )


def _object(name: str, schema: Document) -> Iterator[str]:
    yield f'<h3 id="object-{escape(name)}">{escape(name)}</h3>{_text(schema.get("description"))}'
    required = schema.get("required", ())
    if "properties" not in schema:
        yield f"<p>{_type(schema)}</p>"
        return
    yield _table(
        ("field", "type", "meaning"),
        [
            (escape(field) + (" *" if field in required else ""), _type(value), escape(value.get("description", "")))
            for field, value in schema["properties"].items()
        ],
    )


def _type(schema: Document) -> str:
    """A schema in a few words; objects that have a name are linked."""
    if reference := schema.get("$ref"):
        name = escape(reference.removeprefix(REFERENCE))
        return f'<a href="#object-{name}">{name}</a>'
    if choices := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return " or ".join(map(_type, choices))
    if "const" in schema or "enum" in schema:
        return " or ".join(escape(repr(value)) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of ({_type(schema.get('items', {}))})"
    if isinstance(inner := schema.get("additionalProperties"), dict):
        return f"object: name → ({_type(inner)})"
    limits = [f"{words} {schema[name]}" for name, words in _LIMITS.items() if name in schema]
    default = [f"default {schema['default']!r}"] if schema.get("default") is not None else []
    return escape(", ".join([schema.get("type", "anything"), *limits, *default]))


_LIMITS = {
    "minimum": "≥",
    "exclusiveMinimum": ">",
    "maximum": "≤",
    "exclusiveMaximum": "<",
    "minLength": "length ≥",
    "maxLength": "length ≤",
    "minItems": "entries ≥",
    "maxItems": "entries ≤",
    "pattern": "matches",
}


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Cells are HTML."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<table border="1" cellpadding="4"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _text(text: str | None) -> str:
    return "".join(f"<p>{escape(part)}</p>" for part in (text or "").split("\n\n") if part.strip())


def _name(method: str, path: str) -> str:
    return escape(f"{method.upper()} {path}")


def _id(call: Document) -> str:
    return f"call-{escape(call['operationId'])}"
