"""Tickets that end without a group, and what may be tried again."""

import pytest

from selector.groups.reports import GroupIn
from selector.types import TicketState, VoidReason
from tests.selector.engine_cases import (
    TOKENS,
    Session,
    beliefs_of,
    error,
    make_config,
    numbered,
    rollout,
    rollouts,
)
from tests.selector.report_cases import MIXED, OTHER_REASONS, RETRIABLE, codes, counts, drawn, row_of


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
