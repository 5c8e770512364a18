"""Draws from too few prompts: what is repeated, and what a batch says that is short."""

import numpy as np
import pytest

from selector.sampling.draw import draw
from selector.sampling.draw_plan import DrawFrame, ShortReason
from tests.selector.draw_cases import draws_of, make_frame, make_plan, mask, resting_frame

# Repeats


def test_a_batch_repeats_prompts_only_when_it_must() -> None:
    frame = make_frame(6, blocked_N=mask(6, 0, 1))

    drawn = draw(frame, np.ones(6), make_plan(6, allow_repeat=True, audit_share=0.2))

    assert sorted(drawn.rows_K.tolist()) == [0, 1, 2, 3, 4, 5]
    assert (drawn.eligible, drawn.blocked) == (6, 0)


def test_leave_to_repeat_is_no_leave_to_fill_from_prompts_at_rest() -> None:
    drawn = draw(resting_frame(2, 8), np.ones(10), make_plan(6, allow_repeat=True))

    assert sorted(drawn.rows_K.tolist())[:2] == [0, 1]
    assert len(drawn.rows_K) == 2


def test_repeats_are_even_and_the_rest_goes_by_utility() -> None:
    frame = make_frame(4, blocked_N=mask(4, 0), credit_N=[2, 0, 0, 0])
    plan = make_plan(10, allow_repeat=True, audit_share=0.6, floor=0.2)

    drawn = draw(frame, np.array([1.0, 0.0, 0.0, 1.0]), plan)

    # Two each, two more: u(1+c) = 3, 0, 0, 1 of 4 and 1+c = 3, 1, 1, 1 of 6, capped at the first.
    selected = np.array([0.7, 1 / 30, 1 / 30, 0.2 + 1 / 30]) * 2
    assert selected[0] > 1
    selected = np.append(1.0, selected[1:] / selected[1:].sum())
    np.testing.assert_allclose(drawn.expected_N, 2 + selected, atol=1e-11)
    np.testing.assert_array_equal(drawn.inclusion_K, 1.0)
    assert set(np.bincount(drawn.rows_K).tolist()) <= {2, 3}
    assert drawn.num_audit == 4
    assert sorted(drawn.rows_K[drawn.audit_K].tolist()) == [0, 1, 2, 3]
    weights = 10 * (1 + frame.credit_N) / (4 * drawn.expected_N)
    np.testing.assert_allclose(drawn.weight_K, weights[drawn.rows_K])


def test_repeats_take_resting_prompts_along_and_obey_the_divisor() -> None:
    drawn = draw(resting_frame(2, 3), np.ones(5), make_plan(13, allow_repeat=True, divisor=16))

    assert np.bincount(drawn.rows_K).min() == 2
    assert (len(drawn.rows_K), drawn.reason) == (12, ShortReason.DIVISOR)


def test_a_cut_can_bring_a_repeating_batch_back_below_the_pool() -> None:
    drawn = draw(make_frame(9), np.ones(9), make_plan(10, allow_repeat=True, divisor=64, audit_share=0.1))

    assert len(set(drawn.rows_K.tolist())) == 8
    assert drawn.reason is ShortReason.DIVISOR


# Why a batch is short


@pytest.mark.parametrize(
    ("frame", "size", "reason"),
    [
        (make_frame(4, frame_N=np.zeros(4)), 2, ShortReason.POOL_EMPTY),
        (make_frame(4, blocked_N=np.ones(4)), 4, ShortReason.ALL_IN_FLIGHT),
        (make_frame(4, blocked_N=mask(4, 0, 1, 2)), 4, ShortReason.ALL_IN_FLIGHT),
        (make_frame(4, blocked_N=mask(4, 0)), 5, ShortReason.POOL_EXHAUSTED),
        (make_frame(4, blocked_N=np.ones(4)), 5, ShortReason.ALL_IN_FLIGHT),
        (make_frame(3), 4, ShortReason.POOL_EXHAUSTED),
        (make_frame(6, resting_code_N=[1] * 6), 4, ShortReason.ALL_MASTERED),
        (make_frame(6, resting_code_N=[2] * 6), 4, ShortReason.ALL_DEFERRED),
        (make_frame(6, resting_code_N=[1, 1, 1, 1, 2, 2]), 4, ShortReason.ALL_MASTERED),
        (make_frame(6, resting_code_N=[1, 1, 2, 2, 2, 2]), 4, ShortReason.ALL_DEFERRED),
        (make_frame(6, resting_code_N=[2] * 6, blocked_N=mask(6, 0)), 4, ShortReason.ALL_DEFERRED),
        (make_frame(6, resting_code_N=[0, 0, 2, 2, 2, 2], blocked_N=mask(6, 0, 1)), 2, ShortReason.ALL_IN_FLIGHT),
        (make_frame(6, resting_code_N=[0, 0, 2, 2, 2, 2], blocked_N=mask(6, 0, 1)), 5, ShortReason.ALL_IN_FLIGHT),
        (make_frame(6, resting_code_N=[0, 0, 2, 2, 2, 2]), 5, ShortReason.POOL_EXHAUSTED),
    ],
)
def test_a_short_batch_says_why(frame: DrawFrame, size: int, reason: ShortReason) -> None:
    drawn = draw(frame, np.ones(len(frame.frame_N)), make_plan(size, audit_share=0.1))

    assert len(drawn.rows_K) < size
    assert drawn.reason is reason


def test_an_active_pool_that_is_all_due_is_neither_mastered_nor_deferred() -> None:
    drawn = draw(make_frame(3, due_N=np.ones(3)), np.ones(3), make_plan(4))

    assert (len(drawn.rows_K), drawn.reason) == (3, ShortReason.POOL_EXHAUSTED)


def test_a_pool_at_rest_that_fills_a_batch_is_merely_small() -> None:
    drawn = draw(make_frame(3, resting_code_N=[1] * 3), np.ones(3), make_plan(4, short="fill"))

    assert (len(drawn.rows_K), drawn.reason) == (3, ShortReason.POOL_EXHAUSTED)


def test_a_pool_at_rest_still_sends_out_its_audit_and_review_and_no_more() -> None:
    frame = make_frame(100, resting_code_N=[2] * 100)

    sizes = [len(d.rows_K) for d in draws_of(frame, np.ones(100), make_plan(20, audit_share=0.1, review_share=0.1), 30)]

    assert set(sizes) == {4}
