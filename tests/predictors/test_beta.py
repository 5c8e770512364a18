"""Quantiles and information of a belief, three ways: by hand, by a slow obvious version, at the edges."""

from math import lgamma, log, pi

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors.beta import (
    MAX_FRACTION_CONCENTRATION,
    beta_cdf,
    digamma,
    information_gain,
    log_gamma,
    probability_below,
    quantile,
)
from predictors.value import MAX_CONCENTRATION

PRECISION = 1e-12  # of a quantile


def moments(alpha: float, beta: float) -> tuple[np.ndarray, np.ndarray]:
    total = alpha + beta
    return np.array([alpha / total]), np.array([alpha * beta / total**2 / (total + 1)])


def on_a_grid(alpha: float, beta: float, num: int = 400_001) -> tuple[np.ndarray, np.ndarray]:
    """Points in (0, 1), closer at the ends, and the mass around each, by the density."""
    edge = np.linspace(0.0, np.pi / 2, num)
    p = np.sin((edge[1:] + edge[:-1]) / 2) ** 2
    # dp = 2 sin cos dpsi
    log_mass = (alpha - 0.5) * np.log(p) + (beta - 0.5) * np.log1p(-p)
    mass = np.exp(log_mass - log_mass.max())
    return p, mass / mass.sum()


def test_log_gamma_agrees_with_the_library() -> None:
    x = np.array([1e-6, 1e-3, 0.1, 0.5, 1, 1.5, 2, 3.7, 10, 100, 1e4, 1e12])

    np.testing.assert_allclose(log_gamma(x), [lgamma(value) for value in x], rtol=1e-13, atol=2e-12)


def test_digamma_by_hand() -> None:
    euler = 0.57721566490153286
    np.testing.assert_allclose(
        digamma(np.array([1.0, 2.0, 0.5, 0.25])),
        [-euler, 1 - euler, -euler - 2 * log(2), -euler - pi / 2 - 3 * log(2)],
        atol=1e-12,
    )


def test_cumulative_distributions_by_hand() -> None:
    # Beta(1, 1), Beta(2, 1), Beta(1, 3); Beta(2, 3) at 0.4 is the chance of at least 2 of 4.
    found = beta_cdf(np.array([1.0, 2, 1, 2]), np.array([1.0, 1, 3, 3]), np.array([0.3, 0.3, 0.3, 0.4]))

    np.testing.assert_allclose(found, [0.3, 0.09, 1 - 0.7**3, 1 - 0.6**4 - 4 * 0.4 * 0.6**3], atol=1e-13)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.6, 300), st.floats(0.6, 300), st.floats(0.01, 0.99))
def test_cumulative_distributions_agree_with_the_sum_of_a_grid(alpha: float, beta: float, x: float) -> None:
    p, mass = on_a_grid(alpha, beta)

    assert beta_cdf(np.array([alpha]), np.array([beta]), np.array([x]))[0] == pytest.approx(
        mass[p <= x].sum(), abs=3 * mass.max() + 1e-4
    )


def test_cumulative_distributions_end_at_zero_and_one_and_mirror() -> None:
    alpha, beta = np.array([0.1, 3.0, 5000.0]), np.array([7.0, 0.1, 5000.0])

    np.testing.assert_array_equal(beta_cdf(alpha, beta, np.zeros(3)), 0.0)
    np.testing.assert_array_equal(beta_cdf(alpha, beta, np.ones(3)), 1.0)
    for x in (0.001, 0.4, 0.5, 0.503, 0.9):
        there, back = beta_cdf(alpha, beta, np.full(3, x)), beta_cdf(beta, alpha, np.full(3, 1 - x))
        np.testing.assert_allclose(there + back, 1.0, atol=1e-11)


def test_quantiles_by_hand() -> None:
    # Beta(1, 1) has its levels; the median of Beta(2, 1) is sqrt(1/2).
    for level in (0.001, 0.25, 0.975):
        assert quantile(*moments(1, 1), level)[0] == pytest.approx(level, abs=1e-11)
    assert quantile(*moments(2, 1), 0.5)[0] == pytest.approx(0.5**0.5, abs=1e-11)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.2, 4000), st.floats(0.2, 4000), st.floats(0.001, 0.999))
def test_quantiles_invert_the_cumulative_distribution(alpha: float, beta: float, level: float) -> None:
    found = quantile(*moments(alpha, beta), level)
    around = [
        beta_cdf(np.array([alpha]), np.array([beta]), np.clip(found + d, 0, 1))[0] for d in (-PRECISION, PRECISION)
    ]

    assert around[0] - 1e-9 <= level <= around[1] + 1e-9


def test_quantiles_of_sure_beliefs_go_over_into_those_by_skewness() -> None:
    for mean in (0.03, 0.5, 0.9):
        alpha, beta = mean * 0.9999 * MAX_FRACTION_CONCENTRATION, (1 - mean) * 0.9999 * MAX_FRACTION_CONCENTRATION
        sure = (1.0002 * alpha, 1.0002 * beta)
        deviation = np.sqrt(moments(alpha, beta)[1][0])
        for level in (0.001, 0.05, 0.5, 0.975, 0.999):
            step = quantile(*moments(*sure), level)[0] - quantile(*moments(alpha, beta), level)[0]
            assert abs(step) < 2e-3 * deviation


def test_quantiles_at_the_edges_of_belief() -> None:
    mean = np.array([1e-9, 0.3, 0.5, 1 - 1e-9])
    np.testing.assert_allclose(quantile(mean, np.zeros(4), 0.05), mean, atol=1e-5)
    # All but nothing of the mass at 0 and 1.
    split = 0.5 * 0.5 * (1 - 1e-6)
    assert quantile(np.array([0.5]), np.array([split]), 0.2)[0] < 1e-6
    assert quantile(np.array([0.5]), np.array([split]), 0.8)[0] > 1 - 1e-6
    assert quantile(np.empty(0), np.empty(0), 0.5).shape == (0,)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, np.nan])
def test_levels_without_a_quantile_are_refused(level: float) -> None:
    with pytest.raises(ValueError, match="level must be in"):
        quantile(np.array([0.5]), np.array([0.01]), level)


def test_cumulative_distributions_out_of_range_are_refused() -> None:
    one = np.ones(1)
    for alpha, beta in ((0.0, 1.0), (1.0, -1.0), (np.nan, 1.0), (MAX_FRACTION_CONCENTRATION, 1.0)):
        with pytest.raises(ValueError, match="alpha and beta"):
            beta_cdf(one * alpha, one * beta, one / 2)
    for x in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match="x must be in"):
            beta_cdf(one, one, one * x)


def test_the_mass_below_a_pass_rate_by_hand_and_against_the_quantiles() -> None:
    # Beta(25, 1), as after 24 passes of 24 on a flat prior, and Beta(1, 1).
    assert probability_below(*moments(25, 1), 0.9)[0] == pytest.approx(0.9**25, abs=1e-12)
    assert probability_below(*moments(1, 1), 0.3)[0] == pytest.approx(0.3, abs=1e-12)
    for alpha, beta in ((0.3, 0.2), (40.0, 3.0), (2.0, 900.0)):
        mean, variance = moments(alpha, beta)
        for level in (0.05, 0.5, 0.9):
            assert probability_below(mean, variance, quantile(mean, variance, level)[0])[0] == pytest.approx(level)


def test_the_mass_below_a_pass_rate_at_the_edges() -> None:
    mean = np.array([0.3, 0.5, 0.9])

    np.testing.assert_array_equal(probability_below(mean, np.zeros(3), 0.0), 0.0)
    np.testing.assert_array_equal(probability_below(mean, np.zeros(3), 1.0), 1.0)
    np.testing.assert_allclose(probability_below(mean, np.zeros(3), 0.6), [1.0, 1.0, 0.0], atol=1e-12)
    assert probability_below(np.empty(0), np.empty(0), 0.5).shape == (0,)
    with pytest.raises(ValueError, match="x must be in"):
        probability_below(mean, np.zeros(3), 1.1)


def test_information_under_a_flat_belief_by_hand() -> None:
    # H(1/2) = ln 2, and the mean of H(p) over a uniform p is 1/2.
    assert information_gain(np.array([0.5]), np.array([1 / 12]))[0] == pytest.approx(log(2) - 0.5, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.6, 300), st.floats(0.6, 300))
def test_information_agrees_with_the_mean_entropy_of_a_grid(alpha: float, beta: float) -> None:
    p, mass = on_a_grid(alpha, beta)
    mean = mass @ p

    def entropy(x: np.ndarray) -> np.ndarray:
        return np.asarray(-x * np.log(x) - (1 - x) * np.log1p(-x))

    slow = entropy(np.array([mean]))[0] - mass @ entropy(p)
    assert information_gain(*moments(alpha, beta))[0] == pytest.approx(slow, abs=1e-7)


def test_information_at_the_edges_of_belief() -> None:
    mean = np.array([1e-6, 0.2, 0.5, 1 - 1e-6])
    np.testing.assert_allclose(information_gain(mean, np.zeros(4)), 0.0, atol=1e-11)
    np.testing.assert_allclose(information_gain(mean[1:3], np.full(2, 1e-6)), 1e-6 / (2 * mean * (1 - mean))[1:3], 1e-3)
    # All but sure to be 0 or 1: the first outcome says everything.
    split = 0.25 * (1 - 1e-9)
    assert information_gain(np.array([0.5]), np.array([split]))[0] == pytest.approx(log(2), abs=1e-6)
    assert (information_gain(mean, 0.5 * mean * (1 - mean)) >= 0).all()
    assert MAX_CONCENTRATION > MAX_FRACTION_CONCENTRATION
