"""The engine from draw to end of run: batches, blocked prompts and their credit, deadlines, changes in mid-run."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from selector.batches.drawing import claim_of
from selector.claims import ClaimType
from selector.config import RunConfig
from selector.engine import RunEngine, StepRequest
from selector.errors import (
    BatchConflict,
    BranchSuperseded,
    BranchUnknown,
    EstimatorFixed,
    RevisitImpossible,
    RunComplete,
    StepConflict,
)
from selector.run.events import PoolRevised, RunBegun
from selector.types import Lifecycle, Purpose, TicketState, VoidReason
from tests.selector.engine_cases import (
    TOKENS,
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

MIXED = (1.0, 0.0, 0.0, 0.0)
HORVITZ: dict[str, Any] = {"weights": "horvitz_thompson", "audit_share": 0.2}


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


# Changes in mid-run


def test_a_change_of_configuration_begins_a_new_segment() -> None:
    session = Session(make_config(**HORVITZ), make_pool(40))
    session.draw(0, 4)
    before = session.state.config_hash

    session.configure(weights="none", audit_share=0.5)
    event = session.draw(1, 4).event

    assert session.state.config_hash != before
    assert session.state.segment_start == 4
    assert event.config_hash == session.state.config_hash == session.state.config.config_hash()
    assert event.num_audit == 2
    assert event.claim["type"] == "modified"
    assert session.draw(0, 4).event.config_hash == before


def test_a_change_that_changes_nothing_is_no_event() -> None:
    session = Session()

    session.configure(audit_share=session.state.config.audit_share)

    assert session.state.seq == 2


def test_the_estimator_of_a_run_cannot_change() -> None:
    session = Session()

    with pytest.raises(EstimatorFixed, match="kalman_arcsine"):
        session.configure(policy=make_policy(estimator="kalman_arcsine", estimator_options={}))


def test_a_pool_edit_is_seen_by_the_next_draw_and_history_stays() -> None:
    """Prompts go and come; what is known of the others stays theirs."""
    session = Session(make_config(), make_pool(10))
    session.answer_batch(session.draw(0, 10), lambda row, index, n: float(n < row % 5))
    means = session.state.beliefs().mean_N

    session.revise(make_pool(14, revision=2, absent=[0, 1], quarantined=[2]))
    event = session.draw(1, 14).event

    assert sorted(event.row_K.tolist()) == list(range(3, 14))
    assert event.frame == 11
    assert session.state.beliefs().mean_N[:10].tolist() == means.tolist()
    assert session.state.rows["lifecycle_N"][10:].tolist() == [Lifecycle.NEW] * 4

    session.answer_batch(session.state.batches[1], coin(1, np.full(14, 0.5)))
    session.revise(make_pool(14, revision=3))
    assert session.draw(2, 14).event.frame == 14


def test_a_report_for_a_prompt_that_left_the_pool_still_counts() -> None:
    session = Session(make_config(), make_pool(4))
    session.draw(0, 4)
    session.revise(make_pool(4, revision=2, absent=range(4)))

    session.report(0, rollouts(*MIXED))

    assert session.ticket(0)["state"] == TicketState.REPORTED
    assert session.state.rows["groups_N"].sum() == 1


def test_a_prompt_becomes_active_with_its_first_group() -> None:
    session = Session(make_config())
    batch = session.draw(0, 3)
    session.report(0, rollouts(*MIXED))
    session.void(1, VoidReason.LOST)

    stages = session.state.rows["lifecycle_N"][batch.event.row_K]

    assert stages.tolist() == [Lifecycle.ACTIVE, Lifecycle.NEW, Lifecycle.NEW]


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
