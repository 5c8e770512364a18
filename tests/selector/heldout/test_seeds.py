"""Intervals over few seeds."""

from math import sqrt

import numpy as np
import pytest

from selector.heldout.seeds import MIN_SEEDS, mean_difference, seeds_statement, student_quantile, unpaired


@pytest.mark.parametrize(
    ("freedom", "value"),
    [
        (1, 12.7062),
        (2, 4.30265),
        (3, 3.18245),
        (4, 2.77645),
        (5, 2.57058),
        (10, 2.22814),
        (29, 2.04523),
        (1000, 1.96234),
    ],
)
def test_students_quantile_is_the_table_s(freedom: int, value: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(value, rel=1e-5)


def test_its_ends() -> None:
    assert student_quantile(0.5, 3) == pytest.approx(0, abs=1e-9)
    for probability, freedom in ((1.0, 3), (0.4, 3), (0.9, 0)):
        with pytest.raises(ValueError, match="asked for"):
            student_quantile(probability, freedom)


def test_a_mean_has_an_interval_from_three_values_on() -> None:
    assert mean_difference([]).estimate is None
    assert mean_difference([1.0, 3.0]).interval is None
    found = mean_difference([1.0, 2.0, 3.0])
    margin = 4.30265 / sqrt(3)
    assert found.estimate == 2.0
    assert found.interval == pytest.approx((2 - margin, 2 + margin), rel=1e-5)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng, runs = np.random.default_rng(1908), 4_000
    covered = 0
    for values in rng.normal(1.0, 2.0, (runs, 4)).tolist():
        interval = mean_difference(values).interval
        assert interval is not None
        covered += interval[0] <= 1.0 <= interval[1]
    assert abs(covered / runs - 0.95) < 4 * sqrt(0.95 * 0.05 / runs)


def test_welchs_interval_by_hand() -> None:
    """Variances 1 and 4 of 3 and 3: standard error sqrt(5/3), freedom (5/3)²/((1/3)²/2 + (4/3)²/2) = 2.94, so 2."""
    found = unpaired([1.0, 2.0, 3.0], [0.0, 2.0, 4.0])
    margin = 4.30265 * sqrt(5 / 3)
    assert found.interval == pytest.approx((-margin, margin), rel=1e-5)
    assert unpaired([1.0, 1.0, 1.0], [0.0, 0.0, 0.0]).interval == (1.0, 1.0)
    assert unpaired([1.0, 2.0], [0.0] * 5).interval is None
    assert unpaired([], [1.0]).estimate is None


def test_few_seeds_are_said_to_be_few() -> None:
    assert seeds_statement(1).startswith("1 seed: no interval over seeds means anything")
    assert "no interval" in seeds_statement(MIN_SEEDS - 1)
    assert seeds_statement(MIN_SEEDS).startswith("3 seeds: the interval rests on")
