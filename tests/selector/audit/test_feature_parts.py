"""A pool cut into parts by its numbers: by hand, against a loop, where values are few, and where the pool changes."""

import numpy as np
import pytest

from selector.audit.accounts import accounts
from selector.audit.exposure import part_ratios
from selector.audit.feature_parts import MOST_FEATURES, NO_PART, feature_parts, parts_of
from tests.selector.engine_cases import Session, coin, make_config, make_pool


def test_quantiles_by_hand() -> None:
    parts = parts_of(np.arange(10.0), np.arange(10.0))
    assert parts is not None
    assert parts.ends == [0.0, 2.0, 4.0, 6.0, 8.0, 9.0]
    assert parts.code_N.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_few_values_are_parts_of_their_own_and_missing_ones_none() -> None:
    value_N = np.array([7.0, 3.0, np.nan, 3.0, 5.0])
    parts = parts_of(value_N, value_N)
    assert parts is not None
    assert (parts.ends, parts.code_N.tolist()) == ([3.0, 5.0, 7.0, 7.0], [2, 0, NO_PART, 0, 1])
    assert parts_of(value_N, np.full(3, np.nan)) is None
    assert parts_of(value_N, np.zeros(0)) is None


def test_cuts_stay_where_they_were_when_the_pool_grows_and_changes() -> None:
    then = {"x": np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 100.0])}
    start_M = np.array([True] * 6 + [False])  # the last was absent
    now = {"x": np.array([0.0, 9.0, 2.0, 3.0, 4.0, np.nan, 100.0, -50.0]), "new": np.arange(8.0)}
    found = feature_parts(now, start_M, then)
    assert found["x"].ends == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert found["x"].code_N.tolist() == [0, 4, 2, 3, 4, NO_PART, 4, 0]
    assert found["new"].ends == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]  # by the prompts of the start, as they are now


def test_vectors_count_by_place_and_not_more_numbers_than_are_shown() -> None:
    features = {"b": np.arange(12.0).reshape(4, 3), "a": np.arange(4.0), "z": np.arange(400.0).reshape(4, 100)}
    found = feature_parts(features, np.ones(4, bool))
    assert list(found)[:5] == ["a", "b[0]", "b[1]", "b[2]", "z[0]"]
    assert len(found) == MOST_FEATURES


def test_shares_are_those_of_a_loop_over_prompts_and_tickets() -> None:
    rng = np.random.default_rng(4)
    value_N, frame_N, row_M = rng.normal(size=60).round(1), rng.random(60) < 0.8, rng.integers(0, 60, 200)
    value_N[rng.random(60) < 0.1] = np.nan
    parts = parts_of(value_N, value_N[frame_N])
    assert parts is not None
    known = [n for n in range(60) if frame_N[n] and not np.isnan(value_N[n])]
    drawn = [m for m in row_M.tolist() if m in known]
    for ratio in part_ratios(parts, frame_N, row_M):
        last = ratio.high == parts.high
        inside = [n for n in known if ratio.low <= value_N[n] < ratio.high or (last and value_N[n] == ratio.high)]
        assert ratio.pool == pytest.approx(len(inside) / len(known))
        assert ratio.selected == pytest.approx(sum(m in inside for m in drawn) / len(drawn))
        assert ratio.ratio == pytest.approx(ratio.selected / ratio.pool)


def test_a_run_that_holds_no_features_is_told_of_them() -> None:
    session = Session(make_config(), make_pool(20))
    session.answer_batch(session.draw(0, 6), coin(0, np.full(20, 0.5)))
    other = {"length": np.arange(20.0)}
    assert list(accounts(session.state).features) == ["difficulty"]
    assert list(accounts(session.state, feature_parts(other, session.state.frame_N)).features) == ["length"]
