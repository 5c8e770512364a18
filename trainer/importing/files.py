"""Files of a data set: which there are, in which split, and their rows, one after another and never all in memory.

`command` calls it. Read are Hugging Face's folders, as `save_to_disk` writes them (Arrow) and as the hub has them
(Parquet), and single files. It knows pyarrow and no data set's columns: what a row means is `layouts.py`'s.
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from trainer.errors import InvalidRequest

Split = Literal["train", "heldout"]
ENDINGS = (".parquet", ".arrow", ".jsonl", ".ndjson", ".json", ".csv")
TABLES = (".parquet", ".arrow")
BATCH_ROWS = 1_024  # decoded at a time
MAX_CELL_CHARACTERS = 2**24  # of a CSV file
ARROW_FILE_MAGIC = b"ARROW1"  # else it is a stream, as the `datasets` library writes
# Hugging Face's names of splits, as words in names of files and folders.
SPLITS: Mapping[str, Split] = {
    "train": "train",
    "training": "train",
    "test": "heldout",
    "testing": "heldout",
    "eval": "heldout",
    "evaluation": "heldout",
    "validation": "heldout",
    "valid": "heldout",
    "val": "heldout",
    "dev": "heldout",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file, under the name that a report gives it, in the split that its name says, if it says one."""

    path: Path
    name: str
    split: Split | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that cannot be decoded."""

    code: str
    detail: str


def find_files(path: Path) -> list[DataFile]:
    """The files of a data set: those held out first, so that what stands in both splits stays held out.

    Raises InvalidRequest for a path without any, and for a folder that holds several data sets side by side.
    """
    if path.is_file():
        if path.suffix.lower() not in ENDINGS:
            raise InvalidRequest(f"{path}: the format shows in the file's name, one of {', '.join(ENDINGS)}")
        return [DataFile(path=path, name=path.name, split=split_in(path.name))]
    if not path.is_dir():
        raise InvalidRequest(f"{path}: no such file or folder")
    saved = (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()
    found = _saved(path) if saved else _tables(path)
    if not found:
        raise InvalidRequest(
            f"{path} holds no data set: expected are what `save_to_disk` wrote, or files that end in "
            f"{', '.join(ENDINGS)}"
        )
    return sorted(found, key=lambda file: (file.split != "heldout", file.name))


def split_in(name: str) -> Split | None:
    """The split that a name says, such as gsm8k_test.parquet or train-00000-of-00001.parquet; None for none or both."""
    words = re.split(r"[^a-z]+", name.lower())
    said = {SPLITS[word] for word in words if word in SPLITS}
    return said.pop() if len(said) == 1 else None


def columns_of(file: DataFile) -> list[str]:
    """Names of a file's columns; of JSON, those of its first object. Raises InvalidRequest for an unreadable file."""
    try:
        match file.path.suffix.lower():
            case ".parquet":
                with pq.ParquetFile(file.path) as table:
                    return list(table.schema_arrow.names)
            case ".arrow":
                with _arrow(file.path) as reader:
                    return list(reader.schema.names)
            case ".csv":
                with file.path.open(encoding="utf-8-sig", newline="") as lines:
                    return next(csv.reader(lines, strict=True), [])
            case _:
                return next((list(row) for row in _json_rows(file.path) if isinstance(row, dict)), [])
    except (pa.ArrowException, OSError, csv.Error, ValueError) as error:
        raise _unreadable(file, error) from error


def read_rows(file: DataFile) -> Iterator[Mapping[str, Any] | BadRow]:
    """Each row of a file in order. Raises InvalidRequest, naming the file, where it cannot be read on."""
    try:
        match file.path.suffix.lower():
            case ".parquet":
                with pq.ParquetFile(file.path) as table:
                    if table.num_row_groups:  # pyarrow before 20 fails on a file without any
                        for batch in table.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
                            yield from batch.to_pylist()
            case ".arrow":
                with _arrow(file.path) as reader:
                    for batch in _batches(reader):
                        for start in range(0, batch.num_rows, BATCH_ROWS):
                            yield from batch.slice(start, BATCH_ROWS).to_pylist()
            case ".csv":
                yield from _csv_rows(file.path)
            case _:
                for row in _json_rows(file.path):
                    bad = BadRow(code="wrong_type", detail=f"a row is an object, got {type(row).__name__}")
                    yield row if isinstance(row, dict | BadRow) else bad
    except (pa.ArrowException, OSError, csv.Error, ValueError) as error:
        raise _unreadable(file, error) from error


def _saved(path: Path) -> list[DataFile]:
    """What `save_to_disk` of one data set, or of a dictionary of them, left in a folder."""
    if (path / "dataset_dict.json").is_file():
        names = _object(path / "dataset_dict.json").get("splits")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InvalidRequest(f"{path / 'dataset_dict.json'} lists no `splits`: save the data set again")
        return [file for name in names for file in _saved_one(path / name, f"{name}/", split_in(name))]
    return _saved_one(path, "", split_in(path.name))


def _saved_one(folder: Path, prefix: str, split: Split | None) -> list[DataFile]:
    state = _object(folder / "state.json")
    if state.get("_indices_data_files"):
        raise InvalidRequest(f"{folder} chooses rows by an index: save it again after `flatten_indices()`")
    named = [entry.get("filename") for entry in state.get("_data_files") or () if isinstance(entry, dict)]
    files = []
    for name in named:
        # A name is one file of the folder: what leads elsewhere is not ours to read.
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).is_file():
            raise InvalidRequest(f"{folder / 'state.json'} names the file {name!r}, which is not there")
        files.append(DataFile(path=folder / name, name=prefix + name, split=split))
    return files


def _tables(path: Path) -> list[DataFile]:
    """Files anywhere below a folder. Those of one split lie in one folder; several folders are to be chosen from."""
    below = sorted(file for file in path.rglob("*") if file.is_file() and _is_data(file.relative_to(path)))
    # Beside tables, JSON files describe the data set.
    tables = [file for file in below if file.suffix.lower() in TABLES]
    found = []
    folders: dict[str | None, set[str]] = {}
    for file in tables or below:
        name = file.relative_to(path)
        in_folders = (split_in(part) for part in reversed(name.parts[:-1]))
        split = split_in(file.name) or next(filter(None, in_folders), None)
        holder = "/".join(part for part in name.parts[:-1] if part.lower() not in SPLITS)
        folders.setdefault(split, set()).add(holder)
        found.append(DataFile(path=file, name=str(name), split=split))
    several = next((sorted(names) for names in folders.values() if len(names) > 1), None)
    if several is not None:
        raise InvalidRequest(f"{path} holds several data sets, in {', '.join(several)}: give one of these folders")
    return found


def _is_data(name: Path) -> bool:
    return name.suffix.lower() in ENDINGS and not any(part.startswith(".") for part in name.parts)


def _arrow(path: Path) -> Any:
    with path.open("rb") as file:
        is_file = file.read(len(ARROW_FILE_MAGIC)) == ARROW_FILE_MAGIC
    source = pa.memory_map(str(path))
    return pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)


def _batches(reader: Any) -> Iterator[Any]:
    if hasattr(reader, "num_record_batches"):
        return (reader.get_batch(place) for place in range(reader.num_record_batches))
    return iter(reader)


def _csv_rows(path: Path) -> Iterator[Mapping[str, Any] | BadRow]:
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, strict=True)
        header = next(reader, [])
        for cells in reader:
            if len(cells) == len(header):
                yield {name: cell or None for name, cell in zip(header, cells, strict=True)}
            elif cells:
                yield BadRow(code="bad_csv", detail=f"the row has {len(cells)} cells, the header {len(header)}")


def _json_rows(path: Path) -> Iterator[object]:
    """Objects of a list, which is held whole, or of lines; a file that ends in .json may be either."""
    with path.open(encoding="utf-8-sig") as file:
        lines = iter(file)
        first = next((line for line in lines if line.strip()), "")
        if first.lstrip().startswith("["):
            yield from json.loads(first + file.read())
            return
        for line in chain([first], lines):
            if line.strip():
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError) as error:
                    yield BadRow(code="bad_json", detail=f"the line is not JSON: {error}")


def _object(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest(f"{path} holds no JSON object: save the data set again")
    return value


def _unreadable(file: DataFile, error: Exception) -> InvalidRequest:
    return InvalidRequest(f"{file.path} cannot be read as {file.path.suffix.lower()}: {str(error)[:200]}")
