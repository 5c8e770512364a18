"""Prompts in flight: they are not drawn again, are owed their share, and have a deadline."""

import numpy as np
import pytest

from selector.types import Purpose, TicketState, VoidReason
from tests.selector.engine_cases import (
    HORVITZ,
    MIXED,
    TOKENS,
    Session,
    coin,
    make_config,
    make_pool,
    numbered,
    rollouts,
)

# Prompts in flight


def test_a_prompt_in_flight_is_not_drawn_again_and_is_owed_its_share() -> None:
    session = Session(make_config(**HORVITZ), make_pool(12))
    first = session.draw(0, 5)
    held = first.event.row_K.tolist()

    second = session.draw(1, 5)
    third = session.draw(2, 5)

    assert not set(held) & set(second.event.row_K.tolist())
    assert (second.event.frame, second.event.eligible, second.event.blocked) == (12, 7, 5)
    assert (third.event.eligible, third.event.blocked) == (2, 10)
    assert third.event.reason == "all_in_flight"
    credit_N = session.state.rows["credit_N"]
    assert credit_N[held].tolist() == [2] * 5
    assert credit_N[second.event.row_K].tolist() == [1] * 5
    assert credit_N.sum() == 15
    np.testing.assert_allclose(third.event.open_credit[0], 15 / 12)

    session.answer_batch(first, coin(1, np.full(12, 0.5)))
    fourth = session.draw(3, 5)
    assert (fourth.event.eligible, fourth.event.blocked) == (5, 7)
    assert sorted(fourth.event.row_K.tolist()) == sorted(held)
    assert fourth.event.credit_K.tolist() == [2] * 5
    np.testing.assert_allclose(fourth.event.ht_weight_K, 5 * 3 / (12 * 1.0))
    assert session.state.rows["credit_N"][held].tolist() == [0] * 5


@pytest.mark.parametrize("purpose", [Purpose.PROBE, Purpose.AUDIT, Purpose.CONTROL, Purpose.HELDOUT])
def test_only_train_draws_owe_credit(purpose: Purpose) -> None:
    session = Session(make_config(**HORVITZ), make_pool(12, heldout=range(8, 12)))
    session.draw(0, 3)

    session.draw(0, 3, purpose=purpose)

    assert not session.state.rows["credit_N"].any()
    assert session.state.train_draws == 1


def test_a_probe_in_flight_blocks_its_prompt() -> None:
    session = Session(make_config(**HORVITZ), make_pool(12))
    probed = session.draw(0, 4, purpose=Purpose.PROBE).event.row_K

    train = session.draw(0, 8).event

    assert (train.eligible, train.blocked) == (8, 4)
    assert not np.isin(train.row_K, probed).any()
    assert session.state.rows["credit_N"][probed].tolist() == [1] * 4


def test_a_short_answer_says_why_and_loses_nothing() -> None:
    """Four prompts of which three are in flight; then a pool of three."""
    session = Session(make_config(), make_pool(4))
    session.draw(0, 3)

    short = session.draw(1, 4).event
    assert (short.requested, len(short.row_K), short.reason) == (4, 1, "all_in_flight")
    empty = session.draw(2, 4).event
    assert (empty.requested, len(empty.row_K), empty.reason) == (4, 0, "all_in_flight")
    assert session.state.rows["credit_N"].tolist().count(1) == 3
    assert session.draw(2, 4).ordinal == 2

    small = Session(make_config(), make_pool(3)).draw(0, 4).event
    assert (len(small.row_K), small.reason) == (3, "pool_exhausted")
    none = Session(make_config(), make_pool(3, absent=range(3))).draw(0, 4).event
    assert (len(none.row_K), none.reason, none.frame) == (0, "pool_empty", 0)


def test_a_batch_of_nothing_owes_nothing() -> None:
    session = Session(make_config(**HORVITZ), make_pool(4))
    session.draw(0, 4)

    session.draw(1, 4)

    assert session.state.batches[1].event.open_credit[0] == 0
    assert not session.state.rows["credit_N"].any()


def test_repeats_come_only_when_asked_for_and_share_the_places() -> None:
    session = Session(make_config(**HORVITZ), make_pool(3))
    session.draw(0, 2)

    event = session.draw(1, 7, allow_repeat=True).event

    assert len(event.row_K) == 7
    assert sorted(np.bincount(event.row_K).tolist()) == [2, 2, 3]
    assert (event.eligible, event.blocked) == (3, 0)
    assert (event.inclusion_K == 1).all()
    np.testing.assert_allclose(event.ht_weight_K.sum(), 7, rtol=0.5)
    assert not session.state.rows["credit_N"].any()


def test_the_divisor_is_honoured_before_rollout() -> None:
    """Six prompts of four rollouts for five ranks."""
    session = Session(make_config(), make_pool(40))

    event = session.draw(0, 6, divisor=5).event

    assert (len(event.row_K), event.reason) == (5, "divisor")
    assert len(event.row_K) * event.group_size % 5 == 0


def test_draws_ahead_of_the_reports_carry_their_lag() -> None:
    """The next batch is asked for before the last one is in; six are drawn first; one is never reported."""
    session = Session(make_config(), make_pool(60))
    batches = [session.draw(index, 3, policy_version=index) for index in range(6)]
    for index in range(6, 12):
        session.answer_batch(batches.pop(0), coin(1, np.full(60, 0.5)))
        batches.append(session.draw(index, 3, policy_version=index))
    table = session.state.book.tickets

    assert table["draws_between"][:18].tolist() == [5] * 18
    assert table["issued_version"][:18].tolist() == [i // 3 for i in range(18)]
    tokens = session.tokens()
    session.complete()

    assert not session.state.book.open
    assert table["reason"][18:].tolist() == [VoidReason.ENDED] * 18
    assert session.tokens() == tokens == {"train": 18 * 4 * TOKENS}


# Deadlines


def test_a_ticket_past_its_deadline_counts_what_it_has_if_that_is_enough() -> None:
    """By a deadline."""
    session = Session(make_config(ticket_ttl_s=60.0, min_rollouts=3))
    session.draw(0, 3)
    session.report(0, numbered(n0=1.0, n2=0.0, n3=0.0))
    session.report(1, numbered(n0=1.0, n2=None, n3=0.0))
    assert session.expire(1059.9) == []

    assert session.expire(1060.0) == [0, 1, 2]

    assert session.ticket(0) == {"state": TicketState.REPORTED, "reason": 0, "attempt": 1, "scored": 3, "passes": 1.0}
    for ticket in (1, 2):
        assert (session.ticket(ticket)["state"], session.ticket(ticket)["reason"]) == (
            TicketState.VOID,
            VoidReason.EXPIRED,
        )
    assert not session.state.in_flight_N.any()
    assert session.tokens() == {"train": 3 * TOKENS, "rejected": 3 * TOKENS}
    assert session.expire(9999.0) == []


def test_deadlines_count_from_each_draw() -> None:
    session = Session(make_config(ticket_ttl_s=60.0), make_pool(20))
    session.draw(0, 2)
    session.now = 1030.0
    session.draw(1, 2)
    session.report(0, rollouts(*MIXED))

    assert session.expire(1060.0) == [1]
    assert session.expire(1089.0) == []
    assert session.expire(1090.0) == [2, 3]


def test_the_next_attempt_of_a_ticket_has_a_deadline_of_its_own() -> None:
    session = Session(make_config(ticket_ttl_s=60.0))
    session.draw(0, 1)
    session.void(0, VoidReason.ERROR)
    assert session.expire(1100.0) == []

    session.report(0, numbered(n0=1.0), attempt=2)

    assert session.expire(1159.0) == []
    assert session.expire(1160.0) == [0]


def test_tickets_without_a_deadline_wait_for_ever() -> None:
    session = Session(make_config())
    session.draw(0, 2)

    assert session.expire(1e18) == []
