"""Pushed values as priors: by hand, how their errors are learned, ageing, and what own groups make of them."""

import numpy as np
import numpy.typing as npt
import pytest

from predictors.base import NEVER, Column, FloatArray, IntArray
from predictors.calibration import beta_binomial_log_loss, randomised_pit
from predictors.pushed import START_OVERLAP, PushedValue
from predictors.registry import build_estimator
from tests.predictors.groups import groups


def pushed(value_N: npt.ArrayLike, version: npt.ArrayLike = 0, **options: float) -> PushedValue:
    made = build_estimator("value", options)
    assert isinstance(made, PushedValue)
    values = np.asarray(value_N, np.float64)
    made.resize(np.zeros(values.size, np.int32))
    made.attach(column(values, version))
    return made


def column(value_N: npt.ArrayLike, version: npt.ArrayLike = 0) -> dict[str, Column]:
    values = np.asarray(value_N, np.float64)
    version_N: IntArray = np.broadcast_to(np.asarray(version, np.int64), values.shape).copy()
    return {"value": Column(value_N=values, version_N=np.where(np.isnan(values), NEVER, version_N))}


def concentration(made: PushedValue) -> FloatArray:
    beliefs = made.beliefs()
    return beliefs.mean_N * (1 - beliefs.mean_N) / beliefs.variance_N - 1


def test_a_value_is_believed_as_it_is_before_anything_is_known_and_no_value_is_the_prior() -> None:
    made = pushed([0.25, np.nan, 0.8])
    beliefs = made.beliefs()

    np.testing.assert_allclose(beliefs.mean_N, [0.25, 0.5, 0.8])
    np.testing.assert_allclose(concentration(made)[[0, 2]], 1 / START_OVERLAP - 1)
    np.testing.assert_array_equal(beliefs.n_eff_N, 0)
    np.testing.assert_array_equal(beliefs.lag_N, NEVER)


def test_own_groups_count_on_top_of_a_value() -> None:
    """The group came before the value, so that nothing is learned: Beta(1 + 6, 3 + 2) from 0.25 worth 4 rollouts."""
    made = pushed([0.25], version=3, process_noise=0.0)
    made.observe(groups([0], [6]))

    assert made.beliefs().mean_N[0] == pytest.approx(7 / 12)
    assert concentration(made)[0] == pytest.approx(12)


def test_with_own_groups_left_out_only_the_value_counts() -> None:
    made = pushed([0.25, np.nan], version=3, own_share=0.0)
    made.advance(3)
    made.observe(groups([0, 1], [6, 6]))
    beliefs = made.beliefs()

    assert beliefs.mean_N[0] == pytest.approx(0.25)
    assert beliefs.mean_N[1] > 0.6
    assert 0 < beliefs.n_eff_N[0] < 0.01


@pytest.mark.parametrize(("shift", "slope"), [(0.0, 1.0), (0.2, 0.6), (0.5, 0.0), (0.9, -0.8)])
def test_the_line_from_values_to_pass_rates_is_learned(shift: float, slope: float) -> None:
    """Of 4,000 groups the slope is known to sqrt(.16 / 8 / 4000 * 12) = .008. A falling line is taken as flat."""
    rng = np.random.default_rng(0)
    value_N = rng.random(4000)
    made = pushed(value_N)
    made.observe(groups(np.arange(4000), rng.binomial(8, shift + slope * value_N), version=1))

    low, high = made.fit.mean(np.array([0.1, 0.9]))
    if slope < 0:
        assert low == pytest.approx(high)
    else:
        assert low == pytest.approx(shift + 0.1 * slope, abs=0.025)
        assert high == pytest.approx(shift + 0.9 * slope, abs=0.025)


@pytest.mark.parametrize("overlap", [0.02, 0.1, 0.4])
def test_how_far_pass_rates_are_from_values_is_learned(overlap: float) -> None:
    rng = np.random.default_rng(1)
    value_N = rng.uniform(0.1, 0.9, 4000)
    total = 1 / overlap - 1
    pass_rate_N = rng.beta(value_N * total, (1 - value_N) * total)
    made = pushed(value_N)
    for part in np.array_split(np.arange(4000), 40):
        made.observe(groups(part, rng.binomial(8, pass_rate_N[part]), version=1))

    # The sd of the found overlap is about sqrt(2 / 2000) (r + (1 - r) / 8) 8 / 7, at most .02; the start pulls by 1 %.
    assert made.fit.overlap == pytest.approx(overlap, abs=0.05)


def test_untried_prompts_are_calibrated_on_cold_start() -> None:
    """Pass rates scatter around a biased value; of 2,000 held back the randomised PIT is flat: 10 bins, chi2 < 27.9."""
    rng = np.random.default_rng(2)
    value_N = rng.random(4000)
    mean_N = 0.1 + 0.6 * value_N
    pass_rate_N = rng.beta(6 * mean_N, 6 * (1 - mean_N))
    passes_N = rng.binomial(8, pass_rate_N).astype(float)
    made = pushed(value_N)
    made.observe(groups(np.arange(2000), passes_N[:2000], version=1))
    beliefs = made.beliefs(np.arange(2000, 4000))
    pit_J = randomised_pit(beliefs.mean_N, beliefs.variance_N, passes_N[2000:], np.full(2000, 8), rng.random(2000))

    count = np.histogram(pit_J, np.linspace(0, 1, 11))[0]
    assert ((count - 200) ** 2 / 200).sum() < 27.9  # the 99.9 % point with 9 degrees of freedom
    raw = pushed(value_N).beliefs(np.arange(2000, 4000))
    raw_J, ours_J = (
        beta_binomial_log_loss(made.mean_N, made.variance_N, passes_N[2000:], np.full(2000, 8))
        for made in (raw, beliefs)
    )
    assert ours_J.mean() < raw_J.mean() - 0.05


def test_groups_that_came_before_their_value_teach_nothing_about_it() -> None:
    made = pushed([0.1, 0.9], version=5)
    made.observe(groups([0, 1], [8, 0], version=4))

    assert all(array == 0 for name, array in made.state().items() if name.startswith("sum_"))
    made.observe(groups([0, 1], [8, 0], version=5))
    assert made.state()["sum_groups"] == 2


@pytest.mark.parametrize("version", [0, None])
def test_only_the_first_group_after_a_value_tests_it(version: int | None) -> None:
    """Else a policy that returns to middling prompts would make values look worse, or better, than they are."""
    made = pushed([0.3, 0.6])
    if version is None:
        made.attach({"value": Column(value_N=np.array([0.3, 0.6]))})
    made.observe(groups([0, 0, 1], [4, 8, 5], version=[1, 2, 2]))
    made.observe(groups([0], [8], version=3))

    assert made.state()["sum_groups"] == 2
    assert made.state()["sum_rate"] == pytest.approx((4 + 5) / 8, rel=0.001)
    made.attach(column([0.3, 0.6], version=[4, 0]))
    made.observe(groups([0, 1], [8, 8], version=[4, 5]))
    assert made.state()["sum_groups"] == pytest.approx(3, rel=0.001)


def test_a_value_grows_less_sure_while_the_policy_moves_on() -> None:
    made = pushed([0.25, 0.25], version=[0, 90], process_noise=1e-3)
    made.advance(90)

    # Of variance .05 in p the older one has 1 - (1 - r) / (1 + 4 * .09) of m (1 - m).
    np.testing.assert_allclose(made.beliefs().mean_N, 0.25)
    np.testing.assert_allclose(made.beliefs().variance_N, 0.1875 * np.array([1 - 0.8 / 1.36, 0.2]))


def test_values_of_any_version_do_not_age() -> None:
    made = pushed([0.25])
    made.attach({"value": Column(value_N=np.array([0.25]))})
    made.advance(1000)

    assert concentration(made)[0] == pytest.approx(4)
    made.observe(groups([0], [2], version=1000))
    assert made.state()["sum_groups"] == 1


def test_a_state_goes_on_bit_for_bit_once_values_are_attached_again() -> None:
    rng = np.random.default_rng(3)
    value_N = rng.random(50)
    made = pushed(value_N)
    made.observe(groups(np.arange(30), rng.binomial(8, 0.5, 30), version=1))
    copy = build_estimator("value", {})
    copy.load_state(made.state())
    assert not np.array_equal(copy.beliefs().mean_N, made.beliefs().mean_N)
    copy.attach(column(value_N))
    for one in (made, copy):
        one.observe(groups(np.arange(40), rng.binomial(8, 0.5, 40) * 0 + 3, version=2))

    np.testing.assert_array_equal(copy.beliefs().mean_N, made.beliefs().mean_N)
    np.testing.assert_array_equal(copy.beliefs().variance_N, made.beliefs().variance_N)


def test_rows_that_are_new_have_no_value_until_they_are_attached() -> None:
    made = pushed([0.25])
    made.resize(np.zeros(3, np.int32))
    np.testing.assert_allclose(made.beliefs().mean_N, [0.25, 0.5, 0.5])

    made.attach(column([0.25, np.nan, 0.75]))
    np.testing.assert_allclose(made.beliefs().mean_N, [0.25, 0.5, 0.75])
    with pytest.raises(ValueError, match="'value' has 2 entries for 3 rows"):
        made.attach(column([0.25, 0.5]))
