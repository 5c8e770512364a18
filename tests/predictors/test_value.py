"""The worth of a group, three ways: by hand, by a slow obvious version, at the edges."""

from collections.abc import Callable
from math import comb, exp, lgamma

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.value import (
    BLOCK_ROWS,
    MAX_CONCENTRATION,
    RESCALE_EVERY,
    AdvantageRule,
    band_probability,
    beta_moment,
    beta_parameters,
    degenerate_probability,
    expected_absolute_advantage,
    expected_outcome_variance,
    expected_over_counts,
    expected_squared_advantage,
    informative_probability,
    knapsack_value,
    target_closeness,
)

RULES: tuple[AdvantageRule, ...] = ("grpo", "dr_grpo", "rloo")


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


# Worth of a group under an unsure belief


def advantages(k: int, group_size: int, rule: AdvantageRule) -> np.ndarray:
    """(G,) advantages of k passes among G rollouts, from the definitions."""
    reward_G = np.array([1.0] * k + [0.0] * (group_size - k))
    if rule == "rloo":
        return np.array([r - np.delete(reward_G, i).mean() for i, r in enumerate(reward_G)])
    centred_G = reward_G - reward_G.mean()
    if rule == "dr_grpo":
        return np.asarray(centred_G)
    return np.asarray(centred_G / reward_G.std() if 0 < k < group_size else np.zeros(group_size))


def simulated(mean: float, variance: float, of_p: Callable[[np.ndarray], np.ndarray]) -> tuple[float, float]:
    """Mean of a function of the pass rate under the belief, and its standard error."""
    concentration = mean * (1 - mean) / variance - 1
    value = of_p(np.random.default_rng(5).beta(mean * concentration, (1 - mean) * concentration, 100_000))
    return float(value.mean()), float(value.std() / np.sqrt(value.size))


BELIEFS = [(0.5, 1 / 12), (0.2, 0.01), (0.02, 0.002), (0.9, 0.05), (0.6, 0.2)]


def test_outcome_variance_by_hand() -> None:
    np.testing.assert_allclose(expected_outcome_variance(np.array([0.5, 0.2]), np.array([0.05, 0.0])), [0.2, 0.16])
    # 0 or 1 for sure, up to rounding.
    most = np.array([0.1, 0.3]) * (1 - np.array([0.1, 0.3]))
    np.testing.assert_allclose(expected_outcome_variance(np.array([0.1, 0.3]), most), 0.0, atol=1e-17)


@pytest.mark.parametrize(("mean", "variance"), BELIEFS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("group_size", [2, 5, 8])
def test_expected_advantages_agree_with_their_definitions(
    mean: float, variance: float, rule: AdvantageRule, group_size: int
) -> None:
    arrays = (np.array([mean]), np.array([variance]))
    each = [advantages(k, group_size, rule) for k in range(group_size + 1)]
    squared_k = np.array([float(np.mean(a**2)) for a in each])
    absolute_k = np.array([float(np.mean(np.abs(a))) for a in each])

    assert expected_squared_advantage(*arrays, group_size, rule)[0] == pytest.approx(
        expected_over_counts(*arrays, squared_k)[0], abs=1e-11
    )
    assert expected_absolute_advantage(*arrays, group_size, rule)[0] == pytest.approx(
        expected_over_counts(*arrays, absolute_k)[0], abs=1e-11
    )


def test_expected_advantages_by_hand() -> None:
    # G = 2, p = 1/2 for sure: half of the groups differ. GRPO's advantages are then ±1, Dr. GRPO's ±1/2, RLOO's ±1.
    half = (np.array([0.5]), np.zeros(1))
    for rule, absolute, squared in (("grpo", 0.5, 0.5), ("dr_grpo", 0.25, 0.125), ("rloo", 0.5, 0.5)):
        assert expected_absolute_advantage(*half, 2, rule)[0] == pytest.approx(absolute)  # type: ignore[arg-type]
        assert expected_squared_advantage(*half, 2, rule)[0] == pytest.approx(squared)  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", RULES)
def test_a_group_of_one_has_no_advantage(rule: AdvantageRule) -> None:
    arrays = (np.array([0.5, 0.01]), np.array([0.05, 0.0]))

    np.testing.assert_allclose(expected_squared_advantage(*arrays, 1, rule), 0.0, atol=1e-15)
    np.testing.assert_allclose(expected_absolute_advantage(*arrays, 1, rule), 0.0, atol=1e-15)


@pytest.mark.parametrize(("mean", "variance"), BELIEFS)
@pytest.mark.parametrize("group_size", [1, 8, 64])
def test_expectations_over_counts_agree_with_exact_fractions(mean: float, variance: float, group_size: int) -> None:
    concentration = mean * (1 - mean) / variance - 1
    alpha, beta = mean * concentration, (1 - mean) * concentration

    def log_beta(a: float, b: float) -> float:
        return lgamma(a) + lgamma(b) - lgamma(a + b)

    probability_k = [
        comb(group_size, k) * exp(log_beta(alpha + k, beta + group_size - k) - log_beta(alpha, beta))
        for k in range(group_size + 1)
    ]
    value_k = np.random.default_rng(group_size).normal(size=group_size + 1)
    found = expected_over_counts(np.array([mean]), np.array([variance]), value_k)[0]

    assert found == pytest.approx(float(np.dot(probability_k, value_k)), abs=1e-9)
    assert expected_over_counts(np.array([mean]), np.array([variance]), np.ones(group_size + 1))[0] == pytest.approx(1)


@pytest.mark.parametrize(("mean", "variance"), BELIEFS)
def test_worths_agree_with_simulation(mean: float, variance: float) -> None:
    arrays = (np.array([mean]), np.array([variance]))
    for found, of_p in (
        (knapsack_value(*arrays, 8), lambda p: (1 - p**8 - (1 - p) ** 8) * p * (1 - p) ** 2),
        (target_closeness(*arrays, 0.3), lambda p: 1 - (p - 0.3) ** 2 / 0.49),
        (beta_moment(*arrays, 3, 2), lambda p: p**3 * (1 - p) ** 2),
        (
            band_probability(*arrays, 8, 0.2, 0.8),
            lambda p: sum(comb(8, k) * p**k * (1 - p) ** (8 - k) for k in range(2, 7)),
        ),
    ):
        value, error = simulated(mean, variance, of_p)
        assert found[0] == pytest.approx(value, abs=4 * error + 1e-12)


def test_bands_by_hand() -> None:
    # G = 4, p = 1/2: k = 2 has 6/16, k = 1 to 3 have 14/16, no k/4 lies in [0.3, 0.4], all in [0, 1].
    half = (np.array([0.5]), np.zeros(1))
    for low, high, expected in ((0.4, 0.6, 6 / 16), (0.25, 0.75, 14 / 16), (0.3, 0.4, 0.0), (0.0, 1.0, 1.0)):
        assert band_probability(*half, 4, low, high)[0] == pytest.approx(expected)
    # 0.2 holds 2 of 10, though 0.2 * 10 is no whole number in binary.
    assert band_probability(*half, 10, 0.2, 0.3)[0] == pytest.approx((comb(10, 2) + comb(10, 3)) / 2**10)


def test_moments_and_knapsack_value_by_hand() -> None:
    # Under Beta(1, 1), E[p^a (1-p)^b] = a! b! / (a + b + 1)!.
    flat = (np.array([0.5]), np.array([1 / 12]))
    assert beta_moment(*flat, 1, 2)[0] == pytest.approx(1 / 12)
    assert beta_moment(*flat, 3, 2)[0] == pytest.approx(12 / 720)
    # A known pass rate: G = 2, p = 1/3: (1 - 1/9 - 4/9) * 4/27.
    assert knapsack_value(np.array([1 / 3]), np.zeros(1), 2)[0] == pytest.approx(4 / 9 * 4 / 27)
    known = np.linspace(0.01, 0.99, 99)
    assert known[np.argmax(knapsack_value(known, np.zeros(99), 512))] == pytest.approx(0.33)


def test_closeness_to_a_target_by_hand() -> None:
    found = target_closeness(np.array([0.25, 1e-9, 1 - 1e-9, 0.5]), np.array([0.0, 0.0, 0.0, 0.05]), 0.25)
    np.testing.assert_allclose(found, [1.0, 1 - 1 / 9, 0.0, 1 - (0.0625 + 0.05) / 0.5625], atol=1e-8)
    # At one half it is four times the expected variance of an outcome.
    mean, variance = np.array([0.1, 0.5, 0.7]), np.array([0.01, 0.05, 0.0])
    np.testing.assert_allclose(target_closeness(mean, variance, 0.5), 4 * expected_outcome_variance(mean, variance))


def test_every_worth_survives_the_edges_of_belief_and_huge_groups() -> None:
    mean = np.array([1e-12, 0.001, 0.5, 0.5, 0.999, 1 - 1e-12])
    spread = mean * (1 - mean)
    for variance in (np.zeros(6), 1e-15 * spread, 0.5 * spread, spread):
        for group_size in (1, 2, 1000):
            for worth in (
                *(expected_squared_advantage(mean, variance, group_size, rule) for rule in RULES),
                *(expected_absolute_advantage(mean, variance, group_size, rule) for rule in RULES),
                band_probability(mean, variance, group_size, 0.2, 0.8),
                knapsack_value(mean, variance, group_size),
                target_closeness(mean, variance, 1.0),
            ):
                assert worth.shape == (6,)
                assert ((worth >= 0) & (worth <= 1.0 + 1e-9)).all()
    # What says 0 or 1 and nothing else is never between.
    np.testing.assert_allclose(band_probability(mean, spread, 8, 0.2, 0.8), 0.0, atol=1e-10)
    np.testing.assert_allclose(expected_absolute_advantage(mean, spread, 8, "grpo"), 0.0, atol=1e-10)
    np.testing.assert_allclose(knapsack_value(mean, spread, 8), 0.0, atol=1e-15)


def test_blocks_of_counts_do_not_show() -> None:
    rng = np.random.default_rng(2)
    mean = rng.uniform(0.01, 0.99, BLOCK_ROWS + 5)
    variance = rng.uniform(0, 0.9, mean.size) * mean * (1 - mean)
    found = band_probability(mean, variance, 8, 0.2, 0.8)

    for row in (0, BLOCK_ROWS - 1, BLOCK_ROWS, mean.size - 1):
        assert band_probability(mean[row : row + 1], variance[row : row + 1], 8, 0.2, 0.8)[0] == found[row]
    assert band_probability(np.empty(0), np.empty(0), 8, 0.2, 0.8).shape == (0,)


def test_worths_out_of_range_are_refused_by_name() -> None:
    half, small = np.array([0.5]), np.array([0.01])
    for low, high in ((0.8, 0.2), (0.2, 0.2), (-0.1, 0.5), (0.5, 1.1), (np.nan, 0.5)):
        with pytest.raises(ValueError, match="a band needs"):
            band_probability(half, small, 8, low, high)
    for target in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match="target must be in"):
            target_closeness(half, small, target)
    with pytest.raises(ValueError, match="passes and failures must be >= 1"):
        beta_moment(half, small, 0, 1)
    one = np.array([1.0])
    with pytest.raises(ValueError, match="mean_N"):
        expected_outcome_variance(one, small)
    with pytest.raises(ValueError, match="mean_N"):
        expected_absolute_advantage(one, small, 8, "grpo")
    with pytest.raises(ValueError, match="mean_N"):
        knapsack_value(one, small, 8)
    with pytest.raises(ValueError, match="mean_N"):
        target_closeness(one, small, 0.5)
    with pytest.raises(ValueError, match="group_size must be >= 1, got 0"):
        knapsack_value(half, small, 0)
