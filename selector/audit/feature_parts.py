"""A pool cut into parts by each of its numbers: where the cuts are, and in which part each prompt is.

`api` makes the parts of a run's pool from the stored features, and keeps a byte a prompt and number of them; `exposure`
compares what was drawn by them. Knows columns; nothing of tickets or where features are kept. N rows, Q parts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NUM_PARTS = 5  # of the pool, as equal as ties allow
MOST_FEATURES = 20  # numbers that a pool is cut by, in the order of their names
NO_PART = 255  # of a prompt without the number


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """Parts in rising order; the first reaches down and the last up to whatever comes."""

    edge_Q: Floats  # (Q − 1,) where a part begins, but for the first
    low: float  # smallest and largest number of those that the cuts were made by
    high: float
    code_N: NDArray[np.uint8]

    @property
    def ends(self) -> list[float]:
        """(Q + 1,) where each part begins and where the last one ended when the cuts were made."""
        return [self.low, *self.edge_Q.tolist(), self.high]


def parts_of(value_N: Floats, by_M: Floats) -> Parts | None:
    """Few different values are parts of their own; others are cut at quantiles.

    value_N: (N,) NaN where there is none. by_M: (M,) the numbers that the cuts are made by, with NaN alike; None where
    there are none.
    """
    by_M = np.asarray(by_M[np.isfinite(by_M)], np.float64)
    if not by_M.size:
        return None
    edge_Q = np.unique(np.quantile(by_M, np.arange(1, NUM_PARTS) / NUM_PARTS, method="higher"))
    few = np.unique(by_M[: NUM_PARTS**2])
    if few.size <= NUM_PARTS and np.isin(by_M, few).all():
        edge_Q = few[1:]
    edge_Q = edge_Q[edge_Q > by_M.min()]
    known_N = np.isfinite(value_N)
    code_N = np.full(len(value_N), NO_PART, np.uint8)
    code_N[known_N] = np.searchsorted(edge_Q, np.asarray(value_N[known_N], np.float64), side="right")
    return Parts(edge_Q=edge_Q, low=float(by_M.min()), high=float(by_M.max()), code_N=code_N)


def feature_parts(
    features: Mapping[str, np.ndarray], start_M: Bools, at_start: Mapping[str, np.ndarray] | None = None
) -> dict[str, Parts]:
    """By each number of a pool, and each place of those that are vectors, up to MOST_FEATURES.

    features: (N,) or (N, F) each, now. start_M: (M,) bool, prompts that could be drawn when the run began, M <= N;
    at_start: features then, by default as now. Cuts stay where those put them, so that a pool which grows is compared
    with what it was; a number that came later is cut by the same prompts as they are now.
    """
    before = {} if at_start is None else dict(numbers(at_start))
    found = dict[str, Parts]()
    for label, value_N in numbers(features):
        parts = parts_of(value_N, before.get(label, value_N)[: len(start_M)][start_M])
        if parts is not None:
            found[label] = parts
    return found


def numbers(features: Mapping[str, np.ndarray]) -> Iterator[tuple[str, Floats]]:
    """Each number of a pool with its name, of vectors with the place; the first MOST_FEATURES."""
    left = MOST_FEATURES
    for name, value_N in sorted(features.items()):
        columns = value_N[:, None] if value_N.ndim == 1 else value_N
        for place in range(min(columns.shape[1], left)):
            yield (name if value_N.ndim == 1 else f"{name}[{place}]"), columns[:, place]
            left -= 1
