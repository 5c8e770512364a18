"""What the selection did to the pool: who was drawn how often, who waits, what prompts count for, what weights cost.

`selector.audit.accounts` calls it. Knows columns of issued tickets and of the pool; nothing of how anything was drawn.

Axes: N rows of the pool, M tickets, Q parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from selector.audit.feature_parts import NO_PART, Parts, parts_of
from selector.audit.issued import Bools, Floats, Integers, Issued
from selector.beliefs.costing import expected_tokens
from selector.run.state import RunState
from selector.types import Lifecycle, TicketState

CURVE_BINS = 20  # of the predicted pass rate, over which w(p) is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A part of the pool by one number: its share of the prompts, of the tickets, and the one over the other."""

    low: float
    high: float
    pool: float
    selected: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Of the prompts that may be drawn now. Waits are in train draws, of the surviving branch."""

    prompts: int
    drawn: int
    never_drawn: int
    with_groups: int  # of which a group has come back
    longest_wait: int  # since a prompt was drawn last, or since the run began
    longest_gap: int  # between two draws of a prompt, in this segment
    regressed: int  # mastered once and back at work; `regressions` says of which that is significant
    mastered: int  # now


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a prompt counts for, relative to uniform, at a predicted pass rate: one point of the induced w(p)."""

    low: float
    high: float
    tickets: int
    chance: float  # N·π/K, averaged over the bin's prompts
    weight: float | None  # the same with the weights that were handed out; None where none were


def coverage(state: RunState, issued: Issued) -> Coverage:
    frame_N, rows = state.frame_N, state.rows
    drawn_N, stage_N = rows["drawn_N"][frame_N], rows["lifecycle_N"][frame_N]
    wait_N = state.train_draws - rows["last_draw_N"][frame_N]
    order_M = np.lexsort((issued.table["issued_draw"], issued.row_M))
    row_M, draw_M = issued.row_M[order_M], issued.table["issued_draw"][order_M]
    gap = np.diff(draw_M)[np.diff(row_M) == 0]
    mastered_N = stage_N == Lifecycle.MASTERED
    return Coverage(
        prompts=int(drawn_N.size),
        drawn=int(np.count_nonzero(drawn_N)),
        never_drawn=int(np.count_nonzero(drawn_N == 0)),
        with_groups=int(np.count_nonzero(rows["groups_N"][frame_N])),
        longest_wait=int(wait_N.max(initial=0)),
        longest_gap=int(gap.max(initial=0)),
        regressed=int(np.count_nonzero((rows["mastered_draw_N"][frame_N] > 0) & ~mastered_N)),
        mastered=int(np.count_nonzero(mastered_N)),
    )


def length_ratio(state: RunState, issued: Issued) -> tuple[Ratio, ...]:
    """By the tokens expected of a rollout, as they are now for all prompts alike; none while nothing is known."""
    tokens_N = expected_tokens(state, np.arange(state.num_rows))
    return () if tokens_N is None else value_ratio(tokens_N, state.frame_N, issued.row_M)


def feature_ratios(state: RunState, issued: Issued, features: Mapping[str, Parts]) -> dict[str, tuple[Ratio, ...]]:
    """By each number that the pool has of its prompts."""
    found = {label: part_ratios(parts, state.frame_N, issued.row_M) for label, parts in features.items()}
    return {label: ratios for label, ratios in found.items() if ratios}


def value_ratio(value_N: Floats, frame_N: Bools, row_M: Integers) -> tuple[Ratio, ...]:
    """By a number that each prompt has, NaN for none, in parts of the frame of now."""
    parts = parts_of(value_N, value_N[frame_N])
    return () if parts is None else part_ratios(parts, frame_N, row_M)


def part_ratios(parts: Parts, frame_N: Bools, row_M: Integers) -> tuple[Ratio, ...]:
    """Share of the tickets / share of the frame. Prompts without the number are left out of both; the frame is that of
    now, and a part that it has no prompt of is left out.
    """
    pool_N = frame_N & (parts.code_N != NO_PART)
    pool, ticket = parts.code_N[pool_N], parts.code_N[row_M[pool_N[row_M]]]
    if not pool.size or not ticket.size:
        return ()
    ends = parts.ends
    pool_Q, ticket_Q = (np.bincount(codes, minlength=len(ends) - 1) / codes.size for codes in (pool, ticket))
    return tuple(
        Ratio(
            low=ends[code],
            high=ends[code + 1],
            pool=float(pool_Q[code]),
            selected=float(ticket_Q[code]),
            ratio=float(ticket_Q[code] / pool_Q[code]),
        )
        for code in np.flatnonzero(pool_Q).tolist()
    )


def induced(issued: Issued) -> tuple[Counts, ...]:
    """w(p) from the chances of the draws themselves.

    Σ_tickets 1/π estimates the prompts of a bin without bias, so tickets of the bin / Σ 1/π is the mean π of its
    prompts; with weights, Σ weight / Σ w, w = K(1+c)/(N·π), is what the bin's prompts count for. Both are 1 for
    uniform draws. A bin with few tickets is noisy.
    """
    if not issued.size:
        return ()
    bin_M = np.minimum((issued.pass_rate_M * CURVE_BINS).astype(np.int64), CURVE_BINS - 1)
    count_R = np.bincount(bin_M, minlength=CURVE_BINS)
    per_ticket_M = np.repeat(issued.frame_T / issued.num_tickets_T, issued.num_tickets_T)
    expected_R = np.bincount(bin_M, 1 / (issued.inclusion_M * per_ticket_M), CURVE_BINS)
    uniform_R = np.bincount(bin_M, issued.ht_weight_M, CURVE_BINS)
    weight_R = None if issued.weight_M is None else np.bincount(bin_M, issued.weight_M, CURVE_BINS)
    return tuple(
        Counts(
            low=code / CURVE_BINS,
            high=(code + 1) / CURVE_BINS,
            tickets=int(count_R[code]),
            chance=float(count_R[code] / expected_R[code]),
            weight=None if weight_R is None or not uniform_R[code] else float(weight_R[code] / uniform_R[code]),
        )
        for code in np.flatnonzero(count_R).tolist()
    )


def second_moment(issued: Issued, advantage: str) -> float | None:
    """Of the weighted gradient relative to uniform draws of the same size, as predicted: Σ w²·v / Σ w·v over tickets.

    v is a prompt's own second moment up to a factor: P(informative) for GRPO, whose advantages have unit variance in a
    group that has any, and E[p(1−p)] for RLOO and Dr. GRPO. Both sums estimate their pool's sums without bias; with
    w = K(1+c)/(N·π) the ratio is (1/N)Σ (K/(N·π))·v / (1/N)Σ v where nothing is owed. Above 1 the weights cost more
    variance than the selection saves. None without tickets, or when no prompt has any signal.
    """
    mean_M = issued.pass_rate_M
    value_M = issued.informative_M if advantage == "grpo" else mean_M * (1 - mean_M) - issued.variance_M
    uniform = float(issued.ht_weight_M @ value_M)
    return float(issued.ht_weight_M**2 @ value_M) / uniform if uniform > 0 else None


def inverse_yield(issued: Issued) -> float | None:
    """Judged groups for each informative one; None without any."""
    judged = (issued.table["state"] == TicketState.REPORTED) & (issued.table["informative"] >= 0)
    informative = int(np.count_nonzero(issued.table["informative"][judged] == 1))
    return int(np.count_nonzero(judged)) / informative if informative else None
