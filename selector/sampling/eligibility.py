"""Which rows a draw may touch, which of these are at rest or due, and what the others are owed: masks, compiled.

Called by `draw`, `drawing` and `fold`. Knows arrays only; masks are bytes, 0 or 1. N rows of the pool.
"""

import numpy as np

from predictors.compiled import compiled
from selector.sampling.scans import nonzero_rows

Bools = np.ndarray


def blocked_rows(frame_N: Bools, in_flight_N: np.ndarray) -> Bools:
    """(N,) bool: rows of the frame with a ticket in flight."""
    blocked_N, in_flight = np.zeros(len(frame_N), bool), nonzero_rows(in_flight_N)
    blocked_N[in_flight] = frame_N[in_flight]
    return blocked_N


def resting_codes(lifecycle_N: np.ndarray) -> np.ndarray:
    """(N,) uint8 `RestingCode`: 0 for prompts that take part, 1 for mastered, 2 for deferred."""
    code_N = np.empty(len(lifecycle_N), np.uint8)
    _find_codes(lifecycle_N, code_N)
    return code_N


def active_and_resting(eligible_N: Bools, resting_code_N: np.ndarray, due_N: Bools) -> tuple[Bools, Bools]:
    """(N,) bool each: eligible rows with code 0 that are not due, and the other eligible ones."""
    active_N, resting_N = np.empty(len(eligible_N), bool), np.empty(len(eligible_N), bool)
    _split(
        eligible_N.view(np.uint8), resting_code_N, due_N.view(np.uint8),
        active_N.view(np.uint8), resting_N.view(np.uint8),
    )  # fmt: skip
    return active_N, resting_N


def renew_credit(frame_N: Bools, in_flight_N: np.ndarray, credit_N: np.ndarray) -> None:
    """Credit after a draw, in `credit_N` itself: one more for blocked rows of the frame, 0 for all others."""
    in_flight = nonzero_rows(in_flight_N)
    owed = credit_N[in_flight] + np.int32(1)
    credit_N[nonzero_rows(credit_N)] = 0
    credit_N[in_flight] = np.where(frame_N[in_flight], owed, 0)


@compiled
def _find_codes(lifecycle_N: np.ndarray, code_N: np.ndarray) -> None:
    for row in range(len(lifecycle_N)):
        code_N[row] = lifecycle_N[row] - np.uint8(lifecycle_N[row] > 0)  # new prompts and active ones take part


@compiled
def _split(
    eligible_N: np.ndarray, code_N: np.ndarray, due_N: np.ndarray, active_N: np.ndarray, resting_N: np.ndarray
) -> None:
    for row in range(len(eligible_N)):
        resting = eligible_N[row] & (np.uint8(code_N[row] != 0) | due_N[row])
        resting_N[row] = resting
        active_N[row] = eligible_N[row] ^ resting
