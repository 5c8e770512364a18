"""Versions of the policy in reports: too old, impossible, and the alarm of a run without a usable group."""

import pytest

from selector.groups.reports import GroupIn
from selector.types import TicketState, VoidReason
from tests.selector.engine_cases import (
    TOKENS,
    Session,
    beliefs_of,
    make_config,
    numbered,
    rollout,
    rollouts,
)
from tests.selector.report_cases import MIXED, codes, counts, drawn, row_of


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
