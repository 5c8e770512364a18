"""Ageing, averaging and learning of Beta beliefs: by hand, against plain loops and simulations, at the edges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.base import FloatArray
from predictors.calibration import beta_binomial_log_loss
from predictors.experts import MEAN_EDGE, MIN_CHANCE, OVERLAP_RANGE, Experts, aged, drifted, losses, parameters
from tests.predictors.groups import groups

shares = st.floats(0.01, 0.99)


def column(*values: float) -> FloatArray:
    """(E, 1): one row, a value for each expert."""
    return np.array(values)[:, None]


def experts(means: tuple[float, ...], overlaps: tuple[float, ...], weights: tuple[float, ...]) -> Experts:
    return Experts(mean_EB=column(*means), overlap_EB=column(*overlaps), weight_EB=column(*weights))


def test_an_average_of_two_by_hand() -> None:
    """Means .2 and .8, each with half of its largest variance, .08: variance .08 + .09 of .5 * .5."""
    mean, overlap = experts((0.2, 0.8), (0.5, 0.5), (0.5, 0.5)).moments()

    assert mean[0] == pytest.approx(0.5)
    assert overlap[0] == pytest.approx(0.17 / 0.25)


@given(st.lists(st.tuples(shares, shares, shares), min_size=1, max_size=4))
def test_an_average_has_the_moments_of_draws(parts: list[tuple[float, float, float]]) -> None:
    mean, overlap, weight = (np.array(values) for values in zip(*parts, strict=True))
    weight = weight / weight.sum()
    found = Experts(mean_EB=mean[:, None], overlap_EB=overlap[:, None], weight_EB=weight[:, None]).moments()
    first = float(weight @ mean)
    second = float(weight @ (overlap * mean * (1 - mean) + mean**2))

    assert found[0][0] == pytest.approx(first)
    assert found[1][0] == pytest.approx(np.clip((second - first**2) / (first * (1 - first)), *OVERLAP_RANGE), abs=1e-9)


def test_a_group_is_added_to_alpha_and_beta_by_hand() -> None:
    """Beta(1, 3) and 3 of 4: Beta(4, 4)."""
    told = experts((0.25,), (1 / 5,), (1.0,)).told(groups([0], [3], scored=4), np.ones((1, 1)), np.zeros(1))

    assert told.mean_EB[0, 0] == pytest.approx(0.5)
    assert told.overlap_EB[0, 0] == pytest.approx(1 / 9)


def test_a_late_group_counts_for_fewer_rollouts_by_hand() -> None:
    """8 rollouts, variance 1/32 of arcsin(sqrt(p)), after a wander of 1/32 count as 4."""
    told = experts((0.5,), (1 / 3,), (1.0,)).told(groups([0], [8]), np.ones((1, 1)), np.array([1 / 32]))

    assert told.mean_EB[0, 0] == pytest.approx(5 / 6)
    assert told.overlap_EB[0, 0] == pytest.approx(1 / 7)


def test_weights_follow_bayes_rule_by_hand() -> None:
    """All of 1 passed: chances .2 and .8 of experts with weights .6 and .4."""
    one = experts((0.2, 0.8), (0.1, 0.3), (0.6, 0.4))
    group = groups([0], [1], scored=1)
    told = one.told(group, one.chances(group), np.zeros(1))

    np.testing.assert_allclose(told.weight_EB[:, 0], [0.12 / 0.44, 0.32 / 0.44])


@given(shares, shares, st.integers(0, 12))
def test_losses_are_those_of_the_beta_binomial(mean: float, overlap: float, passes: int) -> None:
    found = losses(column(mean, 0.5), column(overlap, 1 / 3), groups([0], [passes], scored=12))
    expected = beta_binomial_log_loss(
        np.array([mean]), np.array([overlap * mean * (1 - mean)]), np.array([passes]), np.array([12])
    )

    assert found[0, 0] == pytest.approx(expected[0])
    assert found[1, 0] == pytest.approx(np.log(13))


def test_no_group_however_large_rules_an_expert_out() -> None:
    sure = experts((0.999, 0.001), (1e-6, 1e-6), (1.0 - 1e-3, 1e-3))
    group = groups([0], [0], scored=100_000)
    chance = sure.chances(group)
    told = sure.told(group, chance, np.zeros(1))

    assert chance[:, 0].tolist() == [MIN_CHANCE, 1.0]
    assert told.weight_EB[0, 0] == pytest.approx(MIN_CHANCE * 999, rel=1e-3)


def test_the_last_expert_is_put_into_the_others_by_hand() -> None:
    """A weight of 1/4 at mean .9 takes .1 to .3 and .5 to .6; the others share what is left."""
    found = experts((0.1, 0.5, 0.9), (0.2, 0.2, 0.2), (0.25, 0.5, 0.25)).without_last()

    np.testing.assert_allclose(found.mean_EB[:, 0], [0.3, 0.6])
    np.testing.assert_allclose(found.weight_EB[:, 0], [1 / 3, 2 / 3])


@given(st.lists(st.tuples(shares, shares, shares), min_size=3, max_size=3))
def test_putting_the_last_expert_into_the_others_keeps_the_average(parts: list[tuple[float, float, float]]) -> None:
    mean, overlap, weight = (np.array(values)[:, None] for values in zip(*parts, strict=True))
    before = Experts(mean_EB=mean, overlap_EB=overlap, weight_EB=weight / weight.sum())
    after = before.without_last()

    np.testing.assert_allclose(after.moments(), before.moments())


def test_parameters_by_hand() -> None:
    np.testing.assert_allclose(parameters(np.array([0.25]), np.array([1 / 5])), [[1.0], [3.0]])


def test_drift_multiplies_odds_by_hand() -> None:
    """1 + 4 shift up, as much down, and to first order a step of 4 shift in log-odds."""
    shift = np.array([0.25, -0.25, 1e-6])
    alpha, beta = drifted(np.full(3, 1.0), np.full(3, 3.0), shift)

    np.testing.assert_allclose(alpha / beta, [2 / 3, 1 / 6, np.exp(4e-6) / 3])


def test_ageing_by_hand() -> None:
    """Beta(1, 3), r = 1/5, after a wander of 1/4: the mean stays, r = 1 - (4/5) / 2; and a drift that doubles odds."""
    mean, overlap = aged(column(1.0), column(3.0), np.array([0.25]), column(0.25))

    assert mean[0, 0] == pytest.approx(0.4)
    assert overlap[0, 0] == pytest.approx(0.6)


def test_ageing_is_what_a_wandering_pass_rate_does() -> None:
    """p steps by normal noise of variance 4 q p (1 - p), cut at the ends, in 50 small steps to a wander of .02."""
    rng = np.random.default_rng(0)
    p = rng.beta(2.0, 6.0, 100_000)
    for _ in range(50):
        p = np.clip(p + rng.normal(0.0, np.sqrt(4.0 * 0.02 / 50 * p * (1.0 - p))), 0.0, 1.0)
    mean, overlap = aged(column(2.0), column(6.0), np.zeros(1), column(0.02))

    # Standard errors are .0005 and, of the overlap, .0008; 1 / (1 + x) is x^2 / 2 = .003 above exp(-x) at x = .08.
    assert p.mean() == pytest.approx(mean[0, 0], abs=0.002)
    assert p.var() / (p.mean() * (1 - p.mean())) == pytest.approx(overlap[0, 0], abs=0.006)


def test_ageing_without_time_changes_nothing_and_for_ever_leaves_the_mean_alone() -> None:
    mean, overlap = aged(column(1.0), column(3.0), np.zeros(1), column(0.0))
    assert (mean[0, 0], overlap[0, 0]) == pytest.approx((0.25, 0.2))

    mean, overlap = aged(column(1.0), column(3.0), np.zeros(1), column(1e12))
    assert (mean[0, 0], overlap[0, 0]) == (0.25, OVERLAP_RANGE[1])

    mean, _ = aged(column(1e-9), column(1e9), np.array([-1e9]), column(0.0))
    assert mean[0, 0] == MEAN_EDGE
