"""What every registered estimator must do with state, rows and calls; a new one is tested by being registered.

Some published methods do not claim all of it. They are named at the test, in a tuple that says what they lack; what
they do instead is in their own tests.
"""

import numpy as np
import pytest

from predictors.base import NEVER, SOURCES
from predictors.registry import build_estimator
from tests.predictors.contract_cases import assert_same, every_estimator, with_history
from tests.predictors.groups import estimator, groups

UNCOUNTED = ("beta_with_reference", "category", "hmm", "last_mean", "streak")
"""Own evidence is no number of rollouts that could be discounted."""


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
