"""Whether quotas are held: of each category what it was to have, what was drawn and trained on, and why they differ.

`selector.audit.accounts` calls it. Knows columns of issued tickets and where the holding stands; draws nothing.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from selector.audit.issued import Integers, Issued
from selector.batches.quota_holding import MOST_TICKETS, Holding, holding
from selector.run.state import RunState
from selector.types import TicketState

TOLERANCE = 0.05  # of a share of what was trained on
FEW = 50  # trained groups, up to which a share says little
FULL, EMPTY = 0.97, 0.03  # of the places that quotas share, from where on there is nothing more to give or to take


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldShare:
    """One category with a quota. Shares are of all tickets at that stage, in the current segment."""

    category: str
    quota: float
    issued: int
    trained: int
    issued_share: float | None
    trained_share: float | None
    drawn_at: float | None  # its share of the next draw's selected places beyond the floor; None before the first draw
    held: bool | None  # within TOLERANCE; None while nothing was trained on
    reason: str | None  # why it is not


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """`counted`: what counts as trained on, what steps name or, as long as none does, informative groups."""

    tolerance: float
    counted: Literal["named by steps", "informative groups"]
    categories: tuple[HeldShare, ...]


def held_quotas(state: RunState, issued: Issued, trained: Integers | None) -> Held | None:
    """trained: ordinals that steps named, None when none did. None for a run without quotas."""
    quotas = state.config.policy.quotas
    if not quotas:
        return None
    table = issued.table
    if trained is None:
        trained_M = (table["state"] == TicketState.REPORTED) & (table["informative"] == 1)
    else:
        trained_M = np.isin(issued.ticket_M, trained)
    total = int(np.count_nonzero(trained_M))
    now = holding(state, int(issued.num_tickets_T[-1])) if issued.size else None
    found = []
    for stratum, (category, quota) in enumerate(quotas.items(), start=1):
        code = state.pool.categories.index(category) if category in state.pool.categories else None
        of_M = np.zeros(issued.size, bool) if code is None else state.pool.category_N[issued.row_M] == code
        num_trained = int(np.count_nonzero(of_M & trained_M))
        share = num_trained / total if total else None
        is_held = None if share is None else abs(share - quota) <= TOLERANCE
        found.append(
            HeldShare(
                category=category,
                quota=quota,
                issued=int(np.count_nonzero(of_M)),
                trained=num_trained,
                issued_share=float(of_M.mean()) if issued.size else None,
                trained_share=share,
                drawn_at=None if now is None else float(now.share_S[stratum]),
                held=is_held,
                reason=None if now is None or is_held else _reason(now, stratum, quota, share, total),
            )
        )
    return Held(
        tolerance=TOLERANCE,
        counted="informative groups" if trained is None else "named by steps",
        categories=tuple(found),
    )


def warnings_of(found: Held | None) -> list[str]:
    return [
        f"quota of category {one.category}: {one.quota:.1%} of the groups trained on were asked for, and "
        f"{one.trained_share:.1%} were its own: {one.reason}"
        for one in (found.categories if found else ())
        if one.held is False and one.trained_share is not None
    ]


def _reason(now: Holding, stratum: int, quota: float, share: float | None, total: int) -> str:
    """The first of what may keep a share away, the hardest to mend first."""
    chance, places, waiting = (float(x[stratum]) for x in (now.yield_S, now.share_S, now.waiting_S))
    if not now.frame_S[stratum]:
        return "the pool has no prompt of it that may be drawn"
    if share is None:
        return "no group has been trained on yet"
    if total < FEW:
        return f"only {total} groups have been trained on so far"
    if now.given_up_S[stratum]:
        return (
            f"{chance:.1%} of its tickets are trained on: a group of it takes more than {MOST_TICKETS:.0f} times the "
            "tickets of one of the best category, so it is drawn at its quota and not made up for"
        )
    if share < quota and places >= FULL:
        return (
            f"{chance:.1%} of its tickets are trained on, and it has all places that floor and audit leave free: lower "
            "the floor or the audit share, or its quota"
        )
    if share > quota and places <= EMPTY:
        return (
            f"{chance:.1%} of its tickets are trained on, and it is drawn by floor and audit alone: lower them, or "
            "raise its quota"
        )
    if waiting and share < quota:
        return f"{waiting:.0f} of its tickets are still to be trained on; it is drawn at {places:.1%} to make up for it"
    return f"it is drawn at {places:.1%} to make up for it"
