"""Runs of degenerate visits by hand and against a loop, and the chance of keeping a prompt that follows from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.registry import build_estimator
from predictors.streak import Streak, keep_probability
from tests.predictors.groups import estimator, groups, one_by_one, random_history


def streak(*, num_rows: int, **options: float) -> Streak:
    made = build_estimator("streak", options)
    assert isinstance(made, Streak)
    made.resize(np.zeros(num_rows, dtype=np.int32))
    return made


def test_runs_by_hand() -> None:
    made = streak(num_rows=5)
    made.observe(groups([0, 0, 0, 1, 1, 2, 2, 3, 3], [8, 8, 8, 0, 0, 0, 8, 8, 4]))

    np.testing.assert_array_equal(made.runs(), [3, -2, 1, 0, 0])
    np.testing.assert_array_equal(made.runs(np.array([1, 4, 0])), [-2, 0, 3])
    # Beta(1, 1) with 24 of 24, 0 of 16, 8 of 8 (the run after the turn), 4 of 8 (the mixed group), nothing.
    np.testing.assert_allclose(made.beliefs().mean_N, [25 / 26, 1 / 18, 9 / 10, 5 / 10, 1 / 2])
    np.testing.assert_array_equal(made.beliefs().n_eff_N, [24, 16, 8, 8, 0])


def test_the_thresholds_of_the_paper() -> None:
    """Easy from .98, hard up to .11: at 64 rollouts 63 count as all right and 7 as all wrong, at 8 neither 7 nor 1."""
    made = streak(num_rows=6)
    made.observe(groups(np.arange(6), [63, 62, 7, 8, 7, 1], scored=[64, 64, 64, 64, 8, 8]))

    np.testing.assert_array_equal(made.runs(), [1, 0, -1, 0, 0, 0])


@given(st.integers(0, 10**6))
def test_runs_and_beliefs_agree_with_a_loop(seed: int) -> None:
    made = streak(num_rows=3, prior_successes=0.5, prior_failures=2.0)
    run, passed, tried = [0] * 3, [0.0] * 3, [0] * 3
    for version, observations in random_history(seed=seed, num_rows=3, max_late=3):
        made.advance(version)
        made.observe(observations)
        for row, passes, scored, _ in one_by_one(observations):
            kind = 1 if passes / scored >= 0.98 else -1 if passes / scored <= 0.11 else 0
            if kind == 0 or kind * run[row] <= 0:
                run[row], passed[row], tried[row] = 0, 0.0, 0
            run[row], passed[row], tried[row] = run[row] + kind, passed[row] + passes, tried[row] + scored

    beliefs = made.beliefs()
    np.testing.assert_array_equal(made.runs(), run)
    np.testing.assert_allclose(beliefs.mean_N, (0.5 + np.array(passed)) / (2.5 + np.array(tried)))
    np.testing.assert_array_equal(beliefs.n_eff_N, tried)


def test_keep_probabilities_by_hand() -> None:
    """Halved at each visit of a run down to 1 in 100, reached at the seventh; 1 without a run."""
    runs = np.array([0, 1, -1, 2, 6, 7, -7, 1000, -1000])

    np.testing.assert_allclose(keep_probability(runs), [1, 0.5, 0.5, 0.25, 1 / 64, 0.01, 0.01, 0.01, 0.01])
    np.testing.assert_allclose(
        keep_probability(np.array([2, -2, 0]), easy_base=0.95, hard_base=0.05), [0.95**2, 0.01, 1.0]
    )


@pytest.mark.parametrize("base", [0.0, 1.1, float("nan")])
def test_a_base_that_is_no_chance_is_refused(base: float) -> None:
    with pytest.raises(ValueError, match=r"hard_base must be in \(0, 1\]"):
        keep_probability(np.array([1]), hard_base=base)


@pytest.mark.parametrize("pass_rate", [0.05, 0.1, 0.2, 0.5])
def test_the_share_of_encounters_that_are_kept_is_the_stationary_one(pass_rate: float) -> None:
    """At a fixed pass rate, of all visits (1 - q) q^z end a run of z of one kind, q = (1 - p)^8 or p^8.

    After it the prompt is passed over until kept, 1 / keep(z) encounters on average. So encounters per visit are
    1 + sum_kinds sum_z (1 - q) q^z (1 / keep(z) - 1), and .083, .34, .80 and .99 of them are kept.
    """
    rng = np.random.default_rng(0)
    size, rounds, settled = 1000, 3000, 1500
    made = streak(num_rows=size)
    num_kept = 0
    for step in range(rounds):
        kept = np.flatnonzero(rng.random(size) < keep_probability(made.runs()))
        made.observe(groups(kept, rng.binomial(8, pass_rate, kept.size)))
        num_kept += kept.size if step >= settled else 0

    length = np.arange(1, 400)
    passed_over = 1 / keep_probability(length) - 1
    encounters = 1 + sum(np.sum((1 - q) * q**length * passed_over) for q in ((1 - pass_rate) ** 8, pass_rate**8))
    # A cycle from one mixed visit to the next is at most some 40 encounters on average, with a spread of 4 times that:
    # 1.5 million encounters are over 35,000 cycles, so the share is known to within 2 % of itself, one sigma.
    assert num_kept / (rounds - settled) / size == pytest.approx(1 / encounters, rel=0.05)


def test_the_published_thresholds_never_end_in_a_keep_of_zero() -> None:
    made = streak(num_rows=1)
    for _ in range(300):
        made.observe(groups([0], [0]))

    assert keep_probability(made.runs())[0] == 0.01
    assert estimator("streak", num_rows=1).beliefs().n_eff_N[0] == 0
