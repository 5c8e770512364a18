"""Prior rollouts: train tickets that begin with what a probe of their prompt has made.

`batches.drawing` hands them over, the fold keeps track, `group_reports` and `engine` ask what a group begins with, and
`api` names them.

A prior rollout belongs to its probe: there it was reported, paid for and shown to the beliefs, and it is counted
nowhere else. It fills one of the first places of a train ticket. What the ticket adds is what is new in it: `scored`,
`passes`, tokens, beliefs and the audit's pass rates are of new rollouts alone, of which there are `min_rollouts` at
least. Only the verdict on whether the group is informative, which is about what is trained on, is of all of it. One
that is reported in the place of a prior rollout counts as any other, and that one no longer.

A ticket that begins so is conditioned on how its probe turned out. The draw therefore records counts and rule of the
probe with P(informative | what is there), and audit tickets, which speak for the pool, never get any.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import fsum
from operator import itemgetter
from typing import Any

import numpy as np

from selector.rollout_store import MAX_BODY_BYTES, NOBODY
from selector.run.events import BatchDrawn, GroupEvidence
from selector.run.state import DrawnBatch, RunState
from selector.run.tickets import TicketName, read_ticket_name
from selector.run.verdict import is_informative
from selector.types import PURPOSE_CODE, Purpose, TicketState

Arrived = tuple[float | None, float | None, int]
"""Outcome, reward and status of a rollout."""


@dataclass(frozen=True, slots=True)
class RolloutName:
    """A rollout's id read back: its ticket, the attempt and its number there."""

    ticket: TicketName
    attempt: int
    n: int

    def __str__(self) -> str:
        return f"{self.ticket}/{self.attempt}/{self.n}"


def read_rollout_name(text: str) -> RolloutName | None:
    """None when the text is no rollout's id."""
    ticket, *numbers = text.split("/")
    name = read_ticket_name(ticket)
    if name is None or len(numbers) != 2 or not all(p.isascii() and p.isdigit() and len(p) <= 9 for p in numbers):
        return None
    return RolloutName(name, int(numbers[0]), int(numbers[1]))


def find_slot(state: RunState, ticket: int, attempt: int, n: int) -> int | None:
    """Where the book has a rollout that has arrived; None where there is none."""
    table = state.book.tickets
    if not (1 <= attempt <= table["attempt"][ticket] and n < table["group_size"][ticket]):
        return None
    slot = state.book.slots(ticket, attempt).start + n
    return slot if state.book.rollouts["arrived"][slot] else None


def is_wanted(state: RunState, ticket: int) -> bool:
    """Whether the store takes what this ticket's rollouts say: those of probes, if the run has a store."""
    has_store = state.config.rollout_store is not None
    return has_store and bool(state.book.tickets["purpose"][ticket] == PURPOSE_CODE[Purpose.PROBE])


def why_not_kept(state: RunState, size: int, version: int) -> tuple[str, str] | None:
    """Why a content of so many bytes, made by these weights, is not kept: a code and a sentence; None where it is."""
    bounds = state.config.rollout_store
    if bounds is None:
        raise ValueError(f"run {state.run!r} has no store")
    most, lag = min(MAX_BODY_BYTES, bounds.max_bytes), state.policy_version - version
    if size > most:
        return "completion_too_large", f"its completion has {size} bytes, and {most} are kept at most"
    if lag > bounds.max_lag:
        return "stale", f"its weights are {lag} versions behind the run's; rollout_store.max_lag is {bounds.max_lag}"
    return None


def hold(state: RunState, groups: Sequence[GroupEvidence]) -> None:
    """Takes what came with a content into the store."""
    kept = [(group, place) for group in groups for place, size in enumerate(group.kept) if size]
    if not kept:
        return
    names = ("n", "version")
    columns = {name: np.array([getattr(group, name)[place] for group, place in kept], np.int64) for name in names}
    first = state.ever_held + 1
    state.ever_held += len(kept)
    state.held = state.held.with_more(
        columns
        | {
            "serial": np.arange(first, first + len(kept)),
            "ticket": np.array([group.ticket for group, _ in kept], np.int64),
            "attempt": np.array([group.attempt for group, _ in kept], np.int64),
            "size": np.array([group.kept[place] for group, place in kept], np.int64),
            "given": np.full(len(kept), NOBODY),
        }
    )


def begun(state: RunState, event: BatchDrawn) -> BatchDrawn:
    """The batch with prior rollouts for those of its train tickets whose prompts have any.

    Rollouts of probes that have ended as reported, of weights within the store's and the run's bounds on lag, each for
    one ticket ever; as many as leave `min_rollouts` of the ticket to be made, in the order of their numbers and never
    in that in which they came, as short answers come first.
    """
    places = _available(state, max(state.policy_version, event.policy_version))
    table, held = state.book.tickets, state.held
    row_P = table["row"][held["ticket"][places]]
    position_K = np.flatnonzero(~event.audit_K & np.isin(event.row_K, row_P))
    # Of a prompt that is drawn repeatedly the first ticket gets them.
    position_K = np.sort(position_K[np.unique(event.row_K[position_K], return_index=True)[1]])
    most_K = event.rollouts_K[position_K] - state.config.min_rollouts
    if not (most_K > 0).any():
        return event
    order_P = np.lexsort((held["n"][places], held["ticket"][places], row_P))
    places, row_P = places[order_P], row_P[order_P]
    first_K = np.searchsorted(row_P, event.row_K[position_K])
    last_K = np.searchsorted(row_P, event.row_K[position_K], side="right")
    priors = [
        _prior(state, event, position, places[first : min(last, first + most)])
        for position, first, last, most in zip(
            position_K.tolist(), first_K.tolist(), last_K.tolist(), most_K.tolist(), strict=True
        )
        if most > 0
    ]
    named = "".join(f"|{p['place']}:{p['rollouts']}" for p in priors)
    return replace(event, priors=priors, digest=f"sha256:{sha256((event.digest + named).encode()).hexdigest()}")


def foreseen(state: RunState, informative_N: np.ndarray, group_size: int, version: int) -> np.ndarray:
    """(N,) P(informative) of a train group of each row, which may begin with what a probe of its prompt has made.

    1 where that differs already. Where it is all alike, the belief knows that, and stands. Of this draw alone: what a
    planner of probes decides is to serve later ones too, for which these rollouts will be too old.
    """
    if state.config.rollout_store is None:
        return informative_N
    foreseen_N = informative_N.copy()
    foreseen_N[sure_groups(state, group_size, version)] = 1.0
    return foreseen_N


def sure_groups(state: RunState, group_size: int, version: int) -> np.ndarray:
    """Rows whose next train group is informative whatever the rest of it does, as what it would begin with differs."""
    places = _available(state, version)
    table, held = state.book.tickets, state.held
    ticket_P = held["ticket"][places]
    row_P = table["row"][ticket_P]
    order_P = np.lexsort((held["n"][places], ticket_P, row_P))
    places, row_P = places[order_P], row_P[order_P]
    within_P = np.arange(len(row_P)) - np.searchsorted(row_P, row_P)
    taken_P = within_P < group_size - state.config.min_rollouts
    places, row_P = places[taken_P], row_P[taken_P]
    if not len(places):
        return np.zeros(0, np.int64)
    signal_P = state.book.rollouts[state.config.signal][table["slot"][held["ticket"][places]] + held["n"][places]]
    row_R, first_R = np.unique(row_P, return_index=True)
    range_R = np.fmax.reduceat(signal_P, first_R) - np.fmin.reduceat(signal_P, first_R)  # of what is not NaN
    return np.asarray(row_R[range_R > state.config.tolerance])


def fold_begun(state: RunState, batch: DrawnBatch) -> None:
    """A batch was drawn: what its tickets begin with is given away."""
    if not batch.event.priors:
        return
    given = [(p["place"], tuple(rollout)) for p in batch.event.priors for rollout in p["rollouts"]]
    for prior in batch.event.priors:
        state.book.tickets["prior"][batch.first_ticket + prior["place"]] = len(prior["rollouts"])
    found = state.held.places_of(rollout for _, rollout in given)
    tickets = np.array([batch.first_ticket + place for place, _ in given], np.int64)
    state.held = state.held.given_to(np.array([found[rollout] for _, rollout in given], np.int64), tickets)


def prior_of(state: RunState, ticket: int) -> Mapping[str, Any] | None:
    """What its draw recorded of a ticket's prior rollouts; None where it has none."""
    if not state.book.tickets["prior"][ticket]:
        return None
    priors, place = state.batch_of(ticket).event.priors, int(state.book.tickets["position"][ticket])
    found: Mapping[str, Any] = priors[bisect_left(priors, place, key=itemgetter("place"))]
    return found


def prior_rollouts(state: RunState, ticket: int) -> list[Arrived]:
    """What a ticket begins with, by place; empty for most."""
    prior = prior_of(state, ticket)
    return [] if prior is None else [_arrived(state, rollout) for rollout in prior["rollouts"]]


def standing(state: RunState, ticket: int) -> list[Arrived]:
    """Those of them in whose place nothing else was reported in the current attempt."""
    arrived = state.book.rollouts["arrived"][state.book.slots(ticket)]
    return [one for one, has_come in zip(prior_rollouts(state, ticket), arrived.tolist(), strict=False) if not has_come]


def num_standing(state: RunState, tickets: np.ndarray | None = None) -> int:
    """How many prior rollouts stand in the places of these tickets, or of all: rollouts that nobody has to make."""
    table = state.book.tickets
    prior_T = table["prior"] if tickets is None else table["prior"][tickets]
    slot_T = table["slot"] if tickets is None else table["slot"][tickets]
    some = np.flatnonzero(prior_T)
    count_B = prior_T[some].astype(np.int64)
    within_R = np.arange(int(count_B.sum())) - np.repeat(np.cumsum(count_B) - count_B, count_B)
    return int(np.count_nonzero(~state.book.rollouts["arrived"][np.repeat(slot_T[some], count_B) + within_R]))


def rollout_ids(state: RunState, prior: Mapping[str, Any]) -> list[str]:
    """The ids of a ticket's prior rollouts, by place."""
    return [f"{state.ticket_id(ticket)}/{attempt}/{n}" for ticket, attempt, n in prior["rollouts"]]


def _available(state: RunState, version: int) -> np.ndarray:
    """Places in the store of what may be given to a train ticket."""
    held, table, bounds = state.held, state.book.tickets, state.config.rollout_store
    if bounds is None or not len(held):
        return np.zeros(0, np.int64)
    most = bounds.max_lag if state.config.max_lag is None else min(bounds.max_lag, state.config.max_lag)
    lag_H = version - held["version"]
    is_probe_H = table["purpose"][held["ticket"]] == PURPOSE_CODE[Purpose.PROBE]
    ended_H = table["state"][held["ticket"]] == TicketState.REPORTED
    current_H = held["attempt"] == table["attempt"][held["ticket"]]
    free_H = (held["given"] == NOBODY) & is_probe_H & ended_H & current_H
    return np.flatnonzero(free_H & (lag_H >= 0) & (lag_H <= most))


def _prior(state: RunState, event: BatchDrawn, position: int, places: np.ndarray) -> dict[str, Any]:
    """What is recorded of one ticket: its rollouts as (ticket, attempt, n), and what they come to, in counts."""
    held = state.held
    rollouts = np.stack([held[name][places] for name in ("ticket", "attempt", "n")], axis=1).tolist()
    arrived = [_arrived(state, rollout) for rollout in rollouts]
    rules = {(wave := state.batch_of(ticket).event.wave) and wave["rule"] for ticket, _, _ in rollouts}
    return {
        "place": position,
        "rollouts": rollouts,
        "versions": held["version"][places].tolist(),
        "passes": fsum(outcome for outcome, _, _ in arrived if outcome is not None),
        "scored": len(arrived),
        "rules": sorted(rule for rule in rules if rule is not None),  # that stopped the probes
        "informative": _informative_given(state, event, position, arrived),
    }


def _informative_given(state: RunState, event: BatchDrawn, position: int, arrived: Sequence[Arrived]) -> float:
    """P(the whole group is informative | its prior rollouts), under the belief of the draw, which knows them.

    1 if they differ. If all m of them are 1, or all 0, then 1 − E[p^(G−m)] or 1 − E[(1−p)^(G−m)]. Of other scores the
    belief says nothing more than of any group: P(informative) as it was drawn.
    """
    signal = [outcome if state.config.signal == "outcome" else reward for outcome, reward, _ in arrived]
    if is_informative(signal, state.config.tolerance):
        return 1.0
    mean, left = float(event.pass_rate_K[position]), int(event.rollouts_K[position]) - len(arrived)
    if set(signal) == {1.0}:
        return 1.0 - all_pass(mean, float(event.variance_K[position]), left)
    if set(signal) == {0.0}:
        return 1.0 - all_pass(1.0 - mean, float(event.variance_K[position]), left)
    return float(event.informative_K[position])


def all_pass(mean: float, variance: float, count: int) -> float:
    """E[p^count] under the Beta distribution with this mean and variance, by the product that
    `predictors.value.informative_probability` states: m Π_{j=1}^{n−1} (m(1−r) + j·r) / (1 + (j−1)·r), r = v/(m(1−m)).

    mean in (0, 1), variance in [0, m(1−m)], count >= 1. In (0, 1). Raises ValueError for a count below 1.
    """
    if count < 1:
        raise ValueError(f"count must be >= 1, got {count}")
    overlap, product = min(variance / (mean * (1.0 - mean)), 1.0), mean
    for j in range(1, count):
        product *= (mean * (1.0 - overlap) + j * overlap) / (1.0 + (j - 1) * overlap)
    return product


def _arrived(state: RunState, rollout: Sequence[int]) -> Arrived:
    ticket, attempt, n = rollout
    slot, rollouts = state.book.slots(ticket, attempt).start + n, state.book.rollouts
    outcome, reward = float(rollouts["outcome"][slot]), float(rollouts["reward"][slot])
    return None if np.isnan(outcome) else outcome, None if np.isnan(reward) else reward, int(rollouts["status"][slot])
