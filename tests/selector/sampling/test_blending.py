"""Blended chances against the chain of arrays that they stand in for, on pools around the sizes the loops work in."""

from dataclasses import replace

import numpy as np
import pytest

from predictors.value import raised
from selector.sampling import blending
from selector.sampling.blending import Stock, blend, take_stock
from selector.sampling.designs import UNIT, KeyedOrder, capped_inclusion, integer_sizes, keyed_order
from selector.sampling.scans import BINS, block_sums

SIZES = [9, blending.LANES - 1, blending.LANES, 3 * blending.LANES + 7, 20_000]
FLOOR = 0.05


def order_of(num_rows: int) -> KeyedOrder:
    return keyed_order(num_rows, np.random.default_rng(num_rows))


def pool(num_rows: int, at_rest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Utility, credit, active rows, and the eligible ones at rest."""
    rng = np.random.default_rng(num_rows + at_rest)
    eligible_N = rng.random(num_rows) < 0.9
    eligible_N[:3] = True
    rest = np.flatnonzero(eligible_N)[1 : 1 + at_rest]
    active_N = eligible_N.copy()
    active_N[rest] = False
    return rng.random(num_rows) ** 2, rng.integers(0, 3, num_rows).astype(np.int32), active_N, rest


@pytest.mark.parametrize("num_rows", SIZES)
@pytest.mark.parametrize("at_rest", [0, 2])
def test_blended_units_are_those_of_the_chain_of_arrays(num_rows: int, at_rest: int) -> None:
    utility_N, credit_N, active_N, rest = pool(num_rows, at_rest)
    pi_R = np.array([1.0, 0.25])[:at_rest]
    n = 3 if num_rows < 100 else 40
    places = n - float(pi_R.sum())
    stock = take_stock(utility_N, credit_N, active_N)
    gain_N = (1.0 + credit_N) * active_N
    assert stock.gain == gain_N.sum()
    assert stock.weighted == pytest.approx(float(utility_N @ gain_N), rel=1e-12)
    by_utility, by_gain = (1.0 - FLOOR) * places / stock.weighted, FLOOR * places / stock.gain
    pi_N = gain_N * (utility_N * by_utility + by_gain)
    pi_N[rest] = pi_R

    found = blend(
        utility_N, credit_N, active_N, stock,
        places=places, floor=FLOOR, given=(rest, pi_R), n=n, order=order_of(num_rows),
    )  # fmt: skip

    if pi_N.max() > 1.0:
        assert found is None
        return
    assert found is not None
    units_N, _ = found
    np.testing.assert_array_equal(units_N, integer_sizes(pi_N, n))
    assert units_N.sum() == n * UNIT
    np.testing.assert_allclose((units_N / UNIT)[active_N], capped_inclusion(pi_N, n)[active_N], atol=1e-11)


@pytest.mark.parametrize("num_rows", SIZES)
@pytest.mark.parametrize("block_rows", [1, 2, 7, 64])
def test_units_are_added_up_by_the_blocks_of_the_order(num_rows: int, block_rows: int) -> None:
    utility_N, credit_N, active_N, rest = pool(num_rows, 2)
    utility_N = np.maximum(utility_N, 0.5)  # so that no chance is above 1
    stock = take_stock(utility_N, credit_N, active_N)
    for rotation in (0, num_rows // 3, num_rows - 1):
        order = replace(order_of(num_rows), rotation=rotation, block_rows=block_rows)
        order = replace(order, block_B=np.arange(-(-num_rows // block_rows)))
        given = (rest, np.array([1.0, 0.25]))

        found = blend(utility_N, credit_N, active_N, stock, places=0.75, floor=FLOOR, given=given, n=2, order=order)

        assert found is not None
        units_N, sum_B = found
        expected_B = np.empty(len(order.block_B), np.int64)
        assert block_sums(units_N, rotation, block_rows, UNIT, expected_B)
        np.testing.assert_array_equal(sum_B, expected_B)


def test_equal_remainders_go_to_the_lower_rows_as_in_the_chain_of_arrays() -> None:
    num_rows = 3_000
    utility_N, credit_N = np.ones(num_rows), np.zeros(num_rows, np.int32)
    active_N = np.ones(num_rows, bool)
    rest = np.array([7, 2_900])
    active_N[rest] = False
    pi_R = np.full(2, 7.0 / num_rows)
    stock = take_stock(utility_N, credit_N, active_N)

    found = blend(
        utility_N, credit_N, active_N, stock,
        places=7 - float(pi_R.sum()), floor=0.5, given=(rest, pi_R), n=7, order=order_of(num_rows),
    )  # fmt: skip

    assert found is not None
    by_utility = 0.5 * (7 - float(pi_R.sum())) / stock.weighted
    pi_N = np.full(num_rows, by_utility + 0.5 * (7 - float(pi_R.sum())) / stock.gain)
    pi_N[rest] = pi_R
    np.testing.assert_array_equal(found[0], integer_sizes(pi_N, 7))


def test_what_cannot_be_blended_is_left_to_the_chain_of_arrays() -> None:
    utility_N, credit_N = np.array([1.0, 1.0, 1.0, 1e-3]), np.zeros(4, np.int32)
    every_N = np.ones(4, bool)
    nothing = np.zeros(0, np.int64), np.zeros(0)

    def blended(utility_N: np.ndarray, places: float, floor: float, stock: Stock | None = None) -> object:
        stock = stock or take_stock(utility_N, credit_N, every_N)
        return blend(
            utility_N, credit_N, every_N, stock,
            places=places, floor=floor, given=nothing, n=int(places), order=order_of(4),
        )  # fmt: skip

    assert blended(utility_N, 2.0, 0.1) is not None
    assert blended(utility_N, 3.0, 0.0) is None  # no floor
    assert blended(utility_N, 2.0, 5e-324) is None  # one that comes to nothing
    assert blended(np.array([9.0, 1.0, 1.0, 1.0]), 2.0, 0.1) is None  # a chance above 1
    assert blended(np.zeros(4), 2.0, 0.1) is None  # no preference
    assert blended(np.full(4, 1e308), 2.0, 0.1) is None  # sums that overflow
    assert blended(np.full(4, 5e-324), 2.0, 0.1) is None  # quotients that do
    for bad in (np.nan, np.inf, -1.0):
        stock = take_stock(np.array([1.0, bad, 1.0, 1.0]), credit_N, every_N)
        assert stock.num_bad == 1
        assert blended(utility_N, 2.0, 0.1, stock) is None


def test_parts_of_remainders_are_those_that_given_chances_are_counted_by() -> None:
    assert blending.PARTS == BINS


def test_fine_units_and_their_rounding_by_hand() -> None:
    unit, parts = 8, blending.PARTS
    utility_N, credit_N = np.array([0.0, 1.0, 5.0, 2.0, 7.0]), np.array([0, 1, 0, 0, 0], np.int32)
    active_N = np.array([True, True, False, True, True])
    fine_N, many_b = np.empty(5, np.int64), np.zeros(parts, np.int64)

    # π = (1+c)(u/8 + 1/32) = 1/32, 5/16, -, 9/32, 29/32, in units of 1/8: 1/4, 5/2, -, 9/4, 29/4.
    most, total, whole = blending._fine_units(
        utility_N, 1, credit_N, active_N, 1 / 8, 1 / 32, float(unit * parts), fine_N, many_b
    )

    assert (fine_N / parts).tolist() == [0.25, 2.5, 0.0, 2.25, 7.25]
    assert (most, total, whole) == (29 / 32, 49 / 32, 11)
    assert {int(part): int(many_b[part]) for part in np.flatnonzero(many_b)} == {parts // 4: 3, parts // 2: 1}

    level, sum_B = np.full(3, -1), np.zeros(3, np.int64)
    found = blending._round_up(fine_N, active_N, parts // 4, unit, 1, 2, level, sum_B)

    assert level[:found].tolist() == [0, 3, 4]  # their remainders have to be compared
    assert fine_N.tolist() == [0, 3, 0, 2, 7]
    assert sum_B.tolist() == [3 + 0, 2 + 7, 0]


def test_remainders_are_what_units_leave_of_the_chances() -> None:
    utility_N, credit_N = np.array([0.3, 0.9, 0.5]), np.array([0, 2, 1], np.int32)
    active_N, remainder_J = np.array([True, True, False]), np.empty(3)
    row_J = np.array([1, 0, 2])

    blending._remainders(utility_N, 1, credit_N, active_N, 0.5, 0.25, 16.0, np.array([6, 33, 0]), row_J, remainder_J)

    # (1+c)(u/2 + 1/4) = 0.4, 2.1 and, not active, 0; times 16: 6.4, 33.6, 0.
    np.testing.assert_allclose(remainder_J, [0.6, 0.4, 0.0], atol=1e-12)


@pytest.mark.parametrize("num_rows", SIZES)
@pytest.mark.parametrize("chance", [0.5, 2.0**-45, 1.0])
def test_rows_that_can_take_no_unit_more_are_not_rounded_up(num_rows: int, chance: float) -> None:
    active_N = np.random.default_rng(num_rows).random(num_rows) < 0.5
    fine_N, many_b = np.empty(num_rows, np.int64), np.zeros(blending.PARTS, np.int64)
    columns = (np.zeros(num_rows), 1, np.zeros(num_rows, np.int32), active_N)

    blending._fine_units(*columns, 0.0, chance, float(UNIT * blending.PARTS), fine_N, many_b)
    part = int(chance * UNIT * blending.PARTS) % blending.PARTS
    some = int(active_N.sum()) if chance < 1.0 else 0
    assert (int(many_b.sum()), int(many_b[part])) == (some, some)

    level = np.full(num_rows, -1)
    found = blending._round_up(fine_N, active_N, part, UNIT, 0, 1, level, np.zeros(num_rows, np.int64))

    np.testing.assert_array_equal(level[:found], np.flatnonzero(active_N)[:some])
    np.testing.assert_array_equal(fine_N, np.where(active_N, int(chance * UNIT), 0))


@pytest.mark.parametrize("power", range(1, blending.MAX_POWER + 1))
@pytest.mark.parametrize("num_rows", SIZES)
def test_a_power_taken_on_the_way_is_the_one_that_is_written_out_to_the_bit(num_rows: int, power: int) -> None:
    base_N, credit_N, active_N, rest = pool(num_rows, 2)
    base_N = np.maximum(base_N, 0.8)  # so that no chance is above 1
    found = []
    for value_N, of_it in ((base_N, power), (raised(base_N, float(power)), 1)):
        stock = take_stock(value_N, credit_N, active_N, power=of_it)
        blended = blend(
            value_N, credit_N, active_N, stock, power=of_it,
            places=0.75, floor=FLOOR, given=(rest, np.array([1.0, 0.25])), n=2, order=order_of(num_rows),
        )  # fmt: skip
        assert blended is not None
        found.append((stock.gain, stock.weighted, *(array.tolist() for array in blended)))
    assert found[0] == found[1]
    assert take_stock(np.array([1e200, 2.0]), np.zeros(2, np.int32), np.ones(2, bool), power=2).num_bad == 1
    assert blending._power(3.0, power) == 3.0**power
