"""Where a batch under dynamic sampling stands: what it has, what it keeps, and what to draw next.

`api` answers with it; the trainer asks after each wave. Read from tickets and steps alone, so that it is the same
after a restore or a crash. A wave here is one draw of the batch's index: refill 0, 1, …
"""

from dataclasses import dataclass

import numpy as np

from selector.errors import UnknownBatch
from selector.refill import RefillConfig, refill_size, ticket_multiple
from selector.run.state import DrawnBatch, RunState
from selector.types import PURPOSE_CODE, Purpose, TicketState


@dataclass(frozen=True, slots=True, kw_only=True)
class RefillStanding:
    """One batch. Tickets are ordinals; K is those of all its waves."""

    index: int
    target: int  # informative groups wanted: what refill 0 was asked for
    waves: int  # draws so far
    open: int  # tickets that have not ended
    judged: int  # groups with a verdict, of waves that have ended
    informative: int  # of them
    kept: tuple[int, ...]  # what to train on, in order of draw
    surplus: tuple[int, ...]  # informative groups beyond the target
    offered: tuple[int, ...]  # surplus of the batch before that no step has trained on and that is fresh
    size: int | None  # of the next refill; None: wait, or draw no more
    refill: int | None  # its number
    factor: float  # to multiply the loss with: the yield if the run is to cancel 1/yield, else 1

    @property
    def inverse_yield(self) -> float | None:
        """The factor that dropping degenerate groups puts on the step."""
        return self.judged / self.informative if self.informative else None


def refill_standing(state: RunState, index: int) -> RefillStanding:
    """The surviving train batch of an index. Raises UnknownBatch.

    Works without `refill` in the policy too, and then asks for nothing more.
    """
    waves = _waves(state, index)
    if not waves:
        raise UnknownBatch(f"run {state.run!r} has no train batch {index} on this branch")
    table, first = state.book.tickets, waves[0].event
    ordinals = [np.arange(w.first_ticket, w.first_ticket + len(w.event.row_K)) for w in waves]
    open_W = [int(np.count_nonzero(table["state"][tickets] == TicketState.OPEN)) for tickets in ordinals]
    ended = [tickets for tickets, num_open in zip(ordinals, open_W, strict=True) if not num_open]
    judged = sum(int(np.count_nonzero(table["informative"][tickets] >= 0)) for tickets in ended)
    informative = sum(len(_usable(state, tickets)) for tickets in ended)
    found = _usable(state, np.concatenate(ordinals))
    kept, surplus = _cut(state, found, first.requested)
    offered = _offered(state, index)
    rules = state.config.policy.refill
    missing = first.requested - len(kept)
    size, following = None, waves[-1].event.refill + 1
    if rules is not None and not any(open_W) and missing > 0 and following < rules.rounds and not state.completed:
        multiple = ticket_multiple(first.divisor, first.group_size)
        size = refill_size(
            missing, informative, judged, target=first.requested, largest=rules.largest, multiple=multiple
        )
    return RefillStanding(
        index=index,
        target=first.requested,
        waves=len(waves),
        open=sum(open_W),
        judged=judged,
        informative=informative,
        kept=tuple(kept.tolist()),
        surplus=tuple(surplus.tolist()),
        offered=offered,
        size=size,
        refill=None if size is None else following,
        factor=_factor(rules, informative, judged),
    )


def last_refilled(state: RunState) -> RefillStanding | None:
    """That of the train batch drawn last; None where the policy has no refill or nothing was drawn."""
    if state.config.policy.refill is None:
        return None
    drawn = [b for b in state.batches if b.alive and b.event.purpose == Purpose.TRAIN]
    return refill_standing(state, drawn[-1].event.index) if drawn else None


def _usable(state: RunState, tickets: np.ndarray) -> np.ndarray:
    """Those that came back informative and that no wave's rule drops."""
    table = state.book.tickets
    usable: np.ndarray = tickets[(table["informative"][tickets] == 1) & ~table["dropped"][tickets]]
    return usable


def _factor(rules: RefillConfig | None, informative: int, judged: int) -> float:
    return informative / judged if rules is not None and rules.cancel_yield and judged and informative else 1.0


def _waves(state: RunState, index: int) -> list[DrawnBatch]:
    """Surviving draws of the index, in order of refill."""
    train = Purpose.TRAIN.value
    keys = sorted(key for key in state.surviving if key[0] == train and key[1] == index)
    return [state.batches[state.surviving[key]] for key in keys]


def _cut(state: RunState, found: np.ndarray, target: int) -> tuple[np.ndarray, np.ndarray]:
    """Informative groups that are kept, and those beyond the target: the last ones in order of draw.

    Tickets of a wave are in keyed order, which no outcome and no time of arrival has a part in. Audit tickets are kept
    whatever their place.
    """
    is_audit = state.book.tickets["purpose"][found] == PURPOSE_CODE[Purpose.AUDIT]
    others = np.flatnonzero(~is_audit)
    beyond = others[max(0, target - int(is_audit.sum())) :]
    is_kept = np.ones(len(found), bool)
    is_kept[beyond] = False
    return found[is_kept], found[~is_kept]


def _offered(state: RunState, index: int) -> tuple[int, ...]:
    """Surplus of the index before, while its weights are no older than `max_lag`; none before a step has said what it
    trained on, as it may have been that.
    """
    train = Purpose.TRAIN.value
    before = max((key[1] for key in state.surviving if key[0] == train and key[1] < index), default=None)
    if before is None:
        return ()
    steps = [step["trained"] for step in state.steps.values() if step["trained"]]
    trained = np.array([ticket for tickets in steps for ticket in tickets], np.int64)
    table = state.book.tickets
    tickets = np.concatenate(
        [np.arange(w.first_ticket, w.first_ticket + len(w.event.row_K)) for w in _waves(state, before)]
    )
    if not np.isin(tickets, trained).any():
        return ()
    found = _usable(state, tickets[~np.isin(tickets, trained)])
    lag = state.policy_version - table["reported_version"][found]
    if state.config.max_lag is not None:
        found = found[lag <= state.config.max_lag]
    return tuple(found.tolist())
