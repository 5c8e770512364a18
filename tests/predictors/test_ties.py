import numpy as np
import pytest

from predictors.ties import CATEGORY_VARIANCE, POOL_VARIANCE, Ties


def fresh(num_categories: int = 2) -> Ties:
    made = Ties()
    made.resize(num_categories)
    return made


def taught(chance: float, share: float, *, groups: int = 4000, category: int = 0, graded: bool = True) -> Ties:
    """Groups with this P(informative) by binary scores, of which `share` are informative."""
    made, rng = fresh(), np.random.default_rng(0)
    for _ in range(groups // 50):
        made.observe(np.full(50, chance), rng.random(50) < share, np.full(50, graded), np.full(50, category))
    return made


def test_binary_scores_change_nothing_to_the_bit() -> None:
    made = taught(0.5, 0.9, graded=False)
    chance_N = np.random.default_rng(0).random(10)

    assert made.adjusted(chance_N, np.zeros(10, int)) is chance_N
    for name, array in fresh().state().items():
        np.testing.assert_array_equal(array, made.state()[name])


def test_one_informative_group_moves_the_shift_by_its_kalman_gain() -> None:
    """P = 1/2: h = 1/4, g = 1/2; the category's variance 1 dilutes both by 1.25, so the pool's precision is 1/4 + 1/5,
    its step 2/5 over that, and the category moves by the rest, (1/2 - step/4) / 1.25.
    """
    made = fresh()
    made.observe(np.array([0.5]), np.array([True]), np.array([True]), np.array([0]))

    step = (0.5 / 1.25) / (1.0 / POOL_VARIANCE + 0.25 / 1.25)
    offset = CATEGORY_VARIANCE * (0.5 - 0.25 * step) / 1.25
    assert step > 0.8
    odds = np.exp(min(step, 1.0) + offset)
    assert made.adjusted(np.array([0.5]), np.array([0]))[0] == pytest.approx(odds / (1 + odds), rel=1e-6)
    assert made.adjusted(np.array([0.5]), np.array([1]))[0] == 0.5


@pytest.mark.parametrize(("chance", "share"), [(0.3, 0.9), (0.9, 0.2), (0.05, 0.6), (0.5, 0.5)])
def test_the_share_of_informative_groups_is_found(chance: float, share: float) -> None:
    found = taught(chance, share).adjusted(np.array([chance]), np.array([0]))[0]

    assert found == pytest.approx(share, abs=0.04)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_scores_that_never_or_always_tie_stay_finite(share: float) -> None:
    made = taught(0.5, share)
    found_N = made.adjusted(np.array([0.0, 1e-300, 0.01, 0.5, 1.0]), np.zeros(5, int))

    assert ((found_N >= 0.0) & (found_N <= 1.0)).all()
    assert abs(found_N[3] - share) < 0.02
    assert (np.diff(found_N) >= 0.0).all()


def test_a_graded_category_leans_on_the_pool_and_a_binary_one_is_left_alone() -> None:
    made, rng = fresh(3), np.random.default_rng(0)
    for _ in range(60):
        category = np.array([0] * 20 + [1] * 20)
        made.observe(np.full(40, 0.3), rng.random(40) < np.where(category == 0, 0.95, 0.3), category == 0, category)
    made.observe(np.array([0.3]), np.array([True]), np.array([True]), np.array([2]))

    found = made.adjusted(np.full(3, 0.3), np.arange(3))
    assert found[0] > 0.9
    assert found[1] == 0.3
    assert 0.5 < found[2] < found[0]


def test_what_was_learned_fades_as_it_changes() -> None:
    made = taught(0.5, 0.95, groups=10_000)
    rng = np.random.default_rng(1)
    for _ in range(200):
        made.observe(np.full(50, 0.5), rng.random(50) < 0.2, np.full(50, True), np.zeros(50, int))

    assert made.adjusted(np.array([0.5]), np.array([0]))[0] == pytest.approx(0.2, abs=0.06)


def test_a_state_round_trip_goes_on_to_the_same_bits() -> None:
    original, copy = taught(0.4, 0.7), Ties()
    copy.load_state(original.state())
    for made in (original, copy):
        made.resize(4)
        made.observe(np.full(3, 0.2), np.array([True, False, True]), np.full(3, True), np.array([0, 3, 3]))

    for name, array in original.state().items():
        np.testing.assert_array_equal(array, copy.state()[name])


def test_a_state_that_does_not_fit_is_refused() -> None:
    state = fresh().state()
    for broken in ({}, state | {"more": np.zeros(1)}, state | {"graded_C": np.zeros(5, bool)}):
        with pytest.raises(ValueError, match="state of ties"):
            fresh().load_state(broken)
