"""The loops over a whole pool that a draw makes, compiled: sums, sizes, units of chance, largest values.

Called by `designs`, `targets`, `draw`, `revisits`, `observations` and `drawing`, which say what the numbers mean and
check them. Knows arrays only. Sums are taken in LANES interleaved parts, in an order that the number of rows alone
decides. Axes: N rows of the pool.
"""

import numpy as np

from predictors.compiled import compiled

LANES = 64
"""Partial sums side by side, so that no addition waits for the one before."""

DEPTH = 64
"""Rows of one lane that make up a group of `group_maxima`, LANES apart."""

BINS = 4096
"""Equal parts of [0, 1) by which remainders are counted."""

BLOCK = 1024
"""Rows that are counted together when one row in so many is looked for."""


@compiled
def class_totals(utility_N: np.ndarray, gain_N: np.ndarray) -> tuple[float, float]:
    """Over rows with a gain above 0: the largest utility, and Σ gain."""
    top, total = np.zeros(LANES), np.zeros(LANES)
    size = len(gain_N)
    whole = size - size % LANES
    for base in range(0, whole, LANES):
        for lane in range(LANES):
            value = utility_N[base + lane] if gain_N[base + lane] > 0.0 else 0.0
            top[lane] = value if value > top[lane] else top[lane]
        for lane in range(LANES):
            total[lane] += gain_N[base + lane]
    for row in range(whole, size):
        lane = row - whole
        value = utility_N[row] if gain_N[row] > 0.0 else 0.0
        top[lane] = max(top[lane], value)
        total[lane] += gain_N[row]
    return top.max(), total.sum()


@compiled
def weighted_total(utility_N: np.ndarray, gain_N: np.ndarray, scale: float) -> float:
    """Σ (utility / scale) · gain over rows with a gain above 0."""
    total = np.zeros(LANES)
    size = len(gain_N)
    whole = size - size % LANES
    for base in range(0, whole, LANES):
        for lane in range(LANES):
            gain = gain_N[base + lane]
            total[lane] += utility_N[base + lane] / scale * gain if gain > 0.0 else 0.0
    for row in range(whole, size):
        if gain_N[row] > 0.0:
            total[row - whole] += utility_N[row] / scale * gain_N[row]
    return total.sum()


@compiled
def mixed_sizes(
    utility_N: np.ndarray, gain_N: np.ndarray, scale: float, by_utility: float, by_gain: float, size_N: np.ndarray
) -> float:
    """size = by_utility · (utility / scale) · gain + by_gain · gain, written to `size_N`; returns the largest."""
    top = np.zeros(LANES)
    size = len(gain_N)
    whole = size - size % LANES
    for base in range(0, whole, LANES):
        for lane in range(LANES):
            gain = gain_N[base + lane]
            value = gain * (utility_N[base + lane] / scale * by_utility + by_gain) if gain > 0.0 else 0.0
            size_N[base + lane] = value
        for lane in range(LANES):
            value = size_N[base + lane]
            top[lane] = value if value > top[lane] else top[lane]
    for row in range(whole, size):
        gain = gain_N[row]
        size_N[row] = gain * (utility_N[row] / scale * by_utility + by_gain) if gain > 0.0 else 0.0
        top[row - whole] = max(top[row - whole], size_N[row])
    return top.max()


@compiled
def whole_units(pi_N: np.ndarray, unit: int, units_N: np.ndarray, many_b: np.ndarray) -> tuple[float, float, float]:
    """⌊π · unit⌋, written to `units_N`, and how many remainders fall into each of BINS parts, added to `many_b`.

    Counted are rows that can take one unit more: π > 0 and not at `unit`. Returns the least and the largest π and Σπ.
    """
    size = len(pi_N)
    least, top, total = np.full(LANES, np.inf), np.full(LANES, -np.inf), np.zeros(LANES)
    whole = size - size % LANES
    for base in range(0, whole, LANES):
        for lane in range(LANES):
            total[lane] += pi_N[base + lane]
        for lane in range(LANES):
            value = pi_N[base + lane]
            least[lane] = value if value < least[lane] else least[lane]
            top[lane] = value if value > top[lane] else top[lane]
    for row in range(whole, size):
        value = pi_N[row]
        total[row - whole] += value
        least[row - whole] = min(least[row - whole], value)
        top[row - whole] = max(top[row - whole], value)
    smallest, largest, sum_pi = least.min(), top.max(), total.sum()
    if not (smallest >= 0.0 and largest <= 1.0):
        return smallest, largest, sum_pi
    for row in range(size):
        units_N[row] = np.int64(pi_N[row] * unit)
    for row in range(size):
        value, units = pi_N[row], units_N[row]
        if value > 0.0 and units < unit:
            many_b[np.int64((value * unit - units) * BINS)] += 1
    return smallest, largest, sum_pi


@compiled
def add_units(pi_N: np.ndarray, unit: int, above: int, units_N: np.ndarray, level: np.ndarray) -> int:
    """One unit more for rows whose remainder lies in a part above `above`; the rows in that part go to `level`, in
    order. Returns how many these are.
    """
    found, size = 0, len(pi_N)
    for base in range(0, size, LANES):
        stop = min(base + LANES, size)
        near = 0
        for row in range(base, stop):
            near += 1 if np.int64((pi_N[row] * unit - units_N[row]) * BINS) == above else 0
        if near:
            for row in range(base, stop):
                value, units = pi_N[row], units_N[row]
                if value > 0.0 and units < unit and np.int64((value * unit - units) * BINS) == above:
                    level[found] = row
                    found += 1
        for row in range(base, stop):
            value, units = pi_N[row], units_N[row]
            is_above = np.int64((value * unit - units) * BINS) > above
            units_N[row] = units + np.int64(is_above & (value > 0.0) & (units < unit))
    return found


@compiled
def block_sums(units_N: np.ndarray, rotation: int, width: int, unit: int, sum_B: np.ndarray) -> bool:
    """Sums over blocks of `width` rows of the order rotated by `rotation`; the last block may be short. Returns whether
    every entry is in [0, unit].
    """
    size = len(units_N)
    wrong = 0
    for row in range(size):
        wrong += 1 if units_N[row] < 0 or units_N[row] > unit else 0
    for block in range(len(sum_B)):
        total = 0
        begin = block * width + rotation
        for row in range(begin, min(begin + width, size)):
            total += units_N[row]
        for row in range(max(begin, size), min(begin + width, size + rotation)):
            total += units_N[row - size]
        sum_B[block] = total
    return wrong == 0


@compiled
def gains(credit_N: np.ndarray, eligible_N: np.ndarray, gain_N: np.ndarray) -> None:
    """1+c for eligible rows and 0 for others, written to `gain_N`."""
    for row in range(len(credit_N)):
        gain_N[row] = 1.0 + credit_N[row] if eligible_N[row] else 0.0


@compiled
def with_fillers(
    units_N: np.ndarray,
    gain_N: np.ndarray,
    unit: float,
    share: float,
    selected_N: np.ndarray,
    inclusion_N: np.ndarray,
) -> None:
    """selected = units / unit, and inclusion = selected + (1 − selected) · share where there is a gain."""
    for row in range(len(units_N)):
        selected_N[row] = units_N[row] / unit
    for row in range(len(units_N)):
        selected = selected_N[row]
        inclusion_N[row] = selected + ((1.0 - selected) * share if gain_N[row] > 0.0 else 0.0)


@compiled
def rows_of_rank(mask_N: np.ndarray, rank_J: np.ndarray, row_J: np.ndarray) -> None:
    """Row of the rank-th true entry, for ranks in rising order, written to `row_J`."""
    size = len(mask_N)
    seen = found = 0
    for base in range(0, size, BLOCK):
        if found == len(rank_J):
            return
        stop = min(base + BLOCK, size)
        many = 0
        for row in range(base, stop):
            many += 1 if mask_N[row] else 0
        if rank_J[found] < seen + many:
            passed = seen
            for row in range(base, stop):
                if mask_N[row]:
                    while found < len(rank_J) and rank_J[found] == passed:
                        row_J[found] = row
                        found += 1
                    passed += 1
        seen += many


@compiled
def in_turn(position_N: np.ndarray, turn: int, period: int, due_N: np.ndarray) -> None:
    """position mod period = turn and position >= 0, written to `due_N`.

    Positions are far below 2⁵³, so the quotient in floats is off by one at most.
    """
    inverse = 1.0 / period
    for row in range(len(position_N)):
        position = position_N[row]
        rest = position - period * np.int64(np.float64(position) * inverse)
        rest = rest + period if rest < 0 else rest
        rest = rest - period if rest >= period else rest
        due_N[row] = (rest == turn) & (position >= 0)


@compiled
def group_maxima(
    inclusion_N: np.ndarray, credit_N: np.ndarray, predicted_N: np.ndarray, eligible_N: np.ndarray, top_QG: np.ndarray
) -> tuple[float, float, float, float, int]:
    """The largest of each of the four quantities of `values_above` in each group of up to DEPTH rows, −1 without one.

    A group is every LANES-th of LANES · DEPTH rows. Returns, over eligible rows, Σ (1+c) · predicted, Σ (1+c), the least
    and the largest prediction, and how many have an inclusion of 1 or more.
    """
    size = len(inclusion_N)
    base_sum, mass_sum = np.zeros(LANES), np.zeros(LANES)
    least, most, sure = np.full(LANES, np.inf), np.full(LANES, -np.inf), np.zeros(LANES, np.int64)
    work = np.empty((4, LANES + 8))
    top = np.empty((4, LANES + 8))
    for group in range(0, top_QG.shape[1], LANES):
        start = group * DEPTH
        top[:] = -1.0
        for base in range(start, min(start + LANES * DEPTH, size), LANES):
            width = min(LANES, size - base)
            for lane in range(width):
                work[0, lane] = 1.0 + credit_N[base + lane] if eligible_N[base + lane] else 0.0
            for lane in range(width):
                mass_sum[lane] += work[0, lane]
                sure[lane] += 1 if work[0, lane] > 0.0 and inclusion_N[base + lane] >= 1.0 else 0
            for lane in range(width):
                predicted = predicted_N[base + lane]
                is_in = work[0, lane] > 0.0
                least[lane] = predicted if is_in and predicted < least[lane] else least[lane]
                most[lane] = predicted if is_in and predicted > most[lane] else most[lane]
            for lane in range(width):
                fall = work[0, lane] * predicted_N[base + lane]
                base_sum[lane] += fall
                work[1, lane] = work[0, lane] - fall
                work[0, lane] = fall
            for lane in range(width):
                expected = inclusion_N[base + lane]
                weight = 1.0 / expected if expected != np.floor(expected) else 0.0
                work[2, lane] = work[0, lane] * weight
                work[3, lane] = work[1, lane] * weight
            for q in range(4):
                for lane in range(width):
                    top[q, lane] = work[q, lane] if work[q, lane] > top[q, lane] else top[q, lane]
        for q in range(4):
            for lane in range(LANES):
                top_QG[q, group + lane] = top[q, lane]
    return base_sum.sum(), mass_sum.sum(), least.min(), most.max(), sure.sum()


@compiled
def values_above(
    inclusion_N: np.ndarray,
    credit_N: np.ndarray,
    predicted_N: np.ndarray,
    eligible_N: np.ndarray,
    quantity: int,
    group_J: np.ndarray,
    threshold: float,
    value_I: np.ndarray,
) -> int:
    """Values of one quantity above the threshold in these groups, written to `value_I`; returns how many.

    Quantities, with m the prediction: (1+c)m, (1+c)(1−m), and these two over the inclusion. Over a whole inclusion they
    are 0: such a row has no chance of one ticket more.
    """
    size = len(inclusion_N)
    found = 0
    for j in range(len(group_J)):
        group = group_J[j]
        start = group // LANES * LANES * DEPTH + group % LANES
        for row in range(start, min(start + LANES * DEPTH, size), LANES):
            if eligible_N[row]:
                mass = 1.0 + credit_N[row]
                fall = mass * predicted_N[row]
                value = fall if quantity % 2 == 0 else mass - fall
                if quantity >= 2:
                    value *= 1.0 / inclusion_N[row] if inclusion_N[row] != np.floor(inclusion_N[row]) else 0.0
                if value > threshold:
                    value_I[found] = value
                    found += 1
    return found


@compiled
def pool_counts(
    category_N: np.ndarray, pass_rate_N: np.ndarray, frame_N: np.ndarray, category_C: np.ndarray, bin_D: np.ndarray
) -> None:
    """Rows of the frame by category code + 1, and by equal parts of the pass rate, the last closed; added to both."""
    last = len(bin_D) - 1
    for row in range(len(category_N)):
        if frame_N[row]:
            category_C[category_N[row] + 1] += 1
            bin_D[min(np.int64(pass_rate_N[row] * len(bin_D)), last)] += 1
