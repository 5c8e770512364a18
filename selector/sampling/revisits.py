"""When prompts are looked at again for sure: a keyed position each, due in turn or by age, carried over until drawn.

Called by the engine around each train draw. Knows positions and masks; nothing of estimates or of why a prompt waits.
The carried state is two arrays over the pool, the caller's: `position_N` and `overdue_N`.

    position_N = assign_positions(position_N, frame_N, seed)              # whenever the frame gains prompts
    due_N      = due_now(position_N, overdue_N, waiting_N, index, period) # before a draw
    overdue_N  = next_overdue(due_N, rows_K)                              # after it

A row that waits for its turn is due at it: one at rest at every turn, so at every R-th index, and one that was never
drawn. Any other is due by age, `late_after(R)` draws after its last one. A turn comes to at most ⌈N/R⌉ rows at one
index, as many as there are places for reviews. By age a whole batch can be due at once, if none of it was drawn since:
each has a place of the selected part for sure while there are any, who is due for longest comes first, and an eighth of
R is left for those that do not fit.

The promise "a gap of at most R draws plus those it was blocked for" needs three things of the caller: `index` rises
by one from train draw to train draw (an ordinal; a trainer's own numbers may have gaps), positions never change, and
batches stay at least as large as the one that R was made for.
"""

import numpy as np

from selector.sampling.designs import permutation
from selector.sampling.randomness import Stream, stream

NO_POSITION = -1

SPARE_SHARE = 8
"""Of R draws one in so many is kept for rows that are due by age and find no place at once."""


def revisit_draws(num_frame: int, review_share: float, size: int, m: int) -> int:
    """R = ⌈N / max(1, ⌊review_share·(size−m)⌋)⌉: draws after which every prompt of the frame was due once.

    At most ⌈N/R⌉ <= max(1, ⌊review_share·(size−m)⌋) prompts are due at one index, so they fit beside the others. At
    least 1. Raises ValueError for a negative frame, a share outside [0, 1] or m outside [0, size].
    """
    if num_frame < 0 or not 0.0 <= review_share <= 1.0 or not 0 <= m <= size:
        raise ValueError(
            f"no revisit period for frame {num_frame}, review_share {review_share}, size {size}, audit tickets {m}"
        )
    places = max(1, int(np.floor(review_share * (size - m))))
    return max(1, -(-num_frame // places))


def assign_positions(position_N: np.ndarray, frame_N: np.ndarray, seed: int) -> np.ndarray:
    """Positions after the frame changed: (N,) int64, all different, -1 for rows that never were in the frame.

    position_N: (N',) int64 positions so far, N' <= N, empty at first. Rows keep what they have, also while out of the
    frame; newcomers get the next free positions in an order keyed by the run seed and by how many were taken. So
    positions are 0, 1, 2, ... without gaps, and no index has more than ⌈taken/R⌉ due.
    """
    assigned_N = np.full(len(frame_N), NO_POSITION, np.int64)
    assigned_N[: len(position_N)] = position_N
    newcomers = np.flatnonzero(frame_N & (assigned_N == NO_POSITION))
    taken = int(position_N.max(initial=NO_POSITION)) + 1
    rng = stream(seed, Stream.REVISIT_ORDER, 0, taken, 0)
    assigned_N[newcomers[permutation(len(newcomers), rng)]] = taken + np.arange(len(newcomers))
    return assigned_N


def rows_by_position(position_N: np.ndarray) -> np.ndarray:
    """(P,) int64: the row at each position, so that those whose turn it is are every period-th of them."""
    rows = np.flatnonzero(position_N != NO_POSITION)
    row_P = np.empty(len(rows), np.int64)
    row_P[position_N[rows]] = rows
    return row_P


def due(position_N: np.ndarray, index: int, period: int) -> np.ndarray:
    """(N,) bool: rows whose turn it is at this index, position ≡ index mod period. Raises ValueError for period < 1."""
    if period < 1:
        raise ValueError(f"the revisit period must be >= 1, got {period}")
    due_N: np.ndarray = (position_N >= 0) & (position_N % period == index % period)
    return due_N


def late_after(period: int) -> int:
    """Draws after its last one by which a row is due whatever its turn, R − ⌊R/8⌋."""
    return period - period // SPARE_SHARE


def due_now(
    position_N: np.ndarray, overdue_N: np.ndarray, waiting_N: np.ndarray, index: int, period: int
) -> np.ndarray:
    """(N,) bool: rows whose turn it is or that missed an earlier one, blocked ones among them. N is any rows.

    waiting_N: (N,) bool, the rows that have turns at present, those at rest and those never drawn; the others are not
    due in turn, and one that they missed is forgotten.
    """
    due_N: np.ndarray = waiting_N & (overdue_N | due(position_N, index, period))
    return due_N


def waited(position_N: np.ndarray, index: int, period: int) -> np.ndarray:
    """(N,) int64: draws since each row's last turn, 0 when it is now; who goes first when more are due than fit."""
    waited_N: np.ndarray = (index - position_N) % period
    return waited_N


def next_overdue(due_N: np.ndarray, rows_K: np.ndarray) -> np.ndarray:
    """(N,) bool: rows that were due and not drawn, for want of a place or because they were blocked."""
    overdue_N = due_N.copy()
    overdue_N[rows_K] = False
    return overdue_N
