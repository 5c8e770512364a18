"""Blended chances against the chain of arrays that they stand in for, on pools around the sizes the loops work in."""

from dataclasses import replace

import numpy as np
import pytest

from selector.sampling import blending
from selector.sampling.blending import Stock, blend, take_stock
from selector.sampling.designs import UNIT, KeyedOrder, capped_inclusion, integer_sizes, keyed_order
from selector.sampling.scans import block_sums

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
    assert blended(np.array([9.0, 1.0, 1.0, 1.0]), 2.0, 0.1) is None  # a chance above 1
    assert blended(np.zeros(4), 2.0, 0.1) is None  # no preference
    assert blended(np.full(4, 1e308), 2.0, 0.1) is None  # sums that overflow
    assert blended(np.full(4, 5e-324), 2.0, 0.1) is None  # quotients that do
    for bad in (np.nan, np.inf, -1.0):
        stock = take_stock(np.array([1.0, bad, 1.0, 1.0]), credit_N, every_N)
        assert stock.num_bad == 1
        assert blended(utility_N, 2.0, 0.1, stock) is None
