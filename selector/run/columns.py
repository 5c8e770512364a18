"""A growable table of numpy columns: the one container behind tickets and rollouts.

Called by `tickets`. It knows names, dtypes and defaults, and nothing of what the columns mean.
"""

from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np

from selector.errors import SnapshotDamaged

FIRST_CAPACITY = 1024  # rows; doubled whenever it is full


class Columns:
    """Named columns of equal length. `table["name"]` is a writable view of the rows in use."""

    def __init__(self, spec: Mapping[str, tuple[type[np.generic], float]]) -> None:
        """`spec`: name -> (dtype, default value of a new row)."""
        self._spec = dict(spec)
        self._arrays = {name: np.full(FIRST_CAPACITY, default, dtype) for name, (dtype, default) in spec.items()}
        self.size = 0

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name][: self.size]

    def extend(self, count: int) -> int:
        """Appends `count` rows of defaults and returns the first new row."""
        first, self.size = self.size, self.size + count
        capacity = len(next(iter(self._arrays.values())))
        if self.size > capacity:
            while capacity < self.size:
                capacity *= 2
            for name, (dtype, default) in self._spec.items():
                grown = np.full(capacity, default, dtype)
                grown[:first] = self._arrays[name][:first]
                self._arrays[name] = grown
        return first

    def reset(self, rows: slice | np.ndarray, names: tuple[str, ...]) -> None:
        """Puts the defaults back into some columns of some rows."""
        for name in names:
            self._arrays[name][: self.size][rows] = self._spec[name][1]

    def copied(self, names: Iterable[str] | None = None) -> Self:
        """A table of its own with the rows in use, of some columns or of all."""
        table = type(self)({name: self._spec[name] for name in (self._spec if names is None else names)})
        table._arrays = {name: self[name].copy() for name in table._spec}
        table.size = self.size
        return table

    def state(self, prefix: str) -> dict[str, np.ndarray]:
        return {f"{prefix}{name}": self[name].copy() for name in self._spec}

    def load_state(self, state: Mapping[str, np.ndarray], prefix: str, later: tuple[str, ...] = ()) -> None:
        """Raises SnapshotDamaged when a column is missing or the columns differ in length.

        `later`: columns that older states do not have, which begin at their defaults.
        """
        absent = [name for name in later if f"{prefix}{name}" not in state]
        stored = [name for name in self._spec if name not in absent]
        missing = [name for name in stored if f"{prefix}{name}" not in state]
        if missing:
            raise SnapshotDamaged(f"the snapshot lacks the columns {missing} of {prefix!r}")
        lengths = {len(state[f"{prefix}{name}"]) for name in stored}
        if len(lengths) != 1:
            raise SnapshotDamaged(f"the columns of {prefix!r} have different lengths: {sorted(lengths)}")
        self.size = 0
        self.extend(lengths.pop())
        self.reset(slice(None), tuple(absent))
        for name in stored:
            self[name][:] = state[f"{prefix}{name}"]
