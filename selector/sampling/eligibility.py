"""Which rows a draw may touch, which of these are at rest or due, and what the others are owed: masks, compiled.

Called by `draw`, `batches.drawing` and `folding`. Knows arrays only; masks are bytes, 0 or 1. N rows of the pool.
"""

import numpy as np

from predictors.compiled import compiled

Bools = np.ndarray

BLOCK = 128
"""Rows that are looked at together where most have nothing to write."""


def blocked_rows(frame_N: Bools, in_flight_N: np.ndarray) -> Bools:
    """(N,) bool: rows of the frame with a ticket in flight."""
    blocked_N = np.zeros(len(frame_N), bool)
    _find_blocked(frame_N.view(np.uint8), in_flight_N, blocked_N.view(np.uint8))
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
    _renew_credit(frame_N.view(np.uint8), in_flight_N, credit_N)


@compiled
def _any(number_b: np.ndarray) -> bool:
    """Whether one of these numbers is not 0."""
    found = np.int32(0)
    for i in range(len(number_b)):
        found |= number_b[i]
    return bool(found != 0)


@compiled
def _find_blocked(frame_N: np.ndarray, in_flight_N: np.ndarray, blocked_N: np.ndarray) -> None:
    size = len(frame_N)
    for base in range(0, size, BLOCK):
        stop = min(base + BLOCK, size)
        if _any(in_flight_N[base:stop]):
            for row in range(base, stop):
                blocked_N[row] = frame_N[row] & np.uint8(in_flight_N[row] > 0)


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


@compiled
def _renew_credit(frame_N: np.ndarray, in_flight_N: np.ndarray, credit_N: np.ndarray) -> None:
    size = len(frame_N)
    for base in range(0, size, BLOCK):
        stop = min(base + BLOCK, size)
        if _any(in_flight_N[base:stop]) | _any(credit_N[base:stop]):
            for row in range(base, stop):
                blocked = np.int32(frame_N[row] & np.uint8(in_flight_N[row] > 0))
                credit_N[row] = (credit_N[row] + np.int32(1)) * blocked
