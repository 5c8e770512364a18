"""Who shares the places of a draw: counts of tickets by part, and the chances π_t of the selected part.

Called by `draw`. Knows masks, utilities and credit; no randomness, no weights, no reasons. N rows of the pool, K
tickets of which m are audit, K−m = K_S selected. Eligible rows fall into three classes:

  active         new and active prompts; they get what the others leave;
  resting        mastered and deferred prompts, r places among them;
  due            prompts whose turn it is, at rest or not: π_t = 1 each while there are places, and counted in r.

Within a class of M places, c the credit and u the utility of a row, sums over the class:
  π_t = min(1, κ·[(1−f)·u(1+c)/Σu(1+c) + f·(1+c)/Σ(1+c)]),   Σπ_t = M.
Where the largest utilities are taken (`top`), t/M stands for u(1+c)/Σu(1+c), t the chance that the row is among the M
largest: 1 or 0, ties sharing alike, and rows that are no candidates coming last.

Every eligible prompt must keep a chance, or its weight would be infinite. With m >= 1 the audit sees to it: π >=
m/N_e. With m = 0 (a small refill, or no audit share) the places are split so that π_t >= f·K_S·(1+c)/Σ_eligible(1+c)
for every eligible row, or 1 where that exceeds 1; due rows without a sure place are then treated like others at rest
and stay due.
"""

from dataclasses import dataclass
from functools import cached_property
from math import floor as round_down

import numpy as np

from predictors.value import raised
from selector.sampling.designs import among, capped_inclusion, top_inclusion
from selector.sampling.scans import class_totals, gains, mixed_sizes, nonzero_rows, weighted_total

ROUNDING = 1e-9  # places; keeps 0.9 * 10 from being rounded down to 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Rows by class, due rows being resting rows as well."""

    active: int
    resting: int
    due: int

    @property
    def total(self) -> int:
        return self.active + self.resting


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """How many tickets a draw has, and how many of them are audit."""

    uncut: int  # before the divisor
    total: int  # K
    audit: int  # m

    @property
    def selected(self) -> int:
        """K_S = K − m."""
        return self.total - self.audit


def count_places(counts: Counts, *, size: int, audit: int, review: int, fill: bool, unit: int) -> Places:
    """K and m for a batch without repeats: K = m + min(size−m, active + review), never above the eligible rows.

    audit, review: the rounded shares. fill: resting rows take what is missing. The cut to a multiple of `unit` falls
    on the selected part first.
    """
    audit = min(audit, size, counts.total)
    offered = counts.total if fill else counts.active + min(max(review, counts.due), counts.resting)
    uncut = audit + min(size - audit, offered, counts.total - audit)
    total = uncut - uncut % unit
    return Places(uncut=uncut, total=total, audit=min(audit, total))


@dataclass(frozen=True, kw_only=True, eq=False)
class Classes:
    """The eligible rows by class, with what they bring: all (N,)."""

    active_N: np.ndarray  # bool
    resting_N: np.ndarray  # bool, due rows among them
    due_N: np.ndarray  # bool
    waited_N: np.ndarray | None  # int32, draws since a due row's turn; the longest wait goes first
    eligible_N: np.ndarray  # bool, active or resting
    credit_N: np.ndarray  # int32, c
    base_N: np.ndarray  # float64, finite and >= 0
    power: int  # that the utility is of the base
    top: bool = False  # the largest utilities are taken
    candidate_N: np.ndarray | None = None  # bool, rows that `top` looks at first; None: all

    @cached_property
    def utility_N(self) -> np.ndarray:
        """(N,) float64, finite and >= 0."""
        return self.base_N if self.power == 1 else raised(self.base_N, float(self.power))

    @cached_property
    def gain_N(self) -> np.ndarray:
        """(N,) float64, 1+c for eligible rows, 0 for others."""
        gain_N = np.empty(len(self.eligible_N))
        gains(self.credit_N, self.eligible_N, gain_N)
        return gain_N

    @cached_property
    def due(self) -> np.ndarray:
        """(D,) int64: the due rows, in order."""
        return nonzero_rows(self.due_N)

    @cached_property
    def resting(self) -> np.ndarray:
        """(R,) int64: the rows at rest, due ones among them, in order."""
        return nonzero_rows(self.resting_N)

    @cached_property
    def counts(self) -> Counts:
        return Counts(
            active=int(np.count_nonzero(self.active_N)),
            resting=len(self.resting),
            due=len(self.due),
        )

    def take(self, rows: np.ndarray) -> "Classes":
        """These rows alone."""
        return Classes(
            active_N=self.active_N[rows],
            resting_N=self.resting_N[rows],
            due_N=self.due_N[rows],
            waited_N=None if self.waited_N is None else self.waited_N[rows],
            eligible_N=self.eligible_N[rows],
            credit_N=self.credit_N[rows],
            base_N=self.base_N[rows],
            power=self.power,
            top=self.top,
            candidate_N=None if self.candidate_N is None else self.candidate_N[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shares:
    """How the selected part is shared: places for the active rows, and chances of the R rows at rest, in order."""

    for_active: float
    floor: float  # share of the active rows' places that is spread evenly
    rows_R: np.ndarray  # int64
    pi_R: np.ndarray  # float64 in [0, 1]


def selected_inclusion(classes: Classes, *, selected: int, review: int, floor: float, audited: bool) -> np.ndarray:
    """π_t over the pool, (N,) in [0, 1] with Σπ_t = selected (K_S), 0 where not eligible; see `shares`."""
    counts = classes.counts
    if counts.resting == 0:
        return class_inclusion(classes, classes.gain_N, selected, floor)
    if selected == counts.total:
        return classes.eligible_N.astype(np.float64)
    parts = shares(classes, selected=selected, review=review, floor=floor, audited=audited)
    gain_active_N = classes.gain_N.copy()
    gain_active_N[parts.rows_R] = 0.0
    pi_N = class_inclusion(classes, gain_active_N, parts.for_active, parts.floor)
    pi_N[parts.rows_R] = parts.pi_R
    return pi_N


def shares(classes: Classes, *, selected: int, review: int, floor: float, audited: bool) -> Shares:
    """How K_S = selected places, fewer than the eligible rows, are shared between active rows and those at rest.

    review: r, places for resting rows; they get more when active rows cannot fill the rest, and at least one each
    that is due. audited: whether m >= 1.
    """
    counts = classes.counts
    rows_R = classes.resting
    if not len(rows_R):
        return Shares(for_active=selected, floor=floor, rows_R=rows_R, pi_R=np.zeros(0))
    spare = 0.0 if audited else floor * selected
    sure = first_due(classes, round_down(selected - spare + ROUNDING))
    # The rows at rest are often few: they are taken out, and the active ones are the pool without them.
    is_other_R = ~among(rows_R, sure)
    others = classes.take(rows_R[is_other_R])
    need_others = need_active = 0.0
    if spare > 0.0:
        whole = float(classes.gain_N.sum())
        # What each class needs so that the floor holds over all eligible rows and not only within the class.
        need_others = min(counts.resting - len(sure), spare * float(others.gain_N.sum()) / whole)
        active_gain = whole - float(classes.gain_N[rows_R].sum())
        need_active = min(counts.active, spare * active_gain / whole)
    left = selected - len(sure)
    for_others = max(min(max(review, counts.due) - len(sure), counts.resting - len(sure)), need_others)
    for_others = max(0.0, min(max(for_others, left - counts.active), left - need_active))
    pi_R = np.ones(len(rows_R))
    pi_R[is_other_R] = class_inclusion(others, others.gain_N, for_others, _floor_within(floor, need_others, for_others))
    for_active = left - for_others
    return Shares(for_active=for_active, floor=_floor_within(floor, need_active, for_active), rows_R=rows_R, pi_R=pi_R)


def _floor_within(floor: float, need: float, places: float) -> float:
    """The share of a class's places to spread evenly so that `need` of them are."""
    return max(floor, min(1.0, need / places)) if places > 0 else floor


def first_due(classes: Classes, places: int) -> np.ndarray:
    """The due rows that get a place for sure: the longest waiting, ties to the lower row."""
    due = classes.due
    if len(due) > places and classes.waited_N is not None:
        due = due[np.argsort(-classes.waited_N[due], kind="stable")]
    return due[: max(places, 0)]


def class_inclusion(classes: Classes, gain_N: np.ndarray, places: float, floor: float) -> np.ndarray:
    """π_t of one class: the rows with a gain (1+c) above 0. (N,) in [0, 1], Σ = places."""
    if not classes.top:
        return proportional_inclusion(classes.utility_N, gain_N, places, floor)
    candidate_N = classes.candidate_N if classes.candidate_N is not None else np.ones(len(gain_N), bool)
    score_N = np.where(gain_N > 0.0, np.where(candidate_N, classes.utility_N, -1.0), -np.inf)
    top_N = top_inclusion(score_N, places)
    if floor == 0.0 or places == 0.0:
        return top_N
    return capped_inclusion(top_N * ((1.0 - floor) / places) + gain_N * (floor / float(gain_N.sum())), places)


def proportional_inclusion(utility_N: np.ndarray, gain_N: np.ndarray, places: float, floor: float) -> np.ndarray:
    """π_t in proportion to utility and gain, in one class. (N,) in [0, 1], Σ = places.

    Utilities that are all zero mean no preference. Where fewer rows than places have a size (floor 0, zero
    utilities), those are certain and the others share what is left by their gain.
    """
    if places == 0.0:
        return np.zeros(len(gain_N))
    largest, total_gain = class_totals(utility_N, gain_N)
    if largest == 0.0:
        return capped_inclusion(gain_N, places)
    # Scaled by the largest of the class, so that no product or sum leaves the range of floats.
    if floor > 0.0:
        by_utility = (1.0 - floor) * places / weighted_total(utility_N, gain_N, largest)
        pi_N = np.empty(len(gain_N))
        most = mixed_sizes(utility_N, gain_N, largest, by_utility, floor * places / total_gain, pi_N)
        return pi_N if most <= 1.0 else capped_inclusion(pi_N, places)
    size_N = np.where(gain_N > 0.0, utility_N / largest, 0.0) * gain_N
    positive = int(np.count_nonzero(size_N))
    if places <= positive:
        return capped_inclusion(size_N, places)
    pi_N = capped_inclusion(np.where(size_N > 0.0, 0.0, gain_N), places - positive)
    pi_N[size_N > 0.0] = 1.0
    return pi_N


def uniform_inclusion(gain_N: np.ndarray, places: Places) -> np.ndarray:
    """π_t that makes the whole draw, audit included, uniform per draw missed: π = K(1+c)/Σ(1+c). (N,), Σπ_t = K_S.

    Solves π_t + (1−π_t)·m/(N_e−K_S) = K(1+c)/Σ(1+c) for π_t. Without credit that is K_S/N_e for every row. Chances that
    would leave [0, 1] are cut and the others scaled, which happens when the audit is nearly the whole batch.
    """
    eligible = int(np.count_nonzero(gain_N))
    per_gain = places.total * (eligible - places.selected) / float(gain_N.sum())
    size_N = np.maximum(gain_N * per_gain - places.audit, 0.0) if places.total < eligible else gain_N
    utility_N = np.where(gain_N > 0, size_N / np.maximum(gain_N, 1.0), 0.0)
    return proportional_inclusion(utility_N, gain_N, places.selected, 0.0)
