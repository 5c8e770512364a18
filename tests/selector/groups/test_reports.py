"""What a report counts: whole groups in any order, and the same again."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.groups.reports import GroupIn, Report
from selector.types import RolloutStatus, TicketState
from tests.selector.engine_cases import (
    TOKENS,
    error,
    lasting,
    numbered,
    rollout,
    rollouts,
)
from tests.selector.report_cases import MIXED, UNKNOWN, codes, counts, drawn, in_any_order, row_of


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
