"""Worst-case ranges of one draw, against every sample that could be drawn."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.batches import observations
from selector.batches.observations import Bools, DrawRecord, Floats, Integers, ObservationRanges, observation_ranges
from selector.sampling.inclusion import Inclusion
from tests.selector.audit_cases import record


def ranges_of_one(
    inclusion_N: Floats,
    credit_N: Integers,
    predicted_N: Floats,
    eligible_N: Bools,
    num_tickets: int,
    num_audit: int,
    frame: int,
) -> ObservationRanges:
    """Those of one prediction, which is given as the predicted pass rate, and again as that of degenerate groups."""
    columns = (Inclusion.of(inclusion_N), credit_N, predicted_N, 1.0 - predicted_N, eligible_N)
    passes, degenerate = observation_ranges(*columns, num_tickets, num_audit, frame)
    for name in ("base", "reweighted", "uniform"):
        assert getattr(degenerate, name) == pytest.approx(getattr(passes, name), rel=1e-9, abs=1e-12)
    return passes


def every_observation(
    expected: Floats, mass: Floats, predicted: Floats, num_tickets: int, frame: int
) -> tuple[float, float]:
    """Extremes over ⌊expected⌋ or ⌈expected⌉ tickets a row, num_tickets in all, and outcomes all 0 or all 1."""
    base = float(mass @ predicted)
    found = []
    for times in product(*[range(int(np.floor(e)), int(np.ceil(e)) + 1) for e in expected]):
        if sum(times) != num_tickets:
            continue
        factor = np.array(times) * mass / np.where(expected > 0, expected, 1)
        found += [float(base + factor @ (x - predicted)) / frame for x in (0.0, 1.0)]
    return min(found), max(found)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_ranges_equal_the_extremes_over_all_samples(data: st.DataObject) -> None:
    num_rows = data.draw(st.integers(1, 6))
    num_tickets = data.draw(st.integers(1, 2 * num_rows))
    size = np.array(data.draw(st.lists(st.floats(0.1, 1), min_size=num_rows, max_size=num_rows)))
    expected = num_tickets * size / size.sum()
    if num_tickets <= num_rows:
        expected = np.minimum(expected, 1.0)
        spare = expected < 1
        expected[spare] *= (num_tickets - np.count_nonzero(~spare)) / max(expected[spare].sum(), 1e-9)
        if expected.max() > 1:
            expected = np.full(num_rows, num_tickets / num_rows)
    credit = np.array(data.draw(st.lists(st.integers(0, 3), min_size=num_rows, max_size=num_rows)))
    predicted = np.array(data.draw(st.lists(st.floats(0, 1), min_size=num_rows, max_size=num_rows)))
    num_audit = data.draw(st.integers(1, num_tickets))
    found = ranges_of_one(expected, credit, predicted, np.ones(num_rows, bool), num_tickets, num_audit, num_rows + 2)
    mass = 1.0 + credit
    assert found.base == pytest.approx(mass @ predicted)
    assert found.reweighted == pytest.approx(every_observation(expected, mass, predicted, num_tickets, num_rows + 2))
    uniform = np.full(num_rows, num_audit / num_rows)
    assert found.uniform == pytest.approx(every_observation(uniform, mass, predicted, num_audit, num_rows + 2))


def test_ranges_of_a_small_draw_by_hand() -> None:
    # Four rows, the last blocked; K = 2, m = 1, N = 4. (1+c)·m̂ = 0.5, 1, 0.25, so base = 1.75.
    # Down, (1+c)·m̂/π: 1, 1.25, 0.5; the two largest make 2.25. Up, (1+c)(1−m̂)/π: 1, 1.25, 1.5; 2.75.
    # Uniform, N_e/m = 3: down 3·1, up 3·1.
    found = ranges_of_one(
        inclusion_N=np.array([0.5, 0.8, 0.5, 0.9]),
        credit_N=np.array([0, 1, 0, 5]),
        predicted_N=np.array([0.5, 0.5, 0.25, 0.7]),
        eligible_N=np.array([True, True, True, False]),
        num_tickets=2,
        num_audit=1,
        frame=4,
    )
    assert found.base == pytest.approx(1.75)
    assert found.reweighted == pytest.approx(((1.75 - 2.25) / 4, (1.75 + 2.75) / 4))
    assert found.uniform == pytest.approx(((1.75 - 3) / 4, (1.75 + 3) / 4))


def test_a_row_drawn_for_certain_leaves_fewer_places_to_the_others() -> None:
    pi = np.array([1.0, 0.5, 0.5])
    found = ranges_of_one(pi, np.zeros(3, int), np.zeros(3), np.ones(3, bool), 2, 0, 3)
    assert found.reweighted == pytest.approx((0.0, (1 + 2) / 3))


def test_a_row_that_cannot_be_drawn_adds_to_the_base_only() -> None:
    pi = np.array([1.0, 0.0])
    found = ranges_of_one(pi, np.zeros(2, int), np.array([0.5, 0.5]), np.ones(2, bool), 1, 0, 2)
    assert found.reweighted == pytest.approx((0.25, 0.75))


@pytest.mark.parametrize("frame", [0, 5])
def test_a_draw_of_nothing_has_one_possible_observation(frame: int) -> None:
    nothing = np.zeros(frame)
    found = ranges_of_one(nothing, nothing.astype(int), nothing, np.zeros(frame, bool), 0, 0, frame)
    assert (found.base, found.reweighted, found.uniform) == (0.0, (0.0, 0.0), (0.0, 0.0))


def test_the_largest_are_found_among_many_rows() -> None:
    rng = np.random.default_rng(0)
    pi, predicted = rng.uniform(0.001, 0.05, 20_000), rng.random(20_000)
    found = ranges_of_one(pi, np.zeros(20_000, int), predicted, np.ones(20_000, bool), 64, 6, 20_000)
    up = np.sort((1 - predicted) / pi)[-64:].sum()
    assert found.reweighted[1] == pytest.approx((predicted.sum() + up) / 20_000)


@pytest.mark.parametrize("size", [1, 3, 16, 320, 3_200, 3_203])
@pytest.mark.parametrize("count", [1, 2, 15, 200, 4_000])
@pytest.mark.parametrize("distinct", [1, 5, 10**9])
def test_the_groups_above_the_kth_largest_are_those_of_a_sorted_list(size: int, count: int, distinct: int) -> None:
    top_G = np.random.default_rng(size * count).integers(-1, distinct, size) / 7.0

    found, threshold = observations._groups_above(top_G, count)

    assert threshold == (sorted(top_G)[-count] if count < size else -1.0)
    assert found.tolist() == [place for place, value in enumerate(top_G) if value > threshold]


def test_ranges_are_refused_when_a_prediction_is_no_probability_or_the_frame_too_small() -> None:
    pi, credit, eligible = np.full(3, 0.5), np.zeros(3, int), np.ones(3, bool)
    with pytest.raises(ValueError, match="predictions must be in"):
        ranges_of_one(pi, credit, np.array([0.5, 1.2, 0.5]), eligible, 1, 0, 3)
    with pytest.raises(ValueError, match="predictions must be in"):
        ranges_of_one(pi, credit, np.array([0.5, np.nan, 0.5]), eligible, 1, 0, 3)
    with pytest.raises(ValueError, match="at least the 3 eligible rows"):
        ranges_of_one(pi, credit, np.full(3, 0.5), eligible, 1, 0, 2)
    with pytest.raises(ValueError, match="one shape"):
        ranges_of_one(pi[:2], credit, np.full(3, 0.5), eligible, 1, 0, 3)


def test_a_record_whose_columns_disagree_is_refused() -> None:
    good = record()
    for changes, words in (
        ({"weight_K": np.ones(3)}, r"draw 0: weight_K has shape \(3,\), expected \(2,\)"),
        ({"num_audit": 2}, "num_audit is 2, audit_K marks 1"),
        ({"eligible": 5}, "5 eligible of 4"),
        ({"pool_difficulty_B": np.zeros(3, int)}, "pool_difficulty_B"),
    ):
        with pytest.raises(ValueError, match=words):
            replace(good, **changes)
    assert isinstance(good, DrawRecord)
