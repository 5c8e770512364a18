"""The last group alone: by hand, against a dictionary, and next to the discounted Beta that keeps nothing older."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.predictors.groups import estimator, feed, groups, one_by_one, random_history


def test_one_group_by_hand() -> None:
    """6 of 8 on Beta(1, 1) is Beta(7, 3)."""
    made = estimator("last_mean", num_rows=1)
    made.observe(groups([0], [6]))
    beliefs = made.beliefs()

    assert beliefs.mean_N[0] == pytest.approx(0.7)
    assert beliefs.variance_N[0] == pytest.approx(7 * 3 / 100 / 11)
    assert beliefs.n_eff_N[0] == 8


@given(st.integers(0, 10**6))
def test_only_the_group_that_arrived_last_counts(seed: int) -> None:
    made = estimator("last_mean", num_rows=6)
    last: dict[int, tuple[float, int]] = {}
    for version, observations in random_history(seed=seed, max_late=5):
        made.advance(version)
        made.observe(observations)
        last |= {row: (passes, scored) for row, passes, scored, _ in one_by_one(observations)}

    beliefs = made.beliefs()
    for row in range(6):
        passes, scored = last.get(row, (0.0, 0))
        assert beliefs.mean_N[row] == pytest.approx((1 + passes) / (2 + scored))
        assert beliefs.n_eff_N[row] == scored


@given(st.integers(0, 10**6))
def test_it_is_the_discounted_beta_that_keeps_nothing(seed: int) -> None:
    made = estimator("last_mean", num_rows=6, prior_successes=0.5, prior_failures=2.0)
    same = estimator(
        "discounted_beta", num_rows=6, discount=0.0, process_noise=0.0, prior_successes=0.5, prior_failures=2.0
    )
    for version, observations in random_history(seed=seed, max_late=5):
        for one in (made, same):
            one.advance(version)
            one.observe(observations)

    ours, theirs = made.beliefs(), same.beliefs()
    for field in ("mean_N", "variance_N", "n_eff_N", "lag_N", "source_N"):
        np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field), err_msg=field)


def test_a_late_group_replaces_a_newer_one() -> None:
    made = estimator("last_mean", num_rows=1)
    made.advance(50)
    made.observe(groups([0, 0], [8, 0], version=[50, 3]))
    beliefs = made.beliefs()

    assert beliefs.mean_N[0] == pytest.approx(0.1)
    assert beliefs.lag_N[0] == 0


def test_a_jump_is_seen_at_the_next_group_and_nothing_converges() -> None:
    rng = np.random.default_rng(0)
    made = estimator("last_mean", num_rows=4000)
    errors = []
    for pass_rate in (0.2, 0.8):
        feed(made, np.full(4000, pass_rate), versions=np.arange(1), rng=rng)
        errors.append(made.beliefs().mean_N - (1 + 8 * pass_rate) / 10)
    feed(made, np.full(4000, 0.8), versions=np.arange(30), rng=rng)
    errors.append(made.beliefs().mean_N - 0.74)

    # sd of a mean: sqrt(8 * .16) / 10 = .113; of 4000 such, .0018; of their sd, .113 / sqrt(8000) = .0013.
    for error_N in errors:
        assert abs(error_N.mean()) < 0.0072
        assert error_N.std() == pytest.approx(0.113, abs=0.006)
