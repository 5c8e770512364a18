"""`midband import`: a data set on this machine into a pool, with a report of what became of every row.

The `midband` module hands it a client. Rows go through a temporary file, so that memory stays bounded and a broken
connection sends the same again; the pool takes all of them in one transaction.
"""

import json
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from rich.console import Console

from api.schemas import ImportReport
from trainer.client import Client
from trainer.errors import InvalidRequest, NotFound
from trainer.importing.files import BadRow, DataFile, Split, columns_of, find_files, read_rows
from trainer.importing.layouts import LAYOUTS, Layout, NoPrompt, detect, left_out, read_prompt

LISTED = 20  # refused rows that are shown, of those read here and of those the service names
DIRECT = (".parquet", ".jsonl", ".ndjson", ".json", ".csv")  # that the service reads by itself


@dataclass(slots=True, kw_only=True)
class Refusals:
    """Rows that were no prompts: how many by code, and the first of them in words."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, code: str, where: str, detail: str) -> None:
        self.counts[code] += 1
        if len(self.examples) < LISTED:
            self.examples.append(f"{where}: {code}: {detail}")


@dataclass(slots=True, kw_only=True)
class Written:
    """What was made of the files: which row of which file each line that was sent comes from."""

    read: list[int] = field(default_factory=list)  # rows of each file
    file: "array[int]" = field(default_factory=lambda: array("i"))
    place: "array[int]" = field(default_factory=lambda: array("q"))
    refused: Refusals = field(default_factory=Refusals)
    splits: list[Counter[str]] = field(default_factory=list)  # of each file, rows by split


def import_command(
    client: Client,
    pool: str,
    path: Path,
    *,
    layout: Layout | None = None,
    split: Split | None = None,
    replace: bool = False,
    console: Console | None = None,
) -> ImportReport:
    """Uploads a data set, into a pool that is made if need be; the report counts rows of the files.

    Raises InvalidRequest, before anything is sent, for files that cannot be read or whose columns nobody knows.
    """
    console = console or Console()
    files = find_files(path)
    chosen = [_layout_of(file, layout) for file in files]
    if Layout.MIDBAND in chosen and (len(files) > 1 or files[0].path.suffix.lower() not in DIRECT):
        raise InvalidRequest(f"{path}: files in the layout `midband` go up one at a time, as {', '.join(DIRECT)}")
    if Layout.MIDBAND in chosen and split is not None:
        raise InvalidRequest(f"{path}: rows of the layout `midband` say their split themselves")
    mode: Literal["replace"] | None = "replace" if replace else None
    if Layout.MIDBAND in chosen:
        _make_pool(client, pool)
        report, places = client.put_prompts(pool, files[0].path, mode=mode), None
        written = Written(read=[report.received], splits=[Counter()])
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
            written = _write(files, chosen, split, file)
            file.flush()
            _make_pool(client, pool)
            report, places = client.put_prompts(pool, Path(file.name), mode=mode), written
    lines = _lines(pool, files, chosen, report, written, places)
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    refused = sum(written.refused.counts.values())
    return report.model_copy(update={"received": report.received + refused, "rejected": report.rejected + refused})


def _layout_of(file: DataFile, layout: Layout | None) -> Layout:
    columns = columns_of(file)
    if layout is None:
        found = detect(columns)
        if found is None:
            known = "; ".join(f"{name}: {', '.join(sorted(known.needed))}" for name, known in LAYOUTS.items())
            raise InvalidRequest(f"{file.path} has the columns {', '.join(columns) or 'none'}, and no layout ({known})")
        return found
    missing = sorted(LAYOUTS[layout].needed - set(columns)) if layout in LAYOUTS else []
    if missing:
        raise InvalidRequest(
            f"{file.path}: the layout `{layout}` needs {', '.join(missing)}; there are {', '.join(columns) or 'none'}"
        )
    return layout


def _write(files: Sequence[DataFile], layouts: Sequence[Layout], split: Split | None, out: IO[str]) -> Written:
    """Every prompt as a line of JSON, in the order of the files."""
    written = Written()
    for number, (file, layout) in enumerate(zip(files, layouts, strict=True)):
        count, splits = 0, Counter[str]()
        for count, row in enumerate(read_rows(file), 1):
            where = f"{file.name}, row {count - 1}"
            if isinstance(row, BadRow):
                written.refused.add(row.code, where, row.detail)
                continue
            try:
                prompt = read_prompt(layout, row)
                said = split or prompt.get("split") or file.split
                line = json.dumps(prompt if said is None else {**prompt, "split": said}, default=_plain)
            except NoPrompt as error:
                written.refused.add(error.code, where, error.detail)
                continue
            except (TypeError, ValueError) as error:
                written.refused.add("wrong_type", where, str(error)[:200])
                continue
            splits[said or "train"] += 1
            out.write(line + "\n")
            written.file.append(number)
            written.place.append(count - 1)
        written.read.append(count)
        written.splits.append(splits)
    return written


def _plain(value: Any) -> object:
    """Times and bytes of a table have no form in JSON: such a row is refused by name and not guessed at."""
    raise TypeError(f"{type(value).__name__} is no JSON value: {value!r:.80}")


def _make_pool(client: Client, pool: str) -> None:
    try:
        client.pool(pool)
    except NotFound:
        client.create_pool(pool)


def _lines(
    pool: str,
    files: Sequence[DataFile],
    layouts: Sequence[Layout],
    report: ImportReport,
    written: Written,
    places: Written | None,
) -> Iterator[str]:
    refused = written.refused
    for file, layout, count, splits in zip(files, layouts, written.read, written.splits, strict=True):
        parts = ", ".join(f"{number:,} {name}" for name, number in sorted(splits.items()))
        yield f"{file.name}: {count:,} rows, layout {layout}{f' ({parts})' if parts else ''}"
        dropped = [] if layout is Layout.MIDBAND else left_out(layout, columns_of(file))
        if dropped:
            yield f"  columns left out: {', '.join(dropped)}"
    rejected = report.rejected + sum(refused.counts.values())
    counts = {name: getattr(report, name) for name in ("created", "updated", "unchanged", "merged")}
    counts |= {"rejected": rejected}
    yield f"pool {pool}: " + " · ".join(f"{count:,} {name}" for name, count in counts.items())
    if report.linked is not None:
        yield f"  of the pool: {report.matched:,} matched · {report.linked:,} linked · {report.absent:,} now absent"
    yield from (f"note: {warning}" for warning in report.warnings)
    yield from (f"rejected {example}" for example in refused.examples)
    for error in report.errors[:LISTED]:
        where = f"row {error.row}"
        if places is not None:
            where = f"{files[places.file[error.row]].name}, row {places.place[error.row]}"
        yield f"rejected {where}: {error.code}: {error.detail}"
    shown = len(refused.examples) + min(LISTED, len(report.errors))
    if rejected > shown:
        yield f"and {rejected - shown:,} more that were rejected"
