"""What every registered estimator must do; a new one is tested by being registered.

Some published methods do not claim all of it. They are named at the test, in a tuple that says what they lack; what
they do instead is in their own tests.
"""

import numpy as np
import pytest

from predictors.base import NEVER, SOURCES, Beliefs, Estimator
from predictors.registry import ESTIMATORS, build_estimator
from predictors.value import informative_probability
from tests.predictors.groups import estimator, feed, groups

every_estimator = pytest.mark.parametrize("name", ESTIMATORS)

SHARING_NOTHING = ("beta_with_reference", "hmm", "kalman_logit", "last_mean", "streak")
"""Prompts of a category have nothing in common."""

AGELESS = ("category", "last_mean", "streak")
"""What was seen stays as sure as on its day."""

BY_ARRIVAL = ("category", "hmm", "last_mean", "streak")
"""A late group counts as any other."""

UNCOUNTED = ("beta_with_reference", "category", "hmm", "last_mean", "streak")
"""Own evidence is no number of rollouts that could be discounted."""

COARSE = ("category", "hmm", "last_mean", "streak")
"""Too little is kept of a prompt for its own pass rate to be found."""


def every_estimator_but(*names: str) -> pytest.MarkDecorator:
    """All registered estimators except these, which must be registered too."""
    assert set(names) <= set(ESTIMATORS)
    return pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in names])


def with_history(name: str, *, seed: int = 0) -> Estimator:
    """30 rows in 3 categories, rows 20.. never tried, three rounds of groups with repeats and late ones."""
    rng = np.random.default_rng(seed)
    made = build_estimator(name, {})
    made.resize((np.arange(30) % 3).astype(np.int32))
    for version in (0, 7, 20):
        made.advance(version)
        rows = rng.integers(0, 20, 40)
        made.observe(
            groups(rows, rng.binomial(8, rows / 20), version=rng.integers(max(version - 5, 0), version + 1, 40))
        )
    made.advance(26)
    return made


def assert_same(one: Beliefs, other: Beliefs) -> None:
    for name in ("mean_N", "variance_N", "n_eff_N", "lag_N", "source_N"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@every_estimator
def test_beliefs_have_the_types_and_ranges_of_the_contract(name: str) -> None:
    beliefs = with_history(name).beliefs()

    assert beliefs.mean_N.dtype == beliefs.variance_N.dtype == beliefs.n_eff_N.dtype == np.float64
    assert beliefs.lag_N.dtype == np.int64
    assert beliefs.source_N.dtype == np.uint8
    assert ((beliefs.mean_N > 0) & (beliefs.mean_N < 1)).all()
    assert (beliefs.variance_N >= 0).all()
    assert (beliefs.variance_N < beliefs.mean_N * (1 - beliefs.mean_N)).all()
    tried = beliefs.lag_N != NEVER
    np.testing.assert_array_equal(beliefs.n_eff_N > 0, tried)
    np.testing.assert_array_equal(beliefs.source_N, np.where(tried, SOURCES.index("own"), SOURCES.index("prior")))
    assert not tried[20:].any()
    assert tried[:20].any()


@every_estimator
def test_extreme_evidence_keeps_beliefs_inside_their_ranges(name: str) -> None:
    made = estimator(name, num_rows=4)
    for version in range(200):
        made.advance(version)
        made.observe(groups([0, 1, 2], [0, 100_000, 50_000], scored=100_000, version=version))

    for version in (200, 10_000, 10**12):
        made.advance(version)
        beliefs = made.beliefs()
        assert ((beliefs.mean_N > 0) & (beliefs.mean_N < 1)).all()
        assert (beliefs.variance_N >= 0).all()
        assert (beliefs.variance_N < beliefs.mean_N * (1 - beliefs.mean_N)).all()
        assert np.isfinite(beliefs.n_eff_N).all()


@every_estimator
def test_a_state_round_trip_changes_nothing_then_or_later(name: str) -> None:
    original, copy = with_history(name), build_estimator(name, {})
    copy.load_state(original.state())
    assert_same(copy.beliefs(), original.beliefs())

    for made in (original, copy):
        made.resize((np.arange(33) % 4).astype(np.int32))
        made.advance(40)
        made.observe(groups([3, 25, 3, 32], [0, 4, 8, 1.5], version=[40, 38, 40, 12]))
        made.advance(55)

    assert_same(copy.beliefs(), original.beliefs())
    ours, theirs = original.state(), copy.state()
    assert ours.keys() == theirs.keys()
    for key in ours:
        np.testing.assert_array_equal(ours[key], theirs[key], err_msg=key)


@every_estimator
def test_a_state_shares_no_memory_with_the_estimator(name: str) -> None:
    made = with_history(name)
    before = made.beliefs()
    state = made.state()
    restored = build_estimator(name, {})
    restored.load_state(state)
    for array in state.values():
        array[...] = 0

    assert_same(made.beliefs(), before)
    assert_same(restored.beliefs(), before)


@every_estimator
def test_a_state_holds_only_plain_numeric_arrays(name: str) -> None:
    for key, array in with_history(name).state().items():
        assert isinstance(array, np.ndarray), key
        assert array.dtype.kind in "if", key


@every_estimator
def test_a_state_that_does_not_fit_is_refused_by_name_and_changes_nothing(name: str) -> None:
    made = with_history(name)
    before, good = made.beliefs(), made.state()
    per_row = next(key for key in good if key.endswith("_N") and key != "category_N")

    with pytest.raises(ValueError, match=rf"missing.*{per_row}"):
        made.load_state({key: value for key, value in good.items() if key != per_row})
    with pytest.raises(ValueError, match=r"unknown.*surplus"):
        made.load_state({**good, "surplus": np.zeros(3)})
    with pytest.raises(ValueError, match=per_row):
        made.load_state({**good, per_row: good[per_row][:-1]})
    with pytest.raises(ValueError, match=per_row):
        made.load_state({**good, per_row: good[per_row].astype(np.float32)})
    with pytest.raises(ValueError, match="category_N"):
        made.load_state({**good, "category_N": np.zeros((), dtype=np.int32)})
    with pytest.raises(ValueError, match="version"):
        made.load_state({**good, "version": np.array([1, 2])})
    for key in (key for key, array in good.items() if array.dtype.kind == "f"):
        with pytest.raises(ValueError, match=f"'{key}' must be finite"):
            made.load_state({**good, key: good[key] * np.nan})

    assert_same(made.beliefs(), before)


@every_estimator
def test_a_pool_that_grows_keeps_what_is_known_of_its_old_rows(name: str) -> None:
    made = with_history(name)
    before = made.beliefs()
    made.resize((np.arange(50) % 3).astype(np.int32))
    after = made.beliefs()

    for field in ("mean_N", "variance_N", "n_eff_N", "lag_N", "source_N"):
        np.testing.assert_array_equal(getattr(after, field)[:30], getattr(before, field), err_msg=field)
    assert (after.lag_N[30:] == NEVER).all()


@every_estimator_but(*SHARING_NOTHING)
def test_rows_never_tried_get_the_prior_of_their_category(name: str) -> None:
    rng = np.random.default_rng(1)
    made = build_estimator(name, {})
    category_N = np.repeat(np.array([0, 1], dtype=np.int32), 200)
    made.resize(category_N)
    tried = np.r_[np.arange(100), np.arange(200, 300)]
    pass_rate = np.where(category_N[tried] == 0, rng.beta(1, 9, 200), rng.beta(6, 2, 200))
    made.observe(groups(tried, rng.binomial(8, pass_rate)))
    beliefs = made.beliefs()

    # Means .1 and .75; the sd of a mean over 100 groups is at most .03, and shrinkage moves them by up to .14 * .33.
    assert np.unique(beliefs.mean_N[100:200]).size == 1
    assert np.unique(beliefs.mean_N[300:]).size == 1
    assert beliefs.mean_N[100] == pytest.approx(0.1, abs=0.14)
    assert beliefs.mean_N[300] == pytest.approx(0.75, abs=0.14)

    made.resize(np.where(np.arange(400) == 150, 1, category_N).astype(np.int32))
    assert made.beliefs().mean_N[150] == pytest.approx(beliefs.mean_N[300], abs=1e-12)


@every_estimator_but("hmm")  # uniform over states, of which two are ends
def test_a_pool_without_any_evidence_is_believed_flat(name: str) -> None:
    beliefs = estimator(name, num_rows=3).beliefs()

    np.testing.assert_allclose(beliefs.mean_N, 0.5)
    np.testing.assert_allclose(beliefs.variance_N, 1 / 12)


@every_estimator
def test_the_order_of_two_groups_of_one_row_counts(name: str) -> None:
    rising, falling, split = (estimator(name, num_rows=2) for _ in range(3))
    rising.observe(groups([0, 0], [0, 8], version=[0, 50]))
    falling.observe(groups([0, 0], [8, 0], version=[0, 50]))
    split.observe(groups([0], [0], version=0))
    split.observe(groups([0], [8], version=50))

    assert rising.beliefs().mean_N[0] != falling.beliefs().mean_N[0]
    assert_same(rising.beliefs(np.array([0])), split.beliefs(np.array([0])))


# A chain counts which state follows which; in log-odds a group at a prompt thought hopeless says little.
@every_estimator_but("hmm", "kalman_logit")
def test_the_newer_of_two_groups_that_disagree_weighs_more(name: str) -> None:
    rising, falling = estimator(name, num_rows=1), estimator(name, num_rows=1)
    rising.observe(groups([0, 0], [0, 8], version=[0, 50]))
    falling.observe(groups([0, 0], [8, 0], version=[0, 50]))

    assert rising.beliefs().mean_N[0] > 0.5 > falling.beliefs().mean_N[0]


@every_estimator
def test_groups_of_other_rows_in_between_do_not_matter_to_the_order(name: str) -> None:
    together, apart = estimator(name, num_rows=3), estimator(name, num_rows=3)
    together.observe(groups([1, 0, 1, 2, 0], [3, 1, 8, 5, 7]))
    apart.observe(groups([0, 1, 2, 0, 1], [1, 3, 5, 7, 8]))

    np.testing.assert_allclose(together.beliefs().mean_N, apart.beliefs().mean_N, rtol=0, atol=1e-12)


@every_estimator
def test_reading_beliefs_changes_nothing_and_gives_fresh_arrays(name: str) -> None:
    made = with_history(name)
    state = made.state()
    first = made.beliefs()
    first.mean_N[:] = 0.123
    first.n_eff_N[:] = 1e9
    first.lag_N[:] = 5
    made.beliefs(np.array([3, 3, 29]))

    assert not (made.beliefs().mean_N == 0.123).any()
    for key, array in made.state().items():
        np.testing.assert_array_equal(array, state[key], err_msg=key)


@every_estimator
def test_beliefs_of_some_rows_are_those_of_all_rows_at_their_places(name: str) -> None:
    made = with_history(name)
    rows = np.array([29, 3, 3, 0])
    some, everything = made.beliefs(rows), made.beliefs()

    for field in ("mean_N", "variance_N", "n_eff_N", "lag_N", "source_N"):
        np.testing.assert_allclose(getattr(some, field), getattr(everything, field)[rows], rtol=1e-13, err_msg=field)
    assert made.beliefs(np.empty(0, dtype=np.int64)).mean_N.shape == (0,)


@every_estimator
def test_pass_rates_are_those_of_the_beliefs_to_the_bit(name: str) -> None:
    made = with_history(name)
    rates, beliefs = made.pass_rates(), made.beliefs()

    np.testing.assert_array_equal(rates.mean_N, beliefs.mean_N)
    np.testing.assert_array_equal(rates.variance_N, beliefs.variance_N)
    np.testing.assert_array_equal(rates.run_N, beliefs.run_N)


@every_estimator
def test_the_same_calls_give_the_same_bits(name: str) -> None:
    assert_same(with_history(name).beliefs(), with_history(name).beliefs())


@every_estimator
def test_lag_counts_versions_since_the_newest_own_group(name: str) -> None:
    made = estimator(name, num_rows=3)
    made.advance(10)
    made.observe(groups([0, 1, 1], [4, 4, 4], version=[10, 9, 4]))
    np.testing.assert_array_equal(made.beliefs().lag_N, [0, 1, NEVER])

    made.advance(25)
    np.testing.assert_array_equal(made.beliefs().lag_N, [15, 16, NEVER])


@every_estimator
def test_a_group_from_a_version_not_announced_yet_has_no_lag(name: str) -> None:
    made = estimator(name, num_rows=1)
    made.advance(3)
    made.observe(groups([0], [4], version=4))

    assert made.beliefs().lag_N[0] == 0


@every_estimator_but(*AGELESS)
def test_beliefs_grow_unsure_while_the_policy_moves_on(name: str) -> None:
    made = estimator(name, num_rows=50)
    feed(made, np.full(50, 0.5), versions=np.arange(20), rng=np.random.default_rng(2))
    before = made.beliefs()
    made.advance(400)
    after = made.beliefs()

    assert (after.variance_N > before.variance_N).all()
    assert (after.n_eff_N < before.n_eff_N).all()


@every_estimator_but(*BY_ARRIVAL)
def test_late_evidence_says_less_than_fresh_evidence(name: str) -> None:
    late, fresh = estimator(name, num_rows=1), estimator(name, num_rows=1)
    for made, version in ((late, 480), (fresh, 500)):
        made.advance(500)
        made.observe(groups([0], [4], version=500))
        made.observe(groups([0], [8], version=version))

    assert 0.5 < late.beliefs().mean_N[0] < fresh.beliefs().mean_N[0]


@every_estimator_but(*COARSE)
def test_static_pass_rates_are_recovered(name: str) -> None:
    rng = np.random.default_rng(3)
    pass_rate_N = rng.beta(1, 1, 400)
    made = estimator(name, num_rows=400)
    feed(made, pass_rate_N, versions=np.arange(0, 40), rng=rng)
    beliefs = made.beliefs()

    # At a stated forgetting of .9 a group, evidence tends to 80 rollouts, so the error is at most .5 / sqrt(80) = .056.
    error_N = beliefs.mean_N - pass_rate_N
    assert np.sqrt(np.mean(error_N**2)) < 0.056
    assert abs(error_N.mean()) < 0.01
    assert np.mean(error_N**2 < 9 * beliefs.variance_N) > 0.97


@every_estimator_but("category", "hmm")
def test_a_drift_of_the_policy_is_followed(name: str) -> None:
    rng = np.random.default_rng(4)
    made = estimator(name, num_rows=400)
    start_N = rng.uniform(0.1, 0.4, 400)
    for step in range(40):
        feed(made, start_N + 0.4 * step / 39, versions=np.array([10 * step]), rng=rng)

    # A memory of some 8 groups lags by 8 * .4 / 39 = .08; without forgetting the lag would be .2.
    assert abs(np.mean(made.beliefs().mean_N - start_N - 0.4)) < 0.08


@every_estimator_but("category")  # the two prompts are of one category
@pytest.mark.parametrize("scored", [1, 2, 4, 8])
def test_no_pass_in_one_small_group_is_not_called_impossible(name: str, scored: int) -> None:
    rng = np.random.default_rng(5)
    made = estimator(name, num_rows=500)
    made.observe(groups(np.arange(400), rng.binomial(8, rng.beta(0.3, 3, 400))))
    made.observe(groups([450, 451], [0, scored], scored=scored))
    beliefs = made.beliefs(np.array([450, 451]))

    assert 0.003 < beliefs.mean_N[0] < beliefs.mean_N[1] < 0.9999
    assert (informative_probability(beliefs.mean_N, beliefs.variance_N, 8) > 0.02).all()


@every_estimator
def test_a_pool_that_fails_entirely_leaves_its_untried_rows_open(name: str) -> None:
    made = estimator(name, num_rows=1000)
    made.observe(groups(np.arange(900), 0))
    beliefs = made.beliefs()

    assert (informative_probability(beliefs.mean_N, beliefs.variance_N, 8) > 0.01).all()


@every_estimator_but(*COARSE)
def test_graded_outcomes_move_the_mean_to_their_own(name: str) -> None:
    made = estimator(name, num_rows=1)
    for version in range(30):
        made.observe(groups([0], [8 * 0.3], version=version))

    assert made.beliefs().mean_N[0] == pytest.approx(0.3, abs=0.03)


@every_estimator_but("category", "hmm")
def test_more_passes_never_lower_the_mean(name: str) -> None:
    made = estimator(name, num_rows=17)
    made.observe(groups(np.arange(17), np.arange(17) / 2))

    assert (np.diff(made.beliefs().mean_N) > 0).all()


@every_estimator
def test_a_row_outside_the_pool_is_refused_and_nothing_changes(name: str) -> None:
    made = with_history(name)
    before = made.beliefs()

    with pytest.raises(ValueError, match=r"rows\[1\] = 30 must be in 0\.\.29"):
        made.observe(groups([0, 30], [4, 4]))
    with pytest.raises(ValueError, match="rows"):
        made.beliefs(np.array([30]))
    with pytest.raises(ValueError, match="rows"):
        made.beliefs(np.array([-1]))
    with pytest.raises(ValueError, match="integer"):
        made.beliefs(np.ones(30, dtype=bool))
    assert_same(made.beliefs(), before)


@every_estimator
def test_a_policy_version_that_goes_back_is_refused(name: str) -> None:
    made = with_history(name)
    made.advance(26)

    with pytest.raises(ValueError, match="must not go back: it is 26, got 25"):
        made.advance(25)


@every_estimator
def test_a_pool_that_shrinks_or_has_a_negative_category_is_refused(name: str) -> None:
    made = with_history(name)

    with pytest.raises(ValueError, match="rows are never removed"):
        made.resize(np.zeros(29, dtype=np.int32))
    with pytest.raises(ValueError, match=r"category_N\[2\] = -1"):
        made.resize(np.where(np.arange(30) == 2, -1, 0).astype(np.int32))
    with pytest.raises(ValueError, match="integer"):
        made.resize(np.zeros(30))  # type: ignore[arg-type]


@every_estimator
def test_an_empty_pool_and_an_empty_call_are_fine(name: str) -> None:
    made = estimator(name)
    made.observe(groups([], []))
    assert made.beliefs().mean_N.shape == (0,)

    made.resize(np.zeros(2, dtype=np.int32))
    made.observe(groups([], []))
    assert (made.beliefs().lag_N == NEVER).all()


@every_estimator
def test_a_discount_takes_away_own_evidence_alone_or_is_refused_and_changes_nothing(name: str) -> None:
    made = with_history(name)
    before, state = made.beliefs(), made.state()
    for bad in (-0.1, 1.1):
        with pytest.raises(ValueError, match="discount"):
            made.discount(bad)
    made.discount(1.0)
    np.testing.assert_allclose(made.beliefs().mean_N, before.mean_N, rtol=1e-6)
    if name in UNCOUNTED:
        with pytest.raises(ValueError, match="give 1"):
            made.discount(0.5)
        for key, array in state.items():
            np.testing.assert_array_equal(made.state()[key], array, err_msg=key)
        return
    made.discount(0.5)
    after = made.beliefs()
    np.testing.assert_array_equal(after.mean_N[20:], before.mean_N[20:])  # never tried
    np.testing.assert_array_equal(after.lag_N, before.lag_N)
    tried = before.lag_N != NEVER
    assert (after.n_eff_N[tried] < before.n_eff_N[tried]).all()
    assert np.ptp(after.mean_N[tried]) < np.ptp(before.mean_N[tried])
    with_history(name).load_state(made.state())
