"""Columns that say something of prompts never tried, and columns that do not."""

import numpy as np
import pytest

from predictors.base import Column, Estimator, FloatArray
from predictors.calibration import auc, beta_binomial_log_loss, randomised_pit
from predictors.features import FIRST_FIT, MIN_TRIED, NUM_STRATA, Features
from predictors.registry import build_estimator
from predictors.value import informative_probability
from tests.predictors.groups import groups

NUM = 6000
TRIED = 1500


def pool(seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Pass rates, and a number that says about half of what makes them differ."""
    rng = np.random.default_rng(seed)
    x_N, rest_N = rng.normal(size=(2, NUM))
    return 1 / (1 + np.exp(-1.5 * x_N - 1.5 * rest_N)), x_N


def fresh(name: str, num_rows: int = NUM, **columns: FloatArray) -> Estimator:
    made = build_estimator(name, {})
    made.resize(np.zeros(num_rows, np.int32))
    made.attach({key: Column(value_N=value) for key, value in columns.items()})
    return made


def taught(made: Estimator, pass_rate_N: FloatArray, *, seed: int = 1, per_call: int = 100) -> Estimator:
    """One group of each of the first TRIED rows."""
    rng = np.random.default_rng(seed)
    passes_N = rng.binomial(8, pass_rate_N[:TRIED])
    for version, start in enumerate(range(0, TRIED, per_call)):
        made.advance(version)
        rows = np.arange(start, start + per_call)
        made.observe(groups(rows, passes_N[rows], version=version))
    return made


def strata(made: Estimator) -> FloatArray:
    return made.state()["category_N"]


UNTRIED = np.arange(TRIED, NUM)


def test_prompts_never_tried_are_told_apart_and_better_than_without_columns() -> None:
    pass_rate_N, x_N = pool()
    passes_J = np.random.default_rng(2).binomial(8, pass_rate_N[TRIED:]).astype(float)
    scored_J = np.full(passes_J.size, 8)
    losses = {}
    for label, made in (("with", fresh("features", x=x_N)), ("without", fresh("mixture"))):
        beliefs = taught(made, pass_rate_N).beliefs(UNTRIED)
        losses[label] = beta_binomial_log_loss(beliefs.mean_N, beliefs.variance_N, passes_J, scored_J)
        if label == "with":
            informative_J = informative_probability(beliefs.mean_N, beliefs.variance_N, 8)
            assert auc(informative_J, (passes_J > 0) & (passes_J < 8)) > 0.55
            assert np.corrcoef(beliefs.mean_N, pass_rate_N[TRIED:])[0, 1] > 0.6

    # The sd of a mean difference over 4,500 predictions is about .01.
    assert losses["with"].mean() < losses["without"].mean() - 0.1


def test_prompts_never_tried_are_calibrated() -> None:
    """Randomised PIT on cold start, 4,500 predictions in 10 bins: chi2 below the 99.9 % point of 9 degrees, 27.9, three
    times over, as the levels of 32 strata are known from 47 groups each. Means by tenths of prediction within .05.
    """
    pass_rate_N, x_N = pool()
    passes_J = np.random.default_rng(2).binomial(8, pass_rate_N[TRIED:]).astype(float)
    beliefs = taught(fresh("features", x=x_N), pass_rate_N).beliefs(UNTRIED)
    uniform_J = np.random.default_rng(3).random(passes_J.size)
    pit_J = randomised_pit(beliefs.mean_N, beliefs.variance_N, passes_J, np.full(passes_J.size, 8), uniform_J)

    count = np.histogram(pit_J, np.linspace(0, 1, 11))[0]
    assert ((count - passes_J.size / 10) ** 2 / (passes_J.size / 10)).sum() < 3 * 27.9
    for at in np.array_split(np.argsort(beliefs.mean_N), 10):
        assert beliefs.mean_N[at].mean() == pytest.approx(passes_J[at].mean() / 8, abs=0.05)


def test_many_numbers_that_say_nothing_cost_nothing() -> None:
    """100 numbers for 1,500 prompts: in-sample they would explain a fifteenth; here they end up sorting nothing."""
    pass_rate_N, _ = pool()
    noise = np.random.default_rng(4).normal(size=(NUM, 100))
    made, plain = fresh("features", noise=noise), fresh("mixture")
    taught(made, pass_rate_N)
    taught(plain, pass_rate_N)

    assert np.unique(strata(made)).size == 1
    np.testing.assert_allclose(made.beliefs().mean_N, plain.beliefs().mean_N, atol=1e-3)


def test_tried_prompts_are_sorted_as_if_they_had_not_been_seen() -> None:
    """120 numbers that say little each and 1,500 prompts: within a stratum the first groups of tried prompts must be on
    average where those of untried ones are, which in-sample predictions would not give.
    """
    rng = np.random.default_rng(5)
    x_NF = rng.normal(size=(NUM, 120))
    score_N = x_NF @ rng.normal(size=120) / np.sqrt(120)
    pass_rate_N = 1 / (1 + np.exp(-1.2 * score_N))
    made = taught(fresh("features", x=x_NF), pass_rate_N)
    half_N = strata(made) >= NUM_STRATA // 2

    gaps = [pass_rate_N[part & half_N].mean() - pass_rate_N[part & ~half_N].mean() for part in _tried_and_not()]
    # The sd of the difference of two means over 750 prompts is about .012.
    assert gaps[1] > 0.1
    assert gaps[0] == pytest.approx(gaps[1], abs=0.04)


def _tried_and_not() -> tuple[np.ndarray, np.ndarray]:
    tried_N = np.arange(NUM) < TRIED
    return tried_N, ~tried_N


def test_ties_are_not_sorted_by_their_own_outcomes() -> None:
    """A number with two values: all prompts of a value are alike, whatever they scored."""
    pass_rate_N = np.where(np.arange(NUM) % 2, 0.8, 0.2)
    made = taught(fresh("features", x=(np.arange(NUM) % 2).astype(float)), pass_rate_N)
    beliefs = made.beliefs(UNTRIED)

    np.testing.assert_allclose(beliefs.mean_N[UNTRIED % 2 == 1], 0.8, atol=0.05)
    np.testing.assert_allclose(beliefs.mean_N[UNTRIED % 2 == 0], 0.2, atol=0.05)


def test_prompts_without_a_number_are_told_by_those_without_one() -> None:
    rng = np.random.default_rng(6)
    x_N = rng.random(NUM)
    pass_rate_N = np.where(rng.random(NUM) < 0.3, 0.9, 0.1 + 0.4 * x_N)
    x_N[pass_rate_N == 0.9] = np.nan
    beliefs = taught(fresh("features", x=x_N), pass_rate_N).beliefs(UNTRIED)

    np.testing.assert_allclose(beliefs.mean_N[np.isnan(x_N[UNTRIED])], 0.9, atol=0.05)


def test_categories_go_on_to_count_beside_columns() -> None:
    rng = np.random.default_rng(7)
    category_N, x_N = (np.arange(NUM) % 3).astype(np.int32), rng.random(NUM)
    pass_rate_N = np.clip(np.array([0.0, 0.3, 0.6])[category_N] + 0.4 * x_N, 0, 1)
    made = build_estimator("features", {})
    made.resize(category_N)
    made.attach({"x": Column(value_N=x_N)})
    beliefs = taught(made, pass_rate_N).beliefs(UNTRIED)

    assert np.sqrt(np.mean((beliefs.mean_N - pass_rate_N[UNTRIED]) ** 2)) < 0.06


def test_strata_are_made_as_prompts_are_tried_and_not_before() -> None:
    pass_rate_N, x_N = pool()
    made = fresh("features", x=x_N)
    made.observe(groups(np.arange(FIRST_FIT - 1), np.rint(8 * pass_rate_N[: FIRST_FIT - 1])))
    assert np.unique(strata(made)).size == 1
    made.observe(groups([FIRST_FIT - 1], [4]))
    assert np.unique(strata(made)).size >= FIRST_FIT // MIN_TRIED
    made.observe(groups(np.arange(FIRST_FIT), 4))
    assert made.state()["sums"][:, 0, 0].sum() == FIRST_FIT


@pytest.mark.parametrize("attached", [{}, None])
def test_without_columns_it_is_the_mixture_to_the_bit(attached: dict[str, Column] | None) -> None:
    pass_rate_N, _ = pool()
    made, plain = build_estimator("features", {}), build_estimator("mixture", {})
    for one in (made, plain):
        one.resize((np.arange(NUM) % 5).astype(np.int32))
        if attached is not None:
            one.attach(attached)
        taught(one, pass_rate_N)

    for name in ("mean_N", "variance_N", "n_eff_N", "lag_N"):
        np.testing.assert_array_equal(getattr(made.beliefs(), name), getattr(plain.beliefs(), name))


def test_a_state_goes_on_bit_for_bit_once_columns_are_attached_again() -> None:
    pass_rate_N, x_N = pool()
    made = taught(fresh("features", x=x_N), pass_rate_N)
    copy = build_estimator("features", {})
    copy.resize(np.zeros(NUM, np.int32))
    copy.load_state(made.state())
    np.testing.assert_array_equal(copy.beliefs().mean_N, made.beliefs().mean_N)
    for one in (copy, made):
        one.resize(np.zeros(NUM, np.int32))
        one.attach({"x": Column(value_N=x_N)})
        one.observe(groups(np.arange(1000, 3000), np.rint(8 * pass_rate_N[1000:3000]), version=20))

    ours, theirs = made.state(), copy.state()
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert ours["sums"][:, 0, 0].sum() == 3000


def test_new_rows_are_sorted_once_their_columns_are_attached() -> None:
    pass_rate_N, x_N = pool()
    made = taught(fresh("features", num_rows=NUM - 2, x=x_N[:-2]), pass_rate_N)
    before = made.beliefs()
    made.resize(np.zeros(NUM, np.int32))
    np.testing.assert_array_equal(made.beliefs().mean_N[:-2], before.mean_N)
    x_N[-2:] = (-5.0, 5.0)
    made.attach({"x": Column(value_N=x_N)})

    assert strata(made)[-2:].tolist() == [0, strata(made).max()]
    assert made.beliefs().mean_N[-2] < 0.2 < 0.8 < made.beliefs().mean_N[-1]
    np.testing.assert_array_equal(made.beliefs().mean_N[:-2], before.mean_N)


def test_another_set_of_columns_is_learned_anew_and_beliefs_of_tried_prompts_stay_near() -> None:
    pass_rate_N, x_N = pool()
    made = taught(fresh("features", x=x_N), pass_rate_N)
    made.attach({"x": Column(value_N=x_N), "y": Column(value_N=-x_N)})
    assert np.unique(strata(made)).size == 1
    assert made.state()["sums"].shape[1] == 6
    made.observe(groups(np.arange(FIRST_FIT), np.rint(8 * pass_rate_N[:FIRST_FIT]), version=30))

    assert np.unique(strata(made)).size >= FIRST_FIT // MIN_TRIED


def test_numbers_that_change_sort_prompts_anew() -> None:
    pass_rate_N, x_N = pool()
    made = taught(fresh("features", x=x_N), pass_rate_N)
    before = made.beliefs(UNTRIED).mean_N
    turned_N = np.where(np.arange(NUM) < TRIED, x_N, -x_N)
    made.attach({"x": Column(value_N=turned_N)})

    assert np.corrcoef(before, made.beliefs(UNTRIED).mean_N)[0, 1] < -0.9


@pytest.mark.parametrize("name", ["sums", "fit_sums", "edges", "columns"])
def test_a_state_with_a_wrong_matrix_is_refused_by_name_and_changes_nothing(name: str) -> None:
    made = fresh("features", num_rows=5, x=np.arange(5.0))
    assert isinstance(made, Features)
    state = made.state()
    for bad in ({name: state[name][..., :-1]}, {name: state[name].astype(np.float32)}):
        with pytest.raises(ValueError, match="estimator state"):
            made.load_state({**state, **bad})
    with pytest.raises(ValueError, match=name):
        made.load_state({key: value for key, value in state.items() if key != name})
    for key, array in made.state().items():
        np.testing.assert_array_equal(array, state[key])
