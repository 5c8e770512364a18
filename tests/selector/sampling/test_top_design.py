"""Taking the largest utilities: how often each prompt is drawn, among all or some, with a floor and without.

Bounds as in `test_draw_statistics`.
"""

from dataclasses import replace

import numpy as np
import pytest

from selector.sampling.draw import draw
from selector.sampling.draw_plan import DrawFrame, DrawPlan
from tests.selector.draw_cases import make_frame, make_plan, mask
from tests.selector.sampling.test_draw_statistics import assert_within

NUM_ROWS = 12
UTILITY = np.array([0.0, 0.0, 0.1, 0.1, 0.2, 0.5, 0.5, 0.5, 0.7, 0.9, 1.0, 3.0])
CREDIT = np.array([0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0])


@pytest.mark.parametrize("num_draws", [1_500, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("frame", "plan"),
    [
        (make_frame(NUM_ROWS), make_plan(6, top=True, floor=0.0, audit_share=0.2)),
        (make_frame(NUM_ROWS, credit_N=CREDIT), make_plan(5, top=True, floor=0.3, candidates=1.5)),
    ],
    ids=["ties, with an audit", "candidates and a floor"],
)
def test_prompts_are_drawn_as_often_as_their_chances_say(frame: DrawFrame, plan: DrawPlan, num_draws: int) -> None:
    excess_N, variance_N = np.zeros(NUM_ROWS), np.zeros(NUM_ROWS)
    for index in range(num_draws):
        drawn = draw(frame, UTILITY, replace(plan, index=index))
        excess_N += np.bincount(drawn.rows_K, minlength=NUM_ROWS) - drawn.inclusion_N
        variance_N += drawn.inclusion_N * (1.0 - drawn.inclusion_N)
    assert_within(excess_N, variance_N)


def test_chances_by_hand() -> None:
    # Five of twelve: 3.0, 1.0, 0.9 and 0.7 for sure, the fifth place to one of three that tie.
    drawn = draw(make_frame(NUM_ROWS), UTILITY, make_plan(5, top=True, floor=0.0))

    np.testing.assert_allclose(drawn.inclusion_N, [0] * 5 + [1 / 3] * 3 + [1] * 4, atol=1e-11)
    assert {8, 9, 10, 11} < set(drawn.rows_K.tolist())


def test_a_floor_mixes_the_largest_with_a_uniform_draw() -> None:
    drawn = draw(make_frame(NUM_ROWS), UTILITY, make_plan(4, top=True, floor=0.5))

    # π = (1 - f)·1[largest] + f·K/N.
    np.testing.assert_allclose(drawn.inclusion_N, [0.5 * 4 / 12] * 8 + [0.5 + 0.5 * 4 / 12] * 4, atol=1e-11)


def test_among_candidates_the_largest_are_taken() -> None:
    plan, seen = make_plan(3, top=True, floor=0.0, candidates=2.0), set()
    for index in range(200):
        drawn = draw(make_frame(NUM_ROWS), UTILITY, replace(plan, index=index))
        # No prompt below the sixth of six candidates can be among the three largest, whoever the candidates are.
        assert UTILITY[drawn.rows_K].min() >= 0.1
        seen |= set(drawn.rows_K.tolist())
    assert seen == {4, 5, 6, 7, 8, 9, 10, 11} | (seen & {2, 3})
    # With all of them as candidates there is nothing left to chance but ties.
    every = draw(make_frame(NUM_ROWS), UTILITY, replace(plan, candidates=4.0))
    assert sorted(every.rows_K.tolist()) == [9, 10, 11]


def test_the_share_of_a_prompt_among_random_candidates_is_the_one_of_combinatorics() -> None:
    # Two places, four candidates of twelve: the second best is drawn whenever it is a candidate, 4/12; the third best
    # when it is one and not both better ones are: 4/12 · (1 − (3·2)/(11·10)).
    utility_N = np.arange(12.0)
    plan = make_plan(2, top=True, floor=0.0, candidates=2.0)
    drawn_N = np.zeros(12)
    num = 6000
    for index in range(num):
        drawn_N += np.bincount(draw(make_frame(12), utility_N, replace(plan, index=index)).rows_K, minlength=12)

    expected = np.array([4 / 12 * (1 - 6 / 110), 4 / 12, 4 / 12])
    np.testing.assert_allclose(drawn_N[9:] / num, expected, atol=4 * np.sqrt(0.25 / num))


def test_rows_at_rest_take_part_in_reviews_only() -> None:
    frame = make_frame(NUM_ROWS, resting_code_N=mask(NUM_ROWS, 10, 11), due_N=mask(NUM_ROWS, 11))
    drawn = draw(frame, UTILITY, make_plan(3, top=True, floor=0.0))

    # The due prompt for sure, the other one at rest not; of the others the largest.
    assert sorted(drawn.rows_K.tolist()) == [8, 9, 11]
    np.testing.assert_allclose(drawn.inclusion_N[[8, 9, 11, 10]], [1, 1, 1, 0])


def test_utilities_that_are_all_alike_prefer_nothing() -> None:
    drawn = draw(make_frame(NUM_ROWS), np.zeros(NUM_ROWS), make_plan(3, top=True, floor=0.0))

    np.testing.assert_allclose(drawn.inclusion_N, 3 / NUM_ROWS)


@pytest.mark.parametrize("values", [{"candidates": 2.0}, {"top": True, "candidates": 0.5}])
def test_candidates_without_a_design_that_looks_at_them_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="candidates must be >= 1 and need top"):
        make_plan(3, **values)


def test_candidates_of_no_utility_come_before_others_of_none() -> None:
    drawn = draw(make_frame(NUM_ROWS), np.eye(NUM_ROWS)[0], make_plan(4, top=True, floor=0.0, candidates=1.0))

    # As many candidates as places: each is drawn for sure.
    assert sorted(drawn.inclusion_N.tolist()) == pytest.approx([0.0] * 8 + [1.0] * 4)
