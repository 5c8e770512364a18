"""The smoothed curve, and where it first has a quality."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.heldout.curves import curve, first_passage, isotonic
from tests.selector.looks_cases import even_look, look

POINTS = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 50)), min_size=1, max_size=12)


def slow_isotonic(values: list[float], weights: list[int]) -> list[float]:
    """The minimum over right ends of the maximum over left ends of the weighted means between them."""

    def mean(left: int, right: int) -> float:
        return float(np.average(values[left : right + 1], weights=weights[left : right + 1]))

    count = len(values)
    return [
        min(max(mean(left, right) for left in range(place + 1)) for right in range(place, count))
        for place in range(count)
    ]


def test_one_violation_is_pooled_by_its_weights() -> None:
    assert isotonic([0.1, 0.5, 0.2, 0.6], [1, 1, 2, 1]).tolist() == pytest.approx([0.1, 0.3, 0.3, 0.6])


@given(POINTS)
def test_it_is_the_min_max_of_means(points: list[tuple[float, int]]) -> None:
    values, weights = [value for value, _ in points], [weight for _, weight in points]
    np.testing.assert_allclose(isotonic(values, weights), slow_isotonic(values, weights), atol=1e-12)


def test_no_value_is_a_curve_and_bad_ones_are_refused() -> None:
    assert isotonic([], []).tolist() == []
    for values, weights in (([0.1], [0.0]), ([np.nan], [1.0]), ([0.1, 0.2], [1.0])):
        with pytest.raises(ValueError, match="must be"):
            isotonic(values, weights)


def test_a_lucky_look_is_no_passage() -> None:
    rates = (10, 60, 20, 50, 70)
    found = curve([even_look(passes, 100, index=i, tokens=100 * i) for i, passes in enumerate(rates)])

    assert [point.smoothed for point in found.points] == pytest.approx([0.1, 0.4, 0.4, 0.5, 0.7])
    at = first_passage(found, 0.45)
    assert (at.after, at.by) == (2, 3)
    assert list(at.cost["tokens"]) == [200, 300]
    assert list(at.cost["rollouts"]) == [20, 30]
    assert "accelerator_s" not in at.cost, "no step told it"


def test_the_first_look_may_have_it_and_the_last_may_not() -> None:
    found = curve([even_look(passes, 10, index=i, tokens=100 * (i + 1)) for i, passes in enumerate((3, 5))])

    begins = first_passage(found, 0.3)
    assert (begins.reached, begins.after, begins.by) == (True, None, 0)
    assert list(begins.cost["tokens"]) == [0.0, 100]
    never = first_passage(found, 0.51)
    assert (never.reached, never.after, never.by) == (False, 1, None)
    assert list(never.cost["tokens"]) == [200, None], "more than all that was spent"
    with pytest.raises(ValueError, match=r"\[0, 1\], got 1.5"):
        first_passage(found, 1.5)


def test_a_curve_without_points_never_has_anything() -> None:
    found = curve([])
    assert found.units == []
    assert first_passage(found, 0.0).cost == {}
    assert not first_passage(found, 0.5).reached


def test_looks_without_a_score_or_a_cost_are_left_out_and_counted() -> None:
    unnoted = look([[1.0]], index=1)
    object.__setattr__(unnoted, "spent", {})
    found = curve([even_look(1, 2, index=0), unnoted, look([[np.nan]], index=2), even_look(2, 2, index=3)])

    assert [point.index for point in found.points] == [0, 3]
    assert found.left_out == 2


def test_of_two_looks_with_one_index_the_first_counts_and_others_can_be_cut_away() -> None:
    looks = [even_look(i, 10, index=index, seq=i, tokens=i) for i, index in enumerate((0, 0, 1, 2))]

    assert [point.rate.estimate for point in curve(looks).points] == [0.0, 0.2, 0.3]
    assert [point.index for point in curve(looks, indices=frozenset({0, 2})).points] == [0, 2]


def test_quality_at_a_cost_is_that_of_the_last_look_within_it() -> None:
    found = curve([even_look(i, 10, index=i, tokens=100 * i) for i in range(3)])
    at = {cost: found.at_cost("tokens", cost) for cost in (-1.0, 0.0, 199.0, 200.0, 1e9)}

    assert {cost: None if point is None else point.index for cost, point in at.items()} == {
        -1.0: None, 0.0: 0, 199.0: 1, 200.0: 2, 1e9: 2,
    }  # fmt: skip


def test_smoothing_never_makes_the_passage_depend_on_looks_after_it_being_lower_by_chance() -> None:
    """Every order of the same rates: the passage is where the slow version says."""
    for rates in itertools.permutations((2, 4, 6, 8)):
        found = curve([even_look(p, 10, index=i, tokens=i) for i, p in enumerate(rates)])
        slow = slow_isotonic([p / 10 for p in rates], [10] * 4)
        expected = next((i for i, value in enumerate(slow) if value >= 0.5 - 1e-12), None)
        assert first_passage(found, 0.5 - 1e-12).by == expected
