"""What holds for every draw: chances, how many tickets, and who gets them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from predictors.value import raised
from selector.sampling.draw import draw, draw_uniform
from selector.sampling.draw_plan import DrawFrame, DrawPlan, RestingCode, ShortReason
from tests.selector.draw_cases import (
    assert_same,
    draws_of,
    eligible_of,
    make_frame,
    make_plan,
    mask,
    random_cases,
    resting_frame,
)

# What holds for every draw


def test_chances_add_up_to_the_tickets_in_every_draw() -> None:
    for seed, frame, utility_N, plan in random_cases(1200):
        eligible_N = eligible_of(frame, plan)

        drawn = draw(frame, utility_N, plan)

        num_tickets = len(drawn.rows_K)
        assert num_tickets <= plan.size, seed
        assert num_tickets * plan.group_size % plan.divisor == 0, seed
        assert (drawn.reason is None) == (num_tickets == plan.size), seed
        assert drawn.expected_N.sum() == pytest.approx(num_tickets, rel=1e-12, abs=1e-12), seed
        assert drawn.inclusion_N.max(initial=0.0) <= 1.0, seed
        assert not drawn.expected_N[~eligible_N].any(), seed
        assert eligible_N[drawn.rows_K].all(), seed
        assert (drawn.inclusion_K > 0.0).all(), seed
        np.testing.assert_array_equal(drawn.inclusion_K, drawn.inclusion_N[drawn.rows_K])
        assert drawn.audit_K.sum() == drawn.num_audit <= num_tickets, seed
        assert len(set(drawn.rows_K[drawn.audit_K].tolist())) == drawn.num_audit, seed
        assert (drawn.frame, drawn.eligible) == (frame.frame_N.sum(), eligible_N.sum()), seed
        assert drawn.blocked == drawn.frame - drawn.eligible, seed
        per_row = np.bincount(drawn.rows_K, minlength=len(utility_N))
        assert (per_row >= np.floor(drawn.expected_N)).all(), seed
        assert (per_row <= np.ceil(drawn.expected_N)).all(), seed


def test_the_same_draw_again_gives_the_same_bytes() -> None:
    for _, frame, utility_N, plan in random_cases(100):
        assert_same(draw(frame, utility_N, plan), draw(frame, utility_N.copy(), plan))


@pytest.mark.parametrize("power", [2, 4])
def test_utilities_given_by_their_root_draw_as_those_that_are_written_out(power: int) -> None:
    for _, frame, utility_N, plan in random_cases(300):
        base_N = utility_N**0.25  # so that no power overflows
        assert_same(draw(frame, base_N, plan, power=power), draw(frame, raised(base_N, float(power)), plan))
    with pytest.raises(ValueError, match="row 1 has inf"):
        draw(make_frame(3), np.array([1.0, 1e200, 1.0]), make_plan(2), power=power)


def test_every_eligible_prompt_keeps_its_floor() -> None:
    for seed, frame, utility_N, plan in random_cases(1200):
        eligible_N = eligible_of(frame, plan)

        drawn = draw(frame, utility_N, plan)

        num_tickets = len(drawn.rows_K)
        if num_tickets == 0:
            continue
        if drawn.num_audit:
            least_N = np.full(drawn.eligible, drawn.num_audit / drawn.eligible)
        else:
            gain_N = 1.0 + frame.credit_N[eligible_N]
            # A unit of 2^-40 may be lost in rounding.
            least_N = np.minimum(1.0, plan.floor * num_tickets * gain_N / gain_N.sum()) - 2.0**-39
        assert (drawn.inclusion_N[eligible_N] >= least_N - 1e-12).all(), seed
        if plan.floor > 0 or drawn.num_audit:
            assert (drawn.inclusion_N[eligible_N] > 0).all(), seed


def test_weights_follow_from_chance_credit_and_frame() -> None:
    for seed, frame, utility_N, plan in random_cases(400):
        drawn = draw(frame, utility_N, plan)

        for ticket, row in enumerate(drawn.rows_K):
            expected = len(drawn.rows_K) * (1 + frame.credit_N[row]) / (frame.frame_N.sum() * drawn.expected_N[row])
            assert drawn.ht_weight_K[ticket] == pytest.approx(expected, rel=1e-12), seed
            if plan.exact_uniform or plan.weights == "none":
                expected = 1.0
            elif plan.weights == "clipped":
                expected = min(expected, plan.max_weight)
            assert drawn.weight_K[ticket] == pytest.approx(expected, rel=1e-12), seed


# How many tickets


def slow_size(frame: DrawFrame, plan: DrawPlan, num_audit: int, reviews: range) -> set[int]:
    """K by the definition, for each number of review places that rounding may give."""
    eligible_N = eligible_of(frame, plan)
    resting_N = eligible_N & ((frame.resting_code_N > 0) | frame.due_N) & (not plan.exact_uniform)
    num, num_resting = int(eligible_N.sum()), int(resting_N.sum())
    unit = next(k for k in range(1, 100) if k * plan.group_size % plan.divisor == 0)
    sizes = set()
    for review in reviews:
        review_places = min(max(review, int((frame.due_N & resting_N).sum())), num_resting)
        if plan.allow_repeat and plan.size > num > 0:
            total = plan.size
        elif plan.short == "fill":
            total = min(plan.size, num)
        else:
            total = min(num_audit + min(plan.size - num_audit, num - num_resting + review_places), num)
        sizes.add(total // unit * unit)
    return sizes


def test_the_number_of_tickets_is_the_one_the_definition_gives() -> None:
    for seed, frame, utility_N, plan in random_cases(1200):
        num = int(eligible_of(frame, plan).sum())
        low, high = (int(np.floor(plan.audit_share * plan.size + u)) for u in (0.0, 1.0))
        if plan.refill == 0 and plan.audit_share > 0:
            low = max(low, 1)
        reviews = range(int(plan.review_share * plan.size), int(plan.review_share * plan.size) + 2)

        drawn = draw(frame, utility_N, plan)

        allowed = {
            (size, min(m, size))
            for m in {min(m, num, plan.size) for m in (low, high)}
            for size in slow_size(frame, plan, m, reviews)
        }
        assert (len(drawn.rows_K), drawn.num_audit) in allowed, seed


def test_the_audit_share_is_rounded_at_random_and_at_least_one_at_refill_0() -> None:
    frame, utility_N = make_frame(50), np.ones(50)
    for refill, expected in ((0, {1}), (1, {0, 1})):
        drawn = draws_of(frame, utility_N, make_plan(8, audit_share=0.05, refill=refill), 200)
        assert {d.num_audit for d in drawn} == expected
    # 2.4 of 8: two or three, on average 2.4 within four standard errors.
    counts = [d.num_audit for d in draws_of(frame, utility_N, make_plan(8, audit_share=0.3), 600)]
    assert set(counts) == {2, 3}
    assert np.mean(counts) == pytest.approx(2.4, abs=4 * np.sqrt(0.24 / 600))


def test_without_a_share_nothing_is_audited() -> None:
    assert not draw(make_frame(9), np.ones(9), make_plan(4)).audit_K.any()


def test_the_audit_may_be_the_whole_batch() -> None:
    drawn = draw(make_frame(9), np.arange(9.0), make_plan(4, audit_share=1.0))

    assert drawn.audit_K.all()
    np.testing.assert_allclose(drawn.inclusion_N, 4 / 9)


@pytest.mark.parametrize("num_rows", [1, 2, 3])
@pytest.mark.parametrize("audit_share", [0.0, 0.1, 0.6, 1.0])
def test_a_pool_smaller_than_the_batch_comes_whole(num_rows: int, audit_share: float) -> None:
    drawn = draw(make_frame(num_rows), np.ones(num_rows), make_plan(4, audit_share=audit_share))

    assert sorted(drawn.rows_K.tolist()) == list(range(num_rows))
    np.testing.assert_array_equal(drawn.inclusion_K, 1.0)
    assert drawn.reason is ShortReason.POOL_EXHAUSTED


def test_an_empty_pool_gives_an_empty_batch() -> None:
    drawn = draw(make_frame(0), np.zeros(0), make_plan(4, audit_share=0.1))

    assert (len(drawn.rows_K), drawn.reason) == (0, ShortReason.POOL_EMPTY)


def test_a_batch_is_cut_to_the_divisor_from_the_selected_part_first() -> None:
    # Units of two tickets: 7 become 6, and of 3 or 4 audit tickets none is lost.
    for drawn in draws_of(make_frame(50), np.ones(50), make_plan(7, divisor=16, audit_share=0.5), 20):
        assert len(drawn.rows_K) == 6
        assert drawn.num_audit in {3, 4}
        assert drawn.reason is ShortReason.DIVISOR


def test_the_cut_reaches_the_audit_only_when_nothing_else_is_left() -> None:
    drawn = draw(make_frame(50), np.ones(50), make_plan(7, divisor=32, audit_share=1.0))

    assert (len(drawn.rows_K), drawn.num_audit) == (4, 4)


def test_a_batch_below_the_divisor_is_empty() -> None:
    drawn = draw(make_frame(50), np.ones(50), make_plan(3, divisor=32, audit_share=0.5))

    assert (len(drawn.rows_K), drawn.num_audit, drawn.reason) == (0, 0, ShortReason.DIVISOR)


@pytest.mark.parametrize(("group_size", "divisor", "unit"), [(8, 8, 1), (8, 64, 8), (6, 4, 2), (5, 7, 7), (4, 2, 1)])
def test_tickets_come_in_units_that_make_the_rollouts_divisible(group_size: int, divisor: int, unit: int) -> None:
    plan = make_plan(30, group_size=group_size, divisor=divisor)

    assert plan.unit == unit
    assert len(draw(make_frame(99), np.ones(99), plan).rows_K) == 30 // unit * unit


# Who gets the places


def test_chances_of_the_selected_part_mix_utility_and_floor_and_count_credit() -> None:
    frame = make_frame(4, credit_N=[0, 0, 1, 3])

    drawn = draw(frame, np.array([0.0, 3.0, 3.0, 0.0]), make_plan(1, floor=0.2))

    # u(1+c) = 0, 3, 6, 0 of 9; 1+c = 1, 1, 2, 4 of 8.
    np.testing.assert_allclose(
        drawn.selected_inclusion_N, 0.8 * np.array([0, 3, 6, 0]) / 9 + 0.2 * np.array([1, 1, 2, 4]) / 8, atol=1e-12
    )


def test_audit_adds_its_chance_to_whoever_was_not_selected() -> None:
    drawn = draw(make_frame(4), np.array([9.0, 1.0, 1.0, 1.0]), make_plan(3, audit_share=1 / 3, floor=0.1))

    # Two selected: the first is certain (0.9*9/12 + 0.1/4 = 0.7 > 1/2), the others share one place.
    np.testing.assert_allclose(drawn.selected_inclusion_N, [1, 1 / 3, 1 / 3, 1 / 3], atol=1e-12)
    # One audit ticket over two rows outside: 1/3 + 2/3 * 1/2.
    np.testing.assert_allclose(drawn.inclusion_N, [1, 2 / 3, 2 / 3, 2 / 3], atol=1e-12)


def test_utilities_that_are_all_zero_mean_no_preference() -> None:
    drawn = draw(make_frame(10), np.zeros(10), make_plan(4, floor=0.0))

    np.testing.assert_allclose(drawn.inclusion_N, 0.4, atol=1e-12)


def test_without_a_floor_worthless_prompts_come_only_when_the_others_are_used_up() -> None:
    utility_N = np.array([1.0, 2.0, 0.0, 0.0, 0.0, 0.0])

    np.testing.assert_allclose(
        draw(make_frame(6), utility_N, make_plan(1, floor=0.0)).inclusion_N, [1 / 3, 2 / 3, 0, 0, 0, 0], atol=1e-12
    )
    np.testing.assert_allclose(
        draw(make_frame(6), utility_N, make_plan(4, floor=0.0)).inclusion_N, [1, 1, 0.5, 0.5, 0.5, 0.5], atol=1e-12
    )


def test_the_scale_of_utilities_does_not_matter() -> None:
    utility_N = np.random.default_rng(0).random(30)
    frame, plan = make_frame(30), make_plan(8, audit_share=0.1)

    for scale in (2.0**-1000, 2.0**1000):
        assert_same(draw(frame, utility_N * scale, plan), draw(frame, utility_N, plan))


def test_utilities_at_the_ends_of_the_range_of_floats_neither_overflow_nor_vanish() -> None:
    # One class of prompts near the largest float, one near the smallest.
    frame = make_frame(20, resting_code_N=np.arange(20) >= 10, credit_N=[30] * 20)
    utility_N = np.concatenate([np.full(10, 1.7e308), [0.0] * 8, [5e-324] * 2])

    drawn = draw(frame, utility_N, make_plan(6, review_share=1 / 6, floor=0.0, audit_share=1 / 6))

    np.testing.assert_allclose(drawn.selected_inclusion_N, [0.4] * 10 + [0.0] * 8 + [0.5] * 2, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e-9])
def test_utilities_that_are_no_numbers_are_refused_by_row(bad: float) -> None:
    utility_N = np.ones(5)
    utility_N[3] = bad

    with pytest.raises(ValueError, match="row 3"):
        draw(make_frame(5), utility_N, make_plan(2))


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="4 utilities for 5 rows"):
        draw(make_frame(5), np.ones(4), make_plan(2))
    with pytest.raises(ValueError, match="differ in length"):
        make_frame(5, credit_N=[0])


@pytest.mark.parametrize(
    "values",
    [
        {"group_size": 0},
        {"divisor": 0},
        {"audit_share": 1.1},
        {"review_share": -0.1},
        {"floor": 2.0},
        {"max_weight": 0},
    ],
)
def test_plans_out_of_range_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        make_plan(4, **values)
    with pytest.raises(ValueError, match="size"):
        make_plan(0)


def test_all_of_the_audit_is_marked_also_where_it_was_selected() -> None:
    # Of ten prompts nine are drawn, so the audit mostly falls on some that were selected anyway.
    for drawn in draws_of(make_frame(10), np.ones(10), make_plan(9, audit_share=0.3), 50):
        assert drawn.audit_K.sum() == drawn.num_audit
        assert len(set(drawn.rows_K.tolist())) == 9


def test_blocked_prompts_are_not_drawn() -> None:
    frame = make_frame(10, blocked_N=mask(10, 0, 1, 2))

    for drawn in draws_of(frame, np.ones(10), make_plan(5, audit_share=0.2), 50):
        assert not set(drawn.rows_K.tolist()) & {0, 1, 2}
        assert (drawn.frame, drawn.eligible, drawn.blocked) == (10, 7, 3)


def test_tickets_come_in_random_order() -> None:
    drawn = draws_of(make_frame(40), np.ones(40), make_plan(20, audit_share=0.5), 200)

    first = np.array([d.audit_K[:10].mean() for d in drawn])
    # Half of the tickets are audit in either half of the batch: the first ten of twenty, within four standard errors.
    assert first.mean() == pytest.approx(0.5, abs=4 * np.sqrt(0.25 / 10 / 200))
    assert np.mean([np.all(np.diff(d.rows_K) > 0) for d in drawn]) == 0


def test_every_counter_and_the_seed_change_the_batch() -> None:
    frame, utility_N, plan = make_frame(200), np.ones(200), make_plan(20, audit_share=0.1)
    first = set(draw(frame, utility_N, plan).rows_K.tolist())

    for changed in ({"seed": 8}, {"purpose_code": 1}, {"index": 1}, {"refill": 1}):
        assert set(draw(frame, utility_N, replace(plan, **changed)).rows_K.tolist()) != first  # type: ignore[arg-type]


# Every prompt alike


def test_an_exact_draw_ignores_utility_rest_and_due_dates() -> None:
    rng = np.random.default_rng(0)
    drawn = draw(resting_frame(20, 10, due=(0, 1)), rng.random(30), make_plan(9, audit_share=0.2, exact_uniform=True))

    np.testing.assert_allclose(drawn.inclusion_N, 9 / 30, atol=1e-12)
    np.testing.assert_array_equal(drawn.weight_K, 1.0)


def test_an_exact_draw_makes_up_for_missed_draws_audit_included() -> None:
    credit_N = np.array([0] * 15 + [1] * 10 + [3] * 5)

    drawn = draw(make_frame(30, credit_N=credit_N), np.ones(30), make_plan(6, audit_share=0.3, exact_uniform=True))

    np.testing.assert_allclose(drawn.inclusion_N, 6 * (1 + credit_N) / (1 + credit_N).sum(), atol=1e-12)
    # So the weights not handed out would have been all the same.
    assert np.ptp(drawn.ht_weight_K) < 1e-9


# Uniform draws


def test_a_uniform_draw_gives_every_eligible_prompt_the_same_chance() -> None:
    for seed, frame, _, plan in random_cases(400):
        eligible_N = eligible_of(frame, plan)
        num = int(eligible_N.sum())

        drawn = draw_uniform(frame, plan)

        total = plan.size if plan.allow_repeat and num else min(plan.size, num)
        assert len(drawn.rows_K) == total - total % plan.unit, seed
        assert (drawn.reason is None) == (len(drawn.rows_K) == plan.size), seed
        np.testing.assert_allclose(drawn.expected_N, np.where(eligible_N, len(drawn.rows_K) / max(num, 1), 0.0))
        per_row = np.bincount(drawn.rows_K, minlength=len(eligible_N))
        assert (per_row >= np.floor(drawn.expected_N)).all(), seed
        assert (per_row <= np.ceil(drawn.expected_N)).all(), seed
        assert drawn.num_audit == 0, seed
        assert not drawn.audit_K.any(), seed


@pytest.mark.parametrize(
    ("frame", "size", "divisor", "reason"),
    [
        (make_frame(0), 2, 1, ShortReason.POOL_EMPTY),
        (make_frame(4, blocked_N=np.ones(4)), 9, 1, ShortReason.ALL_IN_FLIGHT),
        (make_frame(4, blocked_N=mask(4, 0)), 4, 1, ShortReason.ALL_IN_FLIGHT),
        (make_frame(4, blocked_N=mask(4, 0)), 5, 1, ShortReason.POOL_EXHAUSTED),
        (make_frame(4), 3, 16, ShortReason.DIVISOR),
        (make_frame(4, resting_code_N=[1] * 4), 4, 1, None),
    ],
)
def test_a_short_uniform_batch_says_why(frame: DrawFrame, size: int, divisor: int, reason: ShortReason | None) -> None:
    assert draw_uniform(frame, make_plan(size, divisor=divisor)).reason is reason


def test_resting_codes_are_those_of_the_frame() -> None:
    assert [code.value for code in RestingCode] == [0, 1, 2]
