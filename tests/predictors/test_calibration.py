"""Scores, three ways: by hand, by a slow obvious version, at the edges."""

from math import comb, lgamma, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.calibration import (
    MIN_PROBABILITY,
    auc,
    beta_binomial_log_loss,
    brier,
    log_loss,
    randomised_pit,
    reliability,
)


def loss(mean: float, variance: float, passes: float, scored: int) -> float:
    columns = (np.array([mean]), np.array([variance]), np.array([passes]), np.array([scored]))
    return float(beta_binomial_log_loss(*columns)[0])


def test_a_flat_belief_gives_every_count_the_same_loss() -> None:
    found = beta_binomial_log_loss(np.full(9, 0.5), np.full(9, 1 / 12), np.arange(9.0), np.full(9, 8))

    np.testing.assert_allclose(found, log(9))


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.95), st.integers(1, 20), st.data())
def test_the_loss_agrees_with_gamma_functions(mean: float, overlap: float, scored: int, data: st.DataObject) -> None:
    passes = data.draw(st.integers(0, scored))
    total = 1 / overlap - 1
    a, b = mean * total, (1 - mean) * total

    def log_beta(x: float, y: float) -> float:
        return lgamma(x) + lgamma(y) - lgamma(x + y)

    expected = -(log(comb(scored, passes)) + log_beta(a + passes, b + scored - passes) - log_beta(a, b))
    assert loss(mean, overlap * mean * (1 - mean), passes, scored) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("overlap", "scored"), [(0.5, 33), (0.01, 500), (1e-7, 500), (1e-4, 20_000)])
def test_large_groups_agree_with_a_plain_sum(overlap: float, scored: int) -> None:
    passes, mean = scored // 3, 0.4

    def log_product(start: float, count: int) -> float:
        return float(np.log(start * (1 - overlap) + np.arange(count) * overlap).sum())

    choices = lgamma(scored + 1) - lgamma(passes + 1) - lgamma(scored - passes + 1)
    parts = log_product(mean, passes) + log_product(1 - mean, scored - passes) - log_product(1, scored)
    assert loss(mean, overlap * mean * (1 - mean), passes, scored) == pytest.approx(-choices - parts, abs=1e-7)


@given(st.floats(0.01, 0.99), st.floats(0, 0.95), st.integers(1, 30))
def test_probabilities_of_all_counts_add_up_to_one(mean: float, overlap: float, scored: int) -> None:
    count = np.arange(scored + 1.0)
    same = np.ones_like(count)
    losses = beta_binomial_log_loss(
        mean * same, overlap * mean * (1 - mean) * same, count, np.full(count.size, scored, dtype=np.int64)
    )

    assert np.exp(-losses).sum() == pytest.approx(1, abs=1e-9)


def test_several_beliefs_about_the_same_groups_are_scored_as_each_alone() -> None:
    """Groups short and long, whole and graded."""
    mean_EB, overlap_EB = np.random.default_rng(1).uniform(0.01, 0.9, (2, 3, 5))
    variance_EB = overlap_EB * mean_EB * (1 - mean_EB)
    passes_B, scored_B = np.array([0.0, 2.5, 8.0, 40.0, 1_000.0]), np.array([1, 8, 8, 70, 4_000])
    together_EB = beta_binomial_log_loss(mean_EB, variance_EB, passes_B, scored_B)

    assert together_EB.shape == (3, 5)
    for e in range(3):
        for b in range(5):
            alone = loss(mean_EB[e, b], variance_EB[e, b], passes_B[b], int(scored_B[b]))
            assert together_EB[e, b] == pytest.approx(alone, rel=1e-12)


def test_a_sure_belief_gives_the_binomial_loss() -> None:
    for passes in range(5):
        expected = -log(comb(4, passes) * 0.3**passes * 0.7 ** (4 - passes))
        assert loss(0.3, 0, passes, 4) == pytest.approx(expected)
        assert loss(0.3, 1e-15, passes, 4) == pytest.approx(expected)


def test_a_graded_sum_lies_between_its_whole_neighbours_in_the_part_that_depends_on_the_belief() -> None:
    """The count of choices is the same for two beliefs, so their difference of losses is what is compared."""
    gaps = [loss(0.3, 0.02, passes, 8) - loss(0.5, 0.02, passes, 8) for passes in (2, 2.5, 3)]

    assert gaps[1] == pytest.approx((gaps[0] + gaps[2]) / 2)


def test_the_true_belief_has_the_least_mean_loss() -> None:
    rng = np.random.default_rng(0)
    passes = rng.binomial(8, rng.beta(2, 3, 50_000)).astype(float)
    scored = np.full(passes.size, 8)

    def mean_loss(mean: float, variance: float) -> float:
        same = np.ones_like(passes)
        return float(beta_binomial_log_loss(mean * same, variance * same, passes, scored).mean())

    best = mean_loss(0.4, 0.04)
    assert best < min(mean_loss(0.45, 0.04), mean_loss(0.35, 0.04), mean_loss(0.4, 0.03), mean_loss(0.4, 0.05))


def test_brier_and_log_loss_by_hand() -> None:
    probability, event = np.array([0.8, 0.25]), np.array([True, False])

    np.testing.assert_allclose(brier(probability, event.astype(float)), [0.04, 0.0625])
    np.testing.assert_allclose(log_loss(probability, event), [-log(0.8), -log(0.75)])


def test_a_sure_and_wrong_forecast_has_a_large_but_finite_loss() -> None:
    found = log_loss(np.array([0.0, 1.0, 1.0]), np.array([True, False, True]))

    np.testing.assert_allclose(found, [-log(MIN_PROBABILITY)] * 2 + [0], rtol=1e-4, atol=1e-11)


def test_auc_by_hand() -> None:
    """Pairs (event, other): .9 beats both, .4 beats .1 and ties .4: (2 + 1.5) / 4."""
    assert auc(np.array([0.9, 0.4, 0.4, 0.1]), np.array([True, True, False, False])) == 3.5 / 4


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=30))
def test_auc_counts_pairs(pairs: list[tuple[int, bool]]) -> None:
    score, event = np.array([pair[0] for pair in pairs], dtype=float), np.array([pair[1] for pair in pairs])
    if event.all() or not event.any():
        with pytest.raises(ValueError, match="needs an event and a non-event"):
            auc(score, event)
        return
    above = score[event][:, None] - score[~event][None, :]

    assert auc(score, event) == pytest.approx(np.mean((above > 0) + 0.5 * (above == 0)))


def test_values_out_of_range_are_refused() -> None:
    for mean, variance, passes, scored in ((0, 0.1, 1, 2), (0.5, 0.25, 1, 2), (0.5, 0.1, 3, 2), (0.5, 0.1, 0, 0)):
        with pytest.raises(ValueError, match="must be"):
            loss(mean, variance, passes, scored)
    with pytest.raises(ValueError, match="probability_B"):
        brier(np.array([np.nan]), np.array([1.0]))
    with pytest.raises(ValueError, match="outcome_B"):
        brier(np.array([0.5]), np.array([1.5]))
    with pytest.raises(ValueError, match="probability_B"):
        log_loss(np.array([1.5]), np.array([True]))
    with pytest.raises(ValueError, match="NaN"):
        auc(np.array([np.nan, 1.0]), np.array([True, False]))


def test_a_randomised_pit_by_hand() -> None:
    """A flat belief: 0..3 passes of 3 have chance 1/4 each, so k = 2 lies between 1/2 and 3/4."""
    found = randomised_pit(
        np.full(3, 0.5), np.full(3, 1 / 12), np.full(3, 2.0), np.full(3, 3), np.array([0, 0.5, 0.99])
    )

    np.testing.assert_allclose(found, [0.5, 0.625, 0.7475])


@given(st.floats(0.01, 0.99), st.floats(0, 0.95), st.lists(st.integers(1, 12), min_size=1, max_size=5), st.data())
def test_a_randomised_pit_is_a_sum_of_probabilities(
    mean: float, overlap: float, sizes: list[int], data: st.DataObject
) -> None:
    passes = [data.draw(st.integers(0, size)) for size in sizes]
    variance, same = overlap * mean * (1 - mean), np.ones(len(sizes))
    found = randomised_pit(mean * same, variance * same, np.array(passes), np.array(sizes), 0.25 * same)

    for value, count, size in zip(found, passes, sizes, strict=True):
        below = sum(np.exp(-loss(mean, variance, k, size)) for k in range(count))
        assert value == pytest.approx(below + 0.25 * np.exp(-loss(mean, variance, count, size)), abs=1e-9)


def test_a_randomised_pit_of_the_true_belief_is_uniform() -> None:
    rng = np.random.default_rng(1)
    size = 40_000
    scored = rng.integers(1, 12, size)
    passes = rng.binomial(scored, rng.beta(0.5, 1.5, size)).astype(float)
    mean, variance = np.full(size, 0.25), np.full(size, 0.25 * 0.75 / 3)
    found = randomised_pit(mean, variance, passes, scored, rng.random(size))

    # The sd of a share of 40,000 is at most .0025.
    for edge in (0.05, 0.3, 0.5, 0.7, 0.95):
        assert np.mean(found < edge) == pytest.approx(edge, abs=0.01)


def test_reliability_by_hand() -> None:
    found = reliability(np.array([0.1, 0.2, 0.7, 1.0]), np.array([False, True, True, True]), num_bins=2)

    np.testing.assert_allclose(found.forecast_R, [0.15, 0.85])
    np.testing.assert_allclose(found.frequency_R, [0.5, 1.0])
    np.testing.assert_array_equal(found.count_R, [2, 2])
    assert found.error == pytest.approx((0.35 * 2 + 0.15 * 2) / 4)


def test_an_empty_bin_has_no_frequency_and_no_weight() -> None:
    found = reliability(np.array([0.9]), np.array([True]), num_bins=3)

    assert np.isnan(found.frequency_R[:2]).all()
    assert found.error == pytest.approx(0.1)
    assert reliability(np.empty(0), np.empty(0, dtype=bool)).error == 0.0


def test_pit_and_reliability_refuse_values_out_of_range() -> None:
    one = np.array([0.5])
    with pytest.raises(ValueError, match="whole"):
        randomised_pit(one, one / 6, one, np.array([2]), one)
    with pytest.raises(ValueError, match="uniform_B"):
        randomised_pit(one, one / 6, one * 2, np.array([2]), one * 3)
    with pytest.raises(ValueError, match="num_bins"):
        reliability(one, one > 0, num_bins=0)
    with pytest.raises(ValueError, match="probability_B"):
        reliability(one * 3, one > 0)
