"""Reads an uploaded file as decoded rows: JSON Lines, a JSON list, CSV or Parquet, one after another.

Called by the import with a file that can be sought in. A line that cannot be decoded is a `RowFault`; a body that is
not in its format at all raises UnreadableBody, and then nothing of it applies. What a row may hold is `rows.py`'s
business.
"""

import csv
import io
import json
from collections.abc import Iterator
from email.message import Message
from enum import StrEnum
from typing import BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from api.errors import UnreadableBody, UnsupportedFormat, shown
from api.importing.rows import RowFault

MAX_LINE_BYTES = 2**24  # of a JSON line or a CSV cell: a content of 1 MiB with each character escaped, and the rest
PARQUET_BATCH_ROWS = 1_024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class RowFormat(StrEnum):
    """How the rows of a body are written."""

    JSONL = "jsonl"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


CONTENT_TYPES = {
    "application/x-ndjson": RowFormat.JSONL,
    "application/jsonl": RowFormat.JSONL,
    "application/json": RowFormat.JSON,
    "text/csv": RowFormat.CSV,
    "application/vnd.apache.parquet": RowFormat.PARQUET,
    "application/parquet": RowFormat.PARQUET,
}


def format_of(content_type: str | None, content_encoding: str | None = None) -> RowFormat:
    """The format that a request's headers declare. Raises UnsupportedFormat with the list of those that are read."""
    header = Message()
    header["content-type"] = content_type or ""
    known = CONTENT_TYPES.get(header.get_content_type() if content_type else "")
    if known is None:
        raise UnsupportedFormat(f"Content-Type is {shown(content_type)}; read are {', '.join(CONTENT_TYPES)}")
    charset = header.get_content_charset("utf-8")
    if known is not RowFormat.PARQUET and charset not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedFormat(f"the charset is {shown(charset)}; text is read in UTF-8 only")
    if content_encoding not in (None, "", "identity"):
        raise UnsupportedFormat(f"Content-Encoding is {shown(content_encoding)}; send the body uncompressed")
    return known


def read_rows(file: BinaryIO, form: RowFormat) -> Iterator[object]:
    """Each row in order: a decoded value or a RowFault. Raises UnreadableBody, at the latest after the last row."""
    match form:
        case RowFormat.JSONL:
            return _json_lines(file)
        case RowFormat.JSON:
            return _json_list(file)
        case RowFormat.CSV:
            return _csv(file)
        case RowFormat.PARQUET:
            return _parquet(file)


def _json_lines(file: BinaryIO) -> Iterator[object]:
    index, objects, first_problem = 0, 0, ""
    for line in _lines(file):
        value: object
        if line is None:
            value = RowFault(index, "too_long", f"the line has more than {MAX_LINE_BYTES} bytes")
        elif not line.strip():
            continue
        else:
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                value = _undecodable(index, line, error)
        if isinstance(value, dict):
            objects += 1
        else:
            first_problem = first_problem or (value.detail if isinstance(value, RowFault) else f"it is {shown(value)}")
        yield value
        index += 1
    if index and not objects:
        raise UnreadableBody(f"no line of the body is a JSON object ({first_problem}): is it really JSON Lines?")


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Lines without a byte-order mark; None for one that is too long to be held."""
    line = file.readline(MAX_LINE_BYTES).removeprefix(BYTE_ORDER_MARK)
    while line:
        if len(line) >= MAX_LINE_BYTES - len(BYTE_ORDER_MARK) and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE_BYTES)
            yield None
        else:
            yield line
        line = file.readline(MAX_LINE_BYTES)


def _undecodable(index: int, line: bytes, error: orjson.JSONDecodeError) -> RowFault:
    """Says whether a line is broken or only holds what JSON does not have: NaN, Infinity, numbers beyond a double."""
    found: list[str] = []
    try:
        value = json.loads(line, parse_constant=found.append)
    except (ValueError, RecursionError):
        return RowFault(index, "bad_json", f"the line is not JSON: {error}")
    key = value.get("key") if isinstance(value, dict) and isinstance(value.get("key"), str) else None
    if found or "infinity" in str(error):
        return RowFault(index, "not_finite", f"the row holds {found[0] if found else error}: leave the value out", key)
    return RowFault(index, "bad_text", f"the line is not JSON in UTF-8: {error}", key)


def _json_list(file: BinaryIO) -> Iterator[object]:
    data = file.read()
    try:
        rows = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        try:
            # It accepts NaN and half surrogate pairs, which then count against their row only.
            rows = json.loads(data)
        except (ValueError, RecursionError):
            raise UnreadableBody(f"the body is not JSON: {error}") from None
    if not isinstance(rows, list):
        raise UnreadableBody(f"the body is a JSON list of prompts, got {shown(rows)}; one prompt a line is JSON Lines")
    yield from rows


def _csv(file: BinaryIO) -> Iterator[object]:
    # The limit is the csv module's own and holds for the process; nothing else here reads CSV.
    csv.field_size_limit(MAX_LINE_BYTES)
    lines = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        reader = csv.reader(lines, strict=True)
        header = next(reader, None)
        if header is None:
            return
        columns = _columns(header)
        index = 0
        for cells in reader:
            if not cells:
                continue
            if len(cells) == len(header):
                yield _csv_row(index, columns, cells)
            else:
                yield RowFault(index, "bad_csv", f"the row has {len(cells)} cells, the header {len(header)}")
            index += 1
    except (csv.Error, UnicodeDecodeError) as error:
        raise UnreadableBody(f"the body is not CSV in UTF-8: {error}") from error
    finally:
        lines.detach()


def _columns(header: list[str]) -> list[tuple[str, str]]:
    """Each column as (field, name inside `features` or `meta`, or nothing)."""
    if not {"key", "content"} & set(header):
        raise UnreadableBody(f"no column is named `key` or `content`; there are {shown(', '.join(header))}")
    columns: list[tuple[str, str]] = []
    for name in header:
        field, dot, inner = name.partition(".")
        columns.append((field, inner) if dot and field in ("features", "meta") else (name, ""))
    whole = {field for field, inner in columns if not inner}
    if len(set(columns)) < len(columns) or any(inner and field in whole for field, inner in columns):
        raise UnreadableBody(f"a column is there twice: {shown(', '.join(header))}")
    return columns


def _csv_row(index: int, columns: list[tuple[str, str]], cells: list[str]) -> object:
    """An empty cell says nothing. Numbers, vectors and meta are JSON; a cell of `meta.<name>` may be plain text too."""
    row: dict[str, object] = {}
    for (field, inner), cell in zip(columns, cells, strict=True):
        if not cell:
            continue
        if field in ("features", "meta"):
            try:
                value: object = orjson.loads(cell)
            except orjson.JSONDecodeError as error:
                if field == "features" or not inner:
                    name = f"{field}.{inner}" if inner else field
                    if cell.strip().lower().lstrip("+-") in ("nan", "inf", "infinity"):
                        return RowFault(index, "not_finite", f"{name} is {shown(cell)}: leave the cell empty")
                    return RowFault(index, "wrong_type", f"{name} is not JSON ({error}): {shown(cell)}")
                value = cell
            if inner:
                inside = row.setdefault(field, {})
                assert isinstance(inside, dict)
                inside[inner] = value
            else:
                row[field] = value
        else:
            row[field] = _messages_or_text(cell) if field == "content" else cell
    return row


def _messages_or_text(text: str) -> object:
    """Chat messages where the text is a JSON list of objects with a role, as the export writes them; else the text."""
    if text.startswith("[") and text.endswith("]"):
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
        if isinstance(value, list) and value and all(isinstance(m, dict) and "role" in m for m in value):
            return value
    return text


def _parquet(file: BinaryIO) -> Iterator[object]:
    try:
        with pq.ParquetFile(file) as table:
            columns = _columns(table.schema_arrow.names)
            if not table.num_row_groups:
                return  # pyarrow before 20 fails on such a file
            for batch in table.iter_batches(batch_size=PARQUET_BATCH_ROWS, use_threads=False):
                # Column by column: a struct's row would be a dict of all columns, made only to be taken apart.
                values = [column.to_pylist() for column in batch.columns]
                for cells in zip(*values, strict=True):
                    yield _parquet_row(columns, cells)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableBody(f"the body is not a Parquet file that can be read: {str(error)[:200]}") from error


def _parquet_row(columns: list[tuple[str, str]], cells: tuple[object, ...]) -> dict[str, object]:
    """A null says nothing; structs and maps become objects without their nulls."""
    row: dict[str, object] = {}
    for (field, inner), cell in zip(columns, cells, strict=True):
        if cell is None:
            continue
        value = _messages_or_text(cell) if field == "content" and isinstance(cell, str) else _plain(cell)
        if field in ("features", "meta") and not inner and isinstance(value, str):
            value = _json_or_text(value)
        if field == "features" and not inner and isinstance(value, dict) and not value:
            continue
        if inner:
            inside = row.setdefault(field, {})
            assert isinstance(inside, dict)
            inside[inner] = value
        else:
            row[field] = value
    return row


def _json_or_text(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _plain(value: object) -> object:
    """Arrow's Python values as JSON has them: a map comes as a list of pairs, a struct with nulls for the missing."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
            return {name: _plain(item) for name, item in value}
        return [_plain(item) for item in value]
    return value
