"""From a run to its audit: which draws are spoken of, and what each left behind."""

from typing import Any

import numpy as np
import pytest

from selector.audit.auditing import audit_run, claim_realised
from selector.claims import ClaimType
from selector.config import PolicyConfig
from selector.engine import StepRequest
from selector.policies import PRESETS
from selector.types import Purpose, VoidReason
from tests.selector.engine_cases import (
    Session,
    coin,
    make_config,
    make_policy,
    make_pool,
    numbered,
    redraw,
    rollouts,
    tickets_of,
)

WEIGHTED: dict[str, Any] = {"weights": "horvitz_thompson", "audit_share": 0.25}
MIXED = (1.0, 0.0, 0.0, 0.0)


def run(num_rows: int = 12, policy: PolicyConfig | None = None, **config: Any) -> Session:
    return Session(make_config(policy, **(WEIGHTED | config)), make_pool(num_rows))


def finish(session: Session, batch_index: int, outcomes: tuple[float, ...] = MIXED) -> None:
    for ticket in tickets_of(session.state.batches[batch_index]):
        session.report(ticket, rollouts(*outcomes))


def indices(session: Session) -> tuple[tuple[int, int] | None, int]:
    found = audit_run(session.state)
    return found.draws, found.num_draws


# Hand-worked runs


def test_a_draw_of_the_whole_pool_shows_what_is_there() -> None:
    """Four prompts, all drawn, with passes 4, 2, 0, 0 of 4: the mean is 6/16, and three of four are degenerate."""
    session = Session(make_config(**WEIGHTED), make_pool(4))
    batch = session.draw(0, 4)
    passes_N = np.array([4, 2, 0, 0])
    session.answer_batch(batch, lambda row, index, n: float(n < passes_N[row]))

    found = audit_run(session.state)

    assert batch.event.inclusion_K.tolist() == [1.0] * 4
    assert batch.event.base_pass == pytest.approx(4 * 0.5)
    for curve in (found.pass_rate.reweighted, found.pass_rate.selected):
        assert curve.estimate == pytest.approx(6 / 16)
    assert found.degenerate.reweighted.estimate == pytest.approx(3 / 4)
    [audited] = batch.event.row_K[batch.event.audit_K].tolist()
    # One audit ticket stands for all: base/N + (N_e/N)·(x − m̂) with m̂ = ½.
    assert found.pass_rate.uniform.estimate == pytest.approx(0.5 + (passes_N[audited] / 4 - 0.5))
    assert found.effective_sample_size == pytest.approx(4.0)
    assert found.largest_weight == pytest.approx(1.0)
    assert dict(found.selection_ratio.category) == {"algebra": 1.0, "logic": 1.0}
    assert found.warnings[-1].startswith("no verdict yet")


def test_the_curves_of_a_small_run_are_those_worked_out_by_hand() -> None:
    """Three draws of two from four, one at a time."""
    session = Session(make_config(weights="horvitz_thompson", audit_share=0.5), make_pool(4))
    passes_N = np.array([4, 3, 1, 0])
    reweighted, uniform, selected = [], [], []
    for index in range(3):
        mean_N = session.state.beliefs().mean_N
        request = session.request(index, 2)
        event = session.engine.draw(request, now=0.0)
        assert event is not None
        expected = redraw(session.state, request, event.revisit_draws)
        session.apply(event)
        session.answer_batch(session.state.batches[-1], lambda row, index, n: float(n < passes_N[row]))
        x_K, m_K = passes_N[event.row_K] / 4, mean_N[event.row_K]
        weight_K = 2 / (4 * expected.inclusion_N[event.row_K])
        reweighted.append(mean_N.sum() / 4 + (weight_K * (x_K - m_K)).sum() / 2)
        uniform.append(mean_N.sum() / 4 + (x_K - m_K)[event.audit_K].sum())
        selected.append(x_K.mean())

    found = audit_run(session.state)

    assert found.num_draws == 3
    assert found.pass_rate.reweighted.estimate == pytest.approx(np.clip(np.mean(reweighted), 0, 1))
    assert found.pass_rate.uniform.estimate == pytest.approx(np.clip(np.mean(uniform), 0, 1))
    assert found.pass_rate.selected.estimate == pytest.approx(np.mean(selected))


def test_credit_that_is_open_at_the_last_draw_is_in_the_estimate() -> None:
    """Four prompts at ½ believed; two are drawn, then the other two while the first are in flight. Nothing has come
    back of the prompts that are blocked at the last draw, and their share is filled in with what is believed.
    """
    session = Session(make_config(weights="horvitz_thompson", audit_share=0.5), make_pool(4))
    session.draw(0, 2)
    second = session.draw(1, 2).event
    assert second.open_credit == pytest.approx([2 / 4, 2 * 0.5 / 4, second.open_credit[2]])
    assert second.carried_credit == [0.0, 0.0, 0.0]
    finish(session, 0, (1.0, 1.0, 1.0, 1.0))
    finish(session, 1, (1.0, 1.0, 1.0, 1.0))
    first_sum = 0.5 + sum(session.state.batches[0].event.ht_weight_K) / 2 * 0.5
    second_sum = second.base_pass / 4 + sum(second.ht_weight_K) / 2 * 0.5

    found = audit_run(session.state)

    assert second.base_pass == pytest.approx(2 * 0.5)
    expected = (first_sum + second_sum + 2 * 0.5 / 4) / 2
    assert found.pass_rate.reweighted.estimate == pytest.approx(min(expected, 1.0))
    assert any("still to be counted" in reason for reason in found.claim_reasons)


def test_a_segment_that_begins_with_prompts_in_flight_takes_their_credit_off() -> None:
    session = run(audit_share=0.5)
    session.draw(0, 4)
    session.draw(1, 4)
    session.configure(audit_share=0.3)
    third = session.draw(2, 4).event

    assert third.carried_credit[0] == pytest.approx(4 / 12)
    assert third.carried_credit[1] == pytest.approx(4 * 0.5 / 12)
    assert third.open_credit[0] == pytest.approx((4 * 2 + 4) / 12)


# The window


def test_the_first_draw_with_an_open_ticket_ends_the_window() -> None:
    session = run(30)
    for index in range(4):
        session.draw(index, 4)
    for done in (0, 1, 3):
        finish(session, done)
    assert indices(session) == ((0, 1), 2)

    tickets = tickets_of(session.state.batches[2])
    for ticket in tickets[:3]:
        session.report(ticket, rollouts(*MIXED))
    session.report(tickets[3], numbered(n0=1.0))
    assert indices(session) == ((0, 1), 2)

    session.void(tickets[3], VoidReason.LOST)
    assert indices(session) == ((0, 3), 4)


def test_nothing_that_has_not_ended_is_audited() -> None:
    session = run()
    assert indices(session) == (None, 0)
    session.draw(0, 4)

    found = audit_run(session.state)

    assert found.draws is None
    assert found.pass_rate.uniform.estimate is None
    assert found.verdict is None


def test_only_surviving_train_draws_of_the_segment_count() -> None:
    session = run(30)
    session.draw(7, 4)
    finish(session, 0)
    session.configure(audit_share=0.5)
    session.draw(8, 4)
    finish(session, 1)
    session.draw(0, 4, purpose=Purpose.CONTROL)
    session.draw(0, 4, purpose=Purpose.PROBE)
    session.checkpoint(1)
    session.draw(9, 4)
    session.draw(10, 4)
    for batch in (2, 3, 4):
        finish(session, batch)
    session.restore(1)
    for ticket in list(session.state.book.open):
        session.report(ticket, rollouts(*MIXED))
    assert indices(session) == ((8, 8), 1)

    session.draw(9, 4)
    session.draw(9, 4, refill=1)
    finish(session, -2)
    finish(session, -1)
    assert indices(session) == ((8, 9), 3)


def test_a_draw_that_handed_out_nothing_is_no_observation() -> None:
    session = run(4)
    session.draw(0, 4)
    session.draw(1, 4)
    finish(session, 0)
    session.draw(2, 4)
    finish(session, 2)

    assert indices(session) == ((0, 2), 2)


def test_a_ticket_that_never_came_back_is_named_and_bounded() -> None:
    session = run(30)
    for index in range(2):
        session.draw(index, 4)
    finish(session, 0)
    tickets = tickets_of(session.state.batches[1])
    for ticket in tickets[1:]:
        session.report(ticket, rollouts(*MIXED))
    session.void(tickets[0], VoidReason.NEVER_STARTED)

    found = audit_run(session.state)

    assert found.num_draws == 2
    assert any("1 of 8 (12.5%) tickets never came back" in reason for reason in found.claim_reasons)


# What is left of the claim


@pytest.mark.parametrize(
    ("applied", "realised", "reason"),
    [
        ([True, True], ClaimType.UNBIASED, None),
        ([True, False], ClaimType.MODIFIED, "not applied"),
        ([True, None], ClaimType.MODIFIED, "no step reports"),
        ([], ClaimType.MODIFIED, "no step reports"),
    ],
)
def test_the_claim_holds_while_steps_report_that_weights_were_applied(
    applied: list[bool | None], realised: ClaimType, reason: str | None
) -> None:
    session = run()
    session.draw(0, 4)
    finish(session, 0)
    for step, value in enumerate(applied):
        event, _ = session.engine.record_step(StepRequest(step=step, policy_version=step, weights_applied=value))
        assert event is not None
        session.apply(event)

    found = claim_realised(session.state, audit_run(session.state))

    assert found.type is realised
    assert reason is None or any(reason in condition for condition in found.conditions)


def test_steps_before_a_change_of_configuration_say_nothing_of_the_claim_after_it() -> None:
    session = run(weights="none")
    session.step(0, 0, weights_applied=False)
    session.configure(weights="horvitz_thompson")
    session.draw(0, 4)
    finish(session, 0)
    assert claim_realised(session.state, audit_run(session.state)).type is ClaimType.MODIFIED

    session.step(1, 1, weights_applied=True)

    assert claim_realised(session.state, audit_run(session.state)).type is ClaimType.UNBIASED


def test_a_claim_with_missing_tickets_is_modified_and_says_by_how_much() -> None:
    session = run(policy=make_policy(utility="uniform"))
    session.draw(0, 4)
    tickets = tickets_of(session.state.batches[0])
    session.void(tickets[0], VoidReason.LOST)
    for ticket in tickets[1:]:
        session.report(ticket, rollouts(*MIXED))

    found = claim_realised(session.state, audit_run(session.state))

    assert found.type is ClaimType.MODIFIED
    assert any("never came back" in condition for condition in found.conditions)


def test_a_run_without_weights_claims_no_more_than_it_did() -> None:
    session = run(weights="none")
    session.draw(0, 4)

    assert claim_realised(session.state, audit_run(session.state)).type is ClaimType.MODIFIED


# The selected stream lies


@pytest.mark.parametrize("weights", ["none", "horvitz_thompson"])
def test_selection_raises_the_selected_curve_and_not_the_uniform_ones(weights: str) -> None:
    """P100, half at pass rate 0 and half at ½, 200 steps, a policy that does not change: the uniform mean is 0.25."""
    session = Session(
        make_config(PRESETS["midband"].config, group_size=8, audit_share=0.25, weights=weights, seed=2),
        make_pool(100),
    )
    answer = coin(11, np.where(np.arange(100) % 2, 0.5, 0.0))
    for index in range(200):
        batch = session.draw(index, 8, policy_version=index)
        assert (batch.event.inclusion_K > 0).all()
        session.answer_batch(batch, answer)

    found = audit_run(session.state)

    assert found.num_draws == 200
    assert found.pass_rate.selected.interval is not None
    assert found.pass_rate.selected.interval[0] > 0.25
    # Standard errors are some 0.013 and 0.004 over the draws; five of them.
    for curve, bound in ((found.pass_rate.uniform, 0.065), (found.pass_rate.reweighted, 0.03)):
        assert curve.estimate == pytest.approx(0.25, abs=bound)
        assert curve.interval is not None
        assert curve.interval[0] <= 0.25 <= curve.interval[1]
    # The logic prompts are those at ½.
    assert found.selection_ratio.category["logic"] is not None
    assert found.selection_ratio.category["logic"] > 1.2
    assert found.verdict is not None
    assert "read progress from the uniform curve" in found.verdict
    assert found.warnings == ()


def test_draws_that_gave_prompts_no_chance_are_not_reweighted() -> None:
    policy = make_policy(design="top", floor=0.0)
    for audit_share, known in ((0.0, False), (0.25, True)):
        session = run(policy=policy, weights="none", audit_share=audit_share)
        for index in range(4):
            session.answer_batch(session.draw(index, 4), lambda row, _, n: float(n < row % 5))

        found = audit_run(session.state)

        assert (found.pass_rate.reweighted.estimate is not None) is known
        assert (found.degenerate.reweighted.interval is not None) is known
        assert (found.pass_rate.uniform.estimate is not None) is known
        assert found.pass_rate.selected.estimate is not None
        assert any("no chance: nothing can be re-weighted" in warning for warning in found.warnings) is not known
        assert claim_realised(session.state, found).type is ClaimType.EMPIRICAL
