"""The engine from the first draw to the end of a run: batches, held-out prompts, revisits, steps."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from selector.batches.drawing import claim_of
from selector.claims import ClaimType
from selector.config import RunConfig
from selector.engine import RunEngine, StepRequest
from selector.errors import BatchConflict, BranchSuperseded, BranchUnknown, RevisitImpossible, RunComplete, StepConflict
from selector.run.events import PoolRevised, RunBegun
from selector.types import Purpose, VoidReason
from tests.selector.engine_cases import (
    HORVITZ,
    MIXED,
    Session,
    coin,
    lasting,
    make_config,
    make_policy,
    make_pool,
    numbered,
    redraw,
    rollouts,
    tickets_of,
    what_was_drawn,
)

# Beginning


def test_a_run_begins_with_its_configuration_and_its_pool() -> None:
    config, pool = make_config(), make_pool(8, heldout=[1])

    engine, events = RunEngine.begin("r", config, pool)

    assert [type(event) for event in events] == [RunBegun, PoolRevised]
    assert engine.state.seq == 2
    assert engine.state.config_hash == config.config_hash()
    assert RunConfig.from_dict(events[0].to_json()["config"]) == config
    assert engine.state.pool is pool
    assert engine.state.step == -1


# One batch


def test_asking_again_gives_the_same_batch_whatever_happened_since() -> None:
    """A new client asks for draws 0 to 3 again."""
    session = Session(make_config(**HORVITZ), make_pool(30))
    batches = [session.draw(index, 4, policy_version=index) for index in range(4)]
    drawn = [what_was_drawn(batch) for batch in batches]
    for batch in batches[:3]:
        session.answer_batch(batch, coin(1, np.full(30, 0.5)))
    session.revise(make_pool(40, revision=2, quarantined=[0, 1, 2]))
    before = lasting(session.state)

    again = [session.draw(index, 4, policy_version=7 * index) for index in range(4)]

    assert [batch.ordinal for batch in again] == [0, 1, 2, 3]
    assert [what_was_drawn(batch) for batch in again] == drawn
    assert lasting(session.state) == before
    assert session.state.policy_version == 3
    assert session.draw(4, 4).ordinal == 4


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"size": 5}, "size 4 then, 5 now"),
        ({"group_size": 8}, "group_size 4 then, 8 now"),
        ({"divisor": 2}, "divisor 1 then, 2 now"),
        ({"short": "fill"}, "short partial then, fill now"),
        ({"allow_repeat": True}, "allow_repeat False then, True now"),
    ],
)
def test_the_same_batch_with_other_parameters_is_a_conflict(changes: dict[str, Any], named: str) -> None:
    session = Session()
    session.draw(0, 4)

    with pytest.raises(BatchConflict, match=named):
        session.draw(0, **({"size": 4} | changes))
    assert session.state.book.tickets.size == 4


def test_each_purpose_and_refill_has_batches_of_its_own() -> None:
    session = Session(make_config(), make_pool(40, heldout=range(20, 40)))

    batches = [session.draw(3, 4, purpose=purpose) for purpose in Purpose]
    refill = session.draw(3, 4, refill=1)

    assert [batch.event.purpose for batch in batches] == [p.value for p in Purpose]
    assert len({session.id(batch.first_ticket) for batch in [*batches, refill]}) == 6
    assert session.id(refill.first_ticket + 2) == "r:0:train:3:1:2"
    assert len({batch.event.digest for batch in [*batches, refill]}) == 6
    assert session.state.train_draws == 2


def test_indices_may_have_gaps_and_come_in_any_order() -> None:
    session = Session(make_config(), make_pool(40))

    for index in (10**12, 5, 7):
        assert session.draw(index, 4).event.index == index

    assert session.state.train_draws == 3


def test_a_draw_for_another_branch_is_refused() -> None:
    session = Session()
    session.checkpoint(0)
    session.draw(0, 2)
    session.restore(0)

    with pytest.raises(BranchSuperseded):
        session.draw(0, 2, branch=0)
    with pytest.raises(BranchUnknown):
        session.draw(0, 2, branch=2)
    assert session.draw(0, 2, branch=1).event.branch == 1


def test_a_batch_records_what_was_believed_and_why_it_was_drawn() -> None:
    session = Session(make_config(**HORVITZ, seed=7), make_pool(10))
    session.answer_batch(session.draw(0, 10), lambda row, index, n: float(n < row % 5))
    request = session.request(1, 4, policy_version=3)
    expected, beliefs = redraw(session.state, request, session.state.revisit_draws), session.state.beliefs()

    event = session.draw(1, 4, policy_version=3).event

    assert event.row_K.tolist() == expected.rows_K.tolist()
    assert event.audit_K.tolist() == expected.audit_K.tolist()
    assert event.inclusion_K.tobytes() == expected.inclusion_N[event.row_K].tobytes()
    np.testing.assert_allclose(expected.inclusion_N.sum(), 4)
    np.testing.assert_allclose(event.ht_weight_K, 4 / (10 * event.inclusion_K))
    assert event.weight_K is not None
    assert event.weight_K.tobytes() == event.ht_weight_K.tobytes()
    assert event.pass_rate_K.tolist() == beliefs.mean_N[event.row_K].tolist()
    assert event.pass_rate_K.tolist() == [(1 + row % 5) / 6 for row in event.row_K.tolist()]
    np.testing.assert_allclose(event.base_pass, beliefs.mean_N.sum())
    assert event.pool_category == {"0": 5, "1": 5}
    assert sum(event.pool_difficulty) == 10
    assert event.pool_difficulty == [0, 2, 0, 2, 0, 2, 2, 0, 2, 0]  # means 1/6 … 5/6, two prompts each
    assert event.config_hash == session.state.config.config_hash()
    assert event.claim["type"] == "unbiased"


@pytest.mark.parametrize(
    ("weights", "utility", "claim", "handed_out"),
    [
        ("none", "informative", ClaimType.MODIFIED, "ones"),
        ("horvitz_thompson", "informative", ClaimType.UNBIASED, "ht"),
        ("clipped", "informative", ClaimType.MODIFIED, "cut"),
        ("horvitz_thompson", "uniform", ClaimType.EXACT, "ones"),
    ],
)
def test_weights_are_handed_out_as_the_claim_says(
    weights: str, utility: str, claim: ClaimType, handed_out: str
) -> None:
    config = make_config(make_policy(utility=utility), weights=weights, audit_share=0.1, max_weight=1.1)
    session = Session(config, make_pool(40))
    session.answer_batch(session.draw(0, 40), lambda row, index, n: float(row % 2))

    event = session.draw(1, 8).event

    expected = {
        "ones": np.ones(8),
        "ht": event.ht_weight_K,
        "cut": np.minimum(event.ht_weight_K, 1.1),
    }[handed_out]
    assert event.weight_K is not None
    assert event.weight_K.tolist() == expected.tolist()
    assert event.claim["type"] == claim.value == claim_of(config).type.value


# Held out


def test_heldout_prompts_are_in_heldout_batches_and_nowhere_else() -> None:
    heldout = [1, 4, 7, 10]
    session = Session(make_config(**HORVITZ), make_pool(12, heldout=heldout))

    for purpose in Purpose:
        event = session.draw(0, 12, purpose=purpose, allow_repeat=True).event
        rows = set(event.row_K.tolist())
        assert rows == set(heldout) if purpose is Purpose.HELDOUT else not rows & set(heldout)
        assert event.frame == (4 if purpose is Purpose.HELDOUT else 8)
    assert session.state.rows["drawn_N"][heldout].tolist() == [0] * 4


# Revisits


def test_the_revisit_period_is_set_by_the_first_train_draw() -> None:
    session = Session(make_config(review_share=0.25), make_pool(20))
    session.draw(0, 5, purpose=Purpose.CONTROL)
    assert session.state.revisit_draws == 0

    event = session.draw(0, 8).event

    assert event.revisit_draws == session.state.revisit_draws == 10  # ⌈20 / ⌊0.25·8⌋⌉
    assert session.draw(1, 4).event.revisit_draws == 10


def test_a_revisit_period_that_cannot_be_kept_is_refused_at_the_first_draw() -> None:
    session = Session(make_config(review_share=0.25, revisit_draws=9), make_pool(20))

    with pytest.raises(RevisitImpossible, match="every 10 draws at best"):
        session.draw(0, 8)
    assert Session(make_config(review_share=0.25, revisit_draws=12), make_pool(20)).draw(0, 8).event.revisit_draws == 12


# Steps


def test_a_step_is_recorded_once_and_adds_to_the_costs() -> None:
    session = Session()
    session.draw(0, 2)
    sent = {"trained": ["r:0:train:0:0:0"], "weights_applied": True, "costs": {"update_s": 2.0}}

    session.step(1, 1, **sent)
    session.step(1, 1, **sent)

    assert session.state.step == 1
    assert session.state.policy_version == 1
    assert session.state.ledger.seconds["update"] == 2.0
    assert session.state.steps[0, 1]["trained"] == [0]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"policy_version": 2}, "policy_version"),
        ({"costs": {"update_s": 3.0}}, "costs"),
        ({"weights_applied": None}, "weights_applied"),
        ({"trained": []}, "trained"),
    ],
)
def test_a_step_with_other_values_is_a_conflict(change: dict[str, Any], named: str) -> None:
    session = Session()
    request = StepRequest(step=4, policy_version=1, weights_applied=True, costs={"update_s": 2.0})
    event, _ = session.engine.record_step(request)
    assert event is not None
    session.apply(event)

    with pytest.raises(StepConflict, match=rf"step 4 .*{named}"):
        session.engine.record_step(replace(request, **change))
    assert session.engine.record_step(request) == (None, [])


def test_a_heldout_ticket_among_the_trained_is_a_leak() -> None:
    session = Session(make_config(), make_pool(8, heldout=[0, 1]))
    session.draw(0, 2, purpose=Purpose.HELDOUT)
    session.draw(0, 2)
    named = ["r:0:heldout:0:0:1", "r:0:train:0:0:1", "r:0:train:7:0:0", "x:0:train:0:0:0", "?"]

    event, rejected = session.engine.record_step(StepRequest(step=1, policy_version=1, trained=named))

    assert event is not None
    assert event.trained == [3]
    assert [(r.ticket, r.code) for r in rejected] == [
        ("r:0:heldout:0:0:1", "heldout_leak"),
        ("r:0:train:7:0:0", "unknown_ticket"),
        ("x:0:train:0:0:0", "unknown_ticket"),
        ("?", "unknown_ticket"),
    ]


def test_the_version_is_the_largest_that_a_draw_or_step_named() -> None:
    session = Session(make_config(), make_pool(40))

    session.draw(0, 2, policy_version=4)
    session.step(1, 3)
    assert session.state.policy_version == 4
    session.step(2, 9)
    session.draw(1, 2, policy_version=5)

    assert session.state.policy_version == 9
    assert session.state.batches[1].event.policy_version == 5


# The end


def test_a_complete_run_has_nothing_open_and_hands_nothing_out() -> None:
    session = Session(make_config(), make_pool(20))
    session.draw(0, 4)
    session.report(0, rollouts(*MIXED))
    session.report(1, numbered(n0=1.0))

    session.complete()

    assert session.engine.complete() is None
    assert session.state.completed
    assert not session.state.book.open
    assert not session.state.in_flight_N.any()
    assert [session.ticket(ticket)["reason"] for ticket in range(4)] == [0, *[VoidReason.ENDED] * 3]
    with pytest.raises(RunComplete, match="a restore reopens it"):
        session.draw(1, 4)
    assert session.draw(0, 4).ordinal == 0
    late = session.report(1, numbered(n1=1.0))
    assert late.late == 1
    assert session.report(1, rollouts(*MIXED), attempt=2).rejected[0].code == "unknown_ticket"


def test_every_event_is_one_position_of_the_log() -> None:
    session = Session(make_config(), make_pool(20))
    session.answer_batch(session.draw(0, 4), coin(1, np.full(20, 0.5)))
    session.step(1, 1)
    session.checkpoint(1)

    assert session.state.seq == len(session.log) == 6
    assert session.checkpoint(1) == 6
    assert session.state.batches[0].seq == 3
    assert session.state.book.tickets["issued_seq"].tolist() == [3] * 4
    assert session.state.book.tickets["ended_seq"].tolist() == [4] * 4
    assert list(tickets_of(session.state.batches[0])) == [0, 1, 2, 3]
