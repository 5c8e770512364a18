"""Which rows a draw may touch, which of these are at rest or due, and what the others are owed: masks.

Called by `draw`, `batches.drawing` and `folding`. Knows arrays only; N rows of the pool.
"""

import numpy as np

from selector.sampling.scans import nonzero_rows

Bools = np.ndarray


def blocked_rows(frame_N: Bools, in_flight_N: np.ndarray) -> Bools:
    """(N,) bool: rows of the frame with a ticket in flight."""
    blocked_N, in_flight = np.zeros(len(frame_N), bool), nonzero_rows(in_flight_N)
    blocked_N[in_flight] = frame_N[in_flight]
    return blocked_N


def resting_codes(lifecycle_N: np.ndarray) -> np.ndarray:
    """(N,) uint8 `RestingCode`: 0 for prompts that take part, 1 for mastered, 2 for deferred."""
    code_N: np.ndarray = lifecycle_N - (lifecycle_N > 0)  # new prompts and active ones take part
    return code_N


def active_and_resting(eligible_N: Bools, resting_code_N: np.ndarray, due_N: Bools) -> tuple[Bools, Bools]:
    """(N,) bool each: eligible rows with code 0 that are not due, and the other eligible ones."""
    resting_N = eligible_N & ((resting_code_N != 0) | due_N)
    return eligible_N ^ resting_N, resting_N


def renew_credit(frame_N: Bools, in_flight_N: np.ndarray, credit_N: np.ndarray) -> None:
    """Credit after a draw, in `credit_N` itself: one more for blocked rows of the frame, 0 for all others."""
    in_flight = nonzero_rows(in_flight_N)
    owed = credit_N[in_flight] + np.int32(1)
    credit_N[:] = 0
    credit_N[in_flight] = np.where(frame_N[in_flight], owed, 0)
