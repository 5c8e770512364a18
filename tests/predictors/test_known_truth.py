"""Every registered estimator on pools whose pass rates are known; of the default also how sure it is.

Bounds follow from what an estimator remembers. One that forgets a tenth at each group keeps 80 rollouts, with an error
of sqrt(E[p (1 - p)] / 80) = .042 at E = .14 and .056 at most; one that keeps the last group has .132 at E = .14.
"""

import functools

import numpy as np
import pytest

from predictors.base import FloatArray
from predictors.registry import ESTIMATORS
from predictors.value import informative_probability
from tests.predictors.groups import estimator
from tests.predictors.known_truth import CHANGE_AT, NUM_VISITS, POOLS, inside, replayed

every_estimator = pytest.mark.parametrize("name", ESTIMATORS)

LAST_GROUP = ("last_mean", "streak")
"""Older groups say nothing."""

HARDLY_OWN = ("beta_with_reference", "category", "hmm")
"""A prompt's own rollouts say little: by its references, by its category, or by which of three states it is in."""

NUM_ROWS = 300


@functools.cache
def history(name: str, pool: str, share: float, num_rows: int = NUM_ROWS) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(T, N) mean, variance and truth."""
    return replayed(estimator(name, num_rows=num_rows), pool, share=share, seed=1)[:3]


def error_at_the_end(name: str, pool: str) -> tuple[float, float]:
    """Root mean squared error, and that of a constant at the mean."""
    mean_TN, _, rate_TN = history(name, pool, 1.0)
    return float(np.sqrt(np.mean((mean_TN[-1] - rate_TN[-1]) ** 2))), float(rate_TN[-1].std())


def bound(name: str, constant: float) -> float:
    if name in HARDLY_OWN:
        return 1.05 * constant
    return 0.145 if name in LAST_GROUP else 0.056


@every_estimator
def test_static_pass_rates_are_found_as_well_as_the_memory_allows(name: str) -> None:
    error, constant = error_at_the_end(name, "static")

    assert error < bound(name, constant)


@every_estimator
def test_a_linear_drift_is_followed_as_well_as_the_memory_allows(name: str) -> None:
    error, constant = error_at_the_end(name, "linear drift")

    # Memories of 8 groups lag by 8 LAG DRIFT sin(2 psi) in psi, in p by 4 p (1 - p) times half of that: .02 or so more.
    assert error < bound(name, constant) + 0.02


@every_estimator
def test_a_pool_that_jumps_is_found_again(name: str) -> None:
    mean_TN, _, rate_TN = history(name, "jump", 1.0)
    error_T = np.sqrt(np.mean((mean_TN - rate_TN) ** 2, axis=1))
    error, constant = error_at_the_end(name, "jump")

    assert error_T[CHANGE_AT] > error_T[CHANGE_AT - 1]
    assert error < bound(name, constant)


@every_estimator
def test_mastered_prompts_that_regress_are_told_from_those_that_do_not(name: str) -> None:
    mean_TN, variance_TN, rate_TN = history(name, "regression after mastery", 1.0)
    fell_N = rate_TN[CHANGE_AT] != rate_TN[CHANGE_AT - 1]
    stayed_N = ~fell_N & (rate_TN[0] > 0.9)
    later = CHANGE_AT + 10
    informative_N = informative_probability(mean_TN[later], variance_TN[later], 8)

    assert fell_N.sum() > 10
    if name == "category":  # all of them are of one
        assert mean_TN[later][fell_N].mean() == pytest.approx(mean_TN[later][stayed_N].mean())
        return
    assert mean_TN[later][fell_N].mean() < mean_TN[later][stayed_N].mean() - 0.02
    assert informative_N[fell_N].mean() > informative_N[stayed_N].mean() + 0.02
    if name not in HARDLY_OWN:
        assert mean_TN[later][fell_N].mean() < 0.6
        assert mean_TN[later][stayed_N].mean() > 0.85


@pytest.mark.parametrize("share", [1.0, 0.1])
@pytest.mark.parametrize("pool", POOLS)
def test_the_default_is_as_sure_of_pass_rates_as_it_says(pool: str, share: float) -> None:
    covered_T = inside(*history("mixture", pool, share, 2_000)).mean(axis=1)

    # Visits of one prompt share most errors: the sd of the share is at most .3 / sqrt(2,000) = .007. Mastered prompts
    # that are seldom seen lie in one corner of a wide belief, which is more cautious than it need be.
    cautious = pool == "regression after mastery" and share < 1.0
    assert len(covered_T) == NUM_VISITS
    assert 0.87 <= covered_T[1:].mean() <= (0.96 if cautious else 0.93)
    if pool == "jump":  # nobody can know of it in time
        assert covered_T[CHANGE_AT] < 0.5
        assert covered_T[CHANGE_AT + 10 :].min() > 0.87
