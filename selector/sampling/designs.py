"""Sampling designs over arrays: sizes to inclusion probabilities, and inclusion probabilities to chosen rows.

Called by `draw`. Knows rows and numbers; nothing of prompts, credit, purposes or batches. N rows of the pool, n places.

The chain is `capped_inclusion` or `top_inclusion` (sizes or scores to π with Σπ = n) -> `integer_sizes` (π in units of
2⁻⁴⁰, exactly n in total) -> `systematic` over a `KeyedOrder`. As the units are integers, every row's chance is its
units over 2⁴⁰ exactly, whatever the order of summation, and exactly n rows come out.
"""

from dataclasses import dataclass

import numpy as np

from selector.sampling.scans import BINS, add_units, block_sums, grid_rows, rising_places, whole_units

UNIT = 2**40  # units of one whole place
MAX_PLACES = 2**22  # n * UNIT must stay below 2**63 with room for partial sums
MAX_BLOCK_ROWS = 64  # rows that stay neighbours in an order; larger is faster and clusters more
MAX_BLOCKS = 2**14  # about a millisecond to permute; pools up to this many rows are permuted row by row
SMALLEST = 1e-200  # of the largest size; smaller ones count as this where rows are capped, so that κ stays finite
SUM_TOLERANCE = 1e-9  # how far Σπ may be from n, as a share of n, before it is called a bug


def capped_inclusion(size_N: np.ndarray, n: float) -> np.ndarray:
    """π_i = min(1, κ·size_i) with the one κ that makes Σπ = n.

    size_N: (N,) finite, >= 0, on any scale. n: expected number of rows, a real number. Returns (N,) float64 in [0,
    1]; rows of size 0 get 0. The c largest sizes are capped for the smallest c whose next size, at the κ that the
    others then need, stays within 1; fewer than n + 1 rows can be capped, so only the largest are sorted. When
    exactly n rows have a size, each of them gets 1.
    Raises ValueError for a negative or non-finite size, or when fewer than n rows have a positive one.
    """
    largest = float(size_N.max(initial=0.0))
    if not (largest < np.inf and float(size_N.min(initial=0.0)) >= 0.0):
        raise ValueError("sizes must be finite and >= 0; a NaN, an infinite or a negative size was given")
    if n < 0:
        raise ValueError(f"the number of places must be >= 0, got {n}")
    if n == 0:
        return np.zeros(len(size_N))
    positive = int(np.count_nonzero(size_N))
    if n > positive * (1.0 + SUM_TOLERANCE):
        raise ValueError(f"{n} places asked for, but only {positive} of {len(size_N)} rows have a positive size")
    if n >= positive:
        return (size_N > 0).astype(np.float64)
    scaled_N = size_N / largest  # so that no sum overflows
    total = float(scaled_N.sum())
    if n <= total:  # κ <= 1 keeps the largest, 1 after scaling, within its cap
        return scaled_N * (n / total)
    scaled_N = np.where(size_N > 0, np.maximum(scaled_N, SMALLEST), 0.0)
    return np.minimum(1.0, scaled_N * _kappa_when_capped(scaled_N, n))


def _kappa_when_capped(scaled_N: np.ndarray, n: float) -> float:
    """κ for sizes of which the largest must be capped."""
    num_top = min(len(scaled_N), int(np.ceil(n)))
    split = len(scaled_N) - num_top
    parts_N = np.partition(scaled_N, split) if split else scaled_N
    rest = float(parts_N[:split].sum())
    top = np.sort(parts_N[split:])[::-1]
    # tail[c]: what the rows left after capping the c largest add up to, small ones first so that they are not lost.
    tail = np.cumsum(np.append(rest, top[::-1]))[:0:-1]
    within = top * (n - np.arange(num_top)) <= tail
    capped = int(np.argmax(within))
    return (n - capped) / float(tail[capped])


def top_inclusion(score_N: np.ndarray, n: float) -> np.ndarray:
    """π of a draw of the n largest scores with ties broken at random: 1 above the n-th largest, 0 below, and what is
    left shared evenly by the rows that tie with it.

    score_N: (N,) without NaN; rows at −inf can be no one's choice. n: a real number of places; the last, fractional one
    goes to the next score. Returns (N,) float64 in [0, 1], Σ = n.
    Raises ValueError when a score is NaN, n is negative or fewer than n rows have a score above −inf.
    """
    possible = int(np.count_nonzero(score_N > -np.inf))
    if bool(np.isnan(score_N).any()) or not 0.0 <= n <= possible * (1.0 + SUM_TOLERANCE):
        raise ValueError(f"{n} places for the largest of {possible} scores; scores must not be NaN")
    num_levels = min(int(np.ceil(n)), possible)
    if num_levels == 0:
        return np.zeros(len(score_N))
    cut = len(score_N) - num_levels
    threshold = np.partition(score_N, cut)[cut]
    pi_N: np.ndarray = (score_N > threshold).astype(np.float64)
    tied_N = score_N == threshold
    pi_N[tied_N] = min(1.0, (n - float(pi_N.sum())) / int(np.count_nonzero(tied_N)))
    return pi_N


def integer_sizes(pi_N: np.ndarray, n: int) -> np.ndarray:
    """π in units of 2⁻⁴⁰: integers in [0, 2⁴⁰] that add up to n·2⁴⁰ exactly.

    pi_N: (N,) in [0, 1] with Σπ = n up to rounding. Returns (N,) int64, each within one unit of π·2⁴⁰ (a few where Σπ
    is off by rounding). What rounding down leaves over goes to the largest remainders, ties to the lower row. Rows
    with π = 0 stay at 0 and rows with π = 1 at 2⁴⁰.
    Raises ValueError when Σπ is not n, a π is outside [0, 1], or n exceeds 2²².
    """
    if not 0 <= n <= MAX_PLACES:
        raise ValueError(f"a design fills 0 to {MAX_PLACES} places, got {n}")
    units_N, many_b = np.empty(len(pi_N), np.int64), np.zeros(BINS, np.int64)
    least, largest, total, whole = whole_units(pi_N, float(UNIT), units_N, many_b)
    if not abs(total - n) <= SUM_TOLERANCE * max(n, 1):
        raise ValueError(f"inclusion probabilities add up to {total!r}, not to {n}")
    if not (least >= 0.0 and largest <= 1.0):
        raise ValueError("inclusion probabilities must be in [0, 1]")
    left = n * UNIT - whole
    if 0 < left <= int(many_b.sum()):
        _round_up(pi_N, units_N, many_b, left)
        return units_N
    remainder_N = pi_N * UNIT - units_N
    while left:
        if left > 0:
            rank_N = np.where((pi_N > 0.0) & (units_N < UNIT), remainder_N, -1.0)
        else:
            rank_N = np.where((pi_N < 1.0) & (units_N > 0), 1.0 - remainder_N, -1.0)
        chosen_N = largest_rows(rank_N, abs(left))
        units_N += chosen_N if left > 0 else -chosen_N.astype(np.int64)
        left = n * UNIT - int(units_N.sum())
    return units_N


def _round_up(pi_N: np.ndarray, units_N: np.ndarray, many_b: np.ndarray, left: int) -> None:
    """One unit more for the `left` largest remainders, ties to the lower row, in `units_N` itself.

    many_b: (BINS,) remainders by size: only those in the part that the last one falls into have to be ordered.
    """
    from_top_b = np.cumsum(many_b[::-1])
    last = int(np.searchsorted(from_top_b, left))
    part = BINS - 1 - last
    level = np.empty(int(many_b[part]), np.int64)
    add_units(pi_N, float(UNIT), part, units_N, level)
    missing = left - int(from_top_b[last] - many_b[part])
    remainder = pi_N[level] * UNIT - units_N[level]
    units_N[level[np.argsort(-remainder, kind="stable")[:missing]]] += 1


def largest_rows(rank_N: np.ndarray, count: int) -> np.ndarray:
    """(N,) bool: the `count` rows of largest rank, ties to the lower row, or all of rank >= 0 where those are fewer."""
    possible_N = rank_N >= 0.0
    possible = int(np.count_nonzero(possible_N))
    if possible == 0:
        raise ValueError("no row can take the units that rounding left over: Σπ is off by more than rounding")
    if count >= possible:
        return possible_N
    cut = len(rank_N) - count
    threshold = np.partition(rank_N, cut)[cut]
    chosen_N: np.ndarray = rank_N > threshold
    level = np.flatnonzero(rank_N == threshold)
    chosen_N[level[: count - int(np.count_nonzero(chosen_N))]] = True
    return chosen_N


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyedOrder:
    """A cheap keyed order of the rows: rotated by `rotation`, cut into blocks, the blocks permuted.

    The rotation comes before the cut, so block borders move from batch to batch: after it, it would be a change of the
    systematic start and nothing else.
    """

    num_rows: int
    block_rows: int
    rotation: int
    block_B: np.ndarray  # (B,) int64 permutation of the blocks, the last block may be short

    def rows(self) -> np.ndarray:
        """(N,) int64: the rows in this order."""
        place = (self.block_B[:, None] * self.block_rows + np.arange(self.block_rows)).ravel()
        return (place[place < self.num_rows] + self.rotation) % max(self.num_rows, 1)


def keyed_order(num_rows: int, rng: np.random.Generator) -> KeyedOrder:
    """A random `KeyedOrder` of `num_rows` rows.

    Up to 2¹⁴ rows a block is one row, so the order is a uniform permutation; above, blocks grow to at most 64 rows.
    """
    block_rows = int(np.clip(-(-num_rows // MAX_BLOCKS), 1, MAX_BLOCK_ROWS))
    rotation = int(rng.integers(0, max(num_rows, 1)))
    return KeyedOrder(
        num_rows=num_rows,
        block_rows=block_rows,
        rotation=rotation,
        block_B=permutation(-(-num_rows // block_rows), rng),
    )


def systematic(units_N: np.ndarray, order: KeyedOrder, start: int, sum_B: np.ndarray | None = None) -> np.ndarray:
    """Rows hit by the grid start, start + 2⁴⁰, start + 2·2⁴⁰, ... laid over the units in keyed order.

    units_N: (N,) int64 in [0, 2⁴⁰], a multiple of 2⁴⁰ in total. start: in [0, 2⁴⁰). Returns (n,) int64 in grid order,
    all different. sum_B: sums over the blocks of the order, in the order of the rows, of units that are in range, where
    somebody has made them on the way. A uniform start includes row i with probability units_i/2⁴⁰ exactly. Only block
    sums are taken over the whole pool; rows are looked at in the blocks that are hit.
    Raises ValueError for units or a start out of range.
    """
    width = order.block_rows
    fits = sum_B is not None
    if sum_B is None:
        sum_B = np.empty(len(order.block_B), np.int64)
        fits = len(units_N) == order.num_rows and block_sums(units_N, order.rotation, width, UNIT, sum_B)
    n, over = divmod(int(sum_B.sum() if fits else units_N.sum()), UNIT)
    if over or len(units_N) != order.num_rows:
        raise ValueError(
            f"units of {len(units_N)} rows are no whole number of places for {order.num_rows} rows: {over}"
        )
    if not 0 <= start < UNIT:
        raise ValueError(f"start must be in [0, 2**40), got {start}")
    if n == 0:
        return np.zeros(0, np.int64)
    if not fits:
        raise ValueError("units must be in [0, 2**40]: a row cannot fill more than one place")
    rows_n = np.empty(n, np.int64)
    grid_rows(units_N, order.block_B, sum_B, order.rotation, width, start, UNIT, rows_n)
    return rows_n


def uniform_order_prefix(num: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """The first `length` of a uniform random permutation of range(num), in order: (length,) int64.

    Costs about `length` where that is far below `num`: numbers drawn with replacement, each kept at its first
    appearance.
    Raises ValueError when length exceeds num.
    """
    if not 0 <= length <= num:
        raise ValueError(f"a permutation of {num} has no prefix of {length}")
    if 2 * length >= num:
        return permutation(num, rng)[:length]
    seen = np.zeros(0, np.int64)
    while len(seen) < length:
        tries = np.append(seen, rng.integers(0, num, size=2 * (length - len(seen)) + 8))
        _, first = np.unique(tries, return_index=True)
        seen = tries[np.sort(first)]
    return seen[:length]


def among(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which of these row numbers are among the others: bool, as many as `rows`. Quicker than `isin` for few."""
    if not len(others):
        return np.zeros(len(rows), bool)
    rising = np.sort(others)
    found: np.ndarray = rising[np.minimum(np.searchsorted(rising, rows), len(rising) - 1)] == rows
    return found


def permutation(num: int, rng: np.random.Generator) -> np.ndarray:
    """A uniform random permutation of range(num), (num,) int64: the order of `num` random 63-bit keys."""
    # As integers(0, 2**63) gives them, which takes a number of 64 bits for each too, and a multiplication.
    keys = rng.integers(0, 2**64, size=num, dtype=np.uint64) >> np.uint64(1)
    order = np.empty(num, np.int64)
    rising_places(keys, order)
    return order
