"""A run under watch: what random histories are made with, and what must hold after every event of them.

`CheckedRun` is the machine without its rules. It keeps a second engine that is told every event by way of the log, and
a model of what must be true from what was sent alone: tokens paid, credit owed, groups counted.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis.stateful import RuleBasedStateMachine, invariant

from selector.batches.drawing import DrawRequest
from selector.engine import RunEngine
from selector.groups.reports import Decision, GroupIn, RolloutIn
from selector.replay import attach
from selector.run.events import BatchDrawn, Event, Restored, RolloutsReported, TicketsExpired
from selector.run.state import RunState
from selector.types import (
    PURPOSE_CODE,
    PURPOSES,
    Lifecycle,
    Purpose,
    RolloutStatus,
    Source,
    Split,
    TicketState,
    VoidReason,
)
from tests.selector.engine_cases import Session, redraw, through_json

NUM_ROWS = 11
OUTCOMES = (0.0, 1.0, 0.5, None)
UNSCORABLE = 7  # a prompt whose grader never has an opinion
UNSEEN = (Purpose.HELDOUT, Purpose.CONTROL)


def fingerprint(state: RunState) -> dict[str, Any]:
    """Everything a snapshot holds and everything worked out from it, cheaply comparable."""
    arrays = {
        **state.rewindable(),
        **state.book.state(),
        "in_flight": state.in_flight_N,
        "quarantined": state.quarantined_N,
    }
    return {
        **{name: array.tobytes() for name, array in arrays.items()},
        "open": sorted(state.book.open),
        "plain": (
            state.seq,
            state.branch,
            state.segment_start,
            state.lifecycle_start,
            state.controller_start,
            state.ever_held,
            state.completed,
            state.config_hash,
        ),
        "pool": state.pool.revision,
        "alive": [batch.ordinal for batch in state.batches if batch.alive],
        "surviving": dict(state.surviving),
        "by_branch": dict(state.by_branch),
        "ledger": state.ledger.to_json(),
        "refused": dict(state.refused),
        "steps": dict(state.steps),
        "checkpoints": list(state.checkpoints),
        "restores": dict(state.restores),
        "alarms": dict(state.alarms),
    }


class ShadowedSession(Session):
    """A session whose every event also goes, by way of its JSON form, to an engine that decides nothing."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.shadow: RunEngine = self.replayed()
        self.closings: Counter[tuple[int, int]] = Counter()

    def apply(self, event: Event) -> None:
        for ticket in ended_by(event):
            self.closings[ticket, attempt_of(self.state, event, ticket)] += 1
        super().apply(event)
        stored = self.log[-1]
        if isinstance(event, Restored):
            again = through_json(event)
            assert isinstance(again, Restored)
            stored = replace(again, rewound=event.rewound)
        self.shadow.apply(attach(stored, self.archive))


def ended_by(event: Event) -> list[int]:
    if isinstance(event, RolloutsReported):
        return [group.ticket for group in event.groups if group.closing is not None]
    return list(event.tickets) if isinstance(event, TicketsExpired) else []


def attempt_of(state: RunState, event: Event, ticket: int) -> int:
    if isinstance(event, RolloutsReported):
        return next(group.attempt for group in event.groups if group.ticket == ticket and group.closing is not None)
    return int(state.book.tickets["attempt"][ticket])


@dataclass
class Saved:
    """What the model knew when the checkpoint was made."""

    rewindable: dict[str, bytes]
    open: list[int]
    credit_N: np.ndarray
    num_rows: int
    lifecycle_start: int
    controller_start: int


@dataclass
class Model:
    """What must be true, from what was sent."""

    paid: dict[tuple[Any, ...], int] = field(default_factory=dict)  # rollout fragment with its values -> tokens
    sent: list[GroupIn] = field(default_factory=list)
    credit_N: np.ndarray = field(default_factory=lambda: np.zeros(NUM_ROWS, np.int64))
    saved: dict[int, Saved] = field(default_factory=dict)
    kept_beliefs: bool = False
    freed: bool = False  # a restore voided tickets, so a later one cannot bring all of them back


class CheckedRun(RuleBasedStateMachine):
    """A run, its shadow and its model. A subclass begins it and has the rules."""

    session: ShadowedSession
    model: Model
    flat: bool  # beliefs are those of a flat Beta, to be worked out from the groups that count

    @property
    def state(self) -> RunState:
        return self.session.state

    def one_of(self, choice: int, *states: TicketState) -> int | None:
        """A ticket in one of these states, any by default."""
        found = np.flatnonzero(np.isin(self.state.book.tickets["state"], states or tuple(TicketState)))
        return int(found[choice % len(found)]) if len(found) else None

    def each_of(self, choices: list[int], *states: TicketState) -> list[int]:
        """Different tickets in one of these states."""
        found = np.flatnonzero(np.isin(self.state.book.tickets["state"], states))
        return sorted({int(found[choice % len(found)]) for choice in choices}) if len(found) else []

    def size_of(self, ticket: int) -> int:
        return int(self.state.book.tickets["group_size"][ticket])

    def within(self, ticket: int, ns: list[int]) -> list[int]:
        """Those of the numbers that the ticket's group has; its first one where there is none."""
        return [n for n in ns if n < self.size_of(ticket)] or [0]

    def has_arrived(self, ticket: int, n: int) -> bool:
        slots = self.state.book.slots(ticket)
        return n < self.size_of(ticket) and bool(self.state.book.rollouts["arrived"][slots][n])

    def has_open(self) -> bool:
        return bool(self.state.book.open)

    def has_ended(self) -> bool:
        return self.state.book.tickets.size > len(self.state.book.open)

    def has_tickets(self) -> bool:
        return self.state.book.tickets.size > 0

    def is_running(self) -> bool:
        return not self.state.completed

    # Draws

    def drawn(self, request: DrawRequest) -> BatchDrawn:
        event = self.session.engine.draw(request, now=self.session.now)
        shadow = self.session.shadow.draw(request, now=self.session.now)
        assert event is not None
        assert shadow is not None
        assert event.to_json() == shadow.to_json()
        assert event.eligible + event.blocked == event.frame
        heldout_N = self.state.pool.split_N == Split.HELDOUT
        assert (heldout_N[event.row_K] == (request.purpose is Purpose.HELDOUT)).all()
        if not request.allow_repeat:
            assert len(set(event.row_K.tolist())) == len(event.row_K)
        return event

    def check_chances(self, request: DrawRequest, event: BatchDrawn) -> None:
        """Σπ = K, π in (0, 1], the floor, and weights, from a draw made anew."""
        expected = redraw(self.state, request, event.revisit_draws)
        num_tickets, state, config = len(event.row_K), self.state, self.state.config
        assert event.row_K.tolist() == expected.rows_K.tolist()
        varies = config.policy.sampler is not None and config.policy.utility != "uniform"
        if not varies:
            np.testing.assert_allclose(expected.expected_N.sum(), num_tickets, atol=1e-9)
        assert len(event.row_K) <= request.size
        assert (event.inclusion_K > 0).all()
        assert (event.inclusion_K <= 1).all()
        assert event.inclusion_K.tolist() == np.minimum(expected.expected_N[event.row_K], 1).tolist()
        frame_N = state.frame_N
        blocked_N = frame_N & (state.in_flight_N > 0) & (not request.allow_repeat)
        eligible_N = frame_N & ~blocked_N
        assert not expected.expected_N[~eligible_N].any()
        lifecycle_N = state.rows["lifecycle_N"].copy()
        lifecycle_N[event.woken] = Lifecycle.ACTIVE
        mastered_N = (lifecycle_N == Lifecycle.MASTERED) & (expected.expected_N > 0)
        assert sum(cohort["members"] for cohort in event.cohorts) == mastered_N.sum()
        places = sorted(place for cohort in event.cohorts for place in cohort["places"])
        assert places == np.flatnonzero(mastered_N[event.row_K]).tolist()
        if num_tickets == 0:
            return
        gain_N = np.where(eligible_N, 1.0 + self.model.credit_N, 0.0)
        if config.policy.utility == "uniform" or (varies and not event.num_audit):
            least_N = 0.0
        else:
            share_N = config.policy.floor * (num_tickets - event.num_audit) * gain_N / gain_N.sum()
            # With an audit every prompt has m / N_e for sure and the floor holds within the parts of a draw.
            least_N = event.num_audit / eligible_N.sum() if event.num_audit else np.minimum(share_N, 1.0)
        assert (expected.expected_N[eligible_N] > 0).all()
        assert (expected.expected_N >= np.where(eligible_N, least_N, 0.0) - 1e-9).all()
        weight_K = num_tickets * gain_N[event.row_K] / (event.frame * expected.expected_N[event.row_K])
        np.testing.assert_allclose(event.ht_weight_K, weight_K)

    def owe(self, event: BatchDrawn) -> None:
        if len(event.row_K):
            blocked_N = self.state.frame_N & (self.state.in_flight_N > 0) & (not event.allow_repeat)
            self.model.credit_N = np.where(blocked_N, self.model.credit_N + 1, 0)

    def ask_for_each_batch_again(self) -> None:
        for batch in self.state.batches:
            event = batch.event
            request = DrawRequest(
                index=event.index,
                size=event.requested,
                policy_version=0,
                group_size=event.group_size,
                purpose=Purpose(event.purpose),
                refill=event.refill,
                divisor=event.divisor,
                short="fill" if event.short == "fill" else "partial",
                allow_repeat=event.allow_repeat,
            )
            if batch.alive:
                assert self.session.engine.draw(request, now=self.session.now) is None

    # Reports

    def rollout(self, ticket: int, attempt: int, n: int, fragment: int = 0) -> RolloutIn:
        """What rollout n of an attempt gave: the same whenever it is sent."""
        outcome = OUTCOMES[(7 * ticket + 3 * attempt + 5 * n) % len(OUTCOMES)]
        if self.state.book.tickets["row"][ticket] == UNSCORABLE:
            outcome = None
        status = RolloutStatus.ERROR if (ticket + attempt + 2 * n) % 7 == 0 else RolloutStatus.OK
        tokens = 100 * (n + 1) + 10 * attempt + fragment + 1
        body = b"." * (1 + n)
        return RolloutIn(
            n=n, fragment=fragment, outcome=outcome, reward=outcome, status=status, tokens=tokens, body=body
        )

    def group(self, ticket: int, ns: list[int], **values: Any) -> GroupIn:
        attempt = values.get("attempt") or int(self.state.book.tickets["attempt"][ticket])
        sent = [self.rollout(ticket, attempt, n) for n in ns]
        return GroupIn(ticket=self.session.id(ticket), rollouts=sent, **{"attempt": attempt, **values})

    def send(self, ticket: int, group: GroupIn, *, version: int | None = None, paid: bool = True) -> Decision:
        """Sends and checks what held-out and control reports may change. `paid`: the rollouts cost something."""
        purpose = PURPOSES[int(self.state.book.tickets["purpose"][ticket])]
        before = {n: a.tobytes() for n, a in self.state.rewindable().items() if n not in {"counters", "rollouts_N"}}
        dry = self.state.dry_draws
        decision = self.session.send(group, version=version)
        if purpose in UNSEEN:
            after = self.state.rewindable()
            assert {n for n, bits in before.items() if after[n].tobytes() != bits} <= {"errors_N"}
            assert self.state.dry_draws == dry
        if paid:
            self.pay(group)
        return decision

    def pay(self, group: GroupIn) -> None:
        self.model.sent.append(group)
        for r in group.rollouts:
            key = (group.ticket, group.attempt, r.n, r.fragment, r.outcome)
            self.model.paid.setdefault(key, r.tokens or 0)

    # What always holds

    @invariant()
    def the_log_gives_the_same_state(self) -> None:
        assert fingerprint(self.session.shadow.state) == fingerprint(self.state)
        assert self.state.seq == len(self.session.log)

    @invariant()
    def every_ticket_is_open_reported_or_void(self) -> None:
        table = self.state.book.tickets
        assert table.size == sum(len(batch.event.row_K) for batch in self.state.batches)
        assert np.isin(table["state"], list(TicketState)).all()
        assert sorted(self.state.book.open) == np.flatnonzero(table["state"] == TicketState.OPEN).tolist()
        assert ((table["reason"] == VoidReason.NONE) == (table["state"] != TicketState.VOID)).all()
        assert (np.isnan(table["deadline"]) | (table["deadline"] > 0)).all()
        is_open = table["state"] == TicketState.OPEN
        assert not (table["deadline"][is_open] < self.state.book.next_deadline).any()

    @invariant()
    def every_attempt_ends_once(self) -> None:
        assert all(count == 1 for count in self.session.closings.values())
        table = self.state.book.tickets
        for ticket in self.state.book.open:
            assert (ticket, int(table["attempt"][ticket])) not in self.session.closings

    @invariant()
    def prompts_in_flight_are_those_with_open_tickets(self) -> None:
        table = self.state.book.tickets
        rows = table["row"][table["state"] == TicketState.OPEN]
        assert self.state.in_flight_N.tolist() == np.bincount(rows, minlength=self.state.num_rows).tolist()

    @invariant()
    def tokens_balance(self) -> None:
        ledger, table = self.state.ledger, self.state.book.tickets
        assert sum(ledger.tokens.values()) == sum(self.model.paid.values())
        for purpose, code in PURPOSE_CODE.items():
            counted = (table["purpose"] == code) & (table["state"] != TicketState.VOID)
            assert ledger.tokens[Source(purpose.value)] == table["tokens"][counted].sum()
            assert ledger.rollouts[Source(purpose.value)] == table["arrived"][counted].sum()

    @invariant()
    def each_rollout_begins_one_ticket_and_none_of_the_audit(self) -> None:
        table, held, bounds = self.state.book.tickets, self.state.held, self.state.config.rollout_store
        priors = [(b, prior) for b in self.state.batches if b.alive for prior in b.event.priors]
        named = [tuple(rollout) for _, prior in priors for rollout in prior["rollouts"]]
        assert len(set(named)) == len(named)
        begun = {b.first_ticket + prior["place"]: len(prior["rollouts"]) for b, prior in priors}
        alive = np.array([b.alive for b in self.state.batches], bool)[table["batch"]]
        assert {int(t): int(table["prior"][t]) for t in np.flatnonzero((table["prior"] > 0) & alive)} == begun
        assert (table["purpose"][list(begun)] == PURPOSE_CODE[Purpose.TRAIN]).all() if begun else True
        assert len(np.unique(held["serial"])) == len(held)
        if bounds is None:
            assert not begun
            assert not len(held)
        else:
            assert len(held) <= bounds.max_rollouts
            assert held["size"].sum() <= bounds.max_bytes
            assert (held["serial"] <= self.state.ever_held).all()

    @invariant()
    def each_group_counts_once(self) -> None:
        table, num_rows = self.state.book.tickets, self.state.num_rows
        unseen = [PURPOSE_CODE[purpose] for purpose in UNSEEN]
        seen = (table["state"] == TicketState.REPORTED) & ~np.isin(table["purpose"], unseen)
        rows = table["row"][seen]
        assert self.state.rows["groups_N"].tolist() == np.bincount(rows, minlength=num_rows).tolist()
        if self.flat and not self.model.kept_beliefs:
            passes_N = np.bincount(rows, table["passes"][seen], num_rows)
            scored_N = np.bincount(rows, table["scored"][seen], num_rows)
            np.testing.assert_allclose(self.state.beliefs().mean_N, (1 + passes_N) / (2 + scored_N))
        heldout_N = self.state.pool.split_N == Split.HELDOUT
        assert not self.state.rows["groups_N"][heldout_N].any()
        assert not self.state.rows["lifecycle_N"][heldout_N].any()

    @invariant()
    def prompts_rest_by_rules_only(self) -> None:
        rows = self.state.rows
        resting_N = rows["lifecycle_N"] >= Lifecycle.MASTERED
        assert self.state.config.policy.lifecycle is not None or not resting_N.any()
        assert not rows["reviews_N"][~resting_N].any()
        assert (rows["mastered_draw_N"][rows["lifecycle_N"] == Lifecycle.MASTERED] > 0).all()
        assert (rows["mastered_draw_N"] <= self.state.train_draws + 1).all()
        assert (rows["failed_N"] <= rows["groups_N"]).all() or self.model.kept_beliefs

    @invariant()
    def only_what_never_scored_is_in_the_quarantine_of_the_run(self) -> None:
        assert np.flatnonzero(self.state.quarantined_N).tolist() in ([], [UNSCORABLE])
        assert self.state.config.policy.lifecycle is not None or not self.state.quarantined_N.any()
        assert (self.state.rows["same_N"] <= self.state.rows["groups_N"]).all()

    @invariant()
    def blocked_prompts_are_owed_their_share(self) -> None:
        assert self.state.rows["credit_N"].tolist() == self.model.credit_N.tolist()

    @invariant()
    def heldout_prompts_have_heldout_tickets_only(self) -> None:
        table = self.state.book.tickets
        heldout_N = self.state.pool.split_N == Split.HELDOUT
        assert (heldout_N[table["row"]] == (table["purpose"] == PURPOSE_CODE[Purpose.HELDOUT])).all()

    @invariant()
    def each_index_has_one_surviving_batch(self) -> None:
        alive = [batch for batch in self.state.batches if batch.alive]
        assert self.state.surviving == {batch.key: batch.ordinal for batch in alive}
        assert len(alive) == len(self.state.surviving)
        names = [self.session.id(ticket) for ticket in range(self.state.book.tickets.size)]
        assert len(set(names)) == len(names)
