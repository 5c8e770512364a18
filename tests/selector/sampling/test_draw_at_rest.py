"""Draws with prompts at rest: the review places, and prompts that are due."""

from dataclasses import replace

import numpy as np
import pytest

from selector.sampling.draw import draw
from selector.sampling.draw_plan import ShortReason
from tests.selector.draw_cases import make_plan, mask, resting_frame


def test_resting_prompts_share_the_review_places_by_utility() -> None:
    utility_N = np.repeat([1.0, 1.0, 3.0], [20, 5, 5])

    drawn = draw(resting_frame(20, 10), utility_N, make_plan(10, audit_share=0.1, review_share=0.2, floor=0.2))

    # Two of nine selected places: 0.8 * 1/20 + 0.2 / 10 and 0.8 * 3/20 + 0.2 / 10 of them each.
    np.testing.assert_allclose(drawn.selected_inclusion_N, np.repeat([7 / 20, 0.12, 0.28], [20, 5, 5]), atol=1e-12)


def test_due_prompts_are_certain_and_count_among_the_review_places() -> None:
    drawn = draw(
        resting_frame(20, 10, due=(0, 7)), np.ones(30), make_plan(10, audit_share=0.1, review_share=0.3, floor=0.1)
    )

    assert drawn.selected_inclusion_N[[20, 27]].tolist() == [1.0, 1.0]
    assert drawn.selected_inclusion_N[20:].sum() == pytest.approx(3)
    assert {20, 27} <= set(drawn.rows_K.tolist())
    assert drawn.due_unplaced == 0


def test_more_due_prompts_than_review_places_take_what_they_need() -> None:
    drawn = draw(resting_frame(20, 10, due=(0, 1, 2, 3)), np.ones(30), make_plan(10, audit_share=0.1, review_share=0.1))

    np.testing.assert_allclose(drawn.selected_inclusion_N, np.repeat([5 / 20, 1.0, 0.0], [20, 4, 6]), atol=1e-12)
    assert (drawn.inclusion_N > 0).all()


def test_more_due_prompts_than_tickets_are_placed_by_how_long_they_waited() -> None:
    waited_N = np.zeros(30, np.int64)
    waited_N[[25, 28]] = [5, 9]
    frame = resting_frame(20, 10, due=tuple(range(10)), waited_N=waited_N)

    drawn = draw(frame, np.ones(30), make_plan(4, audit_share=0.25))

    assert np.flatnonzero(drawn.selected_inclusion_N == 1.0).tolist() == [20, 25, 28]
    assert drawn.due_unplaced == 7


def test_without_an_audit_due_prompts_leave_a_chance_to_the_others() -> None:
    # Four places, no audit: the floor keeps 0.4 of them for all 30, so three due rows are certain and the rest are not.
    drawn = draw(resting_frame(20, 10, due=tuple(range(8))), np.ones(30), make_plan(4, floor=0.1))

    assert (drawn.inclusion_N == 1.0).sum() == 3
    assert drawn.inclusion_N.min() >= 0.1 * 4 / 30 - 2.0**-40
    assert drawn.due_unplaced == 5


def test_a_batch_of_one_without_an_audit_still_leaves_a_chance_to_the_others() -> None:
    drawn = draw(resting_frame(5, 5, due=(0,)), np.ones(10), make_plan(1, floor=0.1))

    assert drawn.inclusion_N.min() >= 0.01 - 2.0**-40
    assert drawn.due_unplaced == 1


def test_an_active_prompt_can_be_due_and_takes_a_review_place() -> None:
    frame = resting_frame(20, 10)

    drawn = draw(
        replace(frame, due_N=mask(30, 3)), np.ones(30), make_plan(10, audit_share=0.1, review_share=0.2, floor=0.1)
    )

    assert drawn.selected_inclusion_N[3] == 1.0
    np.testing.assert_allclose(drawn.selected_inclusion_N[20:], 0.1, atol=1e-12)


def test_resting_prompts_do_not_fill_a_batch_unless_asked_to() -> None:
    frame, utility_N = resting_frame(3, 20), np.ones(23)

    partial = draw(frame, utility_N, make_plan(10, audit_share=0.1, review_share=0.2))
    filled = draw(frame, utility_N, make_plan(10, audit_share=0.1, review_share=0.2, short="fill"))

    assert (len(partial.rows_K), partial.reason) == (6, ShortReason.POOL_EXHAUSTED)
    np.testing.assert_allclose(partial.selected_inclusion_N, np.repeat([1.0, 0.1], [3, 20]), atol=1e-12)
    assert (len(filled.rows_K), filled.reason) == (10, None)
    np.testing.assert_allclose(filled.selected_inclusion_N, np.repeat([1.0, 0.3], [3, 20]), atol=1e-12)
