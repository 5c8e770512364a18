from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.sampling.designs import (
    MAX_BLOCKS,
    UNIT,
    KeyedOrder,
    among,
    capped_inclusion,
    integer_sizes,
    keyed_order,
    permutation,
    systematic,
    top_inclusion,
    uniform_order_prefix,
)

# Ratios beyond 1e200 have a test of their own: where rows are capped they are cut there.
POSITIVE = st.floats(1e-100, 1e3)
SIZES = st.lists(st.one_of(POSITIVE, st.sampled_from([0.0, 1.0, 1e-12, 1e12])), min_size=1, max_size=30).map(np.array)


def slow_capped(size_N: np.ndarray, n: float) -> np.ndarray:
    """Cap whatever exceeds 1, spread the rest over the others, until nothing exceeds 1."""
    pi_N = np.zeros(len(size_N))
    capped = np.zeros(len(size_N), bool)
    while True:
        free = ~capped & (size_N > 0)
        pi_N[capped] = 1.0
        if not free.any():
            return pi_N
        pi_N[free] = size_N[free] / size_N[free].max()
        pi_N[free] *= (n - capped.sum()) / pi_N[free].sum()
        if not (pi_N[free] > 1.0).any():
            return pi_N
        capped |= free & (pi_N > 1.0)


def slow_systematic(units_N: np.ndarray, rows: np.ndarray, start: int) -> list[int]:
    chosen, mark, reached = [], start, 0
    for row in rows:
        reached += int(units_N[row])
        while mark < reached:
            chosen.append(int(row))
            mark += UNIT
    return chosen


def make_order(num_rows: int, block_rows: int, rotation: int, seed: int = 0) -> KeyedOrder:
    blocks = np.random.default_rng(seed).permutation(-(-num_rows // block_rows))
    return KeyedOrder(num_rows=num_rows, block_rows=block_rows, rotation=rotation, block_B=blocks)


def test_sizes_become_inclusion_probabilities_with_the_large_one_capped() -> None:
    # κ = 2/10 would give the first 1.2; capped, the others share 1 place by 1 : 1 : 2.
    np.testing.assert_allclose(capped_inclusion(np.array([6.0, 1.0, 1.0, 2.0]), 2), [1.0, 0.25, 0.25, 0.5])


def test_a_cap_can_push_the_next_row_over_the_cap() -> None:
    # κ = 3/12: 2, 0.75, 0.25. After the first, κ = 2/4: 1.5. After the second one place for two rows.
    np.testing.assert_allclose(capped_inclusion(np.array([8.0, 3.0, 0.5, 0.5]), 3), [1.0, 1.0, 0.5, 0.5])


@given(SIZES, st.floats(0, 1))
def test_inclusion_agrees_with_the_slow_version_and_adds_up(size_N: np.ndarray, share: float) -> None:
    n = share * np.count_nonzero(size_N)

    pi_N = capped_inclusion(size_N, n)

    assert pi_N.min() >= 0.0
    assert pi_N.max() <= 1.0
    assert pi_N.sum() == pytest.approx(n, abs=1e-9)
    np.testing.assert_allclose(pi_N, slow_capped(size_N, n), atol=1e-9)
    assert not pi_N[size_N == 0].any()


@given(SIZES, st.data())
def test_inclusion_is_monotone_in_size(size_N: np.ndarray, data: st.DataObject) -> None:
    pi_N = capped_inclusion(size_N, data.draw(st.integers(0, int(np.count_nonzero(size_N)))))

    by_size = pi_N[np.argsort(size_N)]
    assert (np.diff(by_size) >= -1e-12).all()


def test_scale_does_not_matter_up_to_the_ends_of_the_range() -> None:
    size_N = np.array([3.0, 1.0, 1.0, 0.5])
    for scale in (1e-300, 1e307):
        np.testing.assert_allclose(capped_inclusion(size_N * scale, 2), capped_inclusion(size_N, 2))


def test_ratios_beyond_the_range_of_floats_still_fill_every_place() -> None:
    pi_N = capped_inclusion(np.array([1e300, 1e300, 1e-300, 1e-300, 0.0]), 3)

    np.testing.assert_allclose(pi_N, [1.0, 1.0, 0.5, 0.5, 0.0])


def test_as_many_places_as_rows_with_a_size_makes_each_certain() -> None:
    np.testing.assert_array_equal(capped_inclusion(np.array([1e-9, 0.0, 5.0]), 2), [1.0, 0.0, 1.0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_sizes_that_are_no_sizes_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite and >= 0"):
        capped_inclusion(np.array([1.0, bad]), 1)


def test_more_places_than_rows_with_a_size_are_refused() -> None:
    with pytest.raises(ValueError, match="only 1 of 3"):
        capped_inclusion(np.array([1.0, 0.0, 0.0]), 2)
    with pytest.raises(ValueError, match="places must be >= 0"):
        capped_inclusion(np.ones(3), -1)


def test_leftover_units_go_to_the_largest_remainders_then_to_lower_rows() -> None:
    third = 1 / 3
    units_N = integer_sizes(np.array([third, third, third]), 1)
    low = UNIT // 3
    assert units_N.tolist() == [low + 1, low, low]

    # Remainders of half a unit, three quarters and three quarters: one unit is left after rounding down two.
    quarter = 0.25 / UNIT
    units_N = integer_sizes(np.array([0.25 + 2 * quarter, 0.25 + 3 * quarter, 0.5 - 5 * quarter]), 1)
    assert units_N.tolist() == [UNIT // 4, UNIT // 4 + 1, UNIT // 2 - 1]


@given(SIZES, st.data())
def test_units_add_up_exactly_and_stay_within_one_of_the_real_sizes(size_N: np.ndarray, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, int(np.count_nonzero(size_N))))
    pi_N = capped_inclusion(size_N, n)

    units_N = integer_sizes(pi_N, n)

    assert int(units_N.sum()) == n * UNIT
    assert units_N.min() >= 0
    assert units_N.max() <= UNIT
    assert not units_N[pi_N == 0].any()
    assert (units_N[pi_N == 1] == UNIT).all()
    # Σπ is off by at most a few roundings of doubles, each far below a unit a row.
    assert np.abs(units_N - pi_N * UNIT).max() <= 1.0 + n * 2**-10


def test_units_do_not_depend_on_the_order_of_summation() -> None:
    rng = np.random.default_rng(0)
    size_N = rng.random(5000) ** 6
    shuffle = rng.permutation(5000)

    units_N = integer_sizes(capped_inclusion(size_N, 100), 100)
    shuffled = integer_sizes(capped_inclusion(size_N[shuffle], 100), 100)

    assert np.abs(shuffled - units_N[shuffle]).max() <= 1


def test_a_sum_off_by_rounding_is_made_whole_in_both_directions() -> None:
    # Ten units off each way, over three rows: more than one round is needed.
    off = 10 / UNIT
    for sign in (1, -1):
        units_N = integer_sizes(np.array([0.5 + sign * off / 3, 0.25 + sign * off / 3, 0.25 + sign * off / 3]), 1)
        assert int(units_N.sum()) == UNIT


@pytest.mark.parametrize(
    ("pi", "n", "text"),
    [([0.5, 0.6], 1, "add up to"), ([1.5, -0.5], 1, "in \\[0, 1\\]"), ([np.nan, 1.0], 1, "add up"), ([], 1, "add up")],
)
def test_inclusion_probabilities_that_cannot_be_are_refused(pi: list[float], n: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        integer_sizes(np.array(pi, np.float64), n)


def test_more_places_than_units_can_count_are_refused() -> None:
    with pytest.raises(ValueError, match="0 to 4194304 places"):
        integer_sizes(np.ones(3), 2**22 + 1)


@given(st.integers(1, 300), st.integers(1, 70), st.integers(0, 299), st.integers(0, 5))
def test_an_order_holds_every_row_once(num_rows: int, block_rows: int, rotation: int, seed: int) -> None:
    rows = make_order(num_rows, block_rows, rotation % num_rows, seed).rows()

    np.testing.assert_array_equal(np.sort(rows), np.arange(num_rows))


def test_blocks_are_rotated_before_they_are_cut() -> None:
    order = KeyedOrder(num_rows=7, block_rows=3, rotation=2, block_B=np.array([1, 2, 0]))

    # After rotation 2 3 4 | 5 6 0 | 1.
    assert order.rows().tolist() == [5, 6, 0, 1, 2, 3, 4]


def test_small_pools_are_permuted_row_by_row_and_large_ones_in_blocks_of_at_most_64() -> None:
    rng = np.random.default_rng(0)

    assert keyed_order(1000, rng).block_rows == 1
    assert keyed_order(MAX_BLOCKS + 1, rng).block_rows == 2
    large = keyed_order(3_000_000, rng)
    assert large.block_rows == 64
    assert len(large.block_B) == 46_875


def test_orders_differ_from_key_to_key_and_repeat_for_one() -> None:
    first, second, again = (keyed_order(20_000, np.random.default_rng(seed)).rows() for seed in (1, 2, 1))

    np.testing.assert_array_equal(first, again)
    assert (first != second).mean() > 0.99


@given(st.integers(1, 60), st.integers(1, 9), st.data())
def test_the_grid_hits_what_the_slow_walk_hits(num_rows: int, block_rows: int, data: st.DataObject) -> None:
    size_N = np.array(data.draw(st.lists(st.floats(0, 1), min_size=num_rows, max_size=num_rows)))
    n = data.draw(st.integers(0, int(np.count_nonzero(size_N))))
    units_N = integer_sizes(capped_inclusion(size_N, n), n)
    order = make_order(num_rows, block_rows, data.draw(st.integers(0, num_rows - 1)))
    start = data.draw(st.integers(0, UNIT - 1))

    chosen = systematic(units_N, order, start)

    assert chosen.tolist() == slow_systematic(units_N, order.rows(), start)
    assert len(set(chosen.tolist())) == n


def test_over_all_starts_each_row_is_hit_for_exactly_its_units() -> None:
    rng = np.random.default_rng(4)
    for num_rows, n in ((1, 1), (9, 3), (40, 7), (40, 39)):
        units_N = integer_sizes(capped_inclusion(rng.random(num_rows) ** 3, n), n)
        order = make_order(num_rows, 4, num_rows // 2)
        # The sample changes only where the grid passes the end of a row.
        borders = sorted({0, UNIT, *(int(x) % UNIT for x in np.cumsum(units_N[order.rows()]))})
        hit_N = np.zeros(num_rows, np.int64)
        for low, high in pairwise(borders):
            chosen = systematic(units_N, order, low)
            np.testing.assert_array_equal(np.sort(chosen), np.sort(systematic(units_N, order, high - 1)))
            hit_N[chosen] += high - low

        np.testing.assert_array_equal(hit_N, units_N)


def test_units_and_starts_that_cannot_be_are_refused() -> None:
    order = make_order(2, 1, 0)
    for units, start, text in (
        ([UNIT, 1], 0, "no whole number"),
        ([2 * UNIT, 0], 0, "more than one place"),
        ([UNIT, 0], UNIT, "start must be"),
        ([UNIT], 0, "of 1 rows"),
    ):
        with pytest.raises(ValueError, match=text):
            systematic(np.array(units, np.int64), order, start)


@pytest.mark.parametrize(("num", "length"), [(0, 0), (1, 1), (5, 3), (50, 2), (50, 50), (10_000, 100)])
def test_a_prefix_holds_different_numbers_in_range(num: int, length: int) -> None:
    prefix = uniform_order_prefix(num, length, np.random.default_rng(0))

    assert len(set(prefix.tolist())) == length
    assert all(0 <= x < num for x in prefix.tolist())


@pytest.mark.parametrize("num", [3, 12])
def test_prefixes_are_uniform_as_ordered_pairs(num: int) -> None:
    # num = 3 takes the way by a whole permutation, num = 12 the way by first appearances.
    draws = 12_000
    rng = np.random.default_rng(5)
    counts = np.zeros((num, num))
    for _ in range(draws):
        first, second = uniform_order_prefix(num, 2, rng)
        counts[first, second] += 1

    pairs = num * (num - 1)
    off_diagonal = counts[~np.eye(num, dtype=bool)]
    chi_square = ((off_diagonal - draws / pairs) ** 2).sum() / (draws / pairs)
    assert not np.diag(counts).any()
    # Mean pairs-1, variance 2(pairs-1): five standard deviations.
    assert chi_square < (pairs - 1) + 5 * np.sqrt(2 * (pairs - 1))


def test_a_prefix_longer_than_the_permutation_is_refused() -> None:
    with pytest.raises(ValueError, match="no prefix of 4"):
        uniform_order_prefix(3, 4, np.random.default_rng(0))


def test_a_permutation_is_one() -> None:
    np.testing.assert_array_equal(np.sort(permutation(100, np.random.default_rng(0))), np.arange(100))
    assert len(permutation(0, np.random.default_rng(0))) == 0
    keys = np.random.default_rng(7).integers(0, 2**63, 5_000, dtype=np.uint64)
    np.testing.assert_array_equal(permutation(5_000, np.random.default_rng(7)), np.argsort(keys, kind="stable"))


def test_equal_keys_of_a_permutation_keep_their_order() -> None:
    class Coarse:
        def integers(self, low: int, high: int, size: int, dtype: type[np.generic]) -> np.ndarray:
            return (np.arange(size) % 7 * 2).astype(dtype)  # the last bit does not count

    rng: Any = Coarse()
    np.testing.assert_array_equal(permutation(3_000, rng), np.argsort(np.arange(3_000) % 7, kind="stable"))


# The largest scores


def test_the_largest_scores_are_certain_and_ties_share_what_is_left() -> None:
    score_N = np.array([0.1, 0.9, 0.5, 0.5, 0.5, -np.inf])

    np.testing.assert_allclose(top_inclusion(score_N, 2), [0, 1, 1 / 3, 1 / 3, 1 / 3, 0])
    np.testing.assert_allclose(top_inclusion(score_N, 4), [0, 1, 1, 1, 1, 0])
    np.testing.assert_allclose(top_inclusion(score_N, 4.25), [0.25, 1, 1, 1, 1, 0])
    np.testing.assert_allclose(top_inclusion(score_N, 0.5), [0, 0.5, 0, 0, 0, 0])
    np.testing.assert_allclose(top_inclusion(score_N, 5), [1, 1, 1, 1, 1, 0])
    np.testing.assert_array_equal(top_inclusion(score_N, 0), 0.0)
    assert top_inclusion(np.empty(0), 0).shape == (0,)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12), st.floats(0, 1))
def test_the_largest_scores_agree_with_the_mean_over_all_ways_to_break_ties(scores: list[int], share: float) -> None:
    score_N = np.array(scores, float)
    n = share * len(scores)
    whole, part = divmod(n, 1.0)
    slow_N = np.zeros(len(scores))
    rng = np.random.default_rng(0)
    num = 400
    for _ in range(num):
        order = np.lexsort((rng.random(len(scores)), -score_N))
        slow_N[order[: int(whole)]] += 1 / num
        if part:
            slow_N[order[int(whole)]] += part / num
    found_N = top_inclusion(score_N, n)

    assert found_N.sum() == pytest.approx(n)
    assert ((found_N >= 0) & (found_N <= 1)).all()
    # Five standard errors of a share of 400.
    np.testing.assert_allclose(found_N, slow_N, atol=5 * 0.5 / np.sqrt(num))


@pytest.mark.parametrize(
    ("score", "n"), [([1.0, np.nan], 1), ([1.0, -np.inf], 2), ([1.0], -1), ([1.0], np.nan), ([], 1)]
)
def test_scores_without_a_largest_are_refused(score: list[float], n: float) -> None:
    with pytest.raises(ValueError, match="for the largest of"):
        top_inclusion(np.array(score), n)


@given(st.lists(st.integers(0, 30)), st.lists(st.integers(0, 30)))
def test_rows_are_found_among_others(rows: list[int], others: list[int]) -> None:
    found = among(np.array(rows, np.int64), np.array(others, np.int64))

    assert found.tolist() == [row in others for row in rows]
