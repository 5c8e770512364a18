"""Looks at the held-out split, read from a run's tickets: what each found, and what training had cost before it.

`api` calls it for quality, curves and reports. Nothing that decides anything imports it: held-out outcomes are read to
be shown, never to draw. Axes: K groups of one look, G rollouts of a group.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selector.groups.standing import fixed_counts
from selector.run.state import DrawnBatch, RunState
from selector.run.verdict import COUNTED
from selector.types import PURPOSE_CODE, Purpose, TicketState

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Look:
    """One held-out draw: a uniform sample, without replacement, of the held-out split."""

    index: int
    policy_version: int
    seq: int  # position of its draw in the log
    frame: int  # prompts that the split had
    spent: Mapping[str, float | None]  # unit -> cost of training before it; empty when drawn by an earlier version
    row_K: NDArray[np.int64]
    category_K: NDArray[np.int64]  # code, -1 for none
    outcome_K: Floats  # mean outcome of the group's scored rollouts; NaN when too few were scored, or it is void
    outcome_KG: Floats  # of each rollout; NaN where it has none

    @property
    def back_K(self) -> NDArray[np.bool_]:
        return np.isfinite(self.outcome_K)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Selected:
    """One train draw as the trainer's own curve shows it: selected groups, audit groups among them."""

    seq: int
    category_K: NDArray[np.int64]
    outcome_K: Floats


def held_out_looks(state: RunState) -> tuple[list[Look], int]:
    """The surviving looks in the order of their draws, up to the first with an open ticket, and how many wait.

    A slow look ends the list: to skip it would choose looks by their outcome. Looks that handed out nothing are none.
    """
    looks, drawn = list[Look](), _surviving(state, Purpose.HELDOUT)
    for batch in drawn:
        if _is_open(state, batch):
            break
        looks.append(_look(state, batch))
    return looks, len(drawn) - len(looks)


def selected_draws(state: RunState) -> list[Selected]:
    """The surviving train draws in the order of their draws, up to the first with an open ticket."""
    found = list[Selected]()
    for batch in _surviving(state, Purpose.TRAIN):
        if _is_open(state, batch):
            break
        found.append(
            Selected(
                seq=batch.seq,
                category_K=state.pool.category_N[batch.event.row_K].astype(np.int64),
                outcome_K=_outcomes(state, batch),
            )
        )
    return found


def informative_groups(state: RunState) -> tuple[int, int]:
    """Informative and judged groups among those that were drawn to be trained on."""
    table = state.book.tickets
    drawn = np.isin(table["purpose"], [PURPOSE_CODE[Purpose.TRAIN], PURPOSE_CODE[Purpose.AUDIT]])
    judged = table["informative"][drawn & (table["state"] == TicketState.REPORTED)]
    return int(np.count_nonzero(judged == 1)), int(np.count_nonzero(judged >= 0))


def _surviving(state: RunState, purpose: Purpose) -> list[DrawnBatch]:
    return [b for b in state.batches if b.alive and b.event.purpose == purpose and len(b.event.row_K)]


def _span(batch: DrawnBatch) -> slice:
    return slice(batch.first_ticket, batch.first_ticket + len(batch.event.row_K))


def _is_open(state: RunState, batch: DrawnBatch) -> bool:
    return bool((state.book.tickets["state"][_span(batch)] == TicketState.OPEN).any())


def _outcomes(state: RunState, batch: DrawnBatch) -> Floats:
    """(K,) shares passed of as many rollouts as were sure to be made: a group stopped by its outcomes is biased."""
    passes_K, scored_K = fixed_counts(state, batch.tickets)
    reported_K = (state.book.tickets["state"][_span(batch)] == TicketState.REPORTED) & (scored_K > 0)
    return np.where(reported_K, passes_K / np.maximum(scored_K, 1), np.nan)


def _look(state: RunState, batch: DrawnBatch) -> Look:
    event, table, rollouts = batch.event, state.book.tickets, state.book.rollouts
    outcome_K = _outcomes(state, batch)
    slot_KG = table["slot"][_span(batch)][:, None] + np.arange(event.group_size)
    counted_KG = np.isin(rollouts["status"][slot_KG], COUNTED) & rollouts["arrived"][slot_KG]
    counted_KG &= np.isfinite(outcome_K)[:, None]
    return Look(
        index=event.index,
        policy_version=event.policy_version,
        seq=batch.seq,
        frame=event.frame,
        spent=event.spent,
        row_K=event.row_K,
        category_K=state.pool.category_N[event.row_K].astype(np.int64),
        outcome_K=outcome_K,
        outcome_KG=np.where(counted_KG, rollouts["outcome"][slot_KG], np.nan),
    )
