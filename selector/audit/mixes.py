"""From what was issued to what was trained on: where prompts of one kind fall behind, and what that may hide.

`selector.audit.accounts` calls it. Knows columns of issued tickets, steps and the pool.

Axes: M tickets, Q kinds.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from selector.audit.issued import Bools, Integers, Issued
from selector.batches.observations import NUM_DIFFICULTY_BINS
from selector.run.state import RunState
from selector.types import TicketState, VoidReason

NUM_LENGTHS = 4  # kinds of tickets by the tokens that their rollouts were expected to take
UNKNOWN_LENGTH = "not known at the draw"
NO_CATEGORY = "none"
DEPARTURE = 0.05  # between two shares, that is worth a warning
ERRORS = 3.0  # standard errors that it must be beyond
MIN_ENDED = 3  # tickets of a prompt that ended without one that counts, until it is said
LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """One kind of ticket on its way. Shares are of all tickets at that stage."""

    kind: str
    issued: int
    open: int
    reported: int
    trained: int | None  # None while no step names what it trained on
    void: dict[str, int]  # by reason
    issued_share: float
    reported_share: float | None
    trained_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """How many of one kind of ended tickets came back. The pass rate of the kind, weighted as drawn, may be biased by
    the rest: it is too low by `too_low` at most, or too high by `too_high`.
    """

    kind: str
    ended: int
    came_back: int
    share: float
    too_low: float
    too_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverBack:
    """Prompts that were issued again and again and of which nothing came back in time."""

    prompts: int
    tickets: int
    tokens: int  # paid for them
    listed: tuple[tuple[str, int, int], ...]  # key, tickets, tokens: the dearest


def trained_tickets(state: RunState) -> Integers | None:
    """Ordinals that steps of the segment named; None when none did."""
    steps = [step for step in state.steps.values() if step["seq"] > state.segment_start]
    named = [step["trained"] for step in steps if step["trained"] is not None]
    return np.unique(np.concatenate([np.asarray(one, np.int64) for one in named])) if named else None


def category_kinds(state: RunState, issued: Issued) -> tuple[list[str], Integers]:
    names = [*state.pool.categories, NO_CATEGORY]
    code_M = state.pool.category_N[issued.row_M].astype(np.int64)
    return names, np.where(code_M < 0, len(names) - 1, code_M)


def length_kinds(issued: Issued) -> tuple[list[str], Integers]:
    """Quarters of the tickets by expected tokens, and those of which nothing was known."""
    known_M = np.isfinite(issued.tokens_M)
    if not known_M.any():
        return [UNKNOWN_LENGTH], np.zeros(issued.size, np.int64)
    known = issued.tokens_M[known_M]
    edges = np.unique(np.quantile(known, np.arange(1, NUM_LENGTHS) / NUM_LENGTHS))
    edges = edges[edges > known.min()]
    ends = [float(known.min()), *edges.tolist(), float(known.max())]
    names = [f"{low:.0f} to {high:.0f} tokens" for low, high in pairwise(ends)]
    code_M = np.where(
        known_M, np.searchsorted(edges, np.where(known_M, issued.tokens_M, 0.0), side="right"), len(names)
    )
    return [*names, UNKNOWN_LENGTH], code_M.astype(np.int64)


def difficulty_kinds(issued: Issued) -> tuple[list[str], Integers]:
    width = 1 / NUM_DIFFICULTY_BINS
    names = [f"predicted pass rate {i * width:.1f} to {(i + 1) * width:.1f}" for i in range(NUM_DIFFICULTY_BINS)]
    return names, np.minimum((issued.pass_rate_M * NUM_DIFFICULTY_BINS).astype(np.int64), NUM_DIFFICULTY_BINS - 1)


def mixes(issued: Issued, kinds: tuple[Sequence[str], Integers], trained: Integers | None) -> tuple[Mix, ...]:
    """One entry for each kind of which something was issued."""
    names, code_M = kinds
    state_M, reason_M = issued.table["state"], issued.table["reason"]
    reported_M = state_M == TicketState.REPORTED
    trained_M = np.zeros(issued.size, bool) if trained is None else np.isin(issued.ticket_M, trained)
    size = len(names)
    issued_Q, open_Q, reported_Q, trained_Q = (
        np.bincount(code_M[mask], minlength=size)
        for mask in (np.ones(issued.size, bool), state_M == TicketState.OPEN, reported_M, trained_M)
    )
    void_M = state_M == TicketState.VOID
    void_QR = np.bincount(code_M[void_M] * len(VoidReason) + reason_M[void_M], minlength=size * len(VoidReason))
    void_QR = void_QR.reshape(size, len(VoidReason))

    def share(count_Q: Integers, code: int) -> float | None:
        total = int(count_Q.sum())
        return int(count_Q[code]) / total if total else None

    return tuple(
        Mix(
            kind=names[code],
            issued=int(issued_Q[code]),
            open=int(open_Q[code]),
            reported=int(reported_Q[code]),
            trained=None if trained is None else int(trained_Q[code]),
            void={reason.name.lower(): int(void_QR[code, reason]) for reason in VoidReason if void_QR[code, reason]},
            issued_share=int(issued_Q[code]) / issued.size,
            reported_share=share(reported_Q, code),
            trained_share=None if trained is None else share(trained_Q, code),
        )
        for code in np.flatnonzero(issued_Q).tolist()
    )


def departures(name: str, found: Sequence[Mix], *, but: Container[str] = ()) -> list[str]:
    """Kinds whose share of what is trained on (or, where no step says that, of what came back) has left that of what
    was issued, with what became of the rest; `but` those that are meant to.
    """
    stage = "trained on" if any(mix.trained is not None for mix in found) else "reported"
    total = sum((mix.reported if stage == "reported" else mix.trained) or 0 for mix in found)
    warnings = []
    for mix in found:
        share = mix.reported_share if stage == "reported" else mix.trained_share
        if share is None or total == 0 or mix.kind in but:
            continue
        error = (mix.issued_share * (1 - mix.issued_share) / total) ** 0.5
        if abs(share - mix.issued_share) <= max(DEPARTURE, ERRORS * error):
            continue
        count = (mix.reported if stage == "reported" else mix.trained) or 0
        rest = [f"{number} void as {reason}" for reason, number in sorted(mix.void.items(), key=lambda kv: -kv[1])]
        rest += [f"{mix.open} open"] if mix.open else []
        rest += [f"{mix.reported - count} came back and were not trained on"] if mix.reported > count else []
        warnings.append(
            f"{name} {mix.kind}: {mix.issued_share:.1%} of the tickets issued and {share:.1%} of those {stage}; of "
            f"{mix.issued} issued {count} were {stage}" + (f", {', '.join(rest)}" if rest else "")
        )
    return warnings


def responses(issued: Issued, kinds: tuple[Sequence[str], Integers]) -> tuple[Response, ...]:
    """One entry for each kind of which some ticket has ended."""
    names, code_M = kinds
    state_M = issued.table["state"]
    told_M = issued.table["scored"] + issued.table["rewarded"] > 0
    ended_M, back_M = state_M != TicketState.OPEN, (state_M == TicketState.REPORTED) & told_M
    missing_M = ended_M & ~back_M
    size, weight_M, mean_M = len(names), issued.ht_weight_M, issued.pass_rate_M
    ended_Q, back_Q = (np.bincount(code_M[mask], minlength=size) for mask in (ended_M, back_M))
    whole_Q = np.bincount(code_M, np.where(ended_M, weight_M, 0.0), size)
    low_Q = np.bincount(code_M, np.where(missing_M, weight_M * (1 - mean_M), 0.0), size)
    high_Q = np.bincount(code_M, np.where(missing_M, weight_M * mean_M, 0.0), size)
    return tuple(
        Response(
            kind=names[code],
            ended=int(ended_Q[code]),
            came_back=int(back_Q[code]),
            share=int(back_Q[code]) / int(ended_Q[code]),
            too_low=float(low_Q[code] / whole_Q[code]) if whole_Q[code] else 0.0,
            too_high=float(high_Q[code] / whole_Q[code]) if whole_Q[code] else 0.0,
        )
        for code in np.flatnonzero(ended_Q).tolist()
    )


def never_back(state: RunState, issued: Issued) -> NeverBack:
    """Prompts with MIN_ENDED tickets or more that ended for want of a timely report, and none that was reported."""
    table = issued.table
    late: Bools = (table["state"] == TicketState.VOID) & np.isin(
        table["reason"], (VoidReason.STALE, VoidReason.EXPIRED, VoidReason.LOST, VoidReason.SURPLUS)
    )
    rows_U, place_M = np.unique(issued.row_M, return_inverse=True)
    ended_U = np.bincount(place_M[late], minlength=rows_U.size)
    back_U = np.bincount(place_M[table["state"] == TicketState.REPORTED], minlength=rows_U.size)
    paid_M = table["tokens"].astype(np.float64)
    if state.refused:
        kept = {ticket: sum(one.tokens for one in refused) for ticket, refused in state.refused.items()}
        held_M = np.flatnonzero(np.isin(issued.ticket_M, list(kept)))
        paid_M[held_M] += [kept[ticket] for ticket in issued.ticket_M[held_M].tolist()]
    tokens_U = np.bincount(place_M, paid_M, rows_U.size)
    stuck = np.flatnonzero((ended_U >= MIN_ENDED) & (back_U == 0))
    order = stuck[np.lexsort((rows_U[stuck], -ended_U[stuck], -tokens_U[stuck]))]
    return NeverBack(
        prompts=int(stuck.size),
        tickets=int(ended_U[stuck].sum()),
        tokens=int(tokens_U[stuck].sum()),
        listed=tuple(
            (state.pool.keys[int(rows_U[u])], int(ended_U[u]), int(tokens_U[u])) for u in order[:LISTED].tolist()
        ),
    )
