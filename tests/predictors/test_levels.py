"""What categories look like: by hand, against plain loops, and under a policy that selects."""

import numpy as np
import numpy.typing as npt
import pytest

from predictors.base import FloatArray, IntArray
from predictors.levels import (
    CATEGORY_EVIDENCE,
    CATEGORY_WEIGHT_RANGE,
    MAX_CONCENTRATION,
    MIN_PARAMETER,
    POOL_WEIGHT,
    SPREAD_WEIGHT,
    START_CATEGORY_WEIGHT,
    CategoryLevels,
    Levels,
)
from tests.predictors.groups import groups


def levels(category_N: npt.ArrayLike) -> CategoryLevels:
    made = CategoryLevels()
    made.resize(np.asarray(category_N, dtype=np.int32))
    return made


def first(made: CategoryLevels, *, version: int = 0, drift: float = 0.0, strength: float = 1.0) -> Levels:
    return made.first(version=version, drift=drift, strength=strength)


def start(made: CategoryLevels, rows: IntArray, passes: npt.ArrayLike, *, scored: int = 8, version: int = 0) -> None:
    """First groups, which are the newest as well."""
    group = groups(rows, passes, scored=scored, version=version)
    made.start(group)
    made.renew(group)


def slow_moments(passes: FloatArray, scored: IntArray, category: IntArray) -> tuple[list[float], list[float]]:
    """Means and overlaps of all categories by loops over pairs of rows."""
    num = int(category.max()) + 1
    means = [passes[category == c] / scored[category == c] for c in range(num)]
    squares = [
        (passes * (passes - 1) / (scored * (scored - 1)))[category == c].mean() if (category == c).any() else 0.0
        for c in range(num)
    ]
    total = len(passes)
    pool = (sum(x.sum() for x in means) + POOL_WEIGHT / 2) / (total + POOL_WEIGHT)
    products = [
        np.mean([x[i] * x[j] for i in range(len(x)) for j in range(len(x)) if i != j]) if len(x) > 1 else 0.0
        for x in means
    ]
    others = [max(len(x) - 1, 0) for x in means]
    everyone = np.concatenate(means)
    pool_product = (everyone.sum() ** 2 - (everyone**2).sum()) / (total * (total - 1))
    same = sum(len(x) * (len(x) - 1) for x in means) / (total * (total - 1))
    flat = pool * (1 - pool)
    scatter = sum(n * ((x**2).mean() - u) for n, x, u in zip(others, means, products, strict=True) if n)
    variance = (scatter + POOL_WEIGHT * flat / 2) / (sum(others) + POOL_WEIGHT)
    within = sum(n * u for n, u in zip(others, products, strict=True)) / sum(others)
    between = max((within - pool_product) / max(1 - same, 0.1), 0)
    shrunk = (sum(others) * between + CATEGORY_EVIDENCE * variance / START_CATEGORY_WEIGHT) / (
        sum(others) + CATEGORY_EVIDENCE
    )
    weight = float(np.clip(variance / max(shrunk, 1e-12), *CATEGORY_WEIGHT_RANGE)) if num > 1 else START_CATEGORY_WEIGHT
    mean = [(x.sum() + weight * pool) / (len(x) + weight) for x in means]
    seen = [n * (s - u) for n, s, u in zip(others, squares, products, strict=True)]
    most = [n * (x.mean() - u) if n else 0.0 for n, x, u in zip(others, means, products, strict=True)]
    all_overlap = (sum(seen) + POOL_WEIGHT * flat / 3) / (sum(most) + POOL_WEIGHT * flat)
    all_overlap = float(np.clip(all_overlap, 1 / (MAX_CONCENTRATION + 1), 0.95))
    overlap = [
        (a + all_overlap * SPREAD_WEIGHT * m * (1 - m)) / (b + SPREAD_WEIGHT * m * (1 - m))
        for a, b, m in zip(seen, most, mean, strict=True)
    ]
    return mean, [float(np.clip(value, 1 / (MAX_CONCENTRATION + 1), 0.95)) for value in overlap]


def test_without_a_group_every_category_is_flat() -> None:
    found = first(levels([0, 1, 1]))

    np.testing.assert_allclose(found.alpha, 1.0)
    np.testing.assert_allclose(found.beta, 1.0)


def test_one_group_of_one_category_by_hand() -> None:
    """All of 8 passed: mean (1 + 4) / 9 for the pool, that of 16 more groups and 1 for the category; flat overlap."""
    made = levels([0, 0])
    start(made, np.array([0]), [8])
    pool = 5 / 9

    assert first(made).mean[0] == pytest.approx((1 + 16 * pool) / 17, abs=1e-4)
    assert first(made).overlap[0] == pytest.approx(1 / 3, abs=1e-4)


@pytest.mark.parametrize("num_categories", [1, 2, 7])
def test_levels_agree_with_plain_loops(num_categories: int) -> None:
    rng = np.random.default_rng(num_categories)
    category = rng.integers(0, num_categories, 60)
    category[0] = num_categories - 1
    p = np.clip(rng.beta(1.0, 2.0, 60) + 0.3 * (category % 2), 0.0, 1.0)
    made = levels(category)
    passes = rng.binomial(8, p).astype(float)
    start(made, np.arange(60), passes)
    mean, overlap = slow_moments(passes, np.full(60, 8), category)
    expected = Levels.of(np.array(mean), np.array(overlap), 1.0)

    # Groups are kept to 3e-5.
    np.testing.assert_allclose(first(made).mean, expected.mean, atol=2e-4)
    np.testing.assert_allclose(first(made).overlap, expected.overlap, atol=2e-3)
    np.testing.assert_array_equal(made.newest(strength=1.0).alpha, first(made).alpha)


def test_the_moments_of_a_large_category_are_found_from_groups_of_any_size() -> None:
    rng = np.random.default_rng(1)
    for scored in (2, 8, 64):
        made = levels(np.zeros(20_000))
        start(made, np.arange(20_000), rng.binomial(scored, rng.beta(0.6, 1.4, 20_000)), scored=scored)
        # sd of the mean .003; of the overlap, from pairs of rollouts, at most .01.
        assert first(made).mean[0] == pytest.approx(0.3, abs=0.012)
        assert first(made).overlap[0] == pytest.approx(1 / 3, abs=0.04)


def test_groups_of_one_rollout_leave_the_overlap_flat_at_any_mean() -> None:
    for share in (0.1, 0.9):
        made = levels(np.zeros(1_000))
        start(made, np.arange(1_000), np.arange(1_000) < 1_000 * share, scored=1)
        assert first(made).mean[0] == pytest.approx(share, abs=0.02)
        assert first(made).overlap[0] == pytest.approx(1 / 3, abs=1e-6)


def test_categories_that_differ_are_told_apart_sooner_than_those_that_do_not() -> None:
    rng = np.random.default_rng(2)
    category = np.repeat(np.arange(20), 10)
    apart, alike = levels(category), levels(category)
    centre = rng.permutation(np.linspace(0.05, 0.95, 20))
    start(apart, np.arange(200), rng.binomial(8, centre[category]))
    start(alike, np.arange(200), rng.binomial(8, rng.beta(1, 1, 200)))

    assert np.abs(first(apart).mean - centre).mean() < 0.06
    # Ten means of category size have an sd of .1 by chance; they are taken as alike.
    assert first(alike).mean.std() < 0.06


def test_parameters_stay_in_their_range() -> None:
    none, all_alike = levels(np.zeros(500)), levels(np.zeros(500))
    start(none, np.arange(500), 0)
    start(all_alike, np.arange(500), 4)

    assert first(none).alpha[0] == pytest.approx(MIN_PARAMETER)
    assert first(all_alike).alpha[0] + first(all_alike).beta[0] == pytest.approx(MAX_CONCENTRATION)
    assert first(all_alike, strength=1e9).alpha[0] <= MAX_CONCENTRATION
    assert first(all_alike, strength=1e-9).alpha[0] == pytest.approx(MIN_PARAMETER)


def test_strength_multiplies_the_concentration() -> None:
    rng = np.random.default_rng(3)
    made = levels(np.zeros(2_000))
    start(made, np.arange(2_000), rng.binomial(8, rng.beta(2, 2, 2_000)))
    once, twice = first(made), first(made, strength=2.0)

    np.testing.assert_allclose(twice.alpha, 2 * once.alpha)
    np.testing.assert_allclose(twice.beta, 2 * once.beta)


def test_first_groups_move_with_the_drift_since_their_version() -> None:
    """Odds of the mean grow by 1 + 4 d (1 - r) age."""
    made = levels(np.zeros(1_000))
    start(made, np.arange(1_000), np.arange(1_000) % 9, version=10)
    before, after = first(made, version=10, drift=1e-3), first(made, version=110, drift=1e-3)
    odds = (after.mean / (1 - after.mean)) / (before.mean / (1 - before.mean))

    # The mean version is drawn to the pool's, which is the same here.
    assert odds[0] == pytest.approx(1 + 4 * 1e-3 * (1 - before.overlap[0]) * 100)
    assert first(made, version=5, drift=1e-3).mean[0] == before.mean[0]


def test_a_newer_group_replaces_the_newest_only() -> None:
    rng = np.random.default_rng(4)
    made, other = levels(np.zeros(300)), levels(np.zeros(300))
    rows, early, late = np.arange(300), rng.binomial(8, 0.2, 300), rng.binomial(8, 0.9, 300)
    start(made, rows, early)
    start(other, rows, late)
    kept = first(made).mean[0]
    made.renew(groups(rows, late, version=50))

    assert first(made).mean[0] == kept
    np.testing.assert_array_equal(made.newest(strength=1.0).alpha, other.newest(strength=1.0).alpha)


def test_selection_makes_the_newest_groups_look_extreme_and_leaves_the_first_alone() -> None:
    """A policy tries a prompt again as long as its last group was mixed: p uniform, overlap 1/3."""
    rng = np.random.default_rng(5)
    made, p = levels(np.zeros(4_000)), rng.random(4_000)
    rows = np.arange(4_000)
    passes = rng.binomial(8, p)
    start(made, rows, passes)
    for version in range(1, 15):
        rows = rows[(passes > 0) & (passes < 8)]
        passes = rng.binomial(8, p[rows])
        made.renew(groups(rows, passes, version=version))

    assert first(made).overlap[0] == pytest.approx(1 / 3, abs=0.03)
    assert made.newest(strength=1.0).overlap[0] > 0.5


def test_new_categories_and_a_restored_state_are_counted_anew() -> None:
    rng = np.random.default_rng(6)
    made, again, apart = levels(np.zeros(50)), CategoryLevels(), levels(np.arange(50) % 3)
    passes = rng.binomial(8, rng.random(50))
    start(made, np.arange(50), passes, version=7)
    start(apart, np.arange(50), passes, version=7)
    made.resize((np.arange(50) % 3).astype(np.int32))
    again.load_state(made.state())
    for other in (apart, again):
        for ours, theirs in ((first(made, version=9, drift=1e-3), first(other, version=9, drift=1e-3)),):
            np.testing.assert_array_equal(ours.alpha, theirs.alpha)
        np.testing.assert_array_equal(made.newest(strength=1.0).beta, other.newest(strength=1.0).beta)


def test_graded_outcomes_give_their_own_mean() -> None:
    made = levels(np.zeros(2_000))
    start(made, np.arange(2_000), np.full(2_000, 0.3 * 8))

    assert first(made).mean[0] == pytest.approx(0.3, abs=0.005)
    assert first(made).overlap[0] == pytest.approx(1 / (MAX_CONCENTRATION + 1))
