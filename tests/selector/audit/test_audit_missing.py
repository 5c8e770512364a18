"""What is missing, what is owed, and what forbids a verdict."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from selector.audit.values import Estimate
from selector.audit.words import MISSING_AUDIT_TOLERANCE
from selector.batches.observations import DrawRecord
from tests.selector.audit_cases import audited, filled, interval, many, record, with_missing


def test_missing_tickets_count_as_predicted_and_as_the_worst_in_each_limit() -> None:
    draws = with_missing(many(300, range_pass=(-0.5, 1.5)), place=1, every=3)
    found = audited(draws).pass_rate.reweighted
    as_failed = audited(filled(draws, 0.0)).pass_rate.reweighted
    as_passed = audited(filled(draws, 1.0)).pass_rate.reweighted
    as_predicted = audited(filled(draws, 0.25)).pass_rate.reweighted
    assert found.estimate == pytest.approx(as_predicted.estimate)
    assert interval(found) == (interval(as_failed)[0], interval(as_passed)[1])


def test_missing_tickets_are_named_with_what_they_can_hide() -> None:
    # 100 of 600 tickets, w = 1, K = 2: at most (1/2)·(1/3)·0.25 too high and (1/2)·(1/3)·0.75 too low.
    found = audited(with_missing(many(300), place=1, every=3))
    (reason,) = found.claim_reasons
    assert reason.startswith("100 of 600 (16.7%) tickets never came back")
    assert reason.endswith("too low by 0.1250 or too high by 0.0417 at most")
    assert reason in found.warnings
    assert found.verdict is not None


def test_too_many_missing_audit_tickets_withhold_the_verdict() -> None:
    found = audited(with_missing(many(300), place=0, every=50))
    assert found.verdict is None
    assert found.warnings[-1].startswith("no verdict: 6 of 300 (2.0%) audit tickets are missing")


def test_a_few_missing_audit_tickets_widen_the_interval_and_leave_the_verdict() -> None:
    every = round(1 / MISSING_AUDIT_TOLERANCE)
    draws = many(2 * every)
    found = audited(with_missing(draws, place=0, every=every))
    assert found.verdict is not None
    assert interval(found.pass_rate.uniform)[0] < interval(audited(draws).pass_rate.uniform)[0]


def test_a_censored_feed_has_a_verdict_only_when_every_audit_ticket_came_back() -> None:
    whole = audited(many(300), informative_only=True)
    assert whole.verdict is not None
    assert "the selected stream cannot be compared" in whole.verdict
    assert any("mixed groups only" in warning for warning in whole.warnings)
    one_missing = audited(with_missing(many(300), place=0, every=300), informative_only=True)
    assert one_missing.verdict is None


def test_open_credit_is_a_reason_always_and_a_warning_when_it_weighs() -> None:
    small = audited(many(300), open_credit=0.5, open_credit_predicted_pass=0.1)
    large = audited(many(300), open_credit=30.0, open_credit_predicted_pass=3.0)
    assert len(small.claim_reasons) == len(large.claim_reasons) == 1
    assert not any("still to be counted" in warning for warning in small.warnings)
    assert "prompts blocked at the last draw are still to be counted: 10.00% of the window's weight" in large.warnings


def test_without_an_audit_share_there_is_no_uniform_curve_and_no_verdict() -> None:
    found = audited(many(50, num_audit=0, audit_K=np.zeros(2, bool)), audit_share=0)
    assert found.pass_rate.uniform == Estimate(estimate=None, interval=None)
    assert found.pass_rate.reweighted.estimate is not None
    assert found.verdict is None
    assert found.warnings == ("no verdict: the run has no audit share",)


def test_draws_without_an_audit_ticket_are_left_out_of_the_uniform_curve_and_told() -> None:
    draws = [*many(50), record(index=50, num_audit=0, audit_K=np.zeros(2, bool), outcome_K=np.zeros(2))]
    found = audited(draws)
    assert found.pass_rate.uniform == audited(many(50)).pass_rate.uniform
    assert found.warnings == ("1 of 51 (2.0%) draws had no audit ticket: the uniform curve leaves them out",)


def test_estimates_that_contradict_each_other_are_reported() -> None:
    tight = {"range_pass": (-1.0, 2.0), "range_pass_uniform": (-1.0, 2.0)}
    found = audited(many(400, outcome_K=np.array([1.0, 0.0]), predicted_pass_K=np.full(2, 0.5), **tight))
    assert found.verdict is not None
    assert "contradicts it" in found.verdict
    assert any("contradict each other" in warning for warning in found.warnings)


def test_one_draw_has_estimates_and_no_verdict_yet() -> None:
    found = audited([record()])
    assert found.pass_rate.reweighted.estimate == pytest.approx(0.75)
    assert found.pass_rate.reweighted.interval == (0.0, 1.0)
    assert found.verdict is None
    assert found.warnings == ("no verdict yet: fewer than 2 draws with audit tickets have ended",)


def test_no_draw_at_all_is_an_empty_audit() -> None:
    found = audited([])
    assert found.draws is None
    assert found.num_draws == 0
    assert found.pass_rate.reweighted == found.degenerate.selected == Estimate(estimate=None, interval=None)
    assert found.selection_ratio.category == {"algebra": None, "logic": None}
    assert found.effective_sample_size == found.largest_weight == 0.0
    assert found.verdict is None


def test_draws_that_returned_nothing_are_left_out() -> None:
    nothing = {
        name: np.zeros(0)
        for name in ("weight_K", "predicted_pass_K", "predicted_degenerate_K", "outcome_K", "degenerate_K")
    } | {name: np.zeros(0, int) for name in ("credit_K", "category_K", "difficulty_K")}
    empty = record(index=1, num_tickets=0, num_audit=0, audit_K=np.zeros(0, bool), eligible=0, **nothing)
    assert audited([record(), empty, record(index=2)]) == audited([record(), record(index=2)])


def test_when_nothing_came_back_the_intervals_say_nothing() -> None:
    draws = with_missing(with_missing(many(100), place=0, every=1), place=1, every=1)
    found = audited(draws)
    assert found.pass_rate.selected == Estimate(estimate=None, interval=None)
    assert found.pass_rate.reweighted.estimate == pytest.approx(0.5)
    assert interval(found.pass_rate.reweighted)[0] <= 0.5 - 0.375 / 2
    assert found.verdict is None


def test_a_group_without_a_known_shape_is_missing_from_the_degenerate_share_only() -> None:
    draws = [replace(draw, degenerate_K=np.array([np.nan, 0.0])) for draw in many(200)]
    found = audited(draws)
    assert found.claim_reasons == ()
    assert found.degenerate.selected.estimate == 0.0
    assert found.degenerate.uniform.estimate == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("draws", "changes", "words"),
    [
        ([record(outcome_K=np.array([3.0, 0.0]))], {}, r"outcomes must be in \[0, 1\] to be audited, got 3\.0"),
        ([record()], {"level": 95}, r"level must be in \(0, 1\)"),
        ([record()], {"categories": ["algebra"]}, r"category codes must be -1 to 0, got up to 1"),
        ([record(difficulty_K=np.array([0, 10]))], {}, r"difficulty bins must be 0 to 9, got 0 to 10"),
        ([record()], {"open_credit": 0.1, "open_credit_predicted_pass": 0.2}, "predicted open_credit"),
        ([record()], {"carried_credit": -1.0}, "carried_credit"),
    ],
)
def test_what_cannot_be_audited_is_refused_by_name(
    draws: list[DrawRecord], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        audited(draws, **changes)
