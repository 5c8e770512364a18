"""Reading and writing files of prompts: JSON Lines, JSON, CSV, Parquet."""

import io
import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.errors import UnreadableBody, UnsupportedFormat
from api.importing import readers
from api.importing.readers import CONTENT_TYPES, RowFormat, format_of, read_rows
from api.importing.rows import PromptRow, RowFault, read_row
from api.importing.writers import View, make_writer, view_columns_of

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


def rows_of(data: bytes | str, form: RowFormat) -> list[Any]:
    return list(read_rows(io.BytesIO(data.encode() if isinstance(data, str) else data), form))


def parquet(columns: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def codes(rows: list[Any]) -> list[str | None]:
    return [row.code if isinstance(row, RowFault) else None for row in rows]


# What is declared


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
def test_each_content_type_has_a_format(content_type: str) -> None:
    assert format_of(content_type) is CONTENT_TYPES[content_type]
    assert format_of(f"{content_type.upper()}; charset=UTF-8") is CONTENT_TYPES[content_type]


@pytest.mark.parametrize("content_type", [None, "", "text/plain", "application/octet-stream", "garbage"])
def test_any_other_type_is_refused_with_the_list(content_type: str | None) -> None:
    with pytest.raises(UnsupportedFormat, match=r"read are application/x-ndjson, .*text/csv"):
        format_of(content_type)


def test_another_charset_or_a_compressed_body_is_refused() -> None:
    with pytest.raises(UnsupportedFormat, match="'latin-1'; text is read in UTF-8 only"):
        format_of("text/csv; charset=latin-1")
    with pytest.raises(UnsupportedFormat, match="'gzip'; send the body uncompressed"):
        format_of("application/jsonl", "gzip")
    assert format_of("application/jsonl", "identity") is RowFormat.JSONL


# JSON Lines


def test_json_lines_are_read_without_blank_ones() -> None:
    text = '\ufeff{"key":"a"}\n\n  \n{"key":"b"}\r\n{"key":"ü"}'
    assert rows_of(text, RowFormat.JSONL) == [{"key": "a"}, {"key": "b"}, {"key": "ü"}]
    assert rows_of("", RowFormat.JSONL) == []
    assert rows_of("\n\n", RowFormat.JSONL) == []


def test_a_bad_line_is_a_fault_of_its_own() -> None:
    lines = [
        b'{"key": "a"}', b"{broken", b'{"key": "n", "features": {"x": NaN}}', b'{"key": "i", "features": {"x": 1e999}}',
        b'{"key": "s\\ud800"}', b'{"key": "\xff"}', b"5", b'{"key": "b"}',
    ]  # fmt: skip
    rows = rows_of(b"\n".join(lines), RowFormat.JSONL)
    assert codes(rows) == [None, "bad_json", "not_finite", "not_finite", "bad_text", "bad_json", None, None]
    assert [row.place for row in rows if isinstance(row, RowFault)] == [1, 2, 3, 4, 5]
    assert rows[2].key == "n"
    assert "NaN" in rows[2].detail
    assert rows[6] == 5


def test_a_body_without_a_single_object_is_not_json_lines() -> None:
    for text in ('[{"key": "a"}]', "key,content\na,b\n", "[\n1,\n2\n]", "PAR1\x00\x01"):
        with pytest.raises(UnreadableBody, match="no line of the body is a JSON object"):
            rows_of(text, RowFormat.JSONL)


def test_a_line_that_is_too_long_is_skipped_without_being_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_LINE_BYTES", 100)
    long = json.dumps({"key": "x" * 1_000})
    rows = rows_of(f'{{"key":"a"}}\n{long}\n{{"key":"b"}}\n{long}', RowFormat.JSONL)
    assert codes(rows) == [None, "too_long", None, "too_long"]
    assert rows[2] == {"key": "b"}


# A JSON list


def test_a_json_list_is_read() -> None:
    assert rows_of('[{"key": "a"}, 5]', RowFormat.JSON) == [{"key": "a"}, 5]
    assert rows_of("[]", RowFormat.JSON) == []


def test_a_number_that_is_not_finite_costs_only_its_row() -> None:
    rows = rows_of('[{"key": "a", "features": {"x": NaN}}, {"key": "b"}]', RowFormat.JSON)
    checked = [read_row(i, row) for i, row in enumerate(rows)]
    assert codes(checked) == ["not_finite", None]


@pytest.mark.parametrize(
    "text", ["", "{", '{"key": "a"}', '[{"key": "a"}', "5", '{"key":"a"}\n{"key":"b"}', "[" * 100_000]
)
def test_a_body_that_is_no_json_list_is_refused(text: str) -> None:
    with pytest.raises(UnreadableBody, match="the body is"):
        rows_of(text, RowFormat.JSON)


# CSV


def test_csv_columns_become_fields() -> None:
    text = (
        "key,content,answer,category,split,features.len,features.v,meta.source,meta.year,parent\r\n"
        'a,"1, 2\n3",42,sum,heldout,3.5,"[1, 2]",web,2024,p\r\n'
        "\r\n"
        "b,x,,,,,,,,\r\n"
    )
    assert rows_of(text, RowFormat.CSV) == [
        {
            "key": "a", "content": "1, 2\n3", "answer": "42", "category": "sum", "split": "heldout",
            "features": {"len": 3.5, "v": [1, 2]}, "meta": {"source": "web", "year": 2024}, "parent": "p",
        },
        {"key": "b", "content": "x"},
    ]  # fmt: skip


def test_a_csv_cell_may_be_as_long_as_a_content() -> None:
    # More than the csv module's own limit of 131,072.
    assert rows_of(f"content\n{'x' * 500_000}\n", RowFormat.CSV) == [{"content": "x" * 500_000}]


def test_messages_in_a_csv_cell_are_json_and_any_other_list_is_text() -> None:
    text = "content\n" + '"' + json.dumps(MESSAGES).replace('"', '""') + '"\n"[1, 2] is a list"\n"[1, 2]"\n'
    assert rows_of(text, RowFormat.CSV) == [
        {"content": MESSAGES},
        {"content": "[1, 2] is a list"},
        {"content": "[1, 2]"},
    ]


def test_a_bad_csv_row_is_a_fault_of_its_own() -> None:
    text = "key,features.x,features,meta\na,1\n"
    with pytest.raises(UnreadableBody, match="a column is there twice"):
        rows_of(text, RowFormat.CSV)
    text = "key,features.x,meta,extra\na,1\nb,one,,\nc,NaN,,\nd,,{broken,\ne,,,surplus\nf,1,,\n"
    checked = [r if isinstance(r, RowFault) else read_row(i, r) for i, r in enumerate(rows_of(text, RowFormat.CSV))]
    assert codes(checked) == ["bad_csv", "wrong_type", "not_finite", "wrong_type", "unknown_field", None]
    assert "the row has 2 cells, the header 4" in checked[0].detail  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "body",
    [
        b"question,answer\na,b\n",
        b"key,key\na,b\n",
        b"key,content\na,\xff\n",
        b'key,content\na,"never closed\n',
        b'key,content\na,"b"c\n',
        b'{"key": "a"}\n',
        "key\na\n".encode("utf-16"),
    ],
)
def test_a_body_that_is_no_csv_of_prompts_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadableBody):
        rows_of(body, RowFormat.CSV)


def test_an_empty_csv_has_no_rows() -> None:
    assert rows_of("", RowFormat.CSV) == []
    assert rows_of("\ufeffkey,content\n", RowFormat.CSV) == []


# Parquet


def test_parquet_columns_become_fields() -> None:
    data = parquet(
        {
            "key": ["a", "b"],
            "content": [MESSAGES, None],
            "category": pa.array(["x", None]).dictionary_encode(),
            "features.len": [1, None],
            "features.v": [[0.5, 1.5], None],
            "meta": [{"source": "web", "year": None}, None],
        }
    )
    assert rows_of(data, RowFormat.PARQUET) == [
        {
            "key": "a", "content": MESSAGES, "category": "x", "features": {"len": 1, "v": [0.5, 1.5]},
            "meta": {"source": "web"},
        },
        {"key": "b"},
    ]  # fmt: skip


def test_a_parquet_map_and_a_struct_are_objects_and_a_list_is_a_vector() -> None:
    mapped = pa.array([[("x", 1.0)]], pa.map_(pa.string(), pa.float64()))
    for column, expected in ((mapped, {"x": 1.0}), ([{"x": 1.0}], {"x": 1.0}), ([[1.0, 2.0]], [1.0, 2.0])):
        assert rows_of(parquet({"key": ["a"], "features": column}), RowFormat.PARQUET) == [
            {"key": "a", "features": expected}
        ]


def test_values_of_parquet_that_json_has_not_are_refused_by_row() -> None:
    data = parquet({"key": [b"a", b"b"], "features.x": [float("nan"), 1.0]})
    assert codes([read_row(0, row) for row in rows_of(data, RowFormat.PARQUET)]) == ["wrong_type", "wrong_type"]
    data = parquet({"key": ["a", "b"], "features.x": [float("nan"), 1.0]})
    assert codes([read_row(0, row) for row in rows_of(data, RowFormat.PARQUET)]) == ["not_finite", None]


def test_a_body_that_is_no_parquet_of_prompts_is_refused() -> None:
    whole = parquet({"key": ["a"] * 100})
    for data in (b"", b"PAR1", whole[:-20], b"key\na\n", parquet({"question": ["a"]})):
        with pytest.raises(UnreadableBody):
            rows_of(data, RowFormat.PARQUET)


def test_many_parquet_rows_come_in_order() -> None:
    keys = [str(i) for i in range(5_000)]
    assert [row["key"] for row in rows_of(parquet({"key": keys}), RowFormat.PARQUET)] == keys


# There and back


def stored(row: PromptRow) -> SimpleNamespace:
    """A row as the database would give it back."""
    named = {name: getattr(row, name) or None for name in ("category", "features", "parent", "meta")}
    return SimpleNamespace(key=row.key, content=row.content, answer=row.answer, split=row.split or "train", **named)


@pytest.mark.parametrize("form", [RowFormat.JSONL, RowFormat.CSV, RowFormat.PARQUET])
def test_what_is_written_reads_back_as_the_same_prompts(form: RowFormat) -> None:
    given = [
        {"key": "a", "content": 'one "two", three\r\nfour', "answer": "5", "category": "c", "split": "heldout"},
        {"key": "b", "content": MESSAGES, "features": {"len": 2, "v": [1, 2]}, "meta": {"x": [None, True, "007"]}},
        {"key": "c", "parent": "a", "features": {"len": 0.1}},
        {"content": "  [1, 2, 3] ", "answer": "[1]"},
    ]
    rows = [read_row(i, value) for i, value in enumerate(given)]
    assert all(isinstance(row, PromptRow) for row in rows)
    writer = make_writer(form, {"len": 0, "v": 2}, [])
    written = [stored(row) for row in rows if isinstance(row, PromptRow)]
    data = writer.page(written[:2], [{}, {}]) + writer.page(written[2:], [{}, {}]) + writer.end()
    again = [read_row(i, value) for i, value in enumerate(rows_of(data, form))]
    for before, after in zip(rows, again, strict=True):
        assert isinstance(before, PromptRow)
        assert isinstance(after, PromptRow), after
        same = ("key", "content_hash", "question_hash", "content", "answer", "category", "features", "parent", "meta")
        assert [getattr(before, name) for name in same] == [getattr(after, name) for name in same]
        assert (before.split or "train") == after.split


@pytest.mark.parametrize("form", [RowFormat.JSONL, RowFormat.CSV, RowFormat.PARQUET])
def test_an_empty_pool_is_written_as_a_file_that_reads_back_as_empty(form: RowFormat) -> None:
    assert rows_of(make_writer(form, {}, []).end(), form) == []


def test_what_a_run_knows_becomes_columns() -> None:
    views: list[View] = [
        {"belief": {"pass_rate": 0.5, "source": "x"}, "state": "new", "drawn": None},
        {"drawn": 3, "state": None},
    ]
    columns = view_columns_of(views)
    assert columns == [("pass_rate", True), ("source", False), ("state", False), ("drawn", True)]
    row = read_row(0, {"key": "a"})
    assert isinstance(row, PromptRow)
    writer = make_writer(RowFormat.PARQUET, {}, columns)
    data = writer.page([stored(row)] * 2, views) + writer.end()
    table = pq.read_table(io.BytesIO(data)).select(["pass_rate", "source", "state", "drawn"])
    assert table.to_pylist() == [
        {"pass_rate": 0.5, "source": "x", "state": "new", "drawn": None},
        {"pass_rate": None, "source": None, "state": None, "drawn": 3.0},
    ]
    text = make_writer(RowFormat.CSV, {}, columns).page([stored(row)] * 2, views).decode().splitlines()
    assert text[0].endswith("meta,pass_rate,source,state,drawn")
    assert text[1].endswith(",0.5,x,new,")
    lines = make_writer(RowFormat.JSONL, {}, columns).page([stored(row)] * 2, views).splitlines()
    assert json.loads(lines[0]) == {"key": "a", "split": "train", **views[0]}


def test_a_feature_from_before_the_pool_was_replaced_is_left_out_of_tables_it_does_not_fit() -> None:
    row = read_row(0, {"key": "a", "features": {"x": 1.0}})
    assert isinstance(row, PromptRow)
    writer = make_writer(RowFormat.PARQUET, {"x": 2}, [])
    table = pq.read_table(io.BytesIO(writer.page([stored(row)], [{}]) + writer.end()))
    assert table["features.x"].to_pylist() == [None]
