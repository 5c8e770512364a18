"""A run under watch that is reported to: every way in which a trainer may report, as rules, and what reports decide.

`test_engine_stateful` adds all else that happens to a run: draws, steps, changes, crashes and restores.
"""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from selector.batches.refilling import last_refilled
from selector.groups.reports import GroupIn
from selector.types import PURPOSE_CODE, Purpose, RolloutStatus, TicketState, VoidReason
from tests.selector.checked_run import CheckedRun, fingerprint
from tests.selector.engine_cases import beliefs_of, tickets_of

GROUP_SIZE = 3
VOIDS = (VoidReason.STALE, VoidReason.ERROR, VoidReason.SURPLUS, VoidReason.LOST, VoidReason.NEVER_STARTED)

tickets = st.integers(0, 10_000)
several = st.lists(tickets, min_size=1, max_size=4)
numbers = st.lists(st.integers(0, GROUP_SIZE - 1), min_size=1, max_size=GROUP_SIZE, unique=True)


class ReportedRun(CheckedRun):
    """`CheckedRun` with the rules of reports, in parts, again, late, stale, in conflict, as void, and tried anew."""

    @precondition(CheckedRun.has_open)
    @rule(choices=several, ns=numbers, final=st.sampled_from([False, False, False, True]))
    def report_some(self, choices: list[int], ns: list[int], final: bool) -> None:
        for ticket in self.each_of(choices, TicketState.OPEN):
            of_group = self.within(ticket, ns)
            decision = self.send(ticket, self.group(ticket, of_group, final=final))
            assert decision.applied + decision.duplicate == len(of_group)

    @precondition(CheckedRun.has_open)
    @rule(choices=several, order=st.permutations(range(GROUP_SIZE)))
    def report_one_by_one(self, choices: list[int], order: list[int]) -> None:
        for ticket in self.each_of(choices, TicketState.OPEN):
            numbers = [*order, *range(GROUP_SIZE, self.size_of(ticket))]
            for n in self.within(ticket, numbers):
                assert self.state.book.tickets["state"][ticket] == TicketState.OPEN or n != numbers[0]
                self.send(ticket, self.group(ticket, [n]))
            assert self.state.book.tickets["state"][ticket] != TicketState.OPEN

    @precondition(CheckedRun.has_open)
    @rule(leave=st.integers(0, 3))
    def report_what_is_open(self, leave: int) -> None:
        """Whole groups for all open tickets but the last few, in one report."""
        chosen = sorted(self.state.book.open)[: -leave or None]
        groups = [self.group(ticket, list(range(self.size_of(ticket)))) for ticket in chosen]
        for group in groups:
            self.pay(group)
        self.session.send(*groups)
        assert len(self.state.book.open) <= leave

    @precondition(CheckedRun.has_open)
    @rule(final=st.booleans())
    def report_what_is_new(self, final: bool) -> None:
        """Of tickets that begin with prior rollouts what they lack, and nothing more."""
        begun = [t for t in self.state.book.open if self.state.book.tickets["prior"][t]]
        for ticket in begun:
            numbers = list(range(int(self.state.book.tickets["prior"][ticket]), self.size_of(ticket)))
            decision = self.send(ticket, self.group(ticket, numbers, final=final))
            assert decision.applied + decision.duplicate == len(numbers)
            assert self.state.book.tickets["state"][ticket] != TicketState.OPEN

    @precondition(CheckedRun.has_ended)
    @rule(choices=several, ns=numbers)
    def report_late(self, choices: list[int], ns: list[int]) -> None:
        for ticket in self.each_of(choices, TicketState.REPORTED, TicketState.VOID):
            believed, of_group = beliefs_of(self.state), self.within(ticket, ns)
            decision = self.send(ticket, self.group(ticket, of_group))
            assert decision.applied == 0
            assert decision.late + decision.duplicate == len(of_group)
            assert beliefs_of(self.state) == believed

    @precondition(lambda self: bool(self.model.sent))
    @rule(choice=st.integers(0, 1000))
    def send_again(self, choice: int) -> None:
        """An answer was lost; the client sends the group again, whatever became of its attempt since."""
        group = self.model.sent[choice % len(self.model.sent)]
        before = {**fingerprint(self.state), "plain": None}
        decision = self.session.send(replace(group, final=False, void=None))
        assert decision.applied == 0
        assert decision.duplicate + decision.late == len(group.rollouts)
        assert {**fingerprint(self.state), "plain": None} == before

    @precondition(CheckedRun.has_tickets)
    @rule(choice=tickets, n=st.integers(0, GROUP_SIZE - 1))
    def report_conflict(self, choice: int, n: int) -> None:
        ticket = self.one_of(choice)
        assert ticket is not None
        if self.has_arrived(ticket, n):
            group = self.group(ticket, [n])
            other = replace(group, rollouts=[replace(group.rollouts[0], outcome=0.25, reward=0.25)])
            decision = self.send(ticket, other, paid=False)
            assert [refusal.code for refusal in decision.rejected] == ["report_conflict"]

    @precondition(CheckedRun.has_tickets)
    @rule(choice=tickets, n=st.integers(0, GROUP_SIZE - 1), fragment=st.integers(1, 2))
    def report_fragment(self, choice: int, n: int, fragment: int) -> None:
        """A further part of a rollout that is in already; it is accepted after closing too."""
        ticket = self.one_of(choice)
        assert ticket is not None
        attempt = int(self.state.book.tickets["attempt"][ticket])
        if self.has_arrived(ticket, n):
            sent = [self.rollout(ticket, attempt, n, fragment)]
            decision = self.send(ticket, GroupIn(ticket=self.session.id(ticket), attempt=attempt, rollouts=sent))
            assert decision.rejected == []

    @precondition(lambda self: self.state.config.max_lag is not None and self.has_open())
    @rule(choice=tickets, ns=numbers)
    def report_stale(self, choice: int, ns: list[int]) -> None:
        ticket = self.one_of(choice, TicketState.OPEN)
        version = self.state.policy_version - (self.state.config.max_lag or 0) - 1
        if ticket is not None and version >= 0:
            of_group = self.within(ticket, ns)
            are_in = all(self.has_arrived(ticket, n) for n in of_group)
            believed = beliefs_of(self.state)
            self.send(ticket, self.group(ticket, of_group), version=version)
            assert (self.state.book.tickets["reason"][ticket] == VoidReason.STALE) == (not are_in)
            assert beliefs_of(self.state) == believed

    @precondition(CheckedRun.has_open)
    @rule(choices=several, reason=st.sampled_from(VOIDS), ns=st.one_of(st.just([]), numbers), again=st.booleans())
    def void(self, choices: list[int], reason: VoidReason, ns: list[int], again: bool) -> None:
        for ticket in self.each_of(choices, TicketState.OPEN):
            believed = beliefs_of(self.state)
            self.send(ticket, self.group(ticket, self.within(ticket, ns) if ns else [], void=reason))
            assert self.state.book.tickets["state"][ticket] == TicketState.VOID
            assert beliefs_of(self.state) == believed
            if again:
                self.try_again(ticket, ns)

    @precondition(CheckedRun.has_ended)
    @rule(choices=several, ns=numbers)
    def retry(self, choices: list[int], ns: list[int]) -> None:
        for ticket in self.each_of(choices, TicketState.VOID):
            self.try_again(ticket, ns)

    def try_again(self, ticket: int, ns: list[int]) -> None:
        table = self.state.book.tickets
        attempt = int(table["attempt"][ticket]) + 1
        may = table["reason"][ticket] in (VoidReason.ERROR, VoidReason.LOST)
        may = bool(may) and self.state.batch_of(ticket).alive and not self.state.completed
        ns = self.within(ticket, ns)
        decision = self.send(ticket, self.group(ticket, ns, attempt=attempt), paid=may)
        assert decision.applied == (len(ns) if may else 0)
        assert self.state.book.tickets["attempt"][ticket] == attempt - 1 + may

    # What reports decide

    @invariant()
    def waves_are_decided_once_by_the_rollouts_below_their_end(self) -> None:
        """And only those of train tickets drawn under a rule, and of probes; one that stops ends its ticket."""
        made, table, rollouts = self.state.book.decisions, self.state.book.tickets, self.state.book.rollouts
        names = ("ticket", "attempt", "wave", "right", "scored", "more")
        seen = list(zip(*(made[name].tolist() for name in names), strict=True))
        assert len({found[:3] for found in seen}) == len(seen)
        for ticket, attempt, wave, right, scored, more in seen:
            drawn_under = self.state.batch_of(ticket).event.wave
            assert drawn_under is not None
            is_probe = drawn_under["rule"] == "settle"
            assert table["purpose"][ticket] == PURPOSE_CODE[Purpose.PROBE if is_probe else Purpose.TRAIN]
            slots = self.state.book.slots(ticket, attempt)
            below = slice(slots.start, slots.start + drawn_under["first"] + wave * (drawn_under["step"] or 1))
            scores = rollouts["outcome"][below][rollouts["status"][below] == RolloutStatus.OK]
            scores = scores[~np.isnan(scores)]
            assert rollouts["arrived"][below].all()
            assert (right, scored) == (int((scores > 0.7).sum()), len(scores))
            goes_on = scored > 0 and (scores.min() < scores.max() if drawn_under["rule"] == "screen" else right == 0)
            assert is_probe or (more == 1) is bool(goes_on)
            if attempt == table["attempt"][ticket] and not more:
                assert table["state"][ticket] != TicketState.OPEN

    @invariant()
    def every_usable_group_of_a_refilled_batch_is_kept_or_surplus(self) -> None:
        standing, table = last_refilled(self.state), self.state.book.tickets
        if standing is None:
            return
        ours = [b for b in self.state.batches if b.alive and b.key[:2] == (Purpose.TRAIN.value, standing.index)]
        tickets = np.array([ticket for batch in ours for ticket in tickets_of(batch)], np.int64)
        usable = tickets[(table["informative"][tickets] == 1) & ~table["dropped"][tickets]]
        assert sorted((*standing.kept, *standing.surplus)) == sorted(usable.tolist())
        audits = int(np.count_nonzero(table["purpose"][list(standing.kept)] == PURPOSE_CODE[Purpose.AUDIT]))
        assert len(standing.kept) <= max(standing.target, audits)
        assert not (table["purpose"][list(standing.surplus)] == PURPOSE_CODE[Purpose.AUDIT]).any()
        assert standing.informative <= standing.judged
        assert standing.size is None or (not standing.open and len(standing.kept) < standing.target)
