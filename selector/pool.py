"""A pool at one revision, as arrays: which prompts a run may draw, and what they are called.

Made by `api` from the stored pool (or by a test), shared by every run on the pool, never changed: an edit makes a new
value with a higher revision. Contents of prompts stay in the database; the core never sees them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from selector.types import Split


@dataclass(frozen=True, kw_only=True)
class PoolState:
    """N prompts by row. Rows are append-only: row i is the same prompt at every later revision."""

    name: str
    revision: int
    keys: Sequence[str]  # (N,) may be longer than the arrays when shared with a later revision
    split_N: np.ndarray  # (N,) uint8, Split
    category_N: np.ndarray  # (N,) int32, index into `categories`, which ends with nothing for -1
    categories: tuple[str, ...]
    absent_N: np.ndarray  # (N,) bool, no longer part of the uploaded data
    quarantined_N: np.ndarray  # (N,) bool, taken out by a person
    features: Mapping[str, np.ndarray] = field(default_factory=dict)  # (N,) or (N, F), NaN for none; empty if not read

    def __post_init__(self) -> None:
        lengths = {len(self.split_N), len(self.category_N), len(self.absent_N), len(self.quarantined_N)}
        if len(lengths) != 1 or len(self.keys) < len(self):
            raise ValueError(f"pool columns differ in length: {sorted(lengths)}, {len(self.keys)} keys")

    def __len__(self) -> int:
        return len(self.split_N)

    @cached_property
    def frame_N(self) -> np.ndarray:
        """(N,) bool: prompts of the train split neither quarantined nor absent."""
        return self._present(Split.TRAIN)

    @cached_property
    def heldout_N(self) -> np.ndarray:
        """(N,) bool: prompts of the held-out split neither quarantined nor absent."""
        return self._present(Split.HELDOUT)

    def _present(self, split: Split) -> np.ndarray:
        present_N: np.ndarray = (self.split_N == split) & ~self.absent_N & ~self.quarantined_N
        return present_N

    def category_of(self, row: int) -> str | None:
        code = int(self.category_N[row])
        return self.categories[code] if code >= 0 else None


def empty_pool(name: str) -> PoolState:
    """The pool before its first import."""
    return PoolState(
        name=name,
        revision=0,
        keys=(),
        split_N=np.zeros(0, np.uint8),
        category_N=np.zeros(0, np.int32),
        categories=(),
        absent_N=np.zeros(0, bool),
        quarantined_N=np.zeros(0, bool),
    )
