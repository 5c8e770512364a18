"""Reports of tickets that are another's, unknown, superseded or closed."""

import pytest

from selector.errors import BranchSuperseded, BranchUnknown
from selector.groups.reports import GroupIn
from selector.types import Source, VoidReason
from tests.selector.engine_cases import (
    TOKENS,
    beliefs_of,
    numbered,
    rollout,
    rollouts,
)
from tests.selector.report_cases import MIXED, codes, counts, drawn


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
