"""The prior of categories: by hand, by a slow obvious version, at the edges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.prior import (
    CATEGORY_WEIGHT,
    MAX_CONCENTRATION,
    MIN_PARAMETER,
    POOL_WEIGHT,
    CategoryPrior,
)
from tests.predictors.groups import groups


def prior(category_N: list[int]) -> CategoryPrior:
    made = CategoryPrior()
    made.resize(np.array(category_N, dtype=np.int32))
    return made


def test_without_evidence_every_category_is_flat() -> None:
    alpha_C, beta_C = prior([0, 2]).parameters()

    np.testing.assert_allclose(alpha_C, [1, 1, 1])
    np.testing.assert_allclose(beta_C, [1, 1, 1])


def test_two_groups_by_hand() -> None:
    """Means .25 and .75; unbiased squares 2*1/56 and 6*5/56, their mean 2/7. Pool, then category 0, then category 1."""
    made = prior([0, 0, 1])
    made.observe(groups([0, 1], [2, 6]))
    mean_C, concentration_C = made.moments()

    pool_square = (4 / 7 + POOL_WEIGHT / 3) / (2 + POOL_WEIGHT)
    square_0 = (4 / 7 + CATEGORY_WEIGHT * pool_square) / (2 + CATEGORY_WEIGHT)
    np.testing.assert_allclose(mean_C, [0.5, 0.5], atol=1e-9)
    np.testing.assert_allclose(concentration_C, [0.25 / (s - 0.25) - 1 for s in (square_0, pool_square)], atol=1e-6)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6), st.floats(0, 1)), max_size=40))
def test_sums_agree_with_a_recount_of_the_newest_groups(history: list[tuple[int, int, float]]) -> None:
    category = np.arange(10) % 3
    made = prior(category.tolist())
    newest: dict[int, tuple[int, int]] = {}
    for row, scored, share in history:
        newest[row] = (round(share * scored), scored)
        made.observe(groups([row], [newest[row][0]], scored=scored))

    def shrunk(values: list[float], centre: float, weight: float) -> float:
        return (sum(values) + weight * centre) / (len(values) + weight)

    def means(rows: list[int]) -> list[float]:
        return [newest[row][0] / newest[row][1] for row in rows]

    def squares(rows: list[int]) -> list[float]:
        return [k * (k - 1) / (n * (n - 1)) for k, n in (newest[row] for row in rows) if n >= 2]

    everyone = list(newest)
    pool_mean = shrunk(means(everyone), 1 / 2, POOL_WEIGHT)
    pool_square = shrunk(squares(everyone), pool_mean**2 + pool_mean * (1 - pool_mean) / 3, POOL_WEIGHT)
    mean_C, concentration_C = made.moments()
    for code in range(3):
        rows = [row for row in everyone if category[row] == code]
        mean = shrunk(means(rows), pool_mean, CATEGORY_WEIGHT)
        variance = shrunk(squares(rows), pool_square, CATEGORY_WEIGHT) - mean**2
        expected = min(mean * (1 - mean) / variance - 1, MAX_CONCENTRATION) if variance > 0 else MAX_CONCENTRATION
        assert mean_C[code] == pytest.approx(mean, abs=1e-8)
        assert concentration_C[code] == pytest.approx(max(expected, MIN_PARAMETER / min(mean, 1 - mean)), rel=1e-5)


def test_a_beta_pool_is_recovered_without_its_binomial_noise() -> None:
    """20,000 prompts from Beta(.6, 1.4): three sd of the mean are .005, and raw group means would give 2.0 -> 1.33."""
    rng = np.random.default_rng(0)
    made = prior([0] * 20_000)
    made.observe(groups(np.arange(20_000), rng.binomial(4, rng.beta(0.6, 1.4, 20_000)), scored=4))
    alpha_C, beta_C = made.parameters()

    assert alpha_C[0] == pytest.approx(0.6, abs=0.05)
    assert beta_C[0] == pytest.approx(1.4, abs=0.1)


def test_a_prompt_has_one_vote_however_often_it_is_chosen() -> None:
    often, once = prior([0] * 5), prior([0] * 5)
    for made in (often, once):
        made.observe(groups([0, 1, 2], [0, 0, 8]))
    for _ in range(50):
        often.observe(groups([3], [4]))
    once.observe(groups([3], [4]))

    np.testing.assert_array_equal(often.moments(), once.moments())


def test_the_newest_group_replaces_the_older_one() -> None:
    made, fresh = prior([0] * 3), prior([0] * 3)
    made.observe(groups([0, 1], [0, 8]))
    made.observe(groups([0], [3], scored=4))
    fresh.observe(groups([1, 0], [8, 3], scored=[8, 4]))

    np.testing.assert_array_equal(made.moments(), fresh.moments())


def test_small_categories_lean_on_the_pool_and_large_ones_do_not() -> None:
    made = prior([0] * 500 + [1] * 3 + [2] * 500)
    made.observe(groups(np.arange(1003), np.repeat([2, 8, 6], [500, 3, 500])))
    mean_C, _ = made.moments()

    assert mean_C[0] == pytest.approx(0.25, abs=0.02)
    assert 0.5 < mean_C[1] < 0.65
    assert mean_C[2] == pytest.approx(0.75, abs=0.02)


def test_parameters_stay_within_their_bounds_whatever_came() -> None:
    for passes in (0, 8, 4):
        made = prior([0] * 5000)
        made.observe(groups(np.arange(5000), passes))
        alpha_C, beta_C = made.parameters()
        assert (np.minimum(alpha_C, beta_C) >= MIN_PARAMETER - 1e-12).all()
        assert (alpha_C + beta_C <= MAX_CONCENTRATION + 1e-9).all()


def test_groups_of_one_rollout_teach_the_mean_only() -> None:
    made = prior([0] * 1000)
    made.observe(groups(np.arange(1000), np.arange(1000) % 2, scored=1))
    mean_C, concentration_C = made.moments()

    assert mean_C[0] == pytest.approx(0.5)
    assert concentration_C[0] == pytest.approx(2)


@pytest.mark.parametrize("mean", [0.1, 0.2, 0.8])
def test_groups_of_one_rollout_leave_the_spread_of_the_pool_as_it_was_wherever_its_mean_is(mean: float) -> None:
    """Beta(1, 1) has a concentration of 2; a raw square of 1/3 would make a mean of .8 as sure as can be."""
    made = prior([0] * 1000)
    made.observe(groups(np.arange(1000), np.arange(1000) < 1000 * mean, scored=1))
    mean_C, concentration_C = made.moments()

    np.testing.assert_allclose(mean_C, mean, atol=0.02)
    # The category's mean is drawn to the pool's by 16 groups of 1,000, and the pool's to 1/2 by 8.
    np.testing.assert_allclose(concentration_C, 2, rtol=0.12)


def test_a_change_of_category_takes_the_votes_along() -> None:
    moved, direct = prior([0, 0, 1]), prior([0, 1, 1])
    for made in (moved, direct):
        made.observe(groups([0, 1, 2], [0, 8, 4]))
    moved.resize(np.array([0, 1, 1], dtype=np.int32))

    np.testing.assert_array_equal(moved.moments(), direct.moments())
