from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors.base import NEVER, Column, Estimator
from predictors.registry import ESTIMATORS, build_estimator
from predictors.silence import after_silence, imputed_groups
from predictors.value import informative_probability
from tests.predictors.groups import groups

POINTS = (np.arange(200_000) + 0.5) / 200_000
FLAT = {"discount": 1.0, "process_noise": 0.0, "prior_successes": 1.0, "prior_failures": 1.0}


def on_grid(alpha: float, beta: float, *likelihoods: np.ndarray) -> tuple[float, float]:
    """Exact posterior mean and variance of a Beta prior and these likelihoods over POINTS."""
    log = (alpha - 1.0) * np.log(POINTS) + (beta - 1.0) * np.log1p(-POINTS)
    density = np.exp(log - log.max())
    for likelihood in likelihoods:
        density = density * likelihood
    density /= density.sum()
    mean = float(density @ POINTS)
    return mean, float(density @ (POINTS - mean) ** 2)


def silence(group_size: int, loss: float) -> np.ndarray:
    degenerate = POINTS**group_size + (1.0 - POINTS) ** group_size
    return np.asarray(degenerate + (1.0 - degenerate) * loss)


def heard_nothing(estimator: Estimator, rows: list[int], *, loss: float = 0.0, version: Any = 0, size: int = 8) -> None:
    estimator.observe_silence(groups(rows, [0.0] * len(rows), scored=size, version=version), loss)


def flat_beta(num_rows: int = 1) -> Estimator:
    made = build_estimator("discounted_beta", FLAT)
    made.resize(np.zeros(num_rows, np.int32))
    return made


def test_an_even_belief_goes_to_both_ends_by_hand() -> None:
    """Beta(1, 1), two rollouts: E[p^2] = E[(1-p)^2] = 1/3; after it half Beta(3, 1), half Beta(1, 3): mean 1/2,
    variance 3/80 + 1/16 = 1/10, where it was 1/12.
    """
    after = after_silence(np.array([0.5]), np.array([1 / 3]), np.array([2]), 0.0)

    assert after.mean[0] == pytest.approx(0.5)
    assert after.overlap[0] * 0.25 == pytest.approx(0.1)
    assert after.chance[0] == pytest.approx(2 / 3)
    assert after.passed[0] == after.failed[0] == pytest.approx(0.5)


@given(
    mean=st.floats(0.02, 0.98),
    concentration=st.floats(2.5, 60.0),
    group_size=st.integers(1, 16),
    loss=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
@settings(max_examples=60, deadline=None)
def test_moments_are_those_of_the_exact_posterior(
    mean: float, concentration: float, group_size: int, loss: float
) -> None:
    alpha, beta = mean * concentration, (1.0 - mean) * concentration
    if min(alpha, beta) < 1.0:
        return  # the grid does not see the ends of such a prior
    after = after_silence(np.array([mean]), np.array([1.0 / (concentration + 1.0)]), np.array([group_size]), loss)

    exact_mean, exact_variance = on_grid(alpha, beta, silence(group_size, loss))
    assert after.mean[0] == pytest.approx(exact_mean, abs=1e-6)
    assert after.overlap[0] * after.mean[0] * (1 - after.mean[0]) == pytest.approx(exact_variance, abs=1e-6)


def test_the_three_ways_to_be_silent_add_up() -> None:
    mean, overlap = np.array([0.3, 0.5, 0.9]), np.array([0.1, 0.3, 0.05])
    after = after_silence(mean, overlap, np.array([8, 8, 4]), 0.1)
    informative = informative_probability(mean, overlap * mean * (1 - mean), 8)[:2]

    assert ((after.passed + after.failed) <= 1.0).all()
    np.testing.assert_allclose(1.0 - after.passed - after.failed, 0.1 * (1 - (after.chance - 0.1) / 0.9) / after.chance)
    np.testing.assert_allclose(after.chance[:2], 1.0 - 0.9 * informative)


def test_where_everything_gets_lost_silence_says_nothing() -> None:
    after = after_silence(np.array([0.3]), np.array([0.2]), np.array([8]), 1.0)

    assert (after.mean[0], after.overlap[0]) == pytest.approx((0.3, 0.2))


def test_one_rollout_alone_is_always_silent_and_says_nothing() -> None:
    after = after_silence(np.array([0.3]), np.array([0.2]), np.array([1]), 0.0)

    assert (after.mean[0], after.overlap[0]) == pytest.approx((0.3, 0.2))
    assert after.chance[0] == pytest.approx(1.0)


def test_imputed_groups_have_the_shares_that_they_were_given() -> None:
    silent = groups(list(range(4000)), [0.0] * 4000, version=7)
    imputed = imputed_groups(silent, np.full(4000, 0.6), np.full(4000, 0.3))

    assert len(imputed) == pytest.approx(3600, abs=5)
    assert np.count_nonzero(imputed.passes_B == 8) == pytest.approx(2400, abs=5)
    assert set(imputed.passes_B.tolist()) == {0.0, 8.0}


def test_a_discounted_beta_has_the_exact_moments_after_one_silence() -> None:
    for loss in (0.0, 0.2):
        made = flat_beta()
        heard_nothing(made, [0], loss=loss)
        beliefs = made.beliefs()
        exact = on_grid(1.0, 1.0, silence(8, loss))
        assert (beliefs.mean_N[0], beliefs.variance_N[0]) == pytest.approx(exact, abs=1e-4)


def test_a_discounted_beta_stays_close_to_the_exact_posterior_over_a_history() -> None:
    """Silence and reported groups of a prompt at .9, matched moment by moment against the grid."""
    rng = np.random.default_rng(3)
    made, likelihoods = flat_beta(), list[np.ndarray]()
    for version in range(40):
        passes = int(rng.binomial(8, 0.9))
        if 0 < passes < 8:
            made.observe(groups([0], [float(passes)], version=version))
            likelihoods.append(POINTS**passes * (1.0 - POINTS) ** (8 - passes))
        else:
            heard_nothing(made, [0], version=version)
            likelihoods.append(silence(8, 0.0))
    beliefs = made.beliefs()

    mean, variance = on_grid(1.0, 1.0, *likelihoods)
    assert beliefs.mean_N[0] == pytest.approx(mean, abs=0.02)
    assert np.sqrt(beliefs.variance_N[0]) == pytest.approx(np.sqrt(variance), rel=0.35)


@pytest.mark.parametrize("name", ["mixture", "features", "discounted_beta"])
@pytest.mark.parametrize("rate", [0.9, 0.02])
def test_a_censored_feed_does_not_pull_pass_rates_to_the_middle(name: str, rate: float) -> None:
    """The mean of the informative groups alone is .82 where the pass rate is .9, and .13 where it is .02. Audit groups,
    a tenth, are reported in full.
    """
    options = FLAT if name == "discounted_beta" else {}
    told, deaf = build_estimator(name, options), build_estimator(name, options)
    rng = np.random.default_rng(5)
    for made in (told, deaf):
        made.resize(np.zeros(30, np.int32))
    for version in range(60):
        passes = rng.binomial(8, rate, 30)
        heard = ((passes > 0) & (passes < 8)) | (rng.random(30) < 0.1)
        sent = groups(np.flatnonzero(heard).tolist(), passes[heard].astype(float).tolist(), version=version)
        for made in (told, deaf):
            made.advance(version)
            made.observe(sent)
        heard_nothing(told, np.flatnonzero(~heard).tolist(), version=version)

    error, without = abs(told.beliefs().mean_N - rate).mean(), abs(deaf.beliefs().mean_N - rate).mean()
    assert error < 0.03
    assert error < 0.6 * without


@pytest.mark.parametrize("name", ["mixture", "discounted_beta"])
def test_silence_says_that_a_prompt_is_less_likely_to_be_informative_and_not_which_end(name: str) -> None:
    made = build_estimator(name, FLAT if name == "discounted_beta" else {})
    made.resize(np.zeros(3, np.int32))
    made.observe(groups([0, 1], [4.0, 4.0]))
    before = made.beliefs()

    for _ in range(4):
        heard_nothing(made, [0])

    after = made.beliefs()
    informative = informative_probability(after.mean_N, after.variance_N, 8)
    assert informative[0] < informative_probability(before.mean_N, before.variance_N, 8)[0] - 0.05
    assert after.mean_N[0] == pytest.approx(before.mean_N[0], abs=0.02)
    assert after.variance_N[0] > before.variance_N[0]


@pytest.mark.parametrize("name", ["mixture", "discounted_beta"])
def test_a_prompt_known_only_by_silence_may_still_be_either(name: str) -> None:
    made = build_estimator(name, {})
    made.resize(np.zeros(40, np.int32))
    for version in range(20):
        made.advance(version)
        heard_nothing(made, [0, 0, 1], version=version)

    beliefs = made.beliefs()
    assert 0.02 < beliefs.mean_N[0] < 0.98
    assert beliefs.variance_N[0] > 0.01
    assert beliefs.lag_N.tolist() == [0, 0] + [NEVER] * 38


@pytest.mark.parametrize("name", ESTIMATORS)
def test_silence_keeps_the_contract_and_its_state_round_trips(name: str) -> None:
    made, copy = build_estimator(name, {}), build_estimator(name, {})
    made.resize((np.arange(12) % 2).astype(np.int32))
    made.observe(groups([0, 1, 2], [0.0, 4.0, 8.0]))
    for version in range(1, 60):
        made.advance(version)
        heard_nothing(made, [0, 1, 2, 3, 3], loss=0.1, version=version)
        made.observe(groups([1, 3], [5.0, 1.0], version=version))
    beliefs = made.beliefs()

    assert ((beliefs.mean_N > 0) & (beliefs.mean_N < 1)).all()
    assert (beliefs.variance_N >= 0).all()
    assert (beliefs.variance_N < beliefs.mean_N * (1 - beliefs.mean_N)).all()
    np.testing.assert_array_equal(beliefs.n_eff_N > 0, beliefs.lag_N != NEVER)
    copy.load_state(made.state())
    for one in (made, copy):
        heard_nothing(one, [2, 5], version=60)
    for key, array in made.state().items():
        np.testing.assert_array_equal(array, copy.state()[key], err_msg=key)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_silence_of_a_row_outside_the_pool_is_refused(name: str) -> None:
    made = build_estimator(name, {})
    made.resize(np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="must be in"):
        heard_nothing(made, [3])


def test_a_prior_that_turns_out_narrow_does_not_give_back_what_silence_took() -> None:
    made = build_estimator("discounted_beta", {})
    made.resize(np.zeros(40, np.int32))
    for _ in range(3):
        heard_nothing(made, [0])
    made.observe(groups(list(range(1, 40)), [4.0] * 39))
    beliefs = made.beliefs()

    silent, heard = (beliefs.variance_N / (beliefs.mean_N * (1.0 - beliefs.mean_N)))[:2]
    assert silent > 0.3
    assert heard < 0.1


def test_a_pushed_value_is_the_prior_that_silence_meets() -> None:
    values = np.array([0.3, 0.9, np.nan])
    made = build_estimator("value", {"discount": 1.0, "process_noise": 0.0})
    made.resize(np.zeros(3, np.int32))
    made.attach({"value": Column(value_N=values)})
    before = made.beliefs()
    overlap = before.variance_N / (before.mean_N * (1.0 - before.mean_N))
    expected = after_silence(before.mean_N[:2], overlap[:2], np.array([8, 8]), 0.1)
    heard_nothing(made, [0, 1], loss=0.1)
    after = made.beliefs()

    np.testing.assert_allclose(after.mean_N[:2], expected.mean)
    np.testing.assert_allclose(after.variance_N[:2] / (after.mean_N[:2] * (1.0 - after.mean_N[:2])), expected.overlap)
    np.testing.assert_array_equal(after.lag_N, [0, 0, NEVER])


def test_features_without_columns_hear_silence_as_the_mixture_does_to_the_bit() -> None:
    made, plain = build_estimator("features", {}), build_estimator("mixture", {})
    for one in (made, plain):
        one.resize((np.arange(12) % 2).astype(np.int32))
        for version in range(20):
            one.advance(version)
            one.observe(groups([0, 3], [3.0, 6.0], version=version))
            heard_nothing(one, [1, 2, 2], loss=0.1, version=version)

    np.testing.assert_array_equal(made.beliefs().mean_N, plain.beliefs().mean_N)
    np.testing.assert_array_equal(made.beliefs().variance_N, plain.beliefs().variance_N)
    assert (made.beliefs().lag_N[[1, 2]] == 0).all()
