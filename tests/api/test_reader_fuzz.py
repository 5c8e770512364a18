"""Uploads that were damaged on the way: cut off, with bytes flipped, put in or doubled.

Whatever comes, an upload is either no upload, and then nothing of it applies, or every row of it is accounted for.
`pytest --hypothesis-profile=explore` damages ten times as many.
"""

import io
import random
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from api.db.session import create_database
from api.errors import UnreadableBody
from api.importing.readers import RowFormat, read_rows
from api.importing.rows import RowFault
from tests.api.import_cases import make_pool, put, revision_of

MARKS = (b'"', b",", b"\n", b"\r\n", b"{", b"}", b"[", b"]", b"\\", b"\x00", b"\xff", b"NaN", b"1e999", b"\xed\xa0\x80")
ROWS = [
    {"key": "k1", "content": 'a, "b"\nc', "answer": "1", "category": "x", "split": "train"},
    {"content": "∑ two", "answer": None, "category": None, "split": "heldout"},
    {"key": "k3", "content": "three", "answer": "3", "category": "y", "split": None},
] * 3


def whole(form: RowFormat) -> bytes:
    """A sound upload."""
    match form:
        case RowFormat.JSONL:
            messages = b'{"content": [{"role": "user", "content": "b"}]}'
            return (b'{"key": "k1", "content": "a", "features": {"n": 1.5}}\n\n' + messages + b"\n") * 3
        case RowFormat.JSON:
            return b'[{"key": "k1", "content": "a", "meta": {"n": [1, null]}}, {"content": "\\u2211 b", "answer": "c"}]'
        case RowFormat.CSV:
            rows = b'k1,"a, ""b""\nc",1,2.5,x\r\n,two,2,,"{""a"": 1}"\r\n'
            return b"key,content,answer,features.n,meta.m\r\n" + rows * 2
        case RowFormat.PARQUET:
            file = io.BytesIO()
            pq.write_table(pa.Table.from_pylist(ROWS), file, row_group_size=4, compression="snappy")
            return file.getvalue()


@st.composite
def damaged(draw: st.DrawFn, form: RowFormat) -> bytes:
    """The upload after a few accidents. Most of them are drawn by a seed: places in a binary file shrink to nothing."""
    data, chance = bytearray(whole(form)), random.Random(draw(st.integers(0, 2**32)))
    for accident in draw(st.lists(st.sampled_from(["flip", "cut", "mark", "double", "drop"]), min_size=1, max_size=6)):
        at, span = chance.randrange(len(data) + 1), chance.randrange(1, 9)
        match accident:
            case "flip" if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case "cut":
                del data[max(at, 1) :]
            case "mark":
                data[at:at] = chance.choice(MARKS)
            case "double":
                data[at:at] = data[at : at + span]
            case _:
                del data[at : at + span]
    return bytes(data)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = create_database(f"sqlite:///{tmp_path_factory.mktemp('fuzz')}/midband.db")
    make_pool(engine)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("form", list(RowFormat))
@pytest.mark.parametrize("replace", [False, True])
def test_a_damaged_upload_is_refused_whole_or_every_row_is_accounted_for(
    engine: Engine, form: RowFormat, replace: bool
) -> None:
    @given(damaged(form))
    def upload(data: bytes) -> None:
        before = revision_of(engine)
        try:
            values = list(read_rows(io.BytesIO(data), form))
        except UnreadableBody as refused:
            assert str(refused)  # noqa: PT017
            with pytest.raises(UnreadableBody):
                put(engine, read_rows(io.BytesIO(data), form), replace=replace)
            assert revision_of(engine) == before
            return
        # What can be read at all is at most a row for each byte.
        assert len(values) <= len(data)
        outcome = put(engine, read_rows(io.BytesIO(data), form), replace=replace)  # which adds the counts up
        assert outcome.counts.received == len(values)
        assert outcome.counts.rejected >= sum(isinstance(value, RowFault) for value in values)

    upload()


@pytest.mark.parametrize("form", [RowFormat.JSONL, RowFormat.JSON, RowFormat.CSV])
def test_any_text_is_refused_whole_or_every_row_is_accounted_for(engine: Engine, form: RowFormat) -> None:
    head = {RowFormat.JSONL: "", RowFormat.JSON: "[", RowFormat.CSV: "key,content\n"}[form]

    @given(st.text(alphabet=st.characters(codec="utf-8") | st.sampled_from('{}[]",:\n0e-'), max_size=60), st.booleans())
    def upload(text: str, begins_well: bool) -> None:
        data = ((head if begins_well else "") + text).encode()
        try:
            values = list(read_rows(io.BytesIO(data), form))
        except UnreadableBody:
            return
        assert put(engine, values).counts.received == len(values)

    upload()


@pytest.mark.parametrize("form", list(RowFormat))
def test_a_sound_upload_of_each_format_is_what_the_damage_is_done_to(engine: Engine, form: RowFormat) -> None:
    values = list(read_rows(io.BytesIO(whole(form)), form))
    assert len(values) >= 2
    assert sum(isinstance(value, RowFault) for value in values) == 0
