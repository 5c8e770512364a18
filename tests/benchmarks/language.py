"""What every benchmark prints: one JSON object a line, or the same as a table.

The fields are fixed, so that results of different benchmarks and versions can be put side by side.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

RECORDED_DATA = "MIDBAND_RECORDED_DATA"  # folder with real outcomes, which are not part of the repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value and what it was compared with in the same run."""

    benchmark: str
    case: str
    metric: str
    value: float | None
    unit: str
    reference_name: str | None = None
    reference_value: float | None = None
    n: int  # pool size
    seeds: int = 1
    interval: tuple[float, float] | None = None
    setting: Mapping[str, object]

    @property
    def ratio(self) -> float | None:
        if self.value is None or not self.reference_value:
            return None
        return self.value / self.reference_value

    def to_json(self) -> dict[str, object]:
        values = asdict(self)
        values["reference"] = {"name": values.pop("reference_name"), "value": values.pop("reference_value")}
        values["ratio"] = self.ratio
        return values


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    parser.add_argument("--quick", action="store_true", help="a smaller run that shows the benchmark works")
    return parser


def show(figures: Sequence[Figure], *, as_json: bool) -> None:
    if as_json:
        for figure in figures:
            print(json.dumps(figure.to_json(), allow_nan=False))
        return
    table = Table("case", "metric", "value", "unit", "reference", "ratio", "interval")
    for figure in figures:
        reference = "" if figure.reference_value is None else f"{figure.reference_name} {figure.reference_value:.4g}"
        table.add_row(
            figure.case,
            figure.metric,
            "–" if figure.value is None else f"{figure.value:.4g}",
            figure.unit,
            reference,
            "" if figure.ratio is None else f"{figure.ratio:.3f}",
            "" if figure.interval is None else "[{:.4g}, {:.4g}]".format(*figure.interval),
        )
    Console().print(table)


def recorded(name: str) -> Path | None:
    """A file of recorded outcomes, or None, said on standard error, where it is absent."""
    folder = Path(os.environ.get(RECORDED_DATA, Path(__file__).parents[3] / "shared" / "data" / "outcomes"))
    path = folder / name
    if path.is_file():
        return path
    print(f"skipped: {name} is not there; set {RECORDED_DATA} to the folder that holds it", file=sys.stderr)
    return None
