"""What a training run writes down: `metrics.jsonl`, one JSON line a step and one an evaluation, oldest first.

Lines that a restore discards are cut off, so that the file always tells one history: the one the weights went through.
What was discarded still stands in the service's ledger, as lost.
"""

import json
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Metrics:
    """The file of one run; made with the first line."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def num_bytes(self) -> int:
        """Where the next line will begin."""
        return self.file.stat().st_size if self.file.exists() else 0

    def append(self, line: Line) -> None:
        """Write one line; it is in the file when this returns. Raises ValueError for a number that is not finite."""
        text = json.dumps(line, allow_nan=False) + "\n"
        with self.file.open("ab") as file:
            file.write(text.encode())

    def cut(self, num_bytes: int) -> None:
        """Forget what was written behind this place."""
        if self.num_bytes > num_bytes:
            with self.file.open("r+b") as file:
                file.truncate(num_bytes)

    def lines(self, kind: str | None = None) -> list[Line]:
        """All lines, or those of a kind: `step` or `evaluation`."""
        if not self.file.exists():
            return []
        lines = [json.loads(text) for text in self.file.read_text(encoding="utf-8").splitlines()]
        return [line for line in lines if kind in (None, line["kind"])]
