"""Ridge regression from sums: against least squares written out, what is left out, and when nothing is found."""

import numpy as np
import pytest

from predictors.base import FloatArray, IntArray
from predictors.regression import PARTS, Moments, fitted


def moments_of(x_BD: FloatArray, y_B: FloatArray, num_calls: int = 1) -> Moments:
    made = Moments(x_BD.shape[1])
    part_B = np.arange(y_B.size) % PARTS
    for at in np.array_split(np.arange(y_B.size), num_calls):
        made.add(x_BD[at], y_B[at], part_B[at])
    return made


def everything(count: int) -> IntArray:
    return np.full(count, -1, dtype=np.int64)


def test_one_number_by_hand() -> None:
    """y = 2 x without noise: the least ridge, .1 observations of 200 whose x has variance 1, is the likeliest."""
    x_BD = np.tile([[1.0], [-1.0]], (100, 1))
    fit = fitted(moments_of(x_BD, 2.0 * x_BD[:, 0] + 3.0).sums_PZZ, np.zeros(1, np.int64))

    assert fit.predict(np.array([[1.0], [5.0]]), everything(2)) == pytest.approx(
        [2.0 * 200 / 200.1, 10.0 * 200 / 200.1]
    )


def test_weights_are_those_of_ridge_regression_written_out() -> None:
    """With many observations of a strong relation any ridge that is likely changes little."""
    rng = np.random.default_rng(0)
    x_BD = rng.normal(size=(3000, 4)) * [1.0, 10.0, 0.01, 1.0] + [5.0, 0.0, 1.0, -3.0]
    y_B = x_BD @ np.array([1.0, -0.1, 50.0, 0.0]) + rng.normal(size=3000)
    fit = fitted(moments_of(x_BD, y_B, num_calls=7).sums_PZZ, np.array([0, 1, 2, 3]))

    design = np.column_stack([np.ones(3000), x_BD])
    plain = design @ np.linalg.lstsq(design, y_B, rcond=None)[0]
    np.testing.assert_allclose(fit.predict(x_BD, everything(3000)) + y_B.mean(), plain, atol=0.05)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_part_that_is_left_out_does_not_matter_but_for_means(part: int) -> None:
    """The outcomes of a part change such that their mean and x'y over all change too, the regression of the others not.

    Equal x in all parts keep the means' effect out: with mean x zero in each part the others' slope is their own.
    """
    rng = np.random.default_rng(1)
    half_BD = rng.normal(size=(500, 2))
    x_BD = np.repeat(np.concatenate([half_BD, -half_BD]), PARTS, axis=0)
    part_B = np.arange(x_BD.shape[0]) % PARTS
    y_B = x_BD @ np.array([1.0, 0.5]) + rng.normal(size=x_BD.shape[0])
    other_B = np.where(part_B == part, y_B + 0.2 * x_BD[:, 0], y_B)
    one, two = (fitted(moments_of(x_BD, y).sums_PZZ, np.zeros(2, np.int64)) for y in (y_B, other_B))
    probe_BD = rng.normal(size=(5, 2))

    without = np.full(5, part)
    np.testing.assert_allclose(one.predict(probe_BD, without), two.predict(probe_BD, without), atol=2e-3)
    assert np.abs(one.predict(probe_BD, everything(5)) - two.predict(probe_BD, everything(5))).max() > 0.01


def test_noise_is_found_to_be_noise() -> None:
    """In 40 draws of 64 numbers without meaning, at most one passes for something: MIN_GAIN is 2 nats."""
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(40):
        x_BD = rng.normal(size=(300, 64))
        found += not fitted(moments_of(x_BD, rng.random(300)).sums_PZZ, np.zeros(64, np.int64)).is_flat
    assert found <= 1


def test_a_number_that_says_much_is_found_among_many_that_say_nothing() -> None:
    """As a column of its own it has a ridge of its own; in one column with the others it drowns."""
    rng = np.random.default_rng(3)
    x_BD = rng.normal(size=(300, 101))
    y_B = 0.4 * x_BD[:, 0] + rng.normal(size=300)
    probe_BD = rng.normal(size=(2000, 101))
    sums_PZZ = moments_of(x_BD, y_B).sums_PZZ
    together = fitted(sums_PZZ, np.zeros(101, np.int64)).predict(probe_BD, everything(2000))
    apart = fitted(sums_PZZ, np.r_[0, np.ones(100, np.int64)]).predict(probe_BD, everything(2000))

    truth = 0.4 * probe_BD[:, 0]
    assert np.mean((apart - truth) ** 2) < 0.5 * np.mean((together - truth) ** 2)


def test_numbers_that_never_vary_and_outcomes_that_never_vary_are_fine() -> None:
    x_BD = np.ones((50, 2))
    assert fitted(moments_of(x_BD, np.linspace(0, 1, 50)).sums_PZZ, np.zeros(2, np.int64)).is_flat
    x_BD = np.random.default_rng(4).normal(size=(50, 2))
    assert fitted(moments_of(x_BD, np.full(50, 0.5)).sums_PZZ, np.zeros(2, np.int64)).is_flat
    one = moments_of(x_BD[:1], np.array([1.0])).sums_PZZ
    assert fitted(one, np.zeros(2, np.int64)).is_flat


def test_sums_that_a_fit_was_made_from_are_not_changed_by_what_comes_later() -> None:
    made = moments_of(np.ones((5, 1)), np.ones(5))
    kept = made.sums_PZZ
    before = kept.copy()
    made.add(np.ones((5, 1)), np.zeros(5), np.zeros(5, np.int64))

    np.testing.assert_array_equal(kept, before)
    assert made.count == 10
