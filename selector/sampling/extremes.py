"""The largest worst cases of a draw over its whole pool, compiled: what a row could move an observation by.

Called by `batches.observations`, which says what the numbers mean and checks them. Knows arrays only. Sums are taken in
LANES interleaved parts, in an order that the number of rows alone decides.
Axes: N rows of the pool, Q quantities, G groups of rows, S rows that are drawn for certain.
"""

import numpy as np

from predictors.compiled import compiled

LANES = 256
"""Partial sums side by side, so that no addition waits for the one before."""

STRIDE = LANES + 16
"""From one set of lanes to the next, in one array so that the compiler sees that they lie apart."""

DEPTH = 32
"""Rows of one lane that make up a group of `group_maxima`, LANES apart."""

NEARLY = 1.0 - 1e-12
"""What is below a threshold by more than this is below it however a quotient is rounded."""

PER_PREDICTION, NUM_QUANTITIES = 4, 8
"""Quantities of each of two predictions m, pass and degenerate: (1+c)m, (1+c)(1−m), and these two over the inclusion.
Over a whole inclusion they are 0: such a row has no chance of one ticket more."""

# Sets of lanes of `group_maxima`; NUM_QUANTITIES of them from _TOP on, two from _SUM on.
_MASS, _WEIGHT, _SURE, _MASSES, _SUM, _TOP = (place * STRIDE for place in (0, 1, 2, 3, 4, 6))
_WORK = _TOP + NUM_QUANTITIES * STRIDE


@compiled
def group_maxima(
    written_N: np.ndarray,
    units_N: np.ndarray,
    per_unit: float,
    share: float,
    credit_N: np.ndarray,
    pass_rate_N: np.ndarray,
    informative_N: np.ndarray,
    eligible_N: np.ndarray,
    top_QG: np.ndarray,
    sure_S: np.ndarray,
) -> tuple[float, float, float, int, int]:
    """The largest of each quantity in each group of up to DEPTH eligible rows, written to `top_QG`: 0 where none is
    eligible, −1 where the group has no rows.

    A group is every LANES-th of LANES · DEPTH rows. The inclusion π is written out, or `written_N` is empty and it is
    π_t + (1 − π_t) · share, π_t = units · per_unit. The prediction of degenerate groups is 1 − informative. Returns,
    over eligible rows, Σ (1+c)·m of both predictions and Σ (1+c); how many predictions are not in [0, 1]; and how many
    rows have an inclusion of 1 or more: the first of them go to `sure_S`, in order.
    """
    size, num_bad, num_sure, is_written = len(eligible_N), 0, 0, len(written_N) > 0
    work = np.zeros(_WORK)
    for group in range(0, top_QG.shape[1], LANES):
        start = group * DEPTH
        for place in range(_TOP, _WORK):
            work[place] = -1.0
        for base in range(start, min(start + LANES * DEPTH, size), LANES):
            width = min(LANES, size - base)
            credit_L, eligible_L = credit_N[base : base + width], eligible_N[base : base + width]
            pass_rate_L, informative_L = pass_rate_N[base : base + width], informative_N[base : base + width]
            near = 0
            if is_written:
                written_L = written_N[base : base + width]
                for lane in range(width):
                    work[_WEIGHT + lane] = written_L[lane]
            else:
                units_L = units_N[base : base + width]
                for lane in range(width):
                    chance = units_L[lane] * per_unit
                    work[_WEIGHT + lane] = chance + (1.0 - chance) * share
            for lane in range(width):
                expected = work[_WEIGHT + lane]
                mass = (1.0 + credit_L[lane]) * np.float64(eligible_L[lane])
                work[_MASS + lane] = mass
                work[_MASSES + lane] += mass
                work[_WEIGHT + lane] = 1.0 / expected if expected != np.floor(expected) else 0.0
                work[_SURE + lane] = 1.0 if (mass > 0.0) & (expected >= 1.0) else 0.0
            for lane in range(width):
                near += 1 if work[_SURE + lane] > 0.0 else 0
            if near:
                for lane in range(width):
                    if work[_SURE + lane] > 0.0:
                        if num_sure < len(sure_S):
                            sure_S[num_sure] = base + lane
                        num_sure += 1
            for lane in range(width):
                mass, weight = work[_MASS + lane], work[_WEIGHT + lane]
                fall = mass * pass_rate_L[lane]
                rise = mass - fall
                work[_SUM + lane] += fall
                num_bad += 0 if (fall >= 0.0) & (rise >= 0.0) else 1
                top = work[_TOP + lane]
                work[_TOP + lane] = fall if fall > top else top
                top = work[_TOP + STRIDE + lane]
                work[_TOP + STRIDE + lane] = rise if rise > top else top
                fall *= weight
                rise *= weight
                top = work[_TOP + 2 * STRIDE + lane]
                work[_TOP + 2 * STRIDE + lane] = fall if fall > top else top
                top = work[_TOP + 3 * STRIDE + lane]
                work[_TOP + 3 * STRIDE + lane] = rise if rise > top else top
            for lane in range(width):
                mass, weight = work[_MASS + lane], work[_WEIGHT + lane]
                fall = mass * (1.0 - informative_L[lane])
                rise = mass - fall
                work[_SUM + STRIDE + lane] += fall
                num_bad += 0 if (fall >= 0.0) & (rise >= 0.0) else 1
                top = work[_TOP + 4 * STRIDE + lane]
                work[_TOP + 4 * STRIDE + lane] = fall if fall > top else top
                top = work[_TOP + 5 * STRIDE + lane]
                work[_TOP + 5 * STRIDE + lane] = rise if rise > top else top
                fall *= weight
                rise *= weight
                top = work[_TOP + 6 * STRIDE + lane]
                work[_TOP + 6 * STRIDE + lane] = fall if fall > top else top
                top = work[_TOP + 7 * STRIDE + lane]
                work[_TOP + 7 * STRIDE + lane] = rise if rise > top else top
        for q in range(NUM_QUANTITIES):
            for lane in range(LANES):
                top_QG[q, group + lane] = work[_TOP + q * STRIDE + lane]
    return (
        work[_SUM : _SUM + LANES].sum(),
        work[_SUM + STRIDE : _SUM + STRIDE + LANES].sum(),
        work[_MASSES : _MASSES + LANES].sum(),
        num_bad,
        num_sure,
    )


@compiled
def values_above(
    written_N: np.ndarray,
    units_N: np.ndarray,
    per_unit: float,
    share: float,
    credit_N: np.ndarray,
    pass_rate_N: np.ndarray,
    informative_N: np.ndarray,
    eligible_N: np.ndarray,
    quantity: int,
    group_J: np.ndarray,
    threshold: float,
    value_I: np.ndarray,
) -> int:
    """Values of one quantity above the threshold in these groups, written to `value_I`; returns how many."""
    size, found, is_written = len(eligible_N), 0, len(written_N) > 0
    degenerate, kind = quantity >= PER_PREDICTION, quantity % PER_PREDICTION
    for j in range(len(group_J)):
        group = group_J[j]
        start = group // LANES * LANES * DEPTH + group % LANES
        for row in range(start, min(start + LANES * DEPTH, size), LANES):
            mass = 1.0 + credit_N[row]
            fall = mass * (1.0 - informative_N[row] if degenerate else pass_rate_N[row])
            value = fall if kind % 2 == 0 else mass - fall
            if kind >= 2:
                chance = written_N[row] if is_written else units_N[row] * per_unit
                expected = chance if is_written else chance + (1.0 - chance) * share
                if value < threshold * expected * NEARLY:  # as most are: not worth a division
                    continue
                value *= 1.0 / expected if expected != np.floor(expected) else 0.0
            if value > threshold and eligible_N[row]:  # last, as reading it costs more than what it spares
                value_I[found] = value
                found += 1
    return found
