"""The loops over a whole pool that a draw makes, compiled: sums, sizes, units of chance, largest values.

Called by `designs`, `targets`, `draw`, `observations` and `drawing`, which say what the numbers mean and
check them. Knows arrays only. Sums are taken in LANES interleaved parts, in an order that the number of rows alone
decides. Axes: N rows of the pool.
"""

import numpy as np

from predictors.compiled import compiled

LANES = 256
"""Partial sums side by side, so that no addition waits for the one before."""

STRIDE = LANES + 16
"""From one set of lanes to the next, in one array so that the compiler sees that they lie apart."""

DEPTH = 32
"""Rows of one lane that make up a group of `group_maxima`, LANES apart."""

BINS = 4096
"""Equal parts of [0, 1) by which remainders are counted."""

BLOCK = 128
"""Rows that are counted together when single rows are looked for."""

# Sets of lanes of `group_maxima`: four values, their largest so far, two sums, and one each of the others.
_VALUE, _TOP, _SUM, _MASS, _LEAST, _MOST = 0, 4 * STRIDE, 8 * STRIDE, 10 * STRIDE, 11 * STRIDE, 12 * STRIDE
_SURE = 13 * STRIDE


@compiled
def class_totals(utility_N: np.ndarray, gain_N: np.ndarray) -> tuple[float, float]:
    """Over rows with a gain above 0: the largest utility, and Σ gain."""
    size = len(gain_N)
    work = np.zeros(2 * STRIDE)
    for base in range(0, size, LANES):
        width = min(LANES, size - base)
        gain_L, utility_L = gain_N[base : base + width], utility_N[base : base + width]
        for lane in range(width):
            value = utility_L[lane] if gain_L[lane] > 0.0 else 0.0
            work[lane] = value if value > work[lane] else work[lane]
            work[STRIDE + lane] += gain_L[lane]
    return work[:LANES].max(), work[STRIDE : STRIDE + LANES].sum()


@compiled
def weighted_total(utility_N: np.ndarray, gain_N: np.ndarray, scale: float) -> float:
    """Σ (utility / scale) · gain over rows with a gain above 0."""
    size = len(gain_N)
    total = np.zeros(LANES)
    for base in range(0, size, LANES):
        width = min(LANES, size - base)
        gain_L, utility_L = gain_N[base : base + width], utility_N[base : base + width]
        for lane in range(width):
            gain = gain_L[lane]
            total[lane] += utility_L[lane] / scale * gain if gain > 0.0 else 0.0
    return float(total.sum())


@compiled
def mixed_sizes(
    utility_N: np.ndarray, gain_N: np.ndarray, scale: float, by_utility: float, by_gain: float, size_N: np.ndarray
) -> float:
    """size = gain · (by_utility · utility / scale + by_gain), written to `size_N`; returns the largest."""
    size = len(gain_N)
    top = np.zeros(LANES)
    for base in range(0, size, LANES):
        width = min(LANES, size - base)
        gain_L, size_L, utility_L = (
            gain_N[base : base + width],
            size_N[base : base + width],
            utility_N[base : base + width],
        )
        for lane in range(width):
            gain = gain_L[lane]
            value = gain * (utility_L[lane] / scale * by_utility + by_gain) if gain > 0.0 else 0.0
            size_L[lane] = value
            top[lane] = value if value > top[lane] else top[lane]
    return float(top.max())


@compiled
def whole_units(
    pi_N: np.ndarray, unit: float, units_N: np.ndarray, many_b: np.ndarray
) -> tuple[float, float, float, int]:
    """⌊π · unit⌋, written to `units_N`, and how many remainders fall into each of BINS parts, added to `many_b`.

    Counted are rows that can take one unit more: π > 0 and not at `unit`. Returns the least and the largest π, Σπ and Σ
    units.
    """
    size, whole = len(pi_N), 0
    work = np.empty(4 * STRIDE)
    for lane in range(LANES):
        work[lane], work[STRIDE + lane], work[2 * STRIDE + lane] = np.inf, -np.inf, 0.0
    for base in range(0, size, LANES):
        width = min(LANES, size - base)
        pi_L, units_L = pi_N[base : base + width], units_N[base : base + width]
        for lane in range(width):
            value = pi_L[lane]
            work[lane] = value if value < work[lane] else work[lane]
            work[STRIDE + lane] = value if value > work[STRIDE + lane] else work[STRIDE + lane]
            work[2 * STRIDE + lane] += value
            exact = value * unit
            work[3 * STRIDE + lane] = (exact - np.floor(exact)) * BINS if value > 0.0 and value < 1.0 else -1.0
        for lane in range(width):
            units_L[lane] = np.int64(pi_L[lane] * unit)
        for lane in range(width):
            whole += units_L[lane]
        for lane in range(width):
            part = np.int64(work[3 * STRIDE + lane])
            if part >= 0:
                many_b[part] += 1
    least, largest = work[:LANES].min(), work[STRIDE : STRIDE + LANES].max()
    return least, largest, work[2 * STRIDE : 2 * STRIDE + LANES].sum(), whole


@compiled
def add_units(pi_N: np.ndarray, unit: float, above: int, units_N: np.ndarray, level: np.ndarray) -> int:
    """One unit more for rows whose remainder lies in a part above `above`; the rows in that part go to `level`, in
    order. Returns how many these are. Rows as in `whole_units`.
    """
    found, size = 0, len(pi_N)
    part = np.empty(LANES)
    for base in range(0, size, LANES):
        width = min(LANES, size - base)
        pi_L, units_L = pi_N[base : base + width], units_N[base : base + width]
        for lane in range(width):
            value = pi_L[lane]
            exact = value * unit
            part[lane] = np.floor((exact - np.floor(exact)) * BINS) if value > 0.0 and value < 1.0 else -1.0
        near = 0
        for lane in range(width):
            near += 1 if part[lane] == above else 0
        if near:
            for lane in range(width):
                if part[lane] == above:
                    level[found] = base + lane
                    found += 1
        for lane in range(width):
            units_L[lane] += 1 if part[lane] > above else 0
    return found


@compiled
def block_sums(units_N: np.ndarray, rotation: int, width: int, unit: int, sum_B: np.ndarray) -> bool:
    """Sums over blocks of `width` rows of the order rotated by `rotation`; the last block may be short. Returns whether
    every entry is in [0, unit].
    """
    size = len(units_N)
    signs = np.int64(0)  # negative once a number below 0 or above `unit` has been met
    for block in range(len(sum_B)):
        total = np.int64(0)
        begin = block * width + rotation
        for row in range(begin, min(begin + width, size)):
            total += units_N[row]
            signs |= units_N[row] | (unit - units_N[row])
        for row in range(max(begin, size), min(begin + width, size + rotation)):
            total += units_N[row - size]
            signs |= units_N[row - size] | (unit - units_N[row - size])
        sum_B[block] = total
    return bool(signs >= 0)


@compiled
def gains(credit_N: np.ndarray, eligible_N: np.ndarray, gain_N: np.ndarray) -> None:
    """1+c for eligible rows and 0 for others, written to `gain_N`."""
    for row in range(len(credit_N)):
        gain_N[row] = (1.0 + credit_N[row]) * np.float64(eligible_N[row])


@compiled
def with_fillers(
    units_N: np.ndarray, eligible_N: np.ndarray, unit: float, share: float, inclusion_N: np.ndarray
) -> None:
    """π = π_t + (1 − π_t) · share for eligible rows, π_t = units / unit, and π_t for others."""
    inverse = 1.0 / unit  # exact: a power of two
    for row in range(len(units_N)):
        chance = units_N[row] * inverse
        inclusion_N[row] = chance + (1.0 - chance) * share if eligible_N[row] else chance


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
def group_maxima(
    inclusion_N: np.ndarray, credit_N: np.ndarray, predicted_N: np.ndarray, eligible_N: np.ndarray, top_QG: np.ndarray
) -> tuple[float, float, float, float, float]:
    """The largest of each of the four quantities of `values_above` in each group of up to DEPTH rows, −1 without one.

    A group is every LANES-th of LANES · DEPTH rows. Returns, over eligible rows, Σ (1+c) · predicted, Σ (1+c), the
    least and the largest prediction, and how many have an inclusion of 1 or more.
    """
    size = len(inclusion_N)
    work = np.zeros(14 * STRIDE)
    for lane in range(LANES):
        work[_LEAST + lane], work[_MOST + lane] = np.inf, -np.inf
    for group in range(0, top_QG.shape[1], LANES):
        start = group * DEPTH
        for lane in range(LANES):
            work[_TOP + lane] = work[_TOP + STRIDE + lane] = -1.0
            work[_TOP + 2 * STRIDE + lane] = work[_TOP + 3 * STRIDE + lane] = -1.0
        for base in range(start, min(start + LANES * DEPTH, size), LANES):
            width = min(LANES, size - base)
            credit_L, eligible_L, inclusion_L = (
                credit_N[base : base + width],
                eligible_N[base : base + width],
                inclusion_N[base : base + width],
            )
            predicted_L = predicted_N[base : base + width]
            for lane in range(width):
                work[_MASS + lane] = (1.0 + credit_L[lane]) * np.float64(eligible_L[lane])
            for lane in range(width):
                mass, predicted, expected = work[_MASS + lane], predicted_L[lane], inclusion_L[lane]
                fall = mass * predicted
                rise = mass - fall
                weight = 1.0 / expected if expected != np.floor(expected) else 0.0
                work[_VALUE + lane] = fall
                work[_VALUE + STRIDE + lane] = rise
                work[_VALUE + 2 * STRIDE + lane] = fall * weight
                work[_VALUE + 3 * STRIDE + lane] = rise * weight
                work[_SURE + lane] += 1.0 if (mass > 0.0) & (expected >= 1.0) else 0.0
                low = predicted if mass > 0.0 else np.inf
                high = predicted if mass > 0.0 else -np.inf
                work[_LEAST + lane] = low if low < work[_LEAST + lane] else work[_LEAST + lane]
                work[_MOST + lane] = high if high > work[_MOST + lane] else work[_MOST + lane]
            for lane in range(width):
                work[_SUM + lane] += work[_VALUE + lane]
                work[_SUM + STRIDE + lane] += work[_MASS + lane]
            for q in range(4):
                value_L, top_L = work[_VALUE + q * STRIDE :], work[_TOP + q * STRIDE :]
                for lane in range(width):
                    top_L[lane] = value_L[lane] if value_L[lane] > top_L[lane] else top_L[lane]
        for q in range(4):
            for lane in range(LANES):
                top_QG[q, group + lane] = work[_TOP + q * STRIDE + lane]
    return (
        work[_SUM : _SUM + LANES].sum(),
        work[_SUM + STRIDE : _SUM + STRIDE + LANES].sum(),
        work[_LEAST : _LEAST + LANES].min(),
        work[_MOST : _MOST + LANES].max(),
        work[_SURE : _SURE + LANES].sum(),
    )


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
    """Rows of the frame by category code + 1, and by equal parts of the pass rate, the last closed; added to both.

    Counted by both at once: so many counters that few wait for the one before.
    """
    num_bins, num_codes, size = len(bin_D), len(category_C), len(category_N)
    many_J = np.zeros(num_codes * (num_bins + 1), np.int64)
    place = np.empty(LANES, np.uint32)
    for base in range(0, size, LANES):
        width = min(LANES, size - base)
        category_L, rate_L, frame_L = (
            category_N[base : base + width],
            pass_rate_N[base : base + width],
            frame_N[base : base + width],
        )
        for lane in range(width):
            place[lane] = np.uint32((category_L[lane] + 1) * (num_bins + 1) + np.int32(rate_L[lane] * num_bins))
        for lane in range(width):
            many_J[place[lane]] += frame_L[lane]
    for code in range(num_codes):
        for found in range(num_bins + 1):
            many = many_J[code * (num_bins + 1) + found]
            category_C[code] += many
            bin_D[min(found, num_bins - 1)] += many
