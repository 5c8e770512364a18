"""Drafts: how a ticket and its rollouts stand while a report is being decided, ahead of the run's state.

`deciding` loads a draft for each ticket of a report, `group_reports` changes it rollout by rollout; the state itself
changes only once the event is applied. Knows what makes a reported rollout the same as a known one, and nothing of what
becomes of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from selector.groups.priors import Arrived, prior_rollouts
from selector.groups.reports import RolloutIn
from selector.groups.standing import rule_of
from selector.run.events import RefusedEvidence
from selector.run.state import RunState
from selector.types import RolloutStatus
from selector.waves import WaveConfig

WITHOUT_OUTCOME = {RolloutStatus.UNSCORED, RolloutStatus.REWARDED}  # earlier versions told no difference


@dataclass(slots=True)
class Slot:
    """A rollout's place as this report sees it so far."""

    arrived: bool
    outcome: float | None
    reward: float | None
    status: int
    tokens: int
    fragments: dict[int, tuple[float | None, int]]  # fragment -> outcome, tokens
    id_hash: int
    prior: Arrived | None = None  # what fills the place while nothing has arrived


@dataclass(slots=True)
class Draft:
    """A ticket as this report has changed it so far."""

    ticket: int
    state: int
    reason: int
    attempt: int
    slots: list[Slot]
    rule: WaveConfig | None
    wave: int  # that is waited for; 0 is the first
    begins_with: list[Arrived]  # prior rollouts
    past: dict[int, list[Slot]] = field(default_factory=dict)  # earlier attempts, as far as they were asked for
    refused: set[tuple[object, ...]] = field(default_factory=set)  # rollouts refused so far


def load(state: RunState, ticket: int) -> Draft:
    table, begins_with = state.book.tickets, prior_rollouts(state, ticket)
    slots = load_slots(state, state.book.slots(ticket)) if table["arrived"][ticket] else _empty_slots(state, ticket)
    return Draft(
        ticket=ticket,
        state=int(table["state"][ticket]),
        reason=int(table["reason"][ticket]),
        attempt=int(table["attempt"][ticket]),
        slots=begun(slots, begins_with),
        rule=rule_of(state, ticket),
        wave=int(table["wave"][ticket]),
        begins_with=begins_with,
        refused={identity(refused) for refused in state.refused.get(ticket, ())},
    )


def load_slots(state: RunState, slots: slice) -> list[Slot]:
    columns = [state.book.rollouts[name][slots].tolist() for name in ("arrived", "fragment", "outcome", "reward")]
    columns += [state.book.rollouts[name][slots].tolist() for name in ("status", "tokens", "id_hash")]
    loaded = []
    for i, (arrived, fragment, outcome, reward, status, tokens, id_hash) in enumerate(zip(*columns, strict=True)):
        known = None if np.isnan(outcome) else outcome
        fragments: dict[int, tuple[float | None, int]] = {fragment: (known, tokens)} if arrived else {}
        for other, (value, cost) in state.book.fragments.get(slots.start + i, {}).items():
            fragments[other] = (None if np.isnan(value) else value, cost)
        loaded.append(Slot(arrived, known, None if np.isnan(reward) else reward, status, tokens, fragments, id_hash))
    return loaded


def _empty_slots(state: RunState, ticket: int) -> list[Slot]:
    """The slots of an attempt of which nothing has arrived, as most are when they are reported."""
    return [Slot(False, None, None, 0, 0, {}, 0) for _ in range(int(state.book.tickets["group_size"][ticket]))]


def begun(slots: list[Slot], begins_with: Sequence[Arrived]) -> list[Slot]:
    """The same slots, with prior rollouts in the first of them."""
    for slot, prior in zip(slots, begins_with, strict=False):
        slot.prior = prior
    return slots


def identity(refused: RefusedEvidence) -> tuple[object, ...]:
    """What makes it the same refused rollout: everything but why it was refused, which changes as tickets close."""
    return (refused.attempt, refused.n, refused.id, refused.fragment, refused.outcome, refused.reward, refused.tokens)


def is_same(slot: Slot, rollout: RolloutIn) -> bool:
    """Whether the slot knows this fragment of the rollout with these values."""
    status, outcome, reward = as_counted(rollout)
    if slot.fragments.get(rollout.fragment) != (outcome, rollout.tokens or 0):
        return False
    same_status = slot.status == status or {slot.status, status} == WITHOUT_OUTCOME
    return rollout.fragment != next(iter(slot.fragments)) or (slot.reward == reward and same_status)


def as_counted(rollout: RolloutIn) -> tuple[int, float | None, float | None]:
    """Status, outcome and reward as they count: what was never begun is an error, what has no outcome has a reward at
    most, and without either is unscored.
    """
    status = rollout.status
    if status is RolloutStatus.TRUNCATED and rollout.tokens == 0:
        status = RolloutStatus.ERROR
    if status is RolloutStatus.OK and rollout.outcome is None:
        status = RolloutStatus.UNSCORED if rollout.reward is None else RolloutStatus.REWARDED
    return int(status), rollout.outcome, rollout.reward
