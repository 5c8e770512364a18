"""Writes prompts as a file, page by page: JSON Lines, CSV or Parquet, in the form that the readers take back.

Called by the export. Without a run's view, what is written can be uploaded again and changes nothing; a run's view adds
columns. It knows no SQL and no HTTP.
"""

import csv
import io
from collections.abc import Sequence
from typing import Any, Protocol

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from api.importing.readers import RowFormat
from api.importing.rows import VECTOR

# Under one name whatever the format: the columns of an upload.
TEXT_COLUMNS = ("key", "content", "answer", "category", "split", "parent", "meta")
PAGES_IN_GROUP = 4  # of a Parquet file: each group of rows is read, and described, by itself

MEDIA_TYPES = {
    RowFormat.JSONL: "application/x-ndjson",
    RowFormat.CSV: "text/csv; charset=utf-8",
    RowFormat.PARQUET: "application/vnd.apache.parquet",
}

View = dict[str, Any]  # what a run adds to one prompt: name -> number, text, list, or an object of such


class Writer(Protocol):
    """Turns pages into bytes. `end` comes once, after the last page."""

    def page(self, rows: Sequence[Any], views: Sequence[View]) -> bytes: ...

    def end(self) -> bytes: ...


def make_writer(form: RowFormat, feature_lengths: dict[str, int], view_columns: Sequence[tuple[str, bool]]) -> Writer:
    """`view_columns`: name of each column that a run adds, and whether it holds numbers."""
    match form:
        case RowFormat.CSV:
            return _CsvWriter(feature_lengths, view_columns)
        case RowFormat.PARQUET:
            return _ParquetWriter(feature_lengths, view_columns)
        case _:
            return _JsonWriter()


def view_columns_of(views: Sequence[View]) -> list[tuple[str, bool]]:
    """The columns that a page of views needs. Numbers stay numbers; anything else becomes text."""
    flat = [_flat(view) for view in views]
    names = dict.fromkeys(name for view in flat for name in view)
    return [(name, _all_numbers([view.get(name) for view in flat])) for name in names]


class _JsonWriter:
    def page(self, rows: Sequence[Any], views: Sequence[View]) -> bytes:
        return b"".join(
            [orjson.dumps({**_json_row(row), **view}, option=orjson.OPT_APPEND_NEWLINE)
             for row, view in zip(rows, views, strict=True)]
        )  # fmt: skip

    def end(self) -> bytes:
        return b""


class _CsvWriter:
    def __init__(self, feature_lengths: dict[str, int], view_columns: Sequence[tuple[str, bool]]) -> None:
        self._features = sorted(feature_lengths)
        self._view_columns = view_columns
        self._begun = False

    def page(self, rows: Sequence[Any], views: Sequence[View]) -> bytes:
        file = io.StringIO(newline="")
        out = csv.writer(file, lineterminator="\r\n")
        if not self._begun:
            out.writerow(self._header())
            self._begun = True
        for row, view in zip(rows, map(_flat, views), strict=True):
            features = _named_features(row.features)
            cells = [_text(row, name) for name in TEXT_COLUMNS]
            cells += [_cell(features.get(name)) for name in self._features]
            out.writerow([*cells, *(_cell(view.get(name)) for name, _ in self._view_columns)])
        return file.getvalue().encode()

    def end(self) -> bytes:
        return b"" if self._begun else self.page([], [])

    def _header(self) -> list[str]:
        return [*TEXT_COLUMNS, *map(_feature_column, self._features), *(name for name, _ in self._view_columns)]


class _ParquetWriter:
    def __init__(self, feature_lengths: dict[str, int], view_columns: Sequence[tuple[str, bool]]) -> None:
        self._features = feature_lengths
        self._view_columns = view_columns
        fields = [pa.field(name, pa.string()) for name in TEXT_COLUMNS]
        for name, length in sorted(feature_lengths.items()):
            fields.append(pa.field(_feature_column(name), pa.list_(pa.float64()) if length else pa.float64()))
        fields += [pa.field(name, pa.float64() if numbers else pa.string()) for name, numbers in view_columns]
        self._schema = pa.schema(fields)
        self._pages: list[pa.Table] = []
        self._file = io.BytesIO()
        self._sink = pa.PythonFile(self._file, mode="w")
        self._writer = pq.ParquetWriter(self._sink, self._schema)

    def page(self, rows: Sequence[Any], views: Sequence[View]) -> bytes:
        columns: list[Any] = [[_text(row, name) for row in rows] for name in TEXT_COLUMNS]
        features = [_named_features(row.features) for row in rows]
        for name, length in sorted(self._features.items()):
            # A prompt from before the pool was replaced may still have a number where there are vectors now.
            values = [item.get(name) for item in features]
            columns.append([v if isinstance(v, list) == bool(length) else None for v in values])
        flat = [_flat(view) for view in views]
        for name, numbers in self._view_columns:
            seen = [view.get(name) for view in flat]
            columns.append(seen if numbers else [None if v is None else _cell(v) for v in seen])
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._pages.append(pa.Table.from_arrays(arrays, schema=self._schema))
        if len(self._pages) == PAGES_IN_GROUP:
            self._write_group()
        return self._drain()

    def end(self) -> bytes:
        if self._pages:
            self._write_group()
        self._writer.close()
        return self._drain()

    def _write_group(self) -> None:
        self._writer.write_table(pa.concat_tables(self._pages).combine_chunks())
        self._pages.clear()

    def _drain(self) -> bytes:
        """What was written since the last time. Parquet is written front to back, so it need not be kept."""
        self._sink.flush()
        data = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return data


def _json_row(row: Any) -> dict[str, Any]:
    """Only what the prompt has; stored JSON goes out as it stands."""
    shown: dict[str, Any] = {"key": row.key}
    for name in ("content", "answer", "category", "split", "features", "parent", "meta"):
        value = getattr(row, name)
        if value is not None:
            shown[name] = orjson.Fragment(value) if name in ("content", "features", "meta") else value
    return shown


def _text(row: Any, name: str) -> str | None:
    """A column of an upload as text. A content that is a text stands as it is, messages as JSON."""
    value: str | None = getattr(row, name)
    if name == "content" and value is not None and value.startswith('"'):
        text: str = orjson.loads(value)
        return text
    return value


def _named_features(stored: str | None) -> dict[str, Any]:
    if stored is None:
        return {}
    value = orjson.loads(stored)
    return {VECTOR: value} if isinstance(value, list) else value


def _feature_column(name: str) -> str:
    return f"features.{name}" if name else "features"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _flat(view: View) -> View:
    """A view with the fields of its objects beside its own: a table has no objects."""
    flat: View = {}
    for name, value in view.items():
        flat.update(value if isinstance(value, dict) else {name: value})
    return flat


def _all_numbers(values: Sequence[Any]) -> bool:
    there = [value for value in values if value is not None]
    return bool(there) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in there)
