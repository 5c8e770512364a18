"""Budgets against brute force and by hand."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors.value import expected_outcome_variance, knapsack_value
from selector.config import BudgetConfig, BudgetRule
from selector.sampling.budget import _knapsack_gains, greedy, spread_rollouts


def spread(rule: BudgetRule, mean: list[float], total: int, low: int, high: int, variance: float = 0.0) -> list[int]:
    budget = BudgetConfig(rule=rule, low=low, high=high)
    return [int(size) for size in spread_rollouts(np.array(mean), np.full(len(mean), variance), total, budget)]


def worth(rule: BudgetRule, mean_K: np.ndarray, variance_K: np.ndarray, size_K: tuple[int, ...]) -> float:
    """What the rule makes as large as it can, straight from its definition."""
    if rule == "neyman":
        return -float((expected_outcome_variance(mean_K, variance_K) / np.array(size_K)).sum())
    return sum(
        float(knapsack_value(mean_K[k : k + 1], variance_K[k : k + 1], size)[0]) for k, size in enumerate(size_K)
    )


@settings(deadline=None, max_examples=60)
@given(
    rule=st.sampled_from(["neyman", "knapsack"]),
    beliefs=st.lists(st.tuples(st.floats(0.01, 0.99), st.floats(0.0, 0.9)), min_size=1, max_size=4),
    low=st.integers(1, 3),
    steps=st.integers(0, 4),
    share=st.floats(0.0, 1.0),
)
def test_no_other_spread_is_worth_more(
    rule: BudgetRule, beliefs: list[tuple[float, float]], low: int, steps: int, share: float
) -> None:
    mean_K = np.array([mean for mean, _ in beliefs])
    variance_K = np.array([part * mean * (1 - mean) for mean, part in beliefs])
    total = len(beliefs) * low + round(share * steps * len(beliefs))

    found = spread_rollouts(mean_K, variance_K, total, BudgetConfig(rule=rule, low=low, high=low + steps))

    others = [s for s in product(range(low, low + steps + 1), repeat=len(beliefs)) if sum(s) == total]
    best = max(worth(rule, mean_K, variance_K, sizes) for sizes in others)
    assert tuple(found.tolist()) in others
    assert worth(rule, mean_K, variance_K, tuple(found.tolist())) == pytest.approx(best, rel=1e-9, abs=1e-12)


def test_neyman_by_hand() -> None:
    # Standard deviations 1/2 and 3/10: 5 to 3 of 16 rollouts.
    assert spread("neyman", [0.5, 0.1], 16, 1, 16) == [10, 6]


def test_the_knapsack_by_hand() -> None:
    # Second rollouts gain 2·p(1−p)·p(1−p)²: 1/16 at 1/2, 8·4/729 at 1/3 and 0.00029 at 0.99; third ones three quarters
    # of it at 1/2, and E of p(1−p)·p(1−p)² at 1/3 as well, as p²(1−p) + (1−p)²p is p(1−p).
    p = np.array([1 / 2, 1 / 3])
    second = 2 * p * (1 - p) * p * (1 - p) ** 2
    third = p * (1 - p) * p * (1 - p) ** 2
    assert second.tolist() == pytest.approx([1 / 16, 2 * (2 / 9) * (4 / 27)])
    assert (second > third.max()).all()
    assert third[1] > third[0]
    assert spread("knapsack", [1 / 2, 1 / 3, 0.99], 6, 1, 8) == [2, 3, 1]


def test_alike_tickets_share_evenly_and_the_earlier_ones_take_what_is_over() -> None:
    rules: list[BudgetRule] = ["fixed", "neyman", "knapsack"]
    for rule in rules:
        assert spread(rule, [0.3] * 4, 18, 2, 8) == [5, 5, 4, 4]
        assert spread(rule, [0.3] * 4, 8, 2, 8) == [2, 2, 2, 2]
        assert spread(rule, [0.3] * 4, 32, 2, 8) == [8, 8, 8, 8]
        assert spread(rule, [], 0, 2, 8) == []


def test_an_unsure_ticket_counts_with_its_spread() -> None:
    # Nearly sure to fail, or unsure of it: E[p(1−p)] is 0.0099 and 0.0049 with half of that variance taken up.
    sure, unsure = spread("neyman", [0.01], 4, 1, 8), spread("knapsack", [0.05, 0.05], 12, 2, 10, variance=0.01)
    assert (sure, sum(unsure)) == ([4], 12)
    found = spread_rollouts(
        np.array([0.05, 0.05]), np.array([0.0, 0.02]), 20, BudgetConfig(rule="knapsack", low=2, high=18)
    )
    assert found[0] != found[1]


@pytest.mark.parametrize("total", [7, 33])
def test_a_total_out_of_reach_is_refused(total: int) -> None:
    with pytest.raises(ValueError, match=f"{total} rollouts cannot be spread over 4 tickets of 2 to 8"):
        spread("fixed", [0.5] * 4, total, 2, 8)


def test_gains_that_rise_by_rounding_are_levelled() -> None:
    assert greedy(np.array([[1.0, 0.5], [1.0 + 1e-16, 0.7]]), 3).tolist() == [2, 1]
    assert greedy(np.zeros((0, 3)), 0).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rule": "all"}, "budget.rule must be one of fixed, neyman, knapsack, got 'all'"),
        ({"low": 0}, "got low 0 and high 8"),
        ({"low": 9}, "got low 9 and high 8"),
    ],
)
def test_budgets_that_cannot_be_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BudgetConfig(**({"rule": "fixed", "low": 2, "high": 8} | values))  # type: ignore[arg-type]


def test_the_gain_from_one_more_rollout_is_a_difference_of_values() -> None:
    rng = np.random.default_rng(0)
    mean_K = rng.random(50) * 0.98 + 0.01
    variance_K = mean_K * (1 - mean_K) * rng.random(50) * 0.9
    gain_SK = _knapsack_gains(mean_K, variance_K, 2, 30)

    value_SK = np.stack([knapsack_value(mean_K, variance_K, size) for size in range(2, 33)])
    np.testing.assert_allclose(gain_SK, np.diff(value_SK, axis=0), atol=1e-15)
    assert (np.diff(gain_SK, axis=0) <= 0.0).all()
