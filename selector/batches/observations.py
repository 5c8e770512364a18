"""What one train draw leaves for the audit: its tickets, and the worst case of each observation made from them.

`RunEngine` calls `observation_ranges` at each draw, stores the result, and makes a `DrawRecord` when all tickets of the
draw have ended; `audit` reads the records. Knows arrays; nothing of pools, events or how a design came to its π.

Axes: N rows of the pool, K tickets of the draw, C categories, B difficulty bins.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selector.sampling.designs import UNIT
from selector.sampling.extremes import DEPTH, LANES, NUM_QUANTITIES, PER_PREDICTION, group_maxima, values_above
from selector.sampling.inclusion import Inclusion

Floats = NDArray[np.float64]
Integers = NDArray[np.integer]
Bools = NDArray[np.bool_]
Interval = tuple[float, float]
Columns = tuple[Floats, Integers, float, float, Integers, Floats, Floats, Bools]
"""What the loops of `extremes` go through: four values of the inclusion, credit, the two predictions, eligible."""

# Difficulty bins: equal parts of the predicted pass rate at the draw, [0, 0.1), …, [0.9, 1].
NUM_DIFFICULTY_BINS = 10

OVER_INCLUSION = 2  # from a quantity of `extremes` to the same over the inclusion
BESIDE = 16  # values of which the largest stands for all, where single ones are looked for among many


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawRecord:
    """One train draw whose K tickets have all ended. All but the two outcomes is stored at the draw."""

    index: int
    num_tickets: int  # K
    num_audit: int  # m
    frame: int  # N
    eligible: int  # N_e
    weight_K: Floats  # K(1+c)/(Nπ), also when the run hands out other weights
    credit_K: Integers  # c
    audit_K: Bools
    predicted_pass_K: Floats
    predicted_degenerate_K: Floats
    base_pass: float  # Σ over the eligible of (1+c)·m̂
    base_degenerate: float
    range_pass: Interval  # worst case of the observation, from `observation_ranges`
    range_degenerate: Interval
    range_pass_uniform: Interval
    range_degenerate_uniform: Interval
    category_K: Integers  # code, the place in the list of categories; −1 for none
    difficulty_K: Integers  # bin, 0 … 9
    pool_category_C: Integers  # rows of the frame; may be shorter than later ones
    pool_difficulty_B: Integers
    outcome_K: Floats  # mean outcome in [0, 1]; NaN when the group never came back or too few were scored
    degenerate_K: Floats  # 1, 0 or NaN
    # (1/N) Σ c over the prompts blocked at this draw, c counting it, with (1/N) Σ c·m̂ for both quantities; and before.
    open_credit: tuple[float, float, float] = (0.0, 0.0, 0.0)
    carried_credit: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        shape = (self.num_tickets,)
        for name in _TICKET_COLUMNS:
            if getattr(self, name).shape != shape:
                raise ValueError(f"draw {self.index}: {name} has shape {getattr(self, name).shape}, expected {shape}")
        if self.pool_difficulty_B.shape != (NUM_DIFFICULTY_BINS,):
            raise ValueError(
                f"draw {self.index}: pool_difficulty_B has shape {self.pool_difficulty_B.shape}, not (10,)"
            )
        if not min(self.num_tickets, 1) <= self.eligible <= self.frame:
            raise ValueError(f"draw {self.index}: {self.eligible} eligible of {self.frame} cannot give its tickets")
        if self.num_audit != np.count_nonzero(self.audit_K):
            raise ValueError(f"draw {self.index}: num_audit is {self.num_audit}, audit_K marks {self.audit_K.sum()}")


_TICKET_COLUMNS = (
    "weight_K",
    "credit_K",
    "audit_K",
    "predicted_pass_K",
    "predicted_degenerate_K",
    "category_K",
    "difficulty_K",
    "outcome_K",
    "degenerate_K",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationRanges:
    """What is stored at a draw for one quantity: the base, and the range of each kind of observation."""

    base: float  # Σ over the eligible of (1+c)·m̂
    reweighted: Interval
    uniform: Interval


def observation_ranges(
    inclusion: Inclusion,
    credit_N: Integers,
    pass_rate_N: Floats,
    informative_N: Floats,
    eligible_N: Bools,
    num_tickets: int,
    num_audit: int,
    frame: int,
) -> tuple[ObservationRanges, ObservationRanges]:
    """Base and worst-case observations over all samples that the design can draw, for m̂ the predicted pass rate and
    for m̂ the predicted chance of a degenerate group. O(N).

    inclusion: π, or expected tickets where a row may have several. credit_N: (N,) c. pass_rate_N,
    informative_N: (N,) in [0, 1]; the second prediction is 1 less P(informative). eligible_N: (N,) bool; an eligible
    row with π = 0 cannot be drawn and adds to the base only. num_tickets: the largest K the design can return. frame:
    rows of the frame. A row gets ⌊π⌋ or ⌈π⌉ tickets. With u = (1+c)(1−m̂)/π the re-weighted observation is at most
    base/N plus 1/N times the u of all certain tickets and of the K − Σ⌊π⌋ largest others; at least the same with
    −(1+c)·m̂/π. The uniform one is bounded likewise with m for K and m/N_e for π. Raises ValueError if shapes differ, a
    count is negative, the frame is smaller than what is eligible, or a prediction leaves [0, 1].
    """
    by_row = (credit_N, pass_rate_N, informative_N, eligible_N)
    if {column.shape for column in by_row} != {(len(inclusion),)}:
        raise ValueError("the inclusion, credit_N, pass_rate_N, informative_N and eligible_N must have one shape")
    columns = (inclusion.written_N, inclusion.units_N, 1.0 / UNIT, inclusion.share, *by_row)
    num_eligible = int(np.count_nonzero(eligible_N))
    if num_tickets < 0 or num_audit < 0 or frame < num_eligible:
        raise ValueError(
            f"num_tickets and num_audit must be >= 0 and frame at least the {num_eligible} eligible rows, "
            f"got {num_tickets}, {num_audit} and {frame}"
        )
    top_QG = np.empty((NUM_QUANTITIES, -(-len(inclusion) // (LANES * DEPTH)) * LANES))
    sure = np.empty(min(num_tickets, num_eligible), np.int64)
    *bases, mass, num_bad, num_sure = group_maxima(*columns, top_QG, sure)
    if num_bad or not np.isfinite(sum(bases)):
        raise ValueError("predictions must be in [0, 1]; clip them before the draw is stored")
    if num_sure > len(sure):
        raise ValueError(f"{num_sure} rows are drawn for certain, and no more than {len(sure)} tickets can be")
    sure = sure[:num_sure]
    expected = inclusion.at(sure)
    per_place = (1.0 + credit_N[sure]) / expected
    certain = np.floor(expected) * per_place
    places = num_tickets - int(np.floor(expected).sum())
    rounds, rest = divmod(num_audit, num_eligible) if num_eligible else (0, 0)
    num_rows = max(frame, 1)  # an empty pool has one possible observation, 0

    def furthest(quantity: int, whole: float, certain_S: Floats) -> tuple[float, float]:
        """The largest re-weighted and uniform sum of what an outcome adds to, or takes from, its prediction."""
        reweighted = float(certain_S.sum()) + _largest_sum(columns, OVER_INCLUSION + quantity, top_QG, places)
        if not num_audit:
            return reweighted, 0.0
        uniform = rounds * whole + _largest_sum(columns, quantity, top_QG, rest)
        return reweighted, uniform * num_eligible / num_audit

    def ranges(first: int, base: float, predicted_S: Floats) -> ObservationRanges:
        fall = furthest(first, base, certain * predicted_S)
        rise = furthest(first + 1, mass - base, certain * (1.0 - predicted_S))
        return ObservationRanges(
            base=base,
            reweighted=((base - fall[0]) / num_rows, (base + rise[0]) / num_rows),
            uniform=((base - fall[1]) / num_rows, (base + rise[1]) / num_rows),
        )

    passes = ranges(0, bases[0], pass_rate_N[sure])
    return passes, ranges(PER_PREDICTION, bases[1], 1.0 - informative_N[sure])


def _largest_sum(columns: Columns, quantity: int, top_QG: Floats, count: int) -> float:
    """Sum of the `count` largest values of a quantity of `extremes`, or of all where those are fewer.

    The count-th largest of the groups' maxima is no larger than the count-th largest value: only groups with a larger
    maximum, fewer than `count`, need to be looked into, and equal values fill up what they leave.
    """
    if count <= 0:
        return 0.0
    top_G = top_QG[quantity]
    group_J, threshold = _groups_above(top_G, count)
    value_I = np.empty(min(group_J.size * DEPTH, len(columns[-1])))
    value_I = value_I[: values_above(*columns, quantity, group_J, threshold, value_I)]
    if value_I.size > count:
        value_I = np.partition(value_I, value_I.size - count)[value_I.size - count :]
    return float(value_I.sum()) + max(threshold, 0.0) * (count - value_I.size)


def _groups_above(top_G: Floats, k: int) -> tuple[Integers, float]:
    """The places of values above the k-th largest, in order, and that value: all, and −1, where there are no more.

    The k-th largest of sets of BESIDE values, by their largest, is no larger than the one that is looked for.
    """
    size = top_G.size
    if k >= size:
        return np.flatnonzero(top_G > -1.0), -1.0
    least = -1.0
    if size % BESIDE == 0 and k <= size // BESIDE:
        top = top_G.reshape(BESIDE, -1).max(axis=0)
        least = float(np.partition(top, top.size - k)[top.size - k])
    near = np.flatnonzero(top_G >= least)
    value = top_G[near]
    threshold = float(np.partition(value, value.size - k)[value.size - k])
    return near[value > threshold], threshold
