"""Masks of a draw against whole arrays of numpy."""

import numpy as np
import pytest

from selector.sampling.eligibility import active_and_resting, blocked_rows, renew_credit, resting_codes
from selector.types import Lifecycle

SIZES = [0, 1, 31, 1_000]


@pytest.mark.parametrize("num_rows", SIZES)
def test_rows_of_the_frame_with_a_ticket_in_flight_are_blocked_and_owed_one_draw_more(num_rows: int) -> None:
    rng = np.random.default_rng(num_rows)
    frame_N, in_flight_N = rng.random(num_rows) < 0.7, rng.integers(0, 3, num_rows).astype(np.int32)
    credit_N = rng.integers(0, 5, num_rows).astype(np.int32)
    expected_N = frame_N & (in_flight_N > 0)

    owed_N = credit_N.copy()
    renew_credit(frame_N, in_flight_N, owed_N)

    np.testing.assert_array_equal(blocked_rows(frame_N, in_flight_N), expected_N)
    np.testing.assert_array_equal(owed_N, np.where(expected_N, credit_N + 1, 0))


@pytest.mark.parametrize("num_rows", SIZES)
def test_eligible_rows_are_active_or_at_rest_and_due_ones_count_as_at_rest(num_rows: int) -> None:
    rng = np.random.default_rng(num_rows)
    eligible_N, due_N = rng.random(num_rows) < 0.7, rng.random(num_rows) < 0.2
    lifecycle_N = rng.choice(list(Lifecycle), num_rows).astype(np.uint8)
    wanted_N = np.select([lifecycle_N == Lifecycle.MASTERED, lifecycle_N == Lifecycle.DEFERRED], [1, 2], 0)

    code_N = resting_codes(lifecycle_N)
    active_N, resting_N = active_and_resting(eligible_N, code_N, due_N)

    np.testing.assert_array_equal(code_N, wanted_N)
    np.testing.assert_array_equal(resting_N, eligible_N & ((wanted_N > 0) | due_N))
    np.testing.assert_array_equal(active_N, eligible_N & ~resting_N)
