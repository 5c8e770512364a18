from math import erf, exp, pi, sqrt

import numpy as np
import pytest

from predictors.log_normal import expected_maximum, hazard, truncated_moments


def phi(x: float) -> float:
    return exp(-0.5 * x * x) / sqrt(2.0 * pi)


def distribution(x: float) -> float:
    return 0.5 * (1.0 + erf(x / sqrt(2.0)))


def test_the_hazard_is_that_of_the_error_function() -> None:
    x = np.linspace(-5.0, 3.0, 161)
    exact = np.array([phi(v) / (1.0 - distribution(v)) for v in x])

    np.testing.assert_allclose(hazard(x), exact, rtol=1e-4)


def test_the_hazard_far_out_is_x_plus_its_inverse() -> None:
    assert hazard(np.array([30.0]))[0] == pytest.approx(30.0 + 1.0 / 30.0, rel=1e-4)
    assert hazard(np.array([1e6]))[0] == pytest.approx(1e6)
    assert hazard(np.array([-40.0]))[0] == 0.0


def test_the_hazard_has_no_step_where_its_formula_changes() -> None:
    below, above = hazard(np.array([4.0 - 1e-9, 4.0 + 1e-9]))

    assert below == pytest.approx(above, rel=3e-3)
    assert above == pytest.approx(4.2256, rel=1e-3)


def test_a_normal_cut_at_its_mean_has_the_moments_of_its_upper_half() -> None:
    mean, variance = truncated_moments(np.array([5.0]), np.array([4.0]), np.array([5.0]))

    assert mean[0] == pytest.approx(5.0 + 2.0 * sqrt(2.0 / pi), rel=1e-6)
    assert variance[0] == pytest.approx(4.0 * (1.0 - 2.0 / pi), rel=1e-5)


def test_truncated_moments_are_those_of_draws_above_the_limit() -> None:
    draws = np.random.default_rng(0).normal(1.0, 0.5, 400_000)
    for limit in (-1.0, 0.7, 1.5):
        above = draws[draws >= limit]
        mean, variance = truncated_moments(np.array([1.0]), np.array([0.25]), np.array([limit]))
        assert mean[0] == pytest.approx(above.mean(), abs=5 * above.std() / sqrt(above.size))
        assert variance[0] == pytest.approx(above.var(), rel=0.02)


def test_a_value_far_above_what_was_expected_counts_as_itself_at_least() -> None:
    mean, variance = truncated_moments(np.array([0.0]), np.array([0.01]), np.array([3.0]))

    assert 3.0 <= mean[0] < 3.02
    assert 0.0 <= variance[0] < 0.01


def test_one_rollout_has_the_mean_of_a_log_normal() -> None:
    sigma = np.array([0.0, 0.3, 1.0, 2.0])

    np.testing.assert_allclose(expected_maximum(1)(sigma), np.exp(0.5 * sigma**2), rtol=2e-4)


def test_the_longer_of_two_has_its_closed_form() -> None:
    sigma = np.array([0.1, 0.51, 1.013, 1.7])
    exact = [2.0 * exp(0.5 * s * s) * distribution(s / sqrt(2.0)) for s in sigma]

    np.testing.assert_allclose(expected_maximum(2)(sigma), exact, rtol=2e-4)


@pytest.mark.parametrize(("sigma", "count"), [(0.2, 3), (0.5, 8), (0.9, 16), (0.4, 64)])
def test_the_expected_maximum_is_that_of_draws(sigma: float, count: int) -> None:
    draws = np.exp(sigma * np.random.default_rng(1).normal(size=(60_000, count))).max(axis=1)
    error = draws.std() / sqrt(draws.size)

    assert expected_maximum(count)(np.array([sigma]))[0] == pytest.approx(draws.mean(), abs=4 * error)


def test_without_spread_the_longest_is_as_long_as_any() -> None:
    assert expected_maximum(8)(np.array([0.0]))[0] == 1.0
    with pytest.raises(ValueError, match="count must be >= 1, got 0"):
        expected_maximum(0)
