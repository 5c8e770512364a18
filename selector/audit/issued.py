"""The train tickets of a run's current segment, as columns: what was recorded at their draws and what became of them.

`selector.audit.exposure`, `selector.audit.mixes` and `selector.audit.forecasts` read them. Knows tables and events;
nothing of what is made of them. Open tickets are here too, and draws after the first unfinished one, unlike in the
audit's window: counts need no unbiased sample of draws.

Axes: T draws, M tickets.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selector.run.state import RunState
from selector.types import PURPOSE_CODE, Purpose

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Issued:
    """Columns end to end, in the order of the draws. Those of `table` are copies of the run's, by name."""

    ticket_M: Integers  # ordinal in the run
    row_M: Integers
    audit_M: Bools
    in_waves_M: Bools  # may be stopped by its outcomes
    inclusion_M: Floats
    weight_M: Floats | None  # as handed out; None when some draw had none
    ht_weight_M: Floats
    pass_rate_M: Floats  # predicted at the draw, as the next two
    variance_M: Floats
    informative_M: Floats
    tokens_M: Floats  # expected of one rollout; NaN while nothing was known
    num_tickets_T: Integers
    frame_T: Floats
    table: dict[str, np.ndarray]

    @property
    def size(self) -> int:
        return int(self.ticket_M.size)


TABLE = (
    "state", "reason", "scored", "passes", "informative", "group_size", "issued_seq", "ended_seq", "issued_draw",
    "issued_version", "reported_version", "tokens", "dropped", "rewarded",
)  # fmt: skip


def issued_tickets(state: RunState) -> Issued:
    """Train draws of the segment that were not lost."""
    batches = [
        batch
        for batch in state.batches
        if batch.alive
        and batch.event.purpose == Purpose.TRAIN
        and batch.seq >= state.segment_start
        and len(batch.event.row_K)
    ]
    events = [batch.event for batch in batches]
    count_T = np.array([len(event.row_K) for event in events], np.int64)
    first_T = np.array([batch.first_ticket for batch in batches], np.int64)
    ticket_M = np.arange(count_T.sum()) + np.repeat(first_T - np.cumsum(count_T) + count_T, count_T)
    audit_M = _joined([event.audit_K for event in events]) > 0
    in_waves_T = np.array([event.wave is not None for event in events], bool)
    weights = [event.weight_K for event in events if event.weight_K is not None]
    return Issued(
        ticket_M=ticket_M,
        row_M=_joined([event.row_K for event in events]).astype(np.int64),
        audit_M=audit_M,
        in_waves_M=np.repeat(in_waves_T, count_T) & ~audit_M,
        inclusion_M=_joined([event.inclusion_K for event in events]),
        weight_M=_joined(weights) if len(weights) == len(events) else None,
        ht_weight_M=_joined([event.ht_weight_K for event in events]),
        pass_rate_M=_joined([event.pass_rate_K for event in events]),
        variance_M=_joined([event.variance_K for event in events]),
        informative_M=_joined([event.informative_K for event in events]),
        tokens_M=_joined([np.full(len(e.row_K), np.nan) if e.tokens_K is None else e.tokens_K for e in events]),
        num_tickets_T=count_T,
        frame_T=np.array([event.frame for event in events], np.float64),
        table={name: state.book.tickets[name][ticket_M] for name in TABLE},
    )


def own_lag(state: RunState, issued: Issued) -> Integers:
    """(M,) versions between the newest group of the prompt that had come back at the draw and the draw; -1: none had.

    Groups that beliefs see, of draws that were not lost. A group that came back after the draw is none.
    """
    table = state.book.tickets
    alive = np.array([batch.alive for batch in state.batches], bool)
    seen = [PURPOSE_CODE[purpose] for purpose in (Purpose.TRAIN, Purpose.AUDIT, Purpose.PROBE)]
    known = np.flatnonzero(
        np.isin(table["purpose"], seen) & (table["reported_version"] >= 0) & alive[table["batch"]]
    ) if table.size else np.zeros(0, np.int64)  # fmt: skip
    # Prompts end to end, each in the order of the log: the ends of its groups, and the draws that ask.
    row_E = np.concatenate([table["row"][known], issued.row_M])
    when_E = np.concatenate([table["ended_seq"][known], issued.table["issued_seq"]])
    version_E = np.concatenate([table["reported_version"][known], np.full(issued.size, -1)])
    order_E = np.lexsort((when_E, row_E))
    place_E = np.arange(order_E.size)
    is_group_E = order_E < known.size
    last_E = np.maximum.accumulate(np.where(is_group_E, place_E, -1))
    found_E = np.maximum(last_E, 0)
    own_E = (last_E >= 0) & (row_E[order_E[found_E]] == row_E[order_E])
    asks_E = ~is_group_E
    lag_M = np.full(issued.size, -1, np.int64)
    asking = order_E[asks_E] - known.size
    version = version_E[order_E[found_E]][asks_E]
    lag_M[asking] = np.where(own_E[asks_E], np.maximum(issued.table["issued_version"][asking] - version, 0), -1)
    return lag_M


def _joined(columns: list[np.ndarray]) -> Floats:
    return np.concatenate(columns, dtype=np.float64) if columns else np.zeros(0)
