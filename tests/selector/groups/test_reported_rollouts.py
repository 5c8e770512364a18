"""Which rollout a report speaks of: numbers, ids, places in the list, fragments."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.errors import ReportInvalid
from selector.groups.reports import GroupIn, RolloutIn
from selector.types import Source, TicketState, VoidReason
from tests.selector.engine_cases import (
    TOKENS,
    beliefs_of,
    numbered,
    rollout,
    rollouts,
)
from tests.selector.report_cases import (
    MIXED,
    codes,
    counts,
    drawn,
    row_of,
)


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
