"""What a report counts, what it refuses, and how tickets close: hand-worked groups through the engine."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.errors import BranchSuperseded, BranchUnknown, ReportInvalid
from selector.reports import Decision, GroupIn, Report, RolloutIn
from selector.types import Purpose, RolloutStatus, Source, TicketState, VoidReason
from tests.selector.engine_cases import (
    TOKENS,
    Session,
    beliefs_of,
    error,
    lasting,
    make_config,
    make_policy,
    make_pool,
    numbered,
    rollout,
    rollouts,
)

MIXED = (1.0, 0.0, 0.0, 0.0)
UNKNOWN = 0.5  # mean of a prompt that was never tried
OTHER_REASONS = [VoidReason.STALE, VoidReason.SURPLUS, VoidReason.NEVER_STARTED]
RETRIABLE = [VoidReason.ERROR, VoidReason.LOST]


def drawn(size: int = 3, **config: Any) -> Session:
    """A run with one train batch out."""
    session = Session(make_config(**config))
    session.draw(0, size, policy_version=5)
    return session


def row_of(session: Session, ticket: int = 0) -> int:
    return int(session.state.book.tickets["row"][ticket])


def counts(decision: Decision) -> tuple[int, int, int]:
    return decision.applied, decision.duplicate, decision.late


def codes(decision: Decision) -> list[str]:
    return [refusal.code for refusal in decision.rejected]


def in_any_order(sent: Sequence[RolloutIn]) -> st.SearchStrategy[list[RolloutIn]]:
    return st.permutations([replace(r, n=n) for n, r in enumerate(sent)])


# A whole group


def test_a_whole_group_closes_its_ticket_and_teaches_its_prompt() -> None:
    session = drawn()

    decision = session.report(0, rollouts(*MIXED))

    assert counts(decision) == (4, 0, 0)
    assert decision.rejected == []
    assert session.ticket(0) == {"state": TicketState.REPORTED, "reason": 0, "attempt": 1, "scored": 4, "passes": 1.0}
    assert session.state.book.tickets["informative"][0] == 1
    assert session.mean(row_of(session)) == (1 + 1) / (2 + 4)
    assert session.state.in_flight_N[row_of(session)] == 0
    assert session.tokens() == {"train": 4 * TOKENS}
    assert session.state.ledger.statuses == {"reported": 4, "scored": 4, "unscored": 0, "error": 0, "truncated": 0}
    assert {name: session.state.rows[name][row_of(session)] for name in ("groups_N", "rollouts_N", "errors_N")} == {
        "groups_N": 1,
        "rollouts_N": 4,
        "errors_N": 0,
    }


def test_deciding_changes_nothing() -> None:
    session = drawn()
    before = lasting(session.state)

    session.engine.report(Report(groups=[GroupIn(ticket=session.id(0), rollouts=rollouts(*MIXED))]))

    assert lasting(session.state) == before


@settings(max_examples=30)
@given(st.data())
def test_the_order_of_arrival_changes_nothing(data: st.DataObject) -> None:
    """Rollouts one by one, from several workers, for several tickets at once."""
    groups = [
        [rollout(1.0, tokens=3), rollout(0.0, tokens=5), rollout(0.5, reward=None), error(tokens=7)],
        [rollout(0.1), rollout(0.7), rollout(None), rollout(0.2, status=RolloutStatus.TRUNCATED)],
        [error(), error(), error(), error()],
    ]
    whole, apart = drawn(), drawn()
    for ticket, group in enumerate(groups):
        whole.report(ticket, group)
    arrivals = [(t, r) for t, group in enumerate(groups) for r in data.draw(in_any_order(group))]

    for ticket, arrived in data.draw(st.permutations(arrivals)):
        assert counts(apart.report(ticket, [arrived])) == (1, 0, 0)

    assert lasting(apart.state) == lasting(whole.state)


def test_a_wave_waits_for_its_last_rollout() -> None:
    session = drawn()

    session.report(0, numbered(n2=1.0, n0=0.0, n3=0.0))
    assert session.ticket(0)["state"] == TicketState.OPEN
    assert session.mean(row_of(session)) == UNKNOWN

    session.report(0, numbered(n1=1.0))
    assert session.ticket(0) == {"state": TicketState.REPORTED, "reason": 0, "attempt": 1, "scored": 4, "passes": 2.0}


# The same again


def test_a_group_sent_twice_counts_once_and_another_one_is_a_conflict() -> None:
    session = drawn()
    session.report(0, rollouts(*MIXED))
    once = lasting(session.state)

    again = session.report(0, rollouts(*MIXED))
    assert counts(again) == (0, 4, 0)
    assert again.event is None
    assert lasting(session.state) == once

    other = session.report(0, rollouts(1.0, 1.0, 0.0, 0.0))
    assert counts(other) == (0, 3, 0)
    assert codes(other) == ["report_conflict"]
    assert other.rejected[0].n == 1
    assert lasting(session.state)["tickets"] == once["tickets"]
    assert lasting(session.state)["beliefs"] == once["beliefs"]
    assert [(r.n, r.outcome, r.code) for r in session.state.refused[0]] == [(1, 1.0, "report_conflict")]

    repeated = session.report(0, rollouts(1.0, 1.0, 0.0, 0.0))
    assert codes(repeated) == ["report_conflict"]
    assert repeated.event is None
    assert len(session.state.refused[0]) == 1
    assert session.tokens() == {"train": 4 * TOKENS}


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": 0.0},
        {"reward": 0.5},
        {"tokens": TOKENS + 1},
        {"status": RolloutStatus.TRUNCATED},
        {"outcome": None, "reward": None},
    ],
)
def test_any_other_value_of_a_known_rollout_is_a_conflict(change: dict[str, Any]) -> None:
    session = drawn()
    session.report(0, [rollout(1.0, n=2)])

    decision = session.report(0, [replace(rollout(1.0, n=2), **change)])

    assert codes(decision) == ["report_conflict"]
    assert session.state.book.rollouts["outcome"][2] == 1.0
    assert session.tokens() == {"train": TOKENS}


def test_a_conflict_within_one_report_keeps_the_first() -> None:
    session = drawn()

    decision = session.report(0, [rollout(1.0, n=0), rollout(1.0, n=0), rollout(0.0, n=0)])

    assert counts(decision) == (1, 1, 0)
    assert codes(decision) == ["report_conflict"]
    assert session.state.book.rollouts["outcome"][0] == 1.0


def test_a_ticket_named_twice_in_a_report_is_worked_through_in_order() -> None:
    session = drawn()
    first, rest = numbered(n0=1.0, n1=0.0), numbered(n1=0.0, n2=0.0, n3=0.0)

    decision = session.send(GroupIn(ticket=session.id(0), rollouts=first), GroupIn(ticket=session.id(0), rollouts=rest))

    assert counts(decision) == (4, 1, 0)
    assert session.ticket(0)["state"] == TicketState.REPORTED
    assert session.ticket(0)["scored"] == 4


# Numbers, ids, places


def test_the_service_numbers_ids_on_arrival_and_knows_them_again() -> None:
    session = drawn()

    session.report(0, [rollout(1.0, id="w2-9"), rollout(0.0, id="w1-4")])
    again = session.report(0, [rollout(0.0, id="w1-4"), rollout(1.0, id="w2-9"), rollout(0.0, id="w7-1")])

    assert counts(again) == (1, 2, 0)
    assert session.state.book.rollouts["outcome"][:3].tolist() == [1.0, 0.0, 0.0]
    conflict = session.report(0, [rollout(0.0, id="w2-9")])
    assert (conflict.rejected[0].n, conflict.rejected[0].code) == (0, "report_conflict")


def test_ids_in_any_order_give_the_same_group() -> None:
    def answered(order: Sequence[int]) -> tuple[dict[str, int | float], dict[str, bytes]]:
        session = drawn()
        for i in order:
            session.report(0, [rollout(MIXED[i], id=f"w{i}")])
        return session.ticket(0), beliefs_of(session.state)

    assert answered([0, 1, 2, 3]) == answered([2, 3, 0, 1]) == answered([3, 1, 2, 0])


def test_a_number_belongs_to_the_id_that_came_with_it() -> None:
    session = drawn()
    session.report(0, [rollout(1.0, n=1, id="w1")])

    assert counts(session.report(0, [rollout(1.0, n=1, id="w1")])) == (0, 1, 0)
    assert counts(session.report(0, [rollout(1.0, n=1)])) == (0, 1, 0)
    assert codes(session.report(0, [rollout(1.0, n=1, id="w2")])) == ["report_conflict"]


def test_ids_take_the_numbers_that_are_free() -> None:
    session = drawn()
    session.report(0, numbered(n0=0.0, n2=0.0))

    session.report(0, [rollout(1.0, id="a"), rollout(1.0, id="b")])

    assert session.state.book.rollouts["outcome"][:4].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert session.ticket(0)["state"] == TicketState.REPORTED


def test_a_place_is_a_number_only_in_a_whole_or_final_list() -> None:
    session = drawn()

    with pytest.raises(ReportInvalid, match=r"rollout 0 of 3 has neither `n` nor `id`"):
        session.send(
            GroupIn(ticket=session.id(1), rollouts=rollouts(*MIXED)),
            GroupIn(ticket=session.id(0), rollouts=rollouts(1.0, 0.0, 0.0)),
        )
    assert session.ticket(1)["state"] == TicketState.OPEN

    session.report(0, rollouts(1.0, 0.0, 0.0), final=True)
    assert session.ticket(0) == {"state": TicketState.REPORTED, "reason": 0, "attempt": 1, "scored": 3, "passes": 1.0}
    assert counts(session.report(0, rollouts(1.0, 0.0, 0.0), final=True)) == (0, 3, 0)


def test_more_rollouts_than_the_group_has_are_refused() -> None:
    session = drawn()

    decision = session.report(0, [rollout(1.0, n=4), rollout(1.0, n=0)])
    assert [(r.n, r.code) for r in decision.rejected] == [(4, "too_many_rollouts")]
    assert decision.applied == 1

    ids = session.report(0, [rollout(0.0, id=f"w{i}") for i in range(5)])
    assert codes(ids) == ["too_many_rollouts"] * 2
    assert session.ticket(0)["scored"] == 4
    assert session.tokens() == {"train": 4 * TOKENS}


def test_a_long_list_that_calls_itself_final_counts_what_fits() -> None:
    session = drawn()

    decision = session.report(0, rollouts(1.0, 0.0, 0.0, 0.0, 1.0), final=True)

    assert codes(decision) == ["too_many_rollouts"]
    assert session.ticket(0)["scored"] == 4


# Fragments


def fragments_of_c12() -> list[RolloutIn]:
    """Four rollouts in 3, 1, 1, 1 parts with rewards 1, 0, 0, 0."""
    parts = [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (3, 0)]
    return [rollout(1.0 if n == 0 else 0.0, n=n, fragment=f, tokens=100 * n + f + 1) for n, f in parts]


@settings(max_examples=20)
@given(st.permutations(fragments_of_c12()))
def test_fragments_count_once_and_their_tokens_add_up(sent: list[RolloutIn]) -> None:
    """In any order."""
    session = drawn()

    decision = session.report(0, sent)

    assert counts(decision) == (6, 0, 0)
    assert session.ticket(0) == {"state": TicketState.REPORTED, "reason": 0, "attempt": 1, "scored": 4, "passes": 1.0}
    assert session.tokens() == {"train": sum(r.tokens or 0 for r in sent)}
    assert session.state.ledger.rollouts[Source.TRAIN] == 4
    assert session.state.rows["rollouts_N"][row_of(session)] == 4
    assert counts(session.report(0, sent[::-1])) == (0, 6, 0)


def test_a_fragment_with_another_outcome_is_refused() -> None:
    session = drawn()
    session.report(0, [rollout(1.0, n=0)])

    decision = session.report(0, [rollout(0.0, n=0, fragment=1, tokens=70)])

    assert codes(decision) == ["report_conflict"]
    assert session.tokens() == {"train": TOKENS}
    assert session.state.refused[0][0].fragment == 1


def test_a_known_fragment_with_other_tokens_is_refused() -> None:
    session = drawn()
    session.report(0, [rollout(1.0, n=0), rollout(1.0, n=0, fragment=2, tokens=5)])

    assert counts(session.report(0, [rollout(1.0, n=0, fragment=2, tokens=5)])) == (0, 1, 0)
    assert codes(session.report(0, [rollout(1.0, n=0, fragment=2, tokens=6)])) == ["report_conflict"]


def test_a_further_fragment_is_accepted_after_the_ticket_closed() -> None:
    session = drawn()
    session.report(0, rollouts(*MIXED))
    before, believed = session.ticket(0), beliefs_of(session.state)

    decision = session.report(0, [rollout(0.0, n=3, fragment=1, tokens=25)])

    assert counts(decision) == (1, 0, 0)
    assert session.ticket(0) == before
    assert beliefs_of(session.state) == believed
    assert session.tokens() == {"train": 4 * TOKENS + 25}
    assert counts(session.report(0, [rollout(0.0, n=3, fragment=1, tokens=25)])) == (0, 1, 0)
    assert counts(session.report(0, [rollout(1.0, n=3, fragment=2)])) == (0, 0, 0)


def test_a_further_fragment_of_a_void_group_is_paid_for_as_rejected() -> None:
    session = drawn()
    session.report(0, numbered(n0=1.0), void=VoidReason.SURPLUS)

    session.report(0, [rollout(1.0, n=0, fragment=1, tokens=25)])

    assert session.tokens() == {"rejected": TOKENS + 25}


# Whose ticket


@pytest.mark.parametrize("ticket", ["r:0:train:0:0:3", "r:1:train:0:0:0", "r:0:train:9:0:0", "nonsense", ""])
def test_a_ticket_that_was_never_issued_is_unknown(ticket: str) -> None:
    session = drawn()

    decision = session.send(
        GroupIn(ticket=ticket, rollouts=rollouts(*MIXED)), GroupIn(ticket=session.id(0), rollouts=rollouts(*MIXED))
    )

    assert [(r.ticket, r.code) for r in decision.rejected] == [(ticket, "unknown_ticket")]
    assert decision.tickets == [(ticket, None), (session.id(0), 0)]
    assert decision.applied == 4


def test_a_ticket_of_another_run_is_refused_by_name() -> None:
    session = drawn()

    decision = session.send(GroupIn(ticket="other:0:train:0:0:0", rollouts=rollouts(*MIXED)))

    assert codes(decision) == ["wrong_run"]
    assert decision.event is None
    assert "other" in decision.rejected[0].detail


def test_a_report_for_a_branch_that_is_not_the_current_one_is_refused_whole() -> None:
    session = drawn()
    session.checkpoint(0)
    session.draw(1, 3)
    session.restore(0)
    group = GroupIn(ticket=session.id(0), rollouts=rollouts(*MIXED))

    with pytest.raises(BranchSuperseded, match="branch 0"):
        session.send(group, branch=0)
    with pytest.raises(BranchUnknown, match="no branch 2"):
        session.send(group, branch=2)
    assert session.send(group, branch=1).applied == 4


# Late


def test_what_comes_for_a_closed_ticket_is_late_and_paid_once() -> None:
    session = drawn()
    session.report(0, rollouts(1.0, 0.0), final=True)
    believed = beliefs_of(session.state)

    for _ in range(3):
        decision = session.report(0, numbered(n2=1.0, n3=0.0))
        assert counts(decision) == (0, 0, 2)
        assert codes(decision) == ["ticket_closed"] * 2

    assert session.ticket(0)["scored"] == 2
    assert beliefs_of(session.state) == believed
    assert session.tokens() == {"train": 2 * TOKENS, "rejected": 2 * TOKENS}
    assert session.state.ledger.rollouts[Source.REJECTED] == 2
    assert [(r.n, r.outcome) for r in session.state.refused[0]] == [(2, 1.0), (3, 0.0)]


def test_late_rollouts_that_look_alike_are_told_apart_by_id_and_fragment() -> None:
    session = drawn()
    session.void(0, VoidReason.SURPLUS)
    late = [rollout(0.0, id="a"), rollout(0.0, id="b"), rollout(0.0, id="b", fragment=1)]

    session.report(0, late)
    session.report(0, late[::-1])

    assert session.tokens() == {"rejected": 3 * TOKENS}
    assert [(r.id, r.fragment) for r in session.state.refused[0]] == [("a", 0), ("b", 0), ("b", 1)]


# Ends without a group


@pytest.mark.parametrize("reason", [*OTHER_REASONS, *RETRIABLE])
def test_a_void_ticket_frees_its_prompt_and_its_tokens_are_rejected(reason: VoidReason) -> None:
    session = drawn()
    believed = beliefs_of(session.state)
    session.report(0, numbered(n0=1.0, n1=0.0))
    assert session.tokens() == {"train": 2 * TOKENS}

    session.void(0, reason)

    assert (session.ticket(0)["state"], session.ticket(0)["reason"]) == (TicketState.VOID, reason)
    assert session.state.in_flight_N[row_of(session)] == 0
    assert beliefs_of(session.state) == believed
    assert session.tokens() == {"rejected": 2 * TOKENS}
    assert session.void(0, reason).event is None
    assert codes(session.void(0, reason)) == []


def test_a_void_ticket_cannot_be_voided_for_another_reason_nor_a_reported_one_at_all() -> None:
    session = drawn()
    session.void(0, VoidReason.SURPLUS)
    session.report(1, rollouts(*MIXED))

    assert codes(session.void(0, VoidReason.STALE)) == ["ticket_closed"]
    assert codes(session.void(1, VoidReason.SURPLUS)) == ["ticket_closed"]
    assert session.ticket(0)["reason"] == VoidReason.SURPLUS
    assert session.ticket(1)["state"] == TicketState.REPORTED


def test_final_with_too_few_is_void_and_the_prompt_is_free_again() -> None:
    """One of the group arrived."""
    session = drawn()
    believed = beliefs_of(session.state)

    session.report(0, numbered(n0=1.0), final=True)
    session.report(1, final=True)

    for ticket in (0, 1):
        assert (session.ticket(ticket)["state"], session.ticket(ticket)["reason"]) == (
            TicketState.VOID,
            VoidReason.TOO_FEW,
        )
        assert session.state.in_flight_N[row_of(session, ticket)] == 0
    assert beliefs_of(session.state) == believed


@pytest.mark.parametrize(("scored", "state"), [(2, TicketState.VOID), (3, TicketState.REPORTED)])
def test_the_minimum_is_of_scored_rollouts(scored: int, state: TicketState) -> None:
    session = drawn(min_rollouts=3)

    session.report(0, rollouts(*[1.0] * scored, *[None] * (4 - scored)))

    assert session.ticket(0)["state"] == state


def test_seven_of_eight_are_used_and_so_are_seven_beside_an_error() -> None:
    session = Session(make_config(group_size=8))
    session.draw(0, 3)

    session.report(0, rollouts(1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0), final=True)
    session.report(1, [*rollouts(1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0), error()])
    session.report(2, numbered(n4=1.0), final=True)

    for ticket in (0, 1):
        assert session.ticket(ticket)["scored"] == 7
        assert session.mean(row_of(session, ticket)) == (1 + 2) / (2 + 7)
    assert session.ticket(2)["reason"] == VoidReason.TOO_FEW


# Attempts


@pytest.mark.parametrize("reason", RETRIABLE)
def test_an_errored_or_lost_ticket_may_be_tried_again(reason: VoidReason) -> None:
    session = drawn()
    session.report(0, numbered(n0=1.0, n1=1.0), void=reason)

    decision = session.report(0, numbered(n1=0.0, n2=0.0), attempt=2)

    assert counts(decision) == (2, 0, 0)
    assert (session.ticket(0)["state"], session.ticket(0)["attempt"]) == (TicketState.OPEN, 2)
    assert session.state.in_flight_N[row_of(session)] == 1
    session.report(0, numbered(n0=0.0, n3=1.0))
    assert session.ticket(0) == {"state": TicketState.REPORTED, "reason": 0, "attempt": 2, "scored": 4, "passes": 1.0}
    assert session.tokens() == {"rejected": 2 * TOKENS, "train": 4 * TOKENS}
    assert session.state.in_flight_N[row_of(session)] == 0


def test_a_group_of_errors_is_void_and_may_be_tried_again() -> None:
    session = drawn()
    session.report(0, [error() for _ in range(4)])
    assert session.ticket(0)["reason"] == VoidReason.ERROR

    session.report(0, rollouts(*MIXED), attempt=2)

    assert session.ticket(0)["state"] == TicketState.REPORTED
    assert session.mean(row_of(session)) == (1 + 1) / (2 + 4)


@pytest.mark.parametrize("reason", OTHER_REASONS)
def test_a_ticket_void_for_another_reason_has_no_further_attempt(reason: VoidReason) -> None:
    session = drawn()
    session.void(0, reason)

    decision = session.report(0, rollouts(*MIXED), attempt=2)

    assert codes(decision) == ["unknown_ticket"]
    assert "attempt 2" in decision.rejected[0].detail
    assert session.ticket(0)["state"] == TicketState.VOID


@pytest.mark.parametrize("attempt", [2, 3])
def test_an_open_or_reported_ticket_has_no_further_attempt(attempt: int) -> None:
    session = drawn()
    session.report(1, rollouts(*MIXED))

    for ticket in (0, 1):
        assert codes(session.report(ticket, rollouts(*MIXED), attempt=attempt)) == ["unknown_ticket"]
    assert session.ticket(0)["state"] == TicketState.OPEN


def test_an_attempt_cannot_be_skipped() -> None:
    session = drawn()
    session.void(0, VoidReason.ERROR)

    assert codes(session.report(0, rollouts(*MIXED), attempt=3)) == ["unknown_ticket"]


def test_what_an_earlier_attempt_sent_is_known_and_what_it_did_not_is_late() -> None:
    session = drawn()
    sent = [rollout(1.0, n=0), rollout(0.0, id="w1")]
    session.report(0, sent, void=VoidReason.ERROR)
    session.report(0, numbered(n0=0.0), attempt=2)

    again = session.report(0, sent, attempt=1)
    assert counts(again) == (0, 2, 0)
    assert again.event is None

    for _ in range(2):
        other = session.report(0, [rollout(0.0, n=0), rollout(1.0, id="w2"), rollout(1.0, n=3)], attempt=1)
        assert counts(other) == (0, 0, 3)
        assert codes(other) == ["ticket_closed"] * 3
    assert [(r.attempt, r.n, r.id) for r in session.state.refused[0]] == [(1, 0, None), (1, None, "w2"), (1, 3, None)]
    assert session.tokens() == {"rejected": 5 * TOKENS, "train": TOKENS}
    assert session.ticket(0)["attempt"] == 2


def test_a_report_may_void_a_ticket_and_begin_its_next_attempt() -> None:
    session = drawn()
    ticket = session.id(0)

    decision = session.send(
        GroupIn(ticket=ticket, rollouts=numbered(n0=1.0), void=VoidReason.ERROR),
        GroupIn(ticket=ticket, rollouts=rollouts(*MIXED), attempt=2),
        GroupIn(ticket=ticket, rollouts=numbered(n0=1.0), attempt=1),
    )

    assert counts(decision) == (5, 1, 0)
    assert session.ticket(0) == {"state": TicketState.REPORTED, "reason": 0, "attempt": 2, "scored": 4, "passes": 1.0}
    assert session.tokens() == {"rejected": TOKENS, "train": 4 * TOKENS}
    assert not session.state.in_flight_N[row_of(session)]
    assert session.replayed().state.book.tickets["attempt"][0] == 2


# Policy versions


def test_evidence_beyond_the_bound_is_stale_and_capacity_returns_at_once() -> None:
    """Bound 4, generated at 10, the policy is at 15."""
    session = Session(make_config(max_lag=4))
    session.draw(0, 8, policy_version=10)
    session.step(15, 15)
    believed = beliefs_of(session.state)

    decision = session.report(0, rollouts(*MIXED), version=10)

    assert codes(decision) == ["stale"] * 4
    assert decision.applied == 0
    assert (session.ticket(0)["state"], session.ticket(0)["reason"]) == (TicketState.VOID, VoidReason.STALE)
    assert beliefs_of(session.state) == believed
    assert session.tokens() == {"rejected": 4 * TOKENS}
    assert session.draw(1, 8).event.row_K.tolist() == [row_of(session)]
    assert session.report(1, rollouts(*MIXED), version=11).applied == 4

    again = session.report(0, rollouts(*MIXED), version=10)
    assert counts(again) == (0, 0, 4)
    assert session.tokens() == {"rejected": 4 * TOKENS, "train": 4 * TOKENS}


def test_one_stale_rollout_voids_the_group_and_takes_its_tokens_along() -> None:
    session = drawn(max_lag=2)
    session.report(0, numbered(n0=1.0), version=5)

    decision = session.report(0, [rollout(0.0, n=1, version=(2, 5)), rollout(0.0, n=2, version=(5, 5))])

    assert codes(decision) == ["stale"]
    assert decision.applied == 1
    assert session.ticket(0)["reason"] == VoidReason.STALE
    assert session.tokens() == {"rejected": 3 * TOKENS}


@pytest.mark.parametrize("version", [(-1, 5), (7, 7), (5, 7), (4, 3)])
def test_a_version_that_cannot_be_is_refused(version: tuple[int, int]) -> None:
    session = drawn()

    decision = session.report(0, [rollout(1.0, n=0, version=version), rollout(0.0, n=1)])

    assert [(r.n, r.code) for r in decision.rejected] == [(0, "bad_policy_version")]
    assert decision.applied == 1
    assert session.ticket(0)["state"] == TicketState.OPEN


@pytest.mark.parametrize("version", [0, 5, 6])
def test_older_versions_and_the_next_one_are_taken(version: int) -> None:
    session = drawn()

    session.report(0, rollouts(*MIXED), version=version)

    assert session.state.book.tickets["reported_version"][0] == version
    assert session.state.policy_version == 5


def test_the_nearest_version_named_is_taken_and_the_oldest_of_a_group_counts() -> None:
    session = drawn()

    session.send(
        GroupIn(
            ticket=session.id(0),
            version=(3, 3),
            rollouts=[rollout(1.0), rollout(0.0), rollout(0.0, version=(2, 4)), rollout(0.0)],
        ),
        GroupIn(ticket=session.id(1), rollouts=rollouts(*MIXED)),
        version=4,
    )
    session.report(2, rollouts(*MIXED))

    assert session.state.book.rollouts["version"][:4].tolist() == [3, 3, 2, 3]
    assert session.state.book.tickets["reported_version"].tolist() == [2, 4, 5]


def test_twenty_draws_without_a_usable_group_raise_one_alarm() -> None:
    """All groups too old, for ever."""
    session = Session(make_config(max_lag=0))
    session.step(1, 100)
    for index in range(40):
        batch = session.draw(index, 4)
        assert len(batch.event.row_K) == 4
        for ticket in range(batch.first_ticket, batch.first_ticket + 4):
            session.report(ticket, rollouts(*MIXED), version=1)
        assert ("no_usable_groups" in session.state.alarms) == (index >= 19)

    assert session.state.alarms["no_usable_groups"]["draws"] == 20
    assert session.tokens() == {"rejected": 40 * 4 * 4 * TOKENS}


def test_a_usable_group_now_and_then_keeps_the_alarm_away() -> None:
    session = Session(make_config())
    for index in range(40):
        batch = session.draw(index, 4)
        for ticket in range(batch.first_ticket, batch.first_ticket + 4):
            session.report(ticket, rollouts(*MIXED)) if index % 15 == 14 else session.void(ticket, VoidReason.LOST)

    assert session.state.alarms == {}


# What counts as a reward


def test_a_rollout_without_a_score_is_a_third_state() -> None:
    """[1, none, 0, 1], [none, 1, 1, 1], all none."""
    session = drawn()

    session.report(0, rollouts(1.0, None, 0.0, 1.0))
    session.report(1, rollouts(None, 1.0, 1.0, 1.0))
    believed = beliefs_of(session.state)
    session.report(2, rollouts(None, None, None, None))

    table = session.state.book.tickets
    assert table["scored"].tolist() == [3, 3, 0]
    assert table["passes"].tolist() == [2.0, 3.0, 0.0]
    assert table["informative"].tolist() == [1, 0, -1]
    assert table["state"].tolist() == [TicketState.REPORTED, TicketState.REPORTED, TicketState.VOID]
    assert session.mean(row_of(session, 0)) == (1 + 2) / (2 + 3)
    assert session.mean(row_of(session, 1)) == (1 + 3) / (2 + 3)
    assert beliefs_of(session.state) == believed
    assert session.state.ledger.statuses["unscored"] == 6


@pytest.mark.parametrize(("signal", "informative"), [("reward", [1, 1, 0]), ("outcome", [0, 0, 1])])
def test_difficulty_follows_the_outcome_and_the_signal_is_a_setting(signal: str, informative: list[int]) -> None:
    """A length penalty on all wrong, a bonus on all right, two functions whose sum is constant."""
    session = drawn(signal=signal)
    shaped = [-0.10, -0.22, -0.31, -0.40]

    session.report(0, [rollout(0.0, reward=r) for r in shaped])
    session.report(1, [rollout(1.0, reward=1 + r) for r in shaped])
    names = [{"format": 1.0, "answer": 0.0}, {"format": 0.0, "answer": 1.0}] * 2
    decision = session.report(2, [rollout(w["answer"], reward=1.0, rewards=dict(w)) for w in names])

    assert session.state.book.tickets["informative"].tolist() == informative
    assert session.state.book.tickets["disagrees"].tolist() == [True, True, True]
    assert session.state.book.tickets["passes"].tolist() == [0.0, 4.0, 2.0]
    assert decision.event is not None
    assert decision.event.groups[0].rewards == names


def test_crashes_dressed_as_wrong_answers_do_not_lower_a_pass_rate() -> None:
    """Half of the rollouts crash and arrive as reward 0; of the others half pass."""
    session = Session(make_config(group_size=8), make_pool(1))
    for index in range(50):
        batch = session.draw(index, 1)
        session.report(batch.first_ticket, [*rollouts(1.0, 0.0, 1.0, 0.0), *[error() for _ in range(4)]])

    assert session.mean(0) == (1 + 100) / (2 + 200)
    assert session.state.rows["errors_N"][0] / session.state.rows["rollouts_N"][0] == 0.5
    assert session.state.ledger.statuses == {
        "reported": 400,
        "scored": 200,
        "unscored": 0,
        "error": 200,
        "truncated": 0,
    }


def test_a_truncated_rollout_counts_as_its_outcome_and_an_untouched_one_as_an_error() -> None:
    """Zero tokens marked as a time-out, and a genuine one after 16 000."""
    session = drawn()
    cut = RolloutStatus.TRUNCATED

    session.report(
        0, [rollout(0.0, status=cut, tokens=16_000), rollout(0.0, status=cut, tokens=0), *rollouts(1.0, 1.0)]
    )

    assert session.ticket(0)["scored"] == 3
    assert session.ticket(0)["passes"] == 2.0
    assert session.mean(row_of(session)) == (1 + 2) / (2 + 3)
    assert session.state.ledger.statuses == {
        "reported": 4,
        "scored": 3,
        "unscored": 0,
        "error": 1,
        "truncated": 1,
    }


def test_unknown_tokens_are_none_and_not_an_untouched_rollout() -> None:
    session = drawn()

    session.report(0, [rollout(1.0, status=RolloutStatus.TRUNCATED, tokens=None) for _ in range(4)])

    assert session.ticket(0)["scored"] == 4
    assert session.tokens() == {}


# Purposes


@pytest.mark.parametrize("purpose", [Purpose.HELDOUT, Purpose.CONTROL])
def test_no_belief_ever_sees_a_heldout_or_control_report(purpose: Purpose) -> None:
    session = Session(make_config(), make_pool(8, heldout=[0, 3, 6]))
    batch = session.draw(0, 3, purpose=purpose)
    assert all((row % 3 == 0) == (purpose is Purpose.HELDOUT) for row in batch.event.row_K.tolist())
    rewindable = {n: a.tobytes() for n, a in session.state.rewindable().items() if n != "counters"}
    dry = session.state.dry_draws

    for ticket in range(3):
        session.report(ticket, rollouts(*MIXED))

    seen = {n for n, a in session.state.rewindable().items() if n != "counters" and a.tobytes() != rewindable[n]}
    assert seen == {"rollouts_N"}
    assert session.state.dry_draws == dry
    assert session.tokens() == {purpose.value: 3 * 4 * TOKENS}
    assert session.state.book.tickets["informative"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("purpose", [Purpose.PROBE, Purpose.AUDIT])
def test_probes_and_audits_inform_the_beliefs(purpose: Purpose) -> None:
    session = Session(make_config())
    session.draw(0, 2, purpose=purpose)

    session.report(0, rollouts(*MIXED))

    assert session.mean(row_of(session)) == (1 + 1) / (2 + 4)
    assert session.tokens() == {purpose.value: 4 * TOKENS}


def test_audit_tickets_of_a_train_batch_have_a_source_of_their_own() -> None:
    session = Session(make_config(audit_share=0.5))
    batch = session.draw(0, 4)

    for ticket in range(4):
        session.report(ticket, rollouts(*MIXED))

    audits = int(batch.event.audit_K.sum())
    assert audits == batch.event.num_audit == 2
    assert session.tokens() == {"audit": audits * 4 * TOKENS, "train": (4 - audits) * 4 * TOKENS}


def test_two_groups_of_one_prompt_are_two_observations() -> None:
    """The same prompt twice in flight."""
    session = Session(make_config(), make_pool(1))
    session.draw(0, 2, allow_repeat=True)
    assert session.state.in_flight_N.tolist() == [2]

    session.report(1, rollouts(*MIXED))
    assert session.state.in_flight_N.tolist() == [1]
    session.report(0, rollouts(1.0, 1.0, 0.0, 0.0))

    assert session.state.rows["groups_N"].tolist() == [2]
    assert session.mean(0) == (1 + 3) / (2 + 8)


def test_the_evidence_of_a_group_is_bounded() -> None:
    """No pass among a few rollouts is "unknown so far", not "impossible"."""
    session = Session(make_config(make_policy(estimator="kalman_arcsine", estimator_options={})))
    session.draw(0, 1)

    session.report(0, rollouts(0.0, 0.0, 0.0, 0.0))

    beliefs = session.state.beliefs(np.array([row_of(session)]))
    assert 0.01 < beliefs.mean_N[0] < 0.5
