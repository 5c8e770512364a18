"""The compiled loops of a draw, each against whole arrays of numpy, on pools around the sizes they work in."""

import numpy as np
import pytest

from selector.sampling import scans

SIZES = [0, 1, scans.LANES - 1, scans.LANES, 3 * scans.LANES + 7, 32 * scans.LANES + 300]
UNIT = 2.0**40


def columns(num_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Utility, gain (a fifth of the rows without) and π, some of which are 0 or 1."""
    rng = np.random.default_rng(num_rows)
    gain_N = rng.integers(1, 4, num_rows) * (rng.random(num_rows) < 0.8)
    pi_N = np.clip(rng.normal(0.3, 0.4, num_rows), 0.0, 1.0)
    return rng.random(num_rows) ** 4, gain_N.astype(np.float64), pi_N


@pytest.mark.parametrize("num_rows", SIZES)
def test_totals_and_sizes_of_a_class(num_rows: int) -> None:
    utility_N, gain_N, _ = columns(num_rows)
    scale = 0.3
    size_N = np.full(num_rows, np.nan)

    largest, total = scans.class_totals(utility_N, gain_N)
    weighted = scans.weighted_total(utility_N, gain_N, scale)
    top = scans.mixed_sizes(utility_N, gain_N, scale, 0.2, 0.7, size_N)

    assert largest == utility_N[gain_N > 0].max(initial=0.0)
    assert total == gain_N.sum()
    assert weighted == pytest.approx(float(utility_N @ gain_N) / scale, rel=1e-12)
    np.testing.assert_allclose(size_N, gain_N * (0.2 * utility_N / scale + 0.7), rtol=1e-14)
    assert top == size_N.max(initial=0.0)


@pytest.mark.parametrize("num_rows", SIZES)
def test_units_are_rounded_down_and_counted_by_remainder(num_rows: int) -> None:
    _, _, pi_N = columns(num_rows)
    units_N, many_b = np.full(num_rows, -1), np.zeros(scans.BINS, np.int64)

    least, largest, total, whole = scans.whole_units(pi_N, UNIT, units_N, many_b)

    np.testing.assert_array_equal(units_N, np.floor(pi_N * UNIT))
    inside_N = (pi_N > 0) & (pi_N < 1)
    part_N = ((pi_N * UNIT % 1.0) * scans.BINS).astype(int)
    np.testing.assert_array_equal(many_b, np.bincount(part_N[inside_N], minlength=scans.BINS))
    assert (least, largest) == (pi_N.min(initial=np.inf), pi_N.max(initial=-np.inf))
    assert total == pytest.approx(pi_N.sum(), rel=1e-12)
    assert whole == units_N.sum()

    level = np.full(num_rows, -1)
    found = scans.add_units(pi_N, UNIT, 1_000, units_N, level)

    np.testing.assert_array_equal(level[:found], np.flatnonzero(inside_N & (part_N == 1_000)))
    np.testing.assert_array_equal(units_N, np.floor(pi_N * UNIT) + (inside_N & (part_N > 1_000)))


@pytest.mark.parametrize("num_rows", [1, 5, 64, 1_000])
@pytest.mark.parametrize("width", [1, 7, 64])
def test_blocks_of_a_rotated_order_are_added_up(num_rows: int, width: int) -> None:
    units_N = np.random.default_rng(width).integers(0, 2**40, num_rows)
    num_blocks = -(-num_rows // width)
    for rotation in (0, num_rows // 3, num_rows - 1):
        sum_B = np.full(num_blocks, -1)
        assert scans.block_sums(units_N, rotation, width, 2**40, sum_B)
        padded = np.zeros(num_blocks * width, np.int64)
        padded[:num_rows] = np.roll(units_N, -rotation)
        np.testing.assert_array_equal(sum_B, padded.reshape(num_blocks, width).sum(axis=1))
    for wrong in (-1, 2**40 + 1, -(2**62), 2**62):
        units_N[num_rows // 2] = wrong
        assert not scans.block_sums(units_N, 0, width, 2**40, sum_B)


@pytest.mark.parametrize("num_rows", SIZES)
def test_gains_and_chances_with_fillers(num_rows: int) -> None:
    rng = np.random.default_rng(num_rows)
    credit_N, eligible_N = rng.integers(0, 5, num_rows).astype(np.int32), rng.random(num_rows) < 0.7
    units_N = rng.integers(0, 2**40 + 1, num_rows)
    gain_N, inclusion_N = np.full((2, num_rows), np.nan)

    scans.gains(credit_N, eligible_N, gain_N)
    scans.with_fillers(units_N, eligible_N, UNIT, 0.25, inclusion_N)

    np.testing.assert_array_equal(gain_N, np.where(eligible_N, 1.0 + credit_N, 0.0))
    selected_N = units_N / UNIT
    np.testing.assert_array_equal(inclusion_N, selected_N + np.where(eligible_N, (1.0 - selected_N) * 0.25, 0.0))


@pytest.mark.parametrize("share", [0.0, 0.02, 0.9, 1.0])
def test_rows_are_found_by_their_rank_among_the_marked(share: float) -> None:
    rng = np.random.default_rng(3)
    mask_N = rng.random(5 * scans.BLOCK + 11) < share
    marked = np.flatnonzero(mask_N)
    for rank in (np.arange(len(marked)), np.arange(len(marked))[3::7]):
        row = np.full(len(rank), -1)
        scans.rows_of_rank(mask_N, rank, row)
        np.testing.assert_array_equal(row, marked[rank])


def test_a_pool_is_counted_by_category_and_by_pass_rate() -> None:
    category_N = np.array([-1, 0, 2, 2, 1], np.int32)
    pass_rate_N = np.array([0.0, 0.05, 0.999, 1.0, 0.55])
    category_C, bin_D = np.zeros(4, np.int64), np.zeros(10, np.int64)

    scans.pool_counts(category_N, pass_rate_N, np.array([True, True, True, True, False]), category_C, bin_D)

    assert category_C.tolist() == [1, 1, 0, 2]
    assert bin_D.tolist() == [2, 0, 0, 0, 0, 0, 0, 0, 0, 2]


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int32])
@pytest.mark.parametrize("share", [0.0, 0.0005, 0.02, 1.0])
@pytest.mark.parametrize("num_rows", [0, 1, scans.BLOCK, scans.SPAN_BYTES, 5 * scans.SPAN_BYTES + 3 * scans.BLOCK + 7])
def test_rows_that_are_not_0_are_found_in_order(num_rows: int, share: float, dtype: type[np.generic]) -> None:
    rng = np.random.default_rng(num_rows)
    value_N = (rng.integers(1, 120, num_rows) * (rng.random(num_rows) < share)).astype(dtype)
    found = scans.nonzero_rows(value_N)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.flatnonzero(value_N))
    np.testing.assert_array_equal(scans.nonzero_rows(np.repeat(value_N, 2)[::2]), found)  # not contiguous


@pytest.mark.parametrize("row", [0, scans.BLOCK - 1, scans.BLOCK, scans.SPAN_BYTES - 1, scans.SPAN_BYTES, 2_400])
def test_a_single_row_that_is_not_0_is_found_wherever_it_is(row: int) -> None:
    value_N = np.zeros(2_401, np.int32)
    value_N[row] = -1
    assert scans.nonzero_rows(value_N).tolist() == scans.nonzero_rows(value_N < 0).tolist() == [row]


def test_a_grid_over_units_in_a_rotated_order_of_blocks_by_hand() -> None:
    units_N = np.array([3, 1, 4, 0, 4])
    # Rotated by 1 the rows are 1, 2 | 3, 4 | 0; the second block first, so 0 4 | 1 4 | 3, and points at 1, 5, 9.
    row_J = np.empty(3, np.int64)
    scans.grid_rows(units_N, np.array([1, 0, 2]), np.array([5, 4, 3]), 1, 2, 1, 4, row_J)
    assert row_J.tolist() == [4, 2, 0]


@pytest.mark.parametrize("num_rows", [1, 5, 64, 1_000])
@pytest.mark.parametrize("width", [1, 7, 64])
def test_each_point_of_a_grid_falls_on_the_row_whose_units_hold_it(num_rows: int, width: int) -> None:
    rng, unit = np.random.default_rng(num_rows * width), 50
    units_N = rng.integers(0, unit + 1, num_rows) * (rng.random(num_rows) < 0.7)
    num_blocks = -(-num_rows // width)
    for rotation in (0, num_rows // 3, num_rows - 1):
        sum_B, block_B = np.empty(num_blocks, np.int64), rng.permutation(num_blocks)
        assert scans.block_sums(units_N, rotation, width, unit, sum_B)
        place = (block_B[:, None] * width + np.arange(width)).ravel()
        rows = (place[place < num_rows] + rotation) % num_rows
        owner = np.repeat(rows, units_N[rows])  # of each single unit, in order
        for start in (0, 17, unit - 1):
            row_J = np.full(len(owner[start::unit]), -1)
            scans.grid_rows(units_N, block_B, sum_B, rotation, width, start, unit, row_J)
            np.testing.assert_array_equal(row_J, owner[start::unit])


@pytest.mark.parametrize("size", [0, 1, 2, 3, 64, 1_000])
@pytest.mark.parametrize("span", [1, 5, 2**63])
def test_keys_are_put_in_rising_order_and_equal_ones_in_theirs(size: int, span: int) -> None:
    key_J = np.random.default_rng(size).integers(0, span, size, dtype=np.uint64)
    place_J = np.full(size, -1)
    scans.rising_places(key_J, place_J)
    np.testing.assert_array_equal(place_J, np.argsort(key_J, kind="stable"))


def test_keys_at_the_ends_of_their_range_by_hand() -> None:
    place_J = np.full(4, -1)
    scans.rising_places(np.array([2**63 - 1, 0, 2**62, 1], np.uint64), place_J)
    assert place_J.tolist() == [1, 3, 2, 0]
