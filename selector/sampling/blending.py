"""Chances that are a mix of utility and evenness, from the pool's columns to units of chance, without the π between.

`draw` calls it for the usual draw, whose active rows all stay below π = 1; where one would not, or the numbers are too
small or large, `blend` answers None and the chain of `targets` and `designs` is taken, which gives the same chances but
for rounding. Knows arrays only. Sums are taken in LANES interleaved parts, in an order that the number of rows alone
decides.
Axes: N rows of the pool, R of them with a chance that is given, J with remainders in the part that is split.
"""

from dataclasses import dataclass

import numpy as np

from predictors.compiled import compiled
from selector.sampling.designs import SUM_TOLERANCE, UNIT, KeyedOrder, largest_rows
from selector.sampling.scans import whole_units

LANES = 256
"""Partial sums side by side, so that no addition waits for the one before."""

STRIDE = LANES + 16
"""From one set of lanes to the next, in one array so that the compiler sees that they lie apart."""

PART_BITS = 12
PARTS = 2**PART_BITS
"""Equal parts of [0, 1) by which remainders are counted, as many as the BINS of `scans`."""

MAX_POWER = 4
"""Largest power that is taken on the way."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stock:
    """What a draw needs to know of its active rows before it can give them chances."""

    num_bad: int  # utilities of the pool that are no finite numbers >= 0
    gain: float  # Σ (1+c)
    weighted: float  # Σ utility · (1+c)


def take_stock(base_N: np.ndarray, credit_N: np.ndarray, active_N: np.ndarray, *, power: int = 1) -> Stock:
    """The sums over active rows, and whether all utilities, the base to this power, can be used."""
    num_bad, gain, weighted = _sums(base_N, power, credit_N, active_N)
    return Stock(num_bad=int(num_bad), gain=gain, weighted=weighted)


def blend(
    base_N: np.ndarray,
    credit_N: np.ndarray,
    active_N: np.ndarray,
    stock: Stock,
    *,
    power: int = 1,
    places: float,
    floor: float,
    given: tuple[np.ndarray, np.ndarray],
    n: int,
    order: KeyedOrder,
) -> tuple[np.ndarray, np.ndarray] | None:
    """π_t = (1+c)·[(1−f)·places·u/Σu(1+c) + f·places/Σ(1+c)] for active rows, in whole units by largest remainder.

    u is the base to a power from 1 to MAX_POWER, multiplied as `raised` does it, and not written out for the pool.
    places: of the active rows, M. given: (R,) row numbers in rising order and their π_t in [0, 1], of rows that are not
    active. n: Σπ_t of all, a whole number. Returns (N,) int64 units that add up to n places, and (B,) their sums over
    the blocks of the order. None where this is no answer: a π_t above 1, no utility above 0, sums that leave the range
    of floats, or units that more than rounding is missing from.
    """
    if not (stock.num_bad == 0 and 0.0 < stock.gain < np.inf and 0.0 < stock.weighted < np.inf and floor > 0.0):
        return None
    by_utility, by_gain = (1.0 - floor) * places / stock.weighted, floor * places / stock.gain
    if not (by_utility < np.inf and by_gain > 0.0):
        return None
    mix = (base_N, power, credit_N, active_N, by_utility, by_gain)
    size = len(base_N)
    fine_N, many_b = np.empty(size, np.int64), np.zeros(PARTS, np.int64)
    most, total, whole = _fine_units(*mix, float(UNIT * PARTS), fine_N, many_b)
    if not most <= 1.0:
        return None
    rows_R, pi_R = given
    units_R = np.empty(len(rows_R), np.int64)
    if len(rows_R):
        _, _, total_R, whole_R = whole_units(pi_R, float(UNIT), units_R, many_b)
        total, whole = total + total_R, whole + whole_R
    left = n * UNIT - int(whole)
    if not (abs(total - n) <= SUM_TOLERANCE * max(n, 1) and 0 <= left <= int(many_b.sum())):
        return None
    from_top_b = np.cumsum(many_b[::-1])
    last = int(np.searchsorted(from_top_b, left)) if left else 0
    above = PARTS - 1 - last
    part_R = np.where((pi_R > 0.0) & (pi_R < 1.0), np.floor((pi_R * UNIT - units_R) * PARTS), -1.0)
    fine_N[rows_R] = (units_R + (part_R > above)) * PARTS
    level = np.empty(int(many_b[above]) if left else 0, np.int64)
    sum_B = np.zeros(len(order.block_B), np.int64)
    units_N = fine_N  # in place
    found = _round_up(units_N, active_N, above, UNIT, order.rotation, order.block_rows, level, sum_B)
    if left:
        remainder_J = np.empty(len(level))
        _remainders(*mix, float(UNIT), units_N, level[:found], remainder_J)
        if found < len(level):
            given_R = part_R == above
            level[found:] = rows_R[given_R]
            remainder_J[found:] = pi_R[given_R] * UNIT - units_R[given_R]
            rising = np.argsort(level)
            level, remainder_J = level[rising], remainder_J[rising]
        missing = left - int(from_top_b[last] - many_b[above])
        rounded = level[largest_rows(remainder_J, missing)]
        units_N[rounded] += 1
        np.add.at(sum_B, (rounded - order.rotation) % size // order.block_rows, 1)
    return units_N, sum_B if order.block_rows > 1 else np.roll(units_N, -order.rotation)


@compiled
def _power(value: float, power: int) -> float:
    """The 1st to MAX_POWER-th power."""
    square = value * value
    first = value if power == 1 else square
    return first * (1.0 if power <= 2 else value if power == 3 else square)


@compiled
def _sums(base_N: np.ndarray, power: int, credit_N: np.ndarray, active_N: np.ndarray) -> tuple[float, float, float]:
    """How many utilities are no finite numbers >= 0, and over active rows Σ (1+c) and Σ utility · (1+c)."""
    size = len(base_N)
    work = np.zeros(3 * STRIDE)
    for base in range(0, size, LANES):
        width = min(LANES, size - base)
        base_L, credit_L, active_L = (
            base_N[base : base + width],
            credit_N[base : base + width],
            active_N[base : base + width],
        )
        for lane in range(width):
            utility = _power(base_L[lane], power)
            gain = (1.0 + credit_L[lane]) * np.float64(active_L[lane])
            work[lane] += 0.0 if (utility >= 0.0) & (utility < np.inf) else 1.0
            work[STRIDE + lane] += gain
            work[2 * STRIDE + lane] += utility * gain
    return (
        work[:LANES].sum(),
        work[STRIDE : STRIDE + LANES].sum(),
        work[2 * STRIDE : 2 * STRIDE + LANES].sum(),
    )


@compiled
def _fine_units(
    base_N: np.ndarray,
    power: int,
    credit_N: np.ndarray,
    active_N: np.ndarray,
    by_utility: float,
    by_gain: float,
    fine_unit: float,
    fine_N: np.ndarray,
    many_b: np.ndarray,
) -> tuple[float, float, int]:
    """⌊π · fine_unit⌋ of active rows and 0 of others, written to `fine_N`. A unit is PARTS fine ones, so this is the
    whole units and, in the last PART_BITS, which part the remainder lies in. Those of rows with 0 < π < 1 are counted
    in `many_b`. Returns the largest π, Σπ and Σ of whole units.
    """
    size, whole, inside = len(base_N), 0, 0
    work = np.zeros(2 * STRIDE)
    for base in range(0, size, LANES):
        width = min(LANES, size - base)
        base_L, credit_L, active_L, fine_L = (
            base_N[base : base + width],
            credit_N[base : base + width],
            active_N[base : base + width],
            fine_N[base : base + width],
        )
        for lane in range(width):
            gain = (1.0 + credit_L[lane]) * np.float64(active_L[lane])
            value = gain * (_power(base_L[lane], power) * by_utility + by_gain)
            work[lane] = value if value > work[lane] else work[lane]
            work[STRIDE + lane] += value
            inside += 1 if (value > 0.0) & (value < 1.0) else 0
            fine_L[lane] = np.int64(value * fine_unit)
        for lane in range(width):
            whole += fine_L[lane] >> PART_BITS
        for lane in range(width):
            many_b[fine_L[lane] & (PARTS - 1)] += 1
    many_b[0] -= size - inside  # those of the others have no remainder
    return work[:LANES].max(), work[STRIDE : STRIDE + LANES].sum(), whole


@compiled
def _remainders(
    base_N: np.ndarray,
    power: int,
    credit_N: np.ndarray,
    active_N: np.ndarray,
    by_utility: float,
    by_gain: float,
    unit: float,
    units_N: np.ndarray,
    row_J: np.ndarray,
    remainder_J: np.ndarray,
) -> None:
    """What the units of these rows leave of π · unit, written to `remainder_J`; π as in `_fine_units`."""
    for j in range(len(row_J)):
        row = row_J[j]
        gain = (1.0 + credit_N[row]) * np.float64(active_N[row])
        remainder_J[j] = gain * (_power(base_N[row], power) * by_utility + by_gain) * unit - units_N[row]


@compiled
def _round_up(
    fine_N: np.ndarray,
    active_N: np.ndarray,
    above: int,
    unit: int,
    rotation: int,
    block_rows: int,
    level: np.ndarray,
    sum_B: np.ndarray,
) -> int:
    """Whole units, in `fine_N` itself, and one more for rows whose remainder lies in a part above `above`; the active
    rows in that part, less than a whole place each, go to `level`, in order, if that has room. Adds the units to the
    sums over blocks of the rows rotated by `rotation`, where a block has several. Returns how many went to `level`.
    """
    size, found, rounding = len(fine_N), 0, np.int64(PARTS - 1 - above)
    step = block_rows if block_rows > 1 else LANES
    for begin, end, place in ((0, rotation, size - rotation), (rotation, size, 0)):
        row, block, stop = begin, place // step, begin + step - place % step
        while row < end:  # a stretch of one block at a time
            stop = min(stop, end)
            fine_l = fine_N[row:stop]
            near, total = 0, np.int64(0)
            for i in range(stop - row):
                near += 1 if (fine_l[i] & (PARTS - 1)) == above else 0
            if near > 0 and len(level) > 0:
                for i in range(stop - row):
                    if (fine_l[i] & (PARTS - 1)) == above and active_N[row + i] and fine_l[i] < unit * PARTS:
                        level[found] = row + i
                        found += 1
            for i in range(stop - row):
                fine_l[i] = (fine_l[i] + rounding) >> PART_BITS
                total += fine_l[i]
            if block_rows > 1:
                sum_B[block] += total
            row, block, stop = stop, block + 1, stop + step
    return found
