"""Utilities by difficulty, movement, staleness, shortfall and reuse, by hand and against slow versions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.policies.base import FactPolicy, RowFacts
from selector.policies.staleness import ranks
from tests.selector.test_policies import make_beliefs, make_policy


def facts(**changes: Any) -> RowFacts:
    """Four prompts; the last is held out."""
    values: dict[str, object] = {
        "frame_N": np.array([True, True, True, False]),
        "drawn_N": np.ones(4, np.int64),
        "age_N": np.full(4, 10),
        "progress_N": np.full(4, np.nan),
        "feature_N": np.full(4, np.nan),
    }
    return RowFacts(**(values | changes))  # type: ignore[arg-type]


def utility(name: str, seen: RowFacts, mean: list[float] | None = None, **changes: Any) -> list[float]:
    policy = make_policy(name, **({"power": 1.0} | changes))
    assert isinstance(policy, FactPolicy)
    utility_N: list[float] = policy.utility(make_beliefs(mean or [0.5] * 4), group_size=4, facts=seen).tolist()
    return utility_N


def test_progress_counts_in_both_directions_and_what_shows_none_yet_counts_as_the_mean() -> None:
    seen = facts(progress_N=np.array([0.2, -0.4, np.nan, 0.9]))

    assert utility("progress", seen) == pytest.approx([0.2, 0.4, 0.3, 0.9])
    assert utility("progress", seen, power=2.0) == pytest.approx([0.04, 0.16, 0.1, 0.81])
    assert utility("progress", facts()) == [1.0] * 4


def test_difficulty_is_scaled_by_the_frame_and_counts_by_its_distance() -> None:
    seen = facts(feature_N=np.array([20.0, 60.0, 100.0, 500.0]))

    # 0, 1/2 and 1; what is held out has no say and is cut.
    assert utility("difficulty", seen, target=0.25) == pytest.approx([0.75, 0.75, 0.25, 0.25])
    assert utility("difficulty", seen, target=0.0, power=2.0) == pytest.approx([1.0, 0.25, 0.0, 0.0])


def test_a_prompt_without_the_number_is_worth_nothing_and_one_number_for_all_no_preference() -> None:
    assert utility("difficulty", facts(feature_N=np.array([3.0, np.nan, 3.0, 9.0])), target=0.2) == [1.0, 0.0, 1.0, 1.0]
    assert utility("difficulty", facts(), target=0.2) == [0.0] * 4


def test_shortfall_is_a_softmax_of_what_is_missing() -> None:
    policy = make_policy("shortfall", target=0.8, power=1.25)
    found = policy.utility(make_beliefs([0.1, 0.5, 0.8, 0.95]), group_size=4)

    # Temperature 0.8 = 1/1.25 over 0.7, 0.3, 0, 0.
    np.testing.assert_allclose(found / found[2], np.exp([0.7 / 0.8, 0.3 / 0.8, 0.0, 0.0]))
    assert make_policy("shortfall", target=1.0, power=1e4).utility(make_beliefs([1e-9]), group_size=4)[0] <= 1.0


def test_staleness_mixes_the_rank_of_advantages_with_the_time_since_the_last_draw() -> None:
    # Mean |A| rises with the closeness to one half: ranks 2, 1 and 3 of three; the fourth is held out.
    seen = facts(age_N=np.array([1, 2, 7, 50]))
    found = utility("staleness", seen, mean=[0.3, 0.5, 0.01, 0.5], power=1.0, staleness=0.1)

    h, a = np.array([1 / 2, 1, 1 / 3]), np.array([1, 2, 7])
    np.testing.assert_allclose(found[:3], 0.9 * h / h.sum() + 0.1 * a / a.sum())
    assert utility("staleness", seen, mean=[0.3, 0.5, 0.01, 0.5], staleness=1.0)[:3] == pytest.approx([0.1, 0.2, 0.7])
    alike = utility("staleness", facts(), mean=[0.2, 0.8, 0.2, 0.5], staleness=0.0)
    assert alike[0] == alike[1] == alike[2]


@given(st.lists(st.sampled_from([0.0, 0.1, 0.1 + 1e-15, 0.5, 0.7]), min_size=1, max_size=12), st.integers(1, 12))
def test_a_rank_is_one_more_than_how_many_are_larger(scores: list[float], size: int) -> None:
    among = scores[:size]

    found = ranks(np.array(scores), np.array(among))

    assert found.tolist() == [1 + sum(other > score + 1e-13 for other in among) for score in scores]


def test_insight_is_a_weight_of_difficulty_times_what_the_next_rollout_tells() -> None:
    flat = make_beliefs([0.5], 1 / 12)
    policy = make_policy("insight", power=1.0)

    # Under Beta(1, 1) ln 2 - 1/2, and a weight of 1 at one half.
    assert policy.utility(flat, group_size=8)[0] == pytest.approx(np.log(2) - 0.5)
    # Under Beta(1, 3), by differences of the digamma function between whole numbers.
    mean, psi = 0.25, {1: 0.0, 2: 1.0, 4: 1 + 1 / 2 + 1 / 3, 5: 1 + 1 / 2 + 1 / 3 + 1 / 4}
    entropy = -mean * np.log(mean) - (1 - mean) * np.log(1 - mean)
    told = entropy + mean * (psi[2] - psi[5]) + (1 - mean) * (psi[4] - psi[5])
    assert policy.utility(make_beliefs([mean], 3 / 80), group_size=8)[0] == pytest.approx(0.75 * told)


@pytest.mark.parametrize(
    ("drawn", "age", "mean", "worth"),
    [
        (1, 10, 0.5, 1.0),
        (15, 10, 0.4, 0.8),
        (16, 10, 0.5, 0.0),  # fifteen times again
        (1, 9, 0.5, 0.0),  # too soon
        (0, 99, 0.5, 0.0),  # never tried
        (1, 10, 0.25, 0.5),
        (1, 10, 0.75, 0.5),
        (1, 10, 0.24, 0.0),
        (1, 10, 0.76, 0.0),
    ],
)
def test_a_prompt_comes_again_after_a_pause_fifteen_times_at_most_and_within_its_band(
    drawn: int, age: int, mean: float, worth: float
) -> None:
    seen = facts(drawn_N=np.full(4, drawn), age_N=np.full(4, age))

    assert utility("prompt_replay", seen, mean=[mean] * 4, low=0.25, high=0.75)[0] == pytest.approx(worth)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("difficulty", {"feature": None}, "utility 'difficulty' needs feature"),
        ("difficulty", {"target": 1.5}, r"target must be in \[0, 1\], got 1.5"),
        ("shortfall", {"target": -0.1}, r"target must be in \[0, 1\], got -0.1"),
        ("staleness", {"staleness": None}, "utility 'staleness' needs staleness"),
        ("staleness", {"staleness": 1.1}, r"staleness must be in \[0, 1\], got 1.1"),
        ("prompt_replay", {"low": 0.8, "high": 0.2}, "low 0.8 and high 0.2"),
        ("pools", {"easy_weight": 1.1}, r"easy_weight must be in \[0, 1\], got 1.1"),
        ("pools", {"hard_weight": -0.1}, r"hard_weight must be in \[0, 1\], got -0.1"),
    ],
)
def test_a_part_that_is_missing_or_out_of_range_is_named(name: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_policy(name, **changes)


def test_the_weights_of_pools_are_a_fifth_unless_given() -> None:
    beliefs = make_beliefs([0.1, 0.5, 0.9])

    assert make_policy("pools").utility(beliefs, group_size=4).tolist() == [0.2, 1.0, 0.2]
    given_both = make_policy("pools", easy_weight=0.3, hard_weight=0.0)
    assert given_both.utility(beliefs, group_size=4).tolist() == [0.0, 1.0, 0.3]
