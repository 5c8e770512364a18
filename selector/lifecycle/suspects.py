"""Prompts that a person should look at: a score that never differs however the answers do, an error share out of line.

`api` lists them with the run; nothing is done about them here. `folding` keeps the counts that they are found from.
What the service has of answers is their length, so "the answers differ" means that their tokens do.

Axes: N rows of the pool, U rows that a report touched, each once, B groups of it in order, S suspects.
"""

from dataclasses import dataclass
from math import log

import numpy as np

from selector.run.state import RunState
from selector.run.tickets import TicketBook
from selector.types import TicketState

SUSPECT_GROUPS = 20
"""Groups of a prompt, all it has, with one and the same score before it is a suspect."""

SAME = 1e-9
"""Difference of two scores that comes from rounding."""

ERROR_CHANCE = 0.01
"""Chance that any prompt of a pool with one error rate is a suspect for its errors, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One prompt and what speaks against it."""

    row: int
    reason: str  # constant_score, error_share
    groups: int
    score: float | None  # of a constant one
    answers_differ: bool | None  # in length; None where no lengths were reported, or for errors
    errors: int
    rollouts: int


def find_suspects(state: RunState, limit: int) -> tuple[list[Suspect], int]:
    """The first suspects of the frame, and how many there are: constant scores of answers that differ, error shares,
    other constant scores; the longest or most unlikely first.
    """
    columns, frame_N = state.rows, state.frame_N
    same_N = np.where(columns["same_N"] == columns["groups_N"], columns["same_N"], 0)  # from the first group on
    constant = np.flatnonzero(frame_N & (same_N >= SUSPECT_GROUPS))
    excess_N = error_excess(columns["errors_N"], columns["rollouts_N"])
    failing = np.flatnonzero(frame_N & (excess_N > 0.0))
    differ, known = answers_differ(state.book, constant, state.num_rows)
    rows_S = np.concatenate([constant, failing])
    kind_S = np.concatenate([np.where(differ, 0, 2), np.ones(len(failing), np.int64)])
    strength_S = np.concatenate([columns["same_N"][constant], excess_N[failing]])
    shown = np.lexsort((-strength_S, kind_S))[:limit].tolist()
    found = [
        Suspect(
            row=int(rows_S[s]),
            reason="constant_score" if s < len(constant) else "error_share",
            groups=int(columns["groups_N"][rows_S[s]]),
            score=float(columns["score_N"][rows_S[s]]) if s < len(constant) else None,
            answers_differ=bool(differ[s]) if s < len(constant) and known[s] else None,
            errors=int(columns["errors_N"][rows_S[s]]),
            rollouts=int(columns["rollouts_N"][rows_S[s]]),
        )
        for s in shown
    ]
    return found, len(rows_S)


def same_score(
    same_U: np.ndarray, score_U: np.ndarray, place_B: np.ndarray, value_B: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Counts of groups in a row with one score, and that score, after groups of the rows at these places.

    value_B: (B,) score that all rollouts of the group have, NaN where they differ. A group that differs ends the count;
    one of another score begins it anew.
    """
    same_U, score_U = same_U.copy(), score_U.copy()
    order_B = np.argsort(place_B, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(place_B[order_B]) > 0]) if len(place_B) else np.zeros(0, np.int64)
    counts = np.diff(np.r_[starts, len(place_B)])
    for nth in range(int(counts.max(initial=0))):
        groups = order_B[starts[counts > nth] + nth]
        place, value = place_B[groups], value_B[groups]
        goes_on = (same_U[place] > 0) & (np.abs(value - score_U[place]) <= SAME)
        same_U[place] = np.where(goes_on, same_U[place] + 1, np.where(np.isnan(value), 0, 1))
        score_U[place] = np.where(np.isnan(value), 0.0, np.where(goes_on, score_U[place], value))
    return same_U, score_U


def answers_differ(book: TicketBook, rows_S: np.ndarray, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Whether the reported answers of each row differ in length, and whether any length is known: two (S,) bool."""
    place_N = np.full(num_rows, -1, np.int64)
    place_N[rows_S] = np.arange(len(rows_S))
    table = book.tickets
    tickets = np.flatnonzero((place_N[table["row"]] >= 0) & (table["state"] == TicketState.REPORTED))
    sizes = table["group_size"][tickets].astype(np.int64)
    slots = np.repeat(table["slot"][tickets] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    arrived = book.rollouts["arrived"][slots]
    tokens = book.rollouts["tokens"][slots][arrived]
    place = np.repeat(place_N[table["row"][tickets]], sizes)[arrived]
    shortest_S, longest_S = np.full(len(rows_S), np.iinfo(np.int64).max), np.full(len(rows_S), -1)
    np.minimum.at(shortest_S, place, tokens)
    np.maximum.at(longest_S, place, tokens)
    return shortest_S < longest_S, longest_S > 0


def error_excess(errors_N: np.ndarray, rollouts_N: np.ndarray) -> np.ndarray:
    """Nats by which each prompt's errors are more than the others' share explains: (N,), 0 where they are not.

    Chernoff: a share a of n rollouts above a true share b has at most the chance exp(−n·KL(a‖b)). b is the share of all
    other prompts, with one error and two rollouts added. What is left after ln(prompts tried/ERROR_CHANCE) counts.
    """
    tried_N = rollouts_N > 0
    errors_N, rollouts_N = errors_N.astype(np.float64), rollouts_N.astype(np.float64)
    others_N = (errors_N.sum() - errors_N + 1.0) / (rollouts_N.sum() - rollouts_N + 2.0)
    share_N = errors_N / np.maximum(rollouts_N, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence_N = np.where(share_N > 0.0, share_N * np.log(share_N / others_N), 0.0)
        divergence_N += np.where(share_N < 1.0, (1.0 - share_N) * np.log((1.0 - share_N) / (1.0 - others_N)), 0.0)
    nats_N = rollouts_N * divergence_N - log(max(int(tried_N.sum()), 1) / ERROR_CHANCE)
    return np.where(tried_N & (share_N > others_N), np.maximum(nats_N, 0.0), 0.0)
