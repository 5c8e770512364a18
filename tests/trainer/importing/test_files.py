"""Files of data sets as Hugging Face lays them out: found, split by their names, read in order, refused by name."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.errors import InvalidRequest
from trainer.importing.files import BATCH_ROWS, BadRow, columns_of, find_files, read_rows, split_in

ROWS = [{"prompt": f"question {i}", "answer": str(i)} for i in range(3)]


def arrow(path: Path, rows: list[dict[str, Any]], *, stream: bool = True) -> Path:
    """A file as `datasets` writes it: a stream of record batches, or the format of files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema) as writer:
        writer.write_table(table)
    return path


def saved(folder: Path, rows: list[dict[str, Any]], shards: int = 1, **state: Any) -> Path:
    """One data set as `save_to_disk` leaves it."""
    names = [f"data-{i:05}-of-{shards:05}.arrow" for i in range(shards)]
    for i, name in enumerate(names):
        arrow(folder / name, rows[i * len(rows) // shards : (i + 1) * len(rows) // shards])
    files = [{"filename": name} for name in names]
    (folder / "state.json").write_text(json.dumps({"_data_files": files, "_fingerprint": "0", **state}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def all_rows(path: Path) -> list[Any]:
    return [row for file in find_files(path) for row in read_rows(file)]


def test_a_saved_data_set_is_read_in_the_order_of_its_state(tmp_path: Path) -> None:
    folder = saved(tmp_path / "gsm", ROWS, shards=3)
    arrow(folder / "left-over.arrow", ROWS)  # of an earlier save: the state does not name it
    assert [(file.name, file.split) for file in find_files(folder)] == [
        (f"data-{i:05}-of-00003.arrow", None) for i in range(3)
    ]
    assert all_rows(folder) == ROWS
    assert columns_of(find_files(folder)[0]) == ["prompt", "answer"]


def test_a_saved_dictionary_has_its_splits_and_what_is_held_out_comes_first(tmp_path: Path) -> None:
    for name, rows in (("train", ROWS[:2]), ("test", ROWS[2:])):
        saved(tmp_path / name, rows)
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    assert [(file.name, file.split) for file in find_files(tmp_path)] == [
        ("test/data-00000-of-00001.arrow", "heldout"),
        ("train/data-00000-of-00001.arrow", "train"),
    ]
    assert all_rows(tmp_path) == [ROWS[2], *ROWS[:2]]


def test_a_folder_of_parquet_files_is_one_data_set(tmp_path: Path) -> None:
    parquet(tmp_path / "data" / "train-00001-of-00002.parquet", ROWS[1:2])
    parquet(tmp_path / "data" / "train-00000-of-00002.parquet", ROWS[:1])
    parquet(tmp_path / "data" / "test-00000-of-00001.parquet", ROWS[2:])
    parquet(tmp_path / ".cache" / "train.parquet", ROWS)
    (tmp_path / "dataset_infos.json").write_text("{}")
    assert [file.split for file in find_files(tmp_path)] == ["heldout", "train", "train"]
    assert all_rows(tmp_path) == [ROWS[2], ROWS[0], ROWS[1]]


def test_splits_may_be_folders(tmp_path: Path) -> None:
    parquet(tmp_path / "train" / "0000.parquet", ROWS[:2])
    parquet(tmp_path / "validation" / "0000.parquet", ROWS[2:])
    assert [file.split for file in find_files(tmp_path)] == ["heldout", "train"]


def test_configurations_side_by_side_are_to_be_chosen_from(tmp_path: Path) -> None:
    for name in ("main", "socratic"):
        parquet(tmp_path / name / "train-00000-of-00001.parquet", ROWS)
    with pytest.raises(InvalidRequest, match="main, socratic: give one of these folders"):
        find_files(tmp_path)
    assert all_rows(tmp_path / "main") == ROWS


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("gsm8k_test.parquet", "heldout"),
        ("aime_1983_2023_train.parquet", "train"),
        ("validation-00000-of-00001.parquet", "heldout"),
        ("math500_test.jsonl", "heldout"),
        ("dapo_math_17k.parquet", None),
        ("train_and_test.parquet", None),
        ("latest.parquet", None),
        ("dev.test.json", "heldout"),
    ],
)
def test_the_split_is_a_word_of_the_name(name: str, split: str | None) -> None:
    assert split_in(name) == split


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".stream.arrow", ".jsonl", ".json", ".list.json", ".csv"])
def test_every_format_gives_the_same_rows(tmp_path: Path, ending: str) -> None:
    rows = [{"prompt": f'"q", {i}\n∑', "answer": str(i)} for i in range(BATCH_ROWS + 2)]
    path = tmp_path / f"rows{ending}"
    match ending:
        case ".parquet":
            parquet(path, rows)
        case ".arrow" | ".stream.arrow":
            arrow(path, rows, stream=ending == ".stream.arrow")
        case ".list.json":
            path.write_text("\n\n" + json.dumps(rows, indent=1))
        case ".csv":
            quoted = [f'"{row["prompt"].replace(chr(34), chr(34) * 2)}",{row["answer"]}\n' for row in rows]
            path.write_text("\ufeffprompt,answer\n" + "".join(quoted))
        case _:
            path.write_text("\ufeff" + "".join(json.dumps(row) + "\n\n" for row in rows))
    (file,) = find_files(path)
    assert columns_of(file) == ["prompt", "answer"]
    assert list(read_rows(file)) == rows


def test_a_bad_line_is_a_bad_row_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "a"}\nnonsense\n[1]\n{"prompt": "b"}\n')
    rows = all_rows(tmp_path / "a.jsonl")
    assert [row.code if isinstance(row, BadRow) else row["prompt"] for row in rows] == [
        "a",
        "bad_json",
        "wrong_type",
        "b",
    ]
    (tmp_path / "a.csv").write_text("prompt,answer\na,1\nb\n\nc,3\n")
    rows = all_rows(tmp_path / "a.csv")
    assert [row.code if isinstance(row, BadRow) else row["prompt"] for row in rows] == ["a", "bad_csv", "c"]


def test_an_empty_table_has_columns_and_no_rows(tmp_path: Path) -> None:
    table = pa.table({"prompt": pa.array([], pa.string())})
    pq.write_table(table, tmp_path / "none.parquet")
    (file,) = find_files(tmp_path / "none.parquet")
    assert (columns_of(file), list(read_rows(file))) == (["prompt"], [])


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".json", ".csv"])
def test_a_file_that_is_something_else_is_refused_by_name(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"broken{ending}"
    path.write_bytes(b'[\x00\xff"' * 50)
    with pytest.raises(InvalidRequest, match=f"broken{ending} cannot be read as {ending}"):
        all_rows(path)


def test_what_holds_no_data_set_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no such file or folder"):
        find_files(tmp_path / "nowhere")
    with pytest.raises(InvalidRequest, match="holds no data set"):
        find_files(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(InvalidRequest, match="shows in the file's name"):
        find_files(tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"_indices_data_files": [{"filename": "i.arrow"}]}, "flatten_indices"),
        ({"_data_files": [{"filename": "../secret.arrow"}]}, "not there"),
        ({"_data_files": [{"filename": "gone.arrow"}]}, "not there"),
    ],
)
def test_a_saved_data_set_that_is_not_whole_is_refused(tmp_path: Path, state: dict[str, Any], words: str) -> None:
    arrow(tmp_path / "secret.arrow", ROWS)
    folder = saved(tmp_path / "set", ROWS, **state)
    with pytest.raises(InvalidRequest, match=words):
        find_files(folder)


def test_a_state_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(InvalidRequest, match=r"state\.json cannot be read"):
        find_files(tmp_path)
    (tmp_path / "dataset_dict.json").write_text("{}")
    with pytest.raises(InvalidRequest, match="lists no `splits`"):
        find_files(tmp_path)


@given(st.binary(max_size=200), st.sampled_from([".parquet", ".arrow", ".jsonl", ".json", ".csv"]), st.booleans())
def test_whatever_bytes_a_file_has_it_is_read_or_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, ending: str, begins_well: bool
) -> None:
    starts = {
        ".parquet": b"PAR1",
        ".arrow": b"ARROW1\0\0",
        ".jsonl": b'{"a": 1}\n',
        ".json": b"[{}, ",
        ".csv": b"a,b\n",
    }
    path = tmp_path_factory.mktemp("fuzz") / f"file{ending}"
    path.write_bytes((starts[ending] if begins_well else b"") + data)
    (file,) = find_files(path)
    read: list[object] = []
    try:
        columns_of(file)
        read += read_rows(file)
    except InvalidRequest as refused:
        read.append(str(refused))
    named = f"file{ending} cannot be read"
    assert all(isinstance(row, dict | BadRow) or named in str(row) for row in read)
