"""The compiled loops over worst cases, against whole arrays of numpy, on pools around the sizes they work in."""

import numpy as np
import pytest

from selector.sampling import extremes
from selector.sampling.inclusion import Inclusion

SIZES = [0, 1, extremes.LANES - 1, extremes.LANES, 3 * extremes.LANES + 7, extremes.LANES * extremes.DEPTH + 300]


@pytest.mark.parametrize("num_rows", SIZES)
def test_maxima_of_groups_and_the_values_above_a_threshold(num_rows: int) -> None:
    rng = np.random.default_rng(num_rows)
    inclusion_N = rng.choice([0.0, 0.1, 0.7, 1.0, 1.5, 2.0], num_rows)
    credit_N, eligible_N = rng.integers(0, 4, num_rows), rng.random(num_rows) < 0.7
    pass_rate_N, informative_N = rng.random((2, num_rows))
    given = (inclusion_N, np.zeros(0, np.int64), 0.0, 0.0, credit_N, pass_rate_N, informative_N, eligible_N)
    mass_N = (1.0 + credit_N) * eligible_N
    weight_N = np.where(inclusion_N % 1.0 > 0.0, 1.0 / np.maximum(inclusion_N, 0.1), 0.0)
    values = []
    for predicted_N in (pass_rate_N, 1.0 - informative_N):
        fall_N = mass_N * predicted_N
        rise_N = mass_N - fall_N
        values += [fall_N, rise_N, fall_N * weight_N, rise_N * weight_N]
    span = extremes.LANES * extremes.DEPTH
    row = np.arange(num_rows)
    group_N = row // span * extremes.LANES + row % extremes.LANES
    top_QG = np.empty((extremes.NUM_QUANTITIES, -(-num_rows // span) * extremes.LANES))
    sure_S = np.full(num_rows // 4, -1)

    passes, degenerate, mass, num_bad, num_sure = extremes.group_maxima(*given, top_QG, sure_S)

    assert passes == pytest.approx(values[0].sum(), rel=1e-12)
    assert degenerate == pytest.approx(values[4].sum(), rel=1e-12)
    assert mass == mass_N.sum()
    assert num_bad == 0
    sure = np.flatnonzero(eligible_N & (inclusion_N >= 1.0))
    assert num_sure == len(sure)
    np.testing.assert_array_equal(sure_S[: len(sure)], sure[: len(sure_S)])
    for quantity, value_N in enumerate(values):
        expected_G = np.full(top_QG.shape[1], -1.0)
        np.maximum.at(expected_G, group_N, value_N)
        np.testing.assert_array_equal(top_QG[quantity], expected_G)
        found = np.full(num_rows, np.nan)
        some = np.arange(top_QG.shape[1])[::3]
        count = extremes.values_above(*given, quantity, some, 0.4, found)
        wanted = value_N[eligible_N & np.isin(group_N, some) & (value_N > 0.4)]
        np.testing.assert_array_equal(np.sort(found[:count]), np.sort(wanted))


@pytest.mark.parametrize("wrong", [-0.01, 1.01, np.nan])
def test_predictions_that_are_no_probabilities_are_counted(wrong: float) -> None:
    num_rows = extremes.LANES + 3
    for place in (0, 1):
        predicted_PN = np.full((2, num_rows), 0.5)
        predicted_PN[place, [7, num_rows - 1]] = wrong
        top_QG = np.empty((extremes.NUM_QUANTITIES, extremes.LANES))
        written = (np.full(num_rows, 0.5), np.zeros(0, np.int64), 0.0, 0.0)
        columns = (np.zeros(num_rows), predicted_PN[0], predicted_PN[1], np.ones(num_rows, bool))
        *_, num_bad, _ = extremes.group_maxima(*written, *columns, top_QG, np.empty(0, np.int64))
        assert num_bad == 2


@pytest.mark.parametrize("num_rows", SIZES[1:])
def test_chances_in_units_count_as_if_they_were_written_out(num_rows: int) -> None:
    rng = np.random.default_rng(num_rows)
    eligible_N = rng.random(num_rows) < 0.7
    units_N = np.where(eligible_N, rng.integers(0, 2**40, num_rows), 0)
    inclusion = Inclusion.of_units(units_N, eligible_N, 0.01)
    columns = (rng.integers(0, 4, num_rows), rng.random(num_rows), rng.random(num_rows), eligible_N)
    found = []
    for one in (inclusion, Inclusion.of(inclusion.all_N)):
        given = (one.written_N, one.units_N, 2.0**-40, one.share, *columns)
        top_QG = np.empty((extremes.NUM_QUANTITIES, -(-num_rows // (extremes.LANES * extremes.DEPTH)) * extremes.LANES))
        value_I = np.full(num_rows, np.nan)
        sums = extremes.group_maxima(*given, top_QG, np.empty(num_rows, np.int64))
        count = extremes.values_above(*given, 3, np.arange(top_QG.shape[1]), 0.4, value_I)
        found.append((sums, top_QG.tolist(), value_I[:count].tolist()))
        np.testing.assert_array_equal(one.at(np.arange(num_rows)), inclusion.all_N)
    assert found[0] == found[1]
