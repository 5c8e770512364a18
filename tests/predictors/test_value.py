"""The worth of a group, three ways: by hand, by a slow obvious version, at the edges."""

from math import comb, exp, lgamma

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.value import (
    BLOCK_ROWS,
    MAX_CONCENTRATION,
    RESCALE_EVERY,
    beta_parameters,
    degenerate_probability,
    informative_probability,
)


def informative_by_gamma(mean: float, variance: float, group_size: int) -> float:
    """1 - B(a+G, b)/B(a, b) - B(a, b+G)/B(a, b) by log gamma."""
    concentration = mean * (1 - mean) / variance - 1
    alpha, beta = mean * concentration, (1 - mean) * concentration
    shared = lgamma(concentration) - lgamma(concentration + group_size)
    return 1 - sum(exp(lgamma(x + group_size) - lgamma(x) + shared) for x in (alpha, beta))


def test_beta_parameters_by_hand() -> None:
    alpha, beta = beta_parameters(np.array([0.5, 0.2]), np.array([1 / 12, 0.016]))

    np.testing.assert_allclose(alpha, [1, 0.2 * 9])
    np.testing.assert_allclose(beta, [1, 0.8 * 9])


@given(st.floats(0.05, 50), st.floats(0.05, 50))
def test_beta_parameters_invert_the_moments(alpha: float, beta: float) -> None:
    total = alpha + beta
    mean, variance = alpha / total, alpha * beta / total**2 / (total + 1)
    found = beta_parameters(np.array([mean]), np.array([variance]))

    np.testing.assert_allclose(np.ravel(found), [alpha, beta], rtol=1e-9)


def test_a_belief_without_variance_has_the_largest_concentration() -> None:
    alpha, beta = beta_parameters(np.array([0.25, 0.25]), np.array([0.0, 1e-300]))

    np.testing.assert_allclose(alpha + beta, MAX_CONCENTRATION)
    np.testing.assert_allclose(alpha, 0.25 * MAX_CONCENTRATION)


def test_degenerate_probability_by_hand() -> None:
    found = degenerate_probability(np.array([0.5, 0.9, 0.0, 1.0]), 2)

    np.testing.assert_allclose(found, [0.5, 0.82, 1, 1])


@given(st.floats(0, 1), st.integers(1, 12))
def test_degenerate_probability_is_the_rest_of_the_mixed_outcomes(pass_rate: float, group_size: int) -> None:
    mixed = sum(comb(group_size, k) * pass_rate**k * (1 - pass_rate) ** (group_size - k) for k in range(1, group_size))

    assert degenerate_probability(np.array([pass_rate]), group_size)[0] == pytest.approx(1 - mixed, abs=1e-12)


def test_informative_probability_under_a_flat_belief_by_hand() -> None:
    """Under Beta(1, 1) every k of 0..G is equally likely."""
    for group_size in (1, 2, 8, 16):
        found = informative_probability(np.array([0.5]), np.array([1 / 12]), group_size)
        np.testing.assert_allclose(found, [1 - 2 / (group_size + 1)], atol=1e-15)


@given(st.floats(0.001, 0.999), st.floats(0.001, 0.95), st.integers(1, 300))
def test_informative_probability_agrees_with_gamma_functions(mean: float, overlap: float, group_size: int) -> None:
    variance = overlap * mean * (1 - mean)
    found = informative_probability(np.array([mean]), np.array([variance]), group_size)[0]

    assert found == pytest.approx(informative_by_gamma(mean, variance, group_size), abs=1e-9)


def test_informative_probability_agrees_with_simulation() -> None:
    rng = np.random.default_rng(0)
    passes = rng.binomial(8, rng.beta(0.6, 1.4, 200_000))
    share = np.mean((passes > 0) & (passes < 8))
    found = informative_probability(np.array([0.3]), np.array([0.07]), 8)[0]

    assert found == pytest.approx(share, abs=4 * np.sqrt(0.25 / 200_000))


def test_a_sure_belief_gives_the_plain_formula() -> None:
    mean = np.array([1e-9, 0.01, 0.5, 0.99, 1 - 1e-9])
    plain = 1 - degenerate_probability(mean, 8)

    np.testing.assert_array_equal(informative_probability(mean, np.zeros(5), 8) >= 0, True)
    np.testing.assert_allclose(informative_probability(mean, np.zeros(5), 8), plain, atol=1e-15)
    np.testing.assert_allclose(informative_probability(mean, np.full(5, 1e-18), 8), plain, atol=1e-8)


def test_a_belief_in_zero_or_one_only_is_never_informative() -> None:
    mean = np.array([0.1, 0.5, 0.8])
    most = mean * (1 - mean)

    np.testing.assert_allclose(informative_probability(mean, most, 8), 0, atol=1e-15)
    assert (informative_probability(mean, most * (1 - 1e-9), 8) < 1e-7).all()


def test_groups_of_one_are_never_informative() -> None:
    np.testing.assert_allclose(informative_probability(np.array([0.3]), np.array([0.05]), 1), 0, atol=1e-15)


def test_huge_groups_neither_overflow_nor_leave_the_unit_interval() -> None:
    mean, overlap = np.array([0.001, 0.5, 0.5, 0.999]), np.array([0.5, 0.0, 0.99, 0.2])
    found = informative_probability(mean, overlap * mean * (1 - mean), 10 * RESCALE_EVERY + 3)

    assert np.isfinite(found).all()
    assert ((found >= 0) & (found <= 1)).all()


def test_blocks_do_not_show() -> None:
    rng = np.random.default_rng(1)
    mean = rng.uniform(0.01, 0.99, 2 * BLOCK_ROWS + 17)
    variance = rng.uniform(0, 0.9, mean.size) * mean * (1 - mean)
    found = informative_probability(mean, variance, 8)

    for row in (0, BLOCK_ROWS - 1, BLOCK_ROWS, 2 * BLOCK_ROWS, mean.size - 1):
        np.testing.assert_array_equal(
            found[row : row + 1], informative_probability(mean[row : row + 1], variance[row : row + 1], 8)
        )
    assert informative_probability(np.empty(0), np.empty(0), 8).shape == (0,)


def test_arguments_are_left_as_they_were() -> None:
    mean, variance = np.array([0.3, 0.6]), np.array([0.01, 0.02])
    informative_probability(mean, variance, 8)
    beta_parameters(mean, variance)

    np.testing.assert_array_equal(mean, [0.3, 0.6])
    np.testing.assert_array_equal(variance, [0.01, 0.02])


@pytest.mark.parametrize(
    ("mean", "variance"),
    [(0.0, 0.01), (1.0, 0.01), (np.nan, 0.01), (0.5, np.nan), (0.5, -0.01), (0.5, 0.26), (0.5, np.inf)],
)
def test_beliefs_out_of_range_are_refused(mean: float, variance: float) -> None:
    for function in (beta_parameters, lambda m, v: informative_probability(m, v, 8)):
        with pytest.raises(ValueError, match=r"mean_N|variance_N"):
            function(np.array([0.5, mean]), np.array([0.01, variance]))


def test_other_arguments_out_of_range_are_refused() -> None:
    half = np.array([0.5])

    with pytest.raises(ValueError, match="group_size must be >= 1, got 0"):
        informative_probability(half, half / 10, 0)
    with pytest.raises(ValueError, match="group_size must be >= 1, got 0"):
        degenerate_probability(half, 0)
    with pytest.raises(ValueError, match="pass_rate_N"):
        degenerate_probability(np.array([1.1]), 8)
    with pytest.raises(ValueError, match="pass_rate_N"):
        degenerate_probability(np.array([np.nan]), 8)
    with pytest.raises(ValueError, match="alike"):
        informative_probability(half, np.array([0.1, 0.1]), 8)
    with pytest.raises(ValueError, match="below mean"):
        beta_parameters(half, np.array([0.25]))
