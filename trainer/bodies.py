"""What goes over the wire in pieces: prompts of an import on the way out, JSON lines and files on the way in.

Used by `trainer.calls`. A body that is sent is a function that makes it anew, as a call may have to be sent again.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from trainer.connection import Body
from trainer.errors import InvalidRequest, ServiceUnavailable

ROWS_PER_CHUNK = 1_000
FILE_CHUNK_BYTES = 1 << 20
CONTENT_TYPES = {
    ".jsonl": "application/x-ndjson",
    ".ndjson": "application/x-ndjson",
    ".json": "application/json",
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
}
EXPORT_FORMATS = ("jsonl", "csv", "parquet")

JsonObject = dict[str, Any]
Row = Mapping[str, object]


def rows_body(rows: Iterable[Row]) -> tuple[Body, str]:
    """Rows as JSON lines, and their content type. All are written before any is sent: half an import is none."""
    lines = [_row_line(row, place) for place, row in enumerate(rows)]
    chunks = ["".join(lines[start : start + ROWS_PER_CHUNK]).encode() for start in range(0, len(lines), ROWS_PER_CHUNK)]
    return lambda: iter(chunks), CONTENT_TYPES[".jsonl"]


def file_body(path: Path) -> tuple[Body, str]:
    """A file as it is, and the content type that its name says."""
    content_type = CONTENT_TYPES.get(path.suffix.lower())
    if content_type is None:
        raise InvalidRequest(f"{path}: the format shows in the file's name, one of {', '.join(CONTENT_TYPES)}")
    if not path.is_file():
        raise InvalidRequest(f"{path}: no such file")

    def chunks() -> Iterator[bytes]:
        with path.open("rb") as file:
            while chunk := file.read(FILE_CHUNK_BYTES):
                yield chunk

    return chunks, content_type


def export_format(path: Path) -> str:
    """The contract's name of the format that a file's name says."""
    form = path.suffix.lower().removeprefix(".")
    if form not in EXPORT_FORMATS:
        raise InvalidRequest(f"{path}: the format shows in the file's name, one of .{', .'.join(EXPORT_FORMATS)}")
    return form


def write_body(response: httpx.Response, path: Path) -> Path:
    """The body of an answer as a file, which is there whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            for part in response.iter_bytes():
                file.write(part)
        return partial.replace(path)
    except httpx.TransportError as error:
        raise ServiceUnavailable(f"{path} was not written, the answer broke off: {error}") from error
    finally:
        response.close()
        partial.unlink(missing_ok=True)


def json_lines(response: httpx.Response) -> Iterator[JsonObject]:
    """The objects of an answer in JSON lines, as they arrive."""
    # Not iter_lines: that also splits at the line separators of Unicode, which may stand inside a JSON text.
    rest = b""
    for part in response.iter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield json.loads(line)
    if rest:
        yield json.loads(rest)


def _row_line(row: Row, place: int) -> str:
    # A number that is not finite goes out as NaN or Infinity: the service then refuses that row by name and keeps the
    # others, while null would pass for a value left out.
    try:
        return json.dumps(row, default=_plain) + "\n"
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"row {place} cannot be written as JSON: {error}") from error


def _plain(value: Any) -> object:
    """Numpy scalars and arrays, and what else converts itself, as plain Python."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON value: {value!r:.80}")
