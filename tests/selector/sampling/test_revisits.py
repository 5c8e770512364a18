import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.sampling.draw import draw
from selector.sampling.revisits import (
    assign_positions,
    due,
    due_now,
    next_overdue,
    revisit_draws,
    rows_by_position,
    waited,
)
from tests.selector.draw_cases import make_frame, make_plan

NOWHERE = np.zeros(0, np.int64)


@pytest.mark.parametrize(
    ("num_frame", "review_share", "size", "m", "expected"),
    [
        (7473, 0.05, 64, 7, 3737),  # ⌊0.05·57⌋ = 2 a draw
        (100, 0.05, 8, 1, 100),  # at least one a draw
        (100, 1.0, 8, 1, 15),  # ⌈100/7⌉
        (3, 1.0, 64, 0, 1),
        (0, 0.05, 8, 1, 1),
        (10, 0.5, 4, 4, 10),  # nothing but audit: one a draw is what there would be
    ],
)
def test_the_period_gives_each_prompt_a_turn(
    num_frame: int, review_share: float, size: int, m: int, expected: int
) -> None:
    assert revisit_draws(num_frame, review_share, size, m) == expected


@pytest.mark.parametrize(("share", "size", "m"), [(1.5, 8, 1), (-0.1, 8, 1), (0.1, 8, 9), (0.1, 8, -1)])
def test_a_period_of_impossible_batches_is_refused(share: float, size: int, m: int) -> None:
    with pytest.raises(ValueError, match="no revisit period"):
        revisit_draws(10, share, size, m)


@given(st.integers(0, 400), st.floats(0, 1), st.integers(1, 80), st.integers(0, 80))
def test_turns_at_one_index_fit_the_review_places(num: int, share: float, size: int, m: int) -> None:
    m = min(m, size)
    period = revisit_draws(num, share, size, m)
    position_N = assign_positions(NOWHERE, np.ones(num, bool), 0)

    turns = [int(due(position_N, index, period).sum()) for index in range(period)]

    assert sum(turns) == num
    assert max(turns) <= max(1, int(share * (size - m)))


def test_positions_are_keyed_by_seed_and_cover_the_frame_only() -> None:
    frame_N = np.arange(200) % 4 != 0

    position_N = assign_positions(NOWHERE, frame_N, 1)

    assert sorted(position_N[frame_N].tolist()) == list(range(150))
    assert (position_N[~frame_N] == -1).all()
    np.testing.assert_array_equal(position_N, assign_positions(NOWHERE, frame_N, 1))
    assert (position_N[frame_N] != assign_positions(NOWHERE, frame_N, 2)[frame_N]).mean() > 0.9
    assert np.abs(np.corrcoef(position_N[frame_N], np.arange(150))[0, 1]) < 4 / np.sqrt(150)


def test_positions_stay_when_the_pool_grows_shrinks_and_takes_prompts_back() -> None:
    first = assign_positions(NOWHERE, np.ones(10, bool), 3)
    grown = assign_positions(first, np.arange(14) != 2, 3)
    back = assign_positions(grown, np.ones(14, bool), 3)

    np.testing.assert_array_equal(grown[:10], first)
    assert sorted(grown[10:].tolist()) == [10, 11, 12, 13]
    np.testing.assert_array_equal(back, grown)


def test_a_turn_comes_every_period() -> None:
    position_N = np.array([0, 1, 2, 3, 4, -1])

    assert due(position_N, 7, 3).tolist() == [False, True, False, False, True, False]
    assert waited(position_N[:5], 7, 3).tolist() == [1, 0, 2, 1, 0]
    with pytest.raises(ValueError, match="period must be >= 1"):
        due(position_N, 7, 0)


def test_only_prompts_at_rest_are_due_and_who_was_not_drawn_stays_due() -> None:
    position_N = np.arange(6)
    resting_N = np.array([True, True, True, False, True, True])
    overdue_N = np.array([False, True, False, True, False, False])

    due_N = due_now(position_N, overdue_N, resting_N, 2, 3)

    assert np.flatnonzero(due_N).tolist() == [1, 2, 5]
    assert np.flatnonzero(next_overdue(due_N, np.array([2, 4]))).tolist() == [1, 5]
    assert np.flatnonzero(due_N).tolist() == [1, 2, 5]


@pytest.mark.parametrize(
    ("size", "audit_share", "num_resting"), [(8, 0.25, 60), (8, 0.0, 20), (20, 0.1, 57), (2, 0.1, 59)]
)
@pytest.mark.parametrize("lag", [0, 3])
def test_no_prompt_at_rest_waits_longer_than_promised(
    size: int, audit_share: float, num_resting: int, lag: int
) -> None:
    num_rows = 60
    resting_N = np.arange(num_rows) < num_resting
    position_N = assign_positions(NOWHERE, np.ones(num_rows, bool), 5)
    overdue_N, free_from_N = np.zeros(num_rows, bool), np.zeros(num_rows, np.int64)
    waited_N, longest_N, period = np.zeros(num_rows, np.int64), np.zeros(num_rows, np.int64), 0
    for t in range(300):
        blocked_N = free_from_N > t
        if not period:
            period = revisit_draws(num_rows, 0.1, size, int(np.ceil(audit_share * size)))
        due_N = due_now(position_N, overdue_N, resting_N, t, period)
        frame = make_frame(num_rows, blocked_N=blocked_N, resting_code_N=resting_N, due_N=due_N)

        drawn = draw(frame, np.ones(num_rows), make_plan(size, audit_share=audit_share, review_share=0.1, index=t))

        overdue_N = next_overdue(due_N, drawn.rows_K)
        free_from_N[drawn.rows_K] = t + 1 + lag
        # Draws since it was last drawn, those it was blocked for left out.
        waited_N += ~blocked_N
        waited_N[drawn.rows_K] = 0
        longest_N = np.maximum(longest_N, waited_N)

    assert longest_N[resting_N].max() < period


def test_the_row_at_each_position_finds_who_is_due() -> None:
    position_N = assign_positions(NOWHERE, np.arange(90) % 5 != 0, 4)
    row_P = rows_by_position(position_N)

    np.testing.assert_array_equal(position_N[row_P], np.arange(72))
    for index in (0, 3, 29):
        assert sorted(row_P[index % 7 :: 7].tolist()) == np.flatnonzero(due(position_N, index, 7)).tolist()
