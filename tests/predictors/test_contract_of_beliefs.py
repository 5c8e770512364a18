"""What every registered estimator must believe after given evidence; a new one is tested by being registered.

Some published methods do not claim all of it. They are named at the test, in a tuple that says what they lack; what
they do instead is in their own tests.
"""

import numpy as np
import pytest

from predictors.base import NEVER
from predictors.registry import build_estimator
from predictors.value import informative_probability
from tests.predictors.contract_cases import assert_same, every_estimator, every_estimator_but
from tests.predictors.groups import estimator, feed, groups

SHARING_NOTHING = ("beta_with_reference", "hmm", "kalman_logit", "last_mean", "streak")
"""Prompts of a category have nothing in common."""

AGELESS = ("category", "last_mean", "streak")
"""What was seen stays as sure as on its day."""

BY_ARRIVAL = ("category", "hmm", "last_mean", "streak")
"""A late group counts as any other."""

COARSE = ("category", "hmm", "last_mean", "streak")
"""Too little is kept of a prompt for its own pass rate to be found."""


@every_estimator_but(*SHARING_NOTHING)
def test_rows_never_tried_get_the_prior_of_their_category(name: str) -> None:
    rng = np.random.default_rng(1)
    made = build_estimator(name, {})
    category_N = np.repeat(np.array([0, 1], dtype=np.int32), 200)
    made.resize(category_N)
    tried = np.r_[np.arange(100), np.arange(200, 300)]
    pass_rate = np.where(category_N[tried] == 0, rng.beta(1, 9, 200), rng.beta(6, 2, 200))
    made.observe(groups(tried, rng.binomial(8, pass_rate)))
    beliefs = made.beliefs()

    # Means .1 and .75; the sd of a mean over 100 groups is at most .03, and shrinkage moves them by up to .14 * .33.
    assert np.unique(beliefs.mean_N[100:200]).size == 1
    assert np.unique(beliefs.mean_N[300:]).size == 1
    assert beliefs.mean_N[100] == pytest.approx(0.1, abs=0.14)
    assert beliefs.mean_N[300] == pytest.approx(0.75, abs=0.14)

    made.resize(np.where(np.arange(400) == 150, 1, category_N).astype(np.int32))
    assert made.beliefs().mean_N[150] == pytest.approx(beliefs.mean_N[300], abs=1e-12)


@every_estimator_but("hmm")  # uniform over states, of which two are ends
def test_a_pool_without_any_evidence_is_believed_flat(name: str) -> None:
    beliefs = estimator(name, num_rows=3).beliefs()

    np.testing.assert_allclose(beliefs.mean_N, 0.5)
    np.testing.assert_allclose(beliefs.variance_N, 1 / 12)


@every_estimator
def test_the_order_of_two_groups_of_one_row_counts(name: str) -> None:
    rising, falling, split = (estimator(name, num_rows=2) for _ in range(3))
    rising.observe(groups([0, 0], [0, 8], version=[0, 50]))
    falling.observe(groups([0, 0], [8, 0], version=[0, 50]))
    split.observe(groups([0], [0], version=0))
    split.observe(groups([0], [8], version=50))

    assert rising.beliefs().mean_N[0] != falling.beliefs().mean_N[0]
    assert_same(rising.beliefs(np.array([0])), split.beliefs(np.array([0])))


# A chain counts which state follows which; in log-odds a group at a prompt thought hopeless says little.
@every_estimator_but("hmm", "kalman_logit")
def test_the_newer_of_two_groups_that_disagree_weighs_more(name: str) -> None:
    rising, falling = estimator(name, num_rows=1), estimator(name, num_rows=1)
    rising.observe(groups([0, 0], [0, 8], version=[0, 50]))
    falling.observe(groups([0, 0], [8, 0], version=[0, 50]))

    assert rising.beliefs().mean_N[0] > 0.5 > falling.beliefs().mean_N[0]


@every_estimator
def test_groups_of_other_rows_in_between_do_not_matter_to_the_order(name: str) -> None:
    together, apart = estimator(name, num_rows=3), estimator(name, num_rows=3)
    together.observe(groups([1, 0, 1, 2, 0], [3, 1, 8, 5, 7]))
    apart.observe(groups([0, 1, 2, 0, 1], [1, 3, 5, 7, 8]))

    np.testing.assert_allclose(together.beliefs().mean_N, apart.beliefs().mean_N, rtol=0, atol=1e-12)


@every_estimator
def test_lag_counts_versions_since_the_newest_own_group(name: str) -> None:
    made = estimator(name, num_rows=3)
    made.advance(10)
    made.observe(groups([0, 1, 1], [4, 4, 4], version=[10, 9, 4]))
    np.testing.assert_array_equal(made.beliefs().lag_N, [0, 1, NEVER])

    made.advance(25)
    np.testing.assert_array_equal(made.beliefs().lag_N, [15, 16, NEVER])


@every_estimator
def test_a_group_from_a_version_not_announced_yet_has_no_lag(name: str) -> None:
    made = estimator(name, num_rows=1)
    made.advance(3)
    made.observe(groups([0], [4], version=4))

    assert made.beliefs().lag_N[0] == 0


@every_estimator_but(*AGELESS)
def test_beliefs_grow_unsure_while_the_policy_moves_on(name: str) -> None:
    made = estimator(name, num_rows=50)
    feed(made, np.full(50, 0.5), versions=np.arange(20), rng=np.random.default_rng(2))
    before = made.beliefs()
    made.advance(400)
    after = made.beliefs()

    assert (after.variance_N > before.variance_N).all()
    assert (after.n_eff_N < before.n_eff_N).all()


@every_estimator_but(*BY_ARRIVAL)
def test_late_evidence_says_less_than_fresh_evidence(name: str) -> None:
    late, fresh = estimator(name, num_rows=1), estimator(name, num_rows=1)
    for made, version in ((late, 480), (fresh, 500)):
        made.advance(500)
        made.observe(groups([0], [4], version=500))
        made.observe(groups([0], [8], version=version))

    assert 0.5 < late.beliefs().mean_N[0] < fresh.beliefs().mean_N[0]


@every_estimator_but(*COARSE)
def test_static_pass_rates_are_recovered(name: str) -> None:
    rng = np.random.default_rng(3)
    pass_rate_N = rng.beta(1, 1, 400)
    made = estimator(name, num_rows=400)
    feed(made, pass_rate_N, versions=np.arange(0, 40), rng=rng)
    beliefs = made.beliefs()

    # At a stated forgetting of .9 a group, evidence tends to 80 rollouts, so the error is at most .5 / sqrt(80) = .056.
    error_N = beliefs.mean_N - pass_rate_N
    assert np.sqrt(np.mean(error_N**2)) < 0.056
    assert abs(error_N.mean()) < 0.01
    assert np.mean(error_N**2 < 9 * beliefs.variance_N) > 0.97


@every_estimator_but("category", "hmm")
def test_a_drift_of_the_policy_is_followed(name: str) -> None:
    rng = np.random.default_rng(4)
    made = estimator(name, num_rows=400)
    start_N = rng.uniform(0.1, 0.4, 400)
    for step in range(40):
        feed(made, start_N + 0.4 * step / 39, versions=np.array([10 * step]), rng=rng)

    # A memory of some 8 groups lags by 8 * .4 / 39 = .08; without forgetting the lag would be .2.
    assert abs(np.mean(made.beliefs().mean_N - start_N - 0.4)) < 0.08


@every_estimator_but("category")  # the two prompts are of one category
@pytest.mark.parametrize("scored", [1, 2, 4, 8])
def test_no_pass_in_one_small_group_is_not_called_impossible(name: str, scored: int) -> None:
    rng = np.random.default_rng(5)
    made = estimator(name, num_rows=500)
    made.observe(groups(np.arange(400), rng.binomial(8, rng.beta(0.3, 3, 400))))
    made.observe(groups([450, 451], [0, scored], scored=scored))
    beliefs = made.beliefs(np.array([450, 451]))

    assert 0.003 < beliefs.mean_N[0] < beliefs.mean_N[1] < 0.9999
    assert (informative_probability(beliefs.mean_N, beliefs.variance_N, 8) > 0.02).all()


@every_estimator
def test_a_pool_that_fails_entirely_leaves_its_untried_rows_open(name: str) -> None:
    made = estimator(name, num_rows=1000)
    made.observe(groups(np.arange(900), 0))
    beliefs = made.beliefs()

    assert (informative_probability(beliefs.mean_N, beliefs.variance_N, 8) > 0.01).all()


@every_estimator_but(*COARSE)
def test_graded_outcomes_move_the_mean_to_their_own(name: str) -> None:
    made = estimator(name, num_rows=1)
    for version in range(30):
        made.observe(groups([0], [8 * 0.3], version=version))

    assert made.beliefs().mean_N[0] == pytest.approx(0.3, abs=0.03)


@every_estimator_but("category", "hmm")
def test_more_passes_never_lower_the_mean(name: str) -> None:
    made = estimator(name, num_rows=17)
    made.observe(groups(np.arange(17), np.arange(17) / 2))

    assert (np.diff(made.beliefs().mean_N) > 0).all()
