"""The folded Gaussian on arcsin(sqrt(p)), three ways: by hand, by simulation or quadrature, at the edges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.arcsine import MAX_VARIANCE, from_moments, moments, shifted_centre


def by_quadrature(mean_psi: float, variance_psi: float) -> tuple[float, float]:
    """Mean and variance of sin(psi)^2 by 100 Gauss-Hermite nodes."""
    node, weight = np.polynomial.hermite_e.hermegauss(100)
    weight = weight / weight.sum()
    p = np.sin(mean_psi + np.sqrt(variance_psi) * node) ** 2
    mean = float(weight @ p)
    return mean, float(weight @ (p - mean) ** 2)


def test_moments_by_hand() -> None:
    """At the middle p has mean 1/2 and variance (1 - e^-8v) / 8; a known psi has no variance."""
    mean, variance = moments(np.array([0.5, 0.25]), np.array([0.1, 0.0]))

    np.testing.assert_allclose(mean, [0.5, 0.25])
    np.testing.assert_allclose(variance, [(1 - np.exp(-0.8)) / 8, 0])


@given(st.floats(0, np.pi / 2), st.floats(0, MAX_VARIANCE))
def test_moments_agree_with_quadrature(mean_psi: float, variance_psi: float) -> None:
    found = moments(np.array([np.sin(mean_psi) ** 2]), np.array([variance_psi]))

    np.testing.assert_allclose(np.ravel(found), by_quadrature(mean_psi, variance_psi), atol=1e-12)


def test_tiny_moments_at_the_end_keep_their_digits() -> None:
    """p is close to psi^2, so a centred psi gives mean v and variance 2 v^2."""
    mean, variance = moments(np.array([0.0]), np.array([1e-9]))

    np.testing.assert_allclose(mean, 1e-9, rtol=1e-6)
    np.testing.assert_allclose(variance, 2e-18, rtol=1e-6)


@given(st.floats(0.02, np.pi / 2 - 0.02), st.floats(1e-4, MAX_VARIANCE))
def test_from_moments_finds_a_gaussian_with_these_moments(mean_psi: float, variance_psi: float) -> None:
    mean_p, variance_p = moments(np.array([np.sin(mean_psi) ** 2]), np.array([variance_psi]))
    psi, spread = from_moments(mean_p, variance_p)
    again = moments(np.sin(psi) ** 2, spread)

    np.testing.assert_allclose(again[0], mean_p, atol=1e-6)
    np.testing.assert_allclose(again[1], variance_p, atol=1e-6)


@given(st.floats(0.001, 0.999), st.floats(0, 1))
def test_from_moments_is_defined_for_every_belief(mean_p: float, overlap: float) -> None:
    psi, spread = from_moments(np.array([mean_p]), np.array([overlap * mean_p * (1 - mean_p)]))

    assert 0 <= psi[0] <= np.pi / 2
    assert 0 < spread[0] <= MAX_VARIANCE + 1e-12


def test_a_shift_is_a_step_of_four_times_its_size_in_log_odds() -> None:
    pass_rate = np.array([0.01, 0.5, 0.9])
    moved = shifted_centre(np.arcsin(np.sqrt(pass_rate)), np.array([0.1, -0.2, 0.3]))
    step = np.log(moved / (1 - moved)) - np.log(pass_rate / (1 - pass_rate))

    np.testing.assert_allclose(step, [0.4, -0.8, 1.2])


def test_a_small_shift_moves_psi_by_sin_two_psi() -> None:
    psi = np.linspace(0.05, 1.5, 20)
    moved = np.arcsin(np.sqrt(shifted_centre(psi, np.full(20, 1e-6))))

    np.testing.assert_allclose((moved - psi) / 1e-6, np.sin(2 * psi), atol=1e-4)


def test_a_shift_leaves_the_ends_where_they_are() -> None:
    for shift in (-0.5, 0.0, 0.5):
        found = shifted_centre(np.array([0.0, np.pi / 2]), np.full(2, shift))
        assert found == pytest.approx([0, 1], abs=1e-15)
