"""The loops over a whole pool that a draw makes, compiled: sums, sizes, units of chance, counts.

Called by `designs`, `targets`, `inclusion`, `draw` and `batches.drawing`, which say what the numbers mean. Knows arrays
only. Sums are taken in LANES interleaved parts, in an order that the number of rows alone decides. Axes: N rows of the
pool.
"""

import numpy as np

from predictors.compiled import compiled

LANES = 256
"""Partial sums side by side, so that no addition waits for the one before."""

STRIDE = LANES + 16
"""From one set of lanes to the next, in one array so that the compiler sees that they lie apart."""

BINS = 4096
"""Equal parts of [0, 1) by which remainders are counted."""

BLOCK = 128
"""Rows that are counted together when single rows are looked for."""

SPAN_BYTES = 1024
"""Numbers that are passed over together where all are 0."""


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
def grid_rows(
    units_N: np.ndarray,
    block_B: np.ndarray,
    sum_B: np.ndarray,
    rotation: int,
    width: int,
    start: int,
    unit: int,
    row_J: np.ndarray,
) -> None:
    """Rows under the grid start, start + unit, ... laid over the units of the rows, block by block in the order of
    `block_B`: written to `row_J`, which is no longer than the grid. Blocks and their sums as in `block_sums`, no unit
    below 0.
    """
    size, found, target, end = len(units_N), 0, start, np.int64(0)
    for block in block_B:
        below = end
        end += sum_B[block]
        place = block * width + rotation - 1
        while target < end and found < len(row_J):
            while below <= target:  # up to the row that the grid's next point falls on
                place += 1
                below += units_N[place if place < size else place - size]
            row_J[found] = place if place < size else place - size
            found += 1
            target += unit


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


def nonzero_rows(value_N: np.ndarray) -> np.ndarray:
    """(M,) int64: the rows of entries that are not 0 or false, in order. Quicker than numpy's where these are few."""
    value_N = np.ascontiguousarray(value_N)
    value_N = value_N.view(np.uint8) if value_N.dtype == np.bool_ else value_N
    span = SPAN_BYTES // value_N.itemsize
    return _nonzero_rows(value_N, value_N[: len(value_N) // span * span].view(np.uint64), span)


@compiled
def _is_any(word_W: np.ndarray) -> bool:
    """Whether one of these numbers is not 0."""
    found = np.uint64(0)
    for word in range(len(word_W)):
        found |= word_W[word]
    return bool(found != 0)


@compiled
def _nonzero_rows(value_N: np.ndarray, words: np.ndarray, span_rows: int) -> np.ndarray:
    """words: the whole spans of the values, read as larger numbers, of which all are 0 in most spans."""
    size, num_spans = len(value_N), len(value_N) // span_rows
    per_span = len(words) // max(num_spans, 1)
    per_block = per_span * BLOCK // span_rows
    start_b = np.empty(size // BLOCK + 1, np.int64)
    num_near = 0
    for span in range(num_spans + 1):
        is_rest = span == num_spans  # which is gone through in any case
        if not (is_rest or _is_any(words[span * per_span : (span + 1) * per_span])):
            continue
        for start in range(span * span_rows, min(span * span_rows + span_rows, size), BLOCK):
            word = start // BLOCK * per_block
            if is_rest or _is_any(words[word : word + per_block]):
                start_b[num_near] = start
                num_near += 1
    row_M, many = np.empty(num_near * BLOCK, np.int64), 0
    for near in range(num_near):
        start = start_b[near]
        for row in range(start, min(start + BLOCK, size)):
            row_M[many] = row  # overwritten by the next one where this is not one of them
            many += 1 if value_N[row] != 0 else 0
    return row_M[:many].copy()


def rows_of_rank(mask_N: np.ndarray, rank_J: np.ndarray, row_J: np.ndarray) -> None:
    """Row of the rank-th true entry, for ranks in rising order, written to `row_J`."""
    mask_N = np.ascontiguousarray(mask_N)
    words = mask_N[: len(mask_N) // BLOCK * BLOCK].view(np.uint64)
    _rows_of_rank(mask_N, words, rank_J, row_J)


@compiled
def _rows_of_rank(mask_N: np.ndarray, words: np.ndarray, rank_J: np.ndarray, row_J: np.ndarray) -> None:
    """words: the whole blocks of the mask, eight rows in a number, so that adding BLOCK / 8 of them counts rows."""
    size, per_block = len(mask_N), BLOCK // 8
    seen = found = 0
    for base in range(0, size, BLOCK):
        if found == len(rank_J):
            return
        stop = min(base + BLOCK, size)
        many = 0
        if stop - base == BLOCK:
            total = np.uint64(0)  # a count of at most BLOCK / 8 in each byte
            for word in range(base // 8, base // 8 + per_block):
                total += words[word]
            many = int((total * np.uint64(0x0101010101010101)) >> np.uint64(56))
        else:
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
def rising_places(key_J: np.ndarray, place_J: np.ndarray) -> None:
    """Places of random 63-bit keys from the least to the largest, equal ones in order, written to `place_J`.

    A key's first bits say nearly where it belongs: about one key begins with the same ones.
    """
    size, bits = len(key_J), 0
    while 1 << bits < size:
        bits += 1
    shift = np.uint64(63 - bits)
    begin_b = np.zeros((1 << bits) + 1, np.int64)
    for j in range(size):
        begin_b[np.int64(key_J[j] >> shift) + 1] += 1
    for b in range(1 << bits):
        begin_b[b + 1] += begin_b[b]
    for j in range(size):
        part = np.int64(key_J[j] >> shift)
        place_J[begin_b[part]] = j
        begin_b[part] += 1
    for j in range(1, size):
        place, at = place_J[j], j
        while at > 0 and key_J[place_J[at - 1]] > key_J[place]:
            place_J[at] = place_J[at - 1]
            at -= 1
        place_J[at] = place


@compiled
def pool_counts(
    category_N: np.ndarray, pass_rate_N: np.ndarray, frame_N: np.ndarray, category_C: np.ndarray, bin_D: np.ndarray
) -> None:
    """Rows of the frame by category code + 1, and by equal parts of the pass rate, the last closed; added to both.

    Counted by both at once: so many counters that few wait for the one before.
    """
    num_bins, num_codes, size = len(bin_D), len(category_C), len(category_N)
    many_J = np.zeros(1 + num_codes * (num_bins + 1), np.int64)  # the first counts rows outside the frame
    place = np.empty(LANES, np.uint32)
    for base in range(0, size, LANES):
        width = min(LANES, size - base)
        category_L, rate_L, frame_L = (
            category_N[base : base + width],
            pass_rate_N[base : base + width],
            frame_N[base : base + width],
        )
        for lane in range(width):
            found = (category_L[lane] + 1) * (num_bins + 1) + np.int32(rate_L[lane] * num_bins)
            place[lane] = np.uint32(found + 1) * np.uint32(frame_L[lane])
        for lane in range(width):
            many_J[place[lane]] += 1
    for code in range(num_codes):
        for found in range(num_bins + 1):
            many = many_J[code * (num_bins + 1) + found + 1]
            category_C[code] += many
            bin_D[min(found, num_bins - 1)] += many
