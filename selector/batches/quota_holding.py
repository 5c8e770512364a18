"""Quotas of what is trained on: how the places of a draw are shared so that the groups trained on come out at them.

`drawing` asks for the shares of the next draw, the fold counts, `audit.quota_report` tells people how well it went.
Shares kept when prompts are drawn are not those of what is trained on: groups of one category come back later, or less
often, or teach nothing. So every draw makes up for what its predecessors came to.

A draw follows from what was counted before it and nothing else, so its chances are as exact as those of any other.

Axes: S strata, the categories without a quota first and then the quotas in their order.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from selector.run.state import RunState
from selector.types import Purpose, TicketState

MEMORY_DRAWS = 100
"""Draws after which what was counted is worth 1/e: an old surplus is made up for, a very old one forgotten."""

HORIZON_DRAWS = 10
"""Draws over which a deficit is made up for. In one, whole batches would swing with every chance event."""

MOST_TICKETS = 20.0
"""Times the tickets for one trained group of the best category, beyond which a category is not chased any more."""


class Count(IntEnum):
    """Rows of what is counted, by stratum; of tickets of train draws, the audit's among them."""

    INFORMATIVE = 0
    """Informative groups: what is trained on, as long as no step names it."""

    ENDED = 1
    """Tickets that have ended, whatever came of them."""

    NAMED = 2
    """Tickets that a step was the first to name as trained on."""

    SETTLED = 3
    """Tickets that had ended when such a step came."""

    WAITING = 4
    """Tickets that have ended since the last of these steps. No average over draws, as the other rows are."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Holding:
    """Where the quotas stand before a draw. All (S,), of this draw's memory."""

    quota_S: np.ndarray  # over the strata that have prompts to be drawn; their sum is 1
    trained_S: np.ndarray  # groups
    yield_S: np.ndarray  # trained groups a ticket, in (0, 1)
    waiting_S: np.ndarray  # tickets that may yet be trained on
    frame_S: np.ndarray  # prompts of the frame
    given_up_S: np.ndarray  # bool: too dear to be made up for
    share_S: np.ndarray  # of the selected places beyond the floor, for the draw; their sum is 1
    named: bool  # steps say what was trained on


def held_shares(state: RunState, size: int) -> tuple[float, ...]:
    """Shares of the selected places for the quotas of the run's policy, in their order; none without any."""
    if not state.config.policy.quotas:
        return ()
    return tuple(holding(state, size).share_S[1:].tolist())


def holding(state: RunState, size: int) -> Holding:
    """size: tickets of the draw that is to come. Of a run with quotas."""
    policy = state.config.policy
    quotas = list((policy.quotas or {}).values())
    count_CS = _counts(state)
    named = bool(count_CS[Count.SETTLED].any())
    trained_S = count_CS[Count.NAMED if named else Count.INFORMATIVE]
    yield_S = (trained_S + 1.0) / (count_CS[Count.SETTLED if named else Count.ENDED] + 2.0)
    open_S = np.bincount(
        _strata_of(state, np.array([t for t in state.book.open if _of_train_draw(state, t)], np.int64)),
        minlength=len(quotas) + 1,
    )
    waiting_S = open_S + (count_CS[Count.WAITING] if named else 0.0)
    row_S = np.bincount(stratum_of_category(state)[state.pool.category_N[state.frame_N] + 1], minlength=len(quotas) + 1)
    quota_S = np.where(row_S > 0, [max(0.0, 1.0 - sum(quotas)), *quotas], 0.0)
    quota_S /= max(float(quota_S.sum()), np.finfo(float).tiny)
    selected = (1.0 - state.config.audit_share) * size
    spread_S = row_S / max(int(row_S.sum()), 1) * (policy.floor * selected + state.config.audit_share * size)
    chased_S = quota_S > 0.0
    best = float(yield_S[chased_S].max(initial=0.0))
    given_up_S = chased_S & (yield_S * MOST_TICKETS < best)
    return Holding(
        quota_S=quota_S,
        trained_S=trained_S,
        yield_S=yield_S,
        waiting_S=waiting_S,
        frame_S=row_S,
        given_up_S=given_up_S,
        share_S=shares(
            quota_S,
            trained_S + (waiting_S + HORIZON_DRAWS * spread_S) * yield_S,
            yield_S,
            chased_S & ~given_up_S,
            HORIZON_DRAWS * (1.0 - policy.floor) * selected,
        ),
        named=named,
    )


def shares(
    quota_S: np.ndarray, sure_S: np.ndarray, yield_S: np.ndarray, chased_S: np.ndarray, places: float
) -> np.ndarray:
    """(S,) shares of the places after which trained groups of the chased strata are as their quotas, if they can be.

    Stratum s is to have T·quota trained groups, of which sure_s come without a share of these places; a ticket makes
    yield_s of one. T is such that Σ max(0, T·quota_s − sure_s)/yield_s is all the places that the chased strata have,
    and each gets its part. Strata that are not chased have their quotas; what those leave goes to the chased ones.

    quota_S: >= 0, of sum 1. sure_S: >= 0. yield_S: > 0. places: >= 0. Without a chased stratum, or without places, the
    quotas themselves.
    """
    at = np.flatnonzero(chased_S)
    if not len(at) or places <= 0.0:
        return quota_S
    share_S = np.where(chased_S, 0.0, quota_S)
    left = max(0.0, 1.0 - float(share_S.sum()))
    # From T = sure/quota on a stratum takes quota/yield places for every unit of T: fill up from the lowest such T.
    start_A, slope_A = sure_S[at] / quota_S[at], quota_S[at] / yield_S[at]
    order = np.argsort(start_A, kind="stable")
    slope = np.cumsum(slope_A[order])
    level = (left * places + np.cumsum((slope_A * start_A)[order])) / slope  # T with so many strata below it
    reached = level >= start_A[order]
    reached[0] = True  # whatever rounding says
    top = float(level[np.flatnonzero(reached)[-1]])
    share_S[at] = np.maximum(0.0, top - start_A) * slope_A / places
    return share_S


def count_draw(state: RunState, refill: int) -> None:
    """A train draw was made. If it is no refill, what was counted before is worth less."""
    if state.config.policy.quotas and not refill:
        count_CS = _counts(state)
        count_CS[: Count.WAITING] *= np.exp(-1.0 / MEMORY_DRAWS)
        state.quota_counts = count_CS


def count_ended(state: RunState, ordinals: np.ndarray) -> None:
    """Tickets have ended, reported or not."""
    if not state.config.policy.quotas:
        return
    ordinals = np.array([t for t in ordinals.tolist() if _of_train_draw(state, t)], np.int64)
    count_CS, stratum_B = _counts(state), _strata_of(state, ordinals)
    table = state.book.tickets
    informative_B = (table["state"][ordinals] == TicketState.REPORTED) & (table["informative"][ordinals] == 1)
    np.add.at(count_CS[Count.INFORMATIVE], stratum_B, informative_B)
    np.add.at(count_CS[Count.ENDED], stratum_B, 1.0)
    np.add.at(count_CS[Count.WAITING], stratum_B, 1.0)
    state.quota_counts = count_CS


def count_trained(state: RunState, trained: list[int] | None) -> None:
    """A step has said what it was trained on. A ticket that several steps name counts once. Before the step is kept."""
    if not state.config.policy.quotas or trained is None:
        return
    asked = {ticket for ticket in trained if _of_train_draw(state, ticket)}
    ended_seq = state.book.tickets["ended_seq"]
    oldest = min((int(ended_seq[ticket]) for ticket in asked), default=state.seq)
    for step in reversed(state.steps.values()):
        if step["seq"] < oldest:  # none of them had ended by then
            break
        asked.difference_update(step["trained"] or ())
    new = np.array(sorted(asked), np.int64)
    count_CS = _counts(state)
    np.add.at(count_CS[Count.NAMED], _strata_of(state, new), 1.0)
    count_CS[Count.SETTLED] += count_CS[Count.WAITING]
    count_CS[Count.WAITING] = 0.0
    state.quota_counts = count_CS


def stratum_of_category(state: RunState) -> np.ndarray:
    """(C + 1,) the quota of each category by its code plus 1, counted from 1; 0 for a category without one and none."""
    place = {category: place for place, category in enumerate(state.config.policy.quotas or {}, start=1)}
    return np.array([0, *(place.get(category, 0) for category in state.pool.categories)])


def _strata_of(state: RunState, ordinals: np.ndarray) -> np.ndarray:
    rows = state.book.tickets["row"][ordinals]
    of_row: np.ndarray = stratum_of_category(state)[state.pool.category_N[rows] + 1]
    return of_row


def _of_train_draw(state: RunState, ticket: int) -> bool:
    return state.batch_of(ticket).event.purpose == Purpose.TRAIN


def _counts(state: RunState) -> np.ndarray:
    """A copy of what the state has; zeros where it is another policy's, or an earlier version's."""
    shape = len(Count), 1 + len(state.config.policy.quotas or {})
    return state.quota_counts.copy() if state.quota_counts.shape == shape else np.zeros(shape)
