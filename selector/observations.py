"""What one train draw leaves for the audit: its tickets, and the worst case of each observation made from them.

`RunEngine` calls `observation_ranges` at each draw, stores the result, and makes a `DrawRecord` when all tickets of the
draw have ended; `audit` reads the records. Knows arrays; nothing of pools, events or how a design came to its π.

Axes: N rows of the pool, K tickets of the draw, C categories, B difficulty bins.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.integer]
Bools = NDArray[np.bool_]
Interval = tuple[float, float]

# Difficulty bins: equal parts of the predicted pass rate at the draw, [0, 0.1), …, [0.9, 1].
NUM_DIFFICULTY_BINS = 10


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
    inclusion_N: Floats,
    credit_N: Integers,
    predicted_N: Floats,
    eligible_N: Bools,
    num_tickets: int,
    num_audit: int,
    frame: int,
) -> ObservationRanges:
    """Base and worst-case observations of one quantity in [0, 1], over all samples that the design can draw. O(N).

    inclusion_N: (N,) π, or expected tickets where a row may have several. credit_N: (N,) c. predicted_N: (N,) m̂ in
    [0, 1]. eligible_N: (N,) bool; an eligible row with π = 0 cannot be drawn and adds to the base only. num_tickets:
    the largest K the design can return. frame: rows of the frame. A row gets ⌊π⌋ or ⌈π⌉ tickets. With u =
    (1+c)(1−m̂)/π the re-weighted observation is at most base/N plus 1/N times the u of all certain tickets and of the
    K − Σ⌊π⌋ largest others; at least the same with −(1+c)·m̂/π. The uniform one is bounded likewise with m for K and
    m/N_e for π. Raises ValueError if shapes differ, a count is negative, the frame is smaller than what is eligible,
    or a prediction leaves [0, 1].
    """
    if not inclusion_N.shape == credit_N.shape == predicted_N.shape == eligible_N.shape:
        raise ValueError("inclusion_N, credit_N, predicted_N and eligible_N must have one shape")
    predicted = predicted_N[eligible_N]
    if num_tickets < 0 or num_audit < 0 or frame < predicted.size:
        raise ValueError(
            f"num_tickets and num_audit must be >= 0 and frame at least the {predicted.size} eligible rows, "
            f"got {num_tickets}, {num_audit} and {frame}"
        )
    if predicted.size and not (predicted.min() >= 0 and predicted.max() <= 1):
        raise ValueError("predictions must be in [0, 1]; clip them before the draw is stored")
    inclusion, mass = inclusion_N[eligible_N], 1.0 + credit_N[eligible_N]
    base = float(mass @ predicted)
    fall = mass * predicted
    rise = mass - fall
    num_rows = max(frame, 1)  # an empty pool has one possible observation, 0
    reweighted = _most_reweighted(fall, inclusion, num_tickets), _most_reweighted(rise, inclusion, num_tickets)
    uniform = _most_uniform(fall, num_audit), _most_uniform(rise, num_audit)
    return ObservationRanges(
        base=base,
        reweighted=((base - reweighted[0]) / num_rows, (base + reweighted[1]) / num_rows),
        uniform=((base - uniform[0]) / num_rows, (base + uniform[1]) / num_rows),
    )


def _most_reweighted(gain: Floats, expected: Floats, places: int) -> float:
    """Largest Σ over tickets of gain/expected, for ⌊expected⌋ or ⌈expected⌉ tickets a row and `places` in all."""
    drawable = expected > 0
    value = np.divide(gain, expected, out=np.zeros_like(gain), where=drawable)
    sure = np.flatnonzero(expected >= 1)
    times = np.floor(expected[sure])
    certain = float(times @ value[sure])
    value[sure[times == expected[sure]]] = 0.0  # these get no further ticket
    return certain + _largest_sum(value, places - int(times.sum()))


def _most_uniform(gain: Floats, places: int) -> float:
    """Largest (N_e/m) Σ gain over m = `places` tickets of a uniform permutation, begun anew when it is used up."""
    if not (places and gain.size):
        return 0.0
    rounds, rest = divmod(places, gain.size)
    return (rounds * float(gain.sum()) + _largest_sum(gain, rest)) * gain.size / places


def _largest_sum(value: Floats, count: int) -> float:
    """Sum of the `count` largest of nonnegative values."""
    if count >= value.size:
        return float(value.sum())
    return float(np.partition(value, value.size - count)[value.size - count :].sum()) if count > 0 else 0.0
