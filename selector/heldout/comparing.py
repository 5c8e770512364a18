"""Configurations against each other over seeds: cost to reach a quality, quality at equal cost, paired intervals.

`api` calls `compare` for `POST /v1/comparisons`. Knows curves and seeds; nothing of runs' states.

Axes: S runs (seeds) of a configuration, T looks.

Equal grids: who looks more often sees its target earlier. So all curves are cut to the same looks: an index counts
when every run that went so far was looked at there. Never reached is an outcome: such a run counts as having cost more
than all it spent. Medians treat it as infinite, a mean is given only when all runs got there, and a pair in which a run
never got there stays in the count of who was first. Differences are paired by seed where both sides have it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean, median, stdev

from selector.heldout.curves import UNITS, Curve, Passage, Point, curve, first_passage
from selector.heldout.looks import Look
from selector.heldout.quality import LEVEL
from selector.heldout.seeds import ENOUGH_SEEDS, Difference, mean_difference, seeds_statement, unpaired

SAME_GRID = 2  # looks in common that make a curve


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeedRun:
    """One run as it comes in."""

    run: str
    seed: int
    looks: Sequence[Look]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One configuration, or the equal-work control of one."""

    name: str
    runs: Sequence[SeedRun]
    control_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BandPoint:
    """All runs of an arm at one index."""

    index: int
    runs: int
    mean: float
    low: float  # the smallest and the largest run
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run on the common grid."""

    run: str
    seed: int
    curve: Curve
    passage: Passage
    matched: Point | None  # the last look within the matched cost


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """One arm: who got there, at what cost, and how good it is at the matched cost."""

    name: str
    control_of: str | None
    runs: Sequence[RunResult]
    band: Sequence[BandPoint]
    reached: int
    median_cost: float | None  # None when half or more never got there
    mean_cost: float | None  # None unless all got there
    matched_quality: float | None  # mean over runs
    spread: float | None  # standard deviation over runs, of that


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """One arm against another."""

    arm: str
    against: str
    paired: bool  # by seed; otherwise in no pairs, by Welch's interval
    quality: Difference  # arm minus the other, at the matched cost
    cost_ratio: Difference  # arm / the other, cost to reach the target, over pairs in which both got there
    first: int  # pairs in which the arm got there at less cost, the other never reaching it counted
    last: int
    neither: int  # pairs in which nobody got there
    statement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything `/v1/comparisons` says."""

    target: float
    unit: str
    units: Sequence[str]  # the units that every run has
    indices: Sequence[int]  # of the common grid; empty when there is none
    matched_cost: float | None
    arms: Sequence[ArmResult]
    contrasts: Sequence[Contrast]
    warnings: Sequence[str]


def compare(arms: Sequence[Arm], *, target: float, unit: str = "tokens", level: float = LEVEL) -> Comparison:
    """The comparison in one unit of cost. The first arm is what the others are measured against; a control is measured
    against its own arm.

    Raises ValueError for a unit that some run does not have, naming the run, or a target outside [0, 1].
    """
    grid = common_indices([run.looks for arm in arms for run in arm.runs])
    warnings = []
    if grid is None:
        warnings.append(
            "the runs share fewer than two looks: each is shown at its own, and who looked more often has an advantage"
        )
    drawn = {
        run.run: curve(run.looks, indices=None if grid is None else frozenset(grid), level=level)
        for arm in arms
        for run in arm.runs
    }
    units = [u for u in UNITS if all(u in found.units for found in drawn.values() if found.points)]
    if unit not in units:
        lacking = sorted(name for name, found in drawn.items() if found.points and unit not in found.units)
        raise ValueError(f"not every step of {', '.join(lacking)} told {unit}; all runs have {', '.join(units)}")
    empty = sorted(name for name, found in drawn.items() if not found.points)
    if empty:
        warnings.append(f"no held-out look to be used: {', '.join(empty)}; draw with purpose heldout and report it")
    spent = [found.cost_T(unit)[-1] for found in drawn.values() if found.points]
    matched_cost = float(min(spent)) if spent else None
    found = [_arm(arm, drawn, target, unit, matched_cost) for arm in arms]
    base = next((arm for arm in found if arm.control_of is None), None)
    contrasts = []
    for arm in found:
        other = next((a for a in found if a.name == arm.control_of), base if arm.control_of is None else None)
        if other is not None and other is not arm:
            contrasts.append(contrast(arm, other, unit, level))
    seeds = min((len(arm.runs) for arm in arms), default=0)
    if seeds < ENOUGH_SEEDS:
        warnings.append(seeds_statement(seeds))
    return Comparison(
        target=target,
        unit=unit,
        units=units,
        indices=grid or [],
        matched_cost=matched_cost,
        arms=found,
        contrasts=contrasts,
        warnings=warnings,
    )


def common_indices(looks_R: Sequence[Sequence[Look]]) -> list[int] | None:
    """Indices at which every run that went so far was looked at; None when fewer than two."""
    known = [{look.index for look in looks if look.spent and look.back_K.any()} for looks in looks_R]
    known = [indices for indices in known if indices]
    shared = [
        index
        for index in sorted(set().union(*known))
        if all(index in indices for indices in known if max(indices) >= index)
    ]
    return shared if len(shared) >= SAME_GRID else None


def contrast(arm: ArmResult, other: ArmResult, unit: str, level: float = LEVEL) -> Contrast:
    """Differences of two arms, over pairs of equal seed where every seed of both has one."""
    mine, theirs = ({run.seed: run for run in side.runs} for side in (arm, other))
    shared = sorted(set(mine) & set(theirs))
    paired = bool(shared) and len(mine) == len(arm.runs) and len(theirs) == len(other.runs)
    if not paired:
        return Contrast(
            arm=arm.name,
            against=other.name,
            paired=False,
            quality=unpaired(_qualities(arm.runs), _qualities(other.runs), level),
            cost_ratio=Difference(estimate=None, interval=None, pairs=0),
            first=0,
            last=0,
            neither=0,
            statement=f"{arm.name} and {other.name} have no seed in common: nothing is paired, and less would show",
        )
    pairs = [(mine[seed], theirs[seed]) for seed in shared]
    differences = [
        a.matched.rate.estimate - b.matched.rate.estimate
        for a, b in pairs
        if a.matched is not None and b.matched is not None
        if a.matched.rate.estimate is not None and b.matched.rate.estimate is not None
    ]
    costs = [(_reached_at(a, unit), _reached_at(b, unit)) for a, b in pairs]
    ratios = [log(a / b) for a, b in costs if a is not None and b is not None and a > 0 and b > 0]
    first = sum(a is not None and (b is None or a < b) for a, b in costs)
    last = sum(b is not None and (a is None or b < a) for a, b in costs)
    neither = sum(a is None and b is None for a, b in costs)
    one_sided = sum((a is None) != (b is None) for a, b in costs)
    quality, ratio = mean_difference(differences, level), mean_difference(ratios, level)
    by_factor = Difference(
        estimate=None if ratio.estimate is None or one_sided else exp(ratio.estimate),
        interval=None if ratio.interval is None or one_sided else (exp(ratio.interval[0]), exp(ratio.interval[1])),
        pairs=ratio.pairs,
    )
    return Contrast(
        arm=arm.name,
        against=other.name,
        paired=True,
        quality=quality,
        cost_ratio=by_factor,
        first=first,
        last=last,
        neither=neither,
        statement=_statement(arm.name, other.name, quality, len(pairs), first, last, neither, one_sided)
        + _left_over(len(set(mine) ^ set(theirs))),
    )


def _arm(arm: Arm, drawn: dict[str, Curve], target: float, unit: str, matched_cost: float | None) -> ArmResult:
    runs = [
        RunResult(
            run=run.run,
            seed=run.seed,
            curve=drawn[run.run],
            passage=first_passage(drawn[run.run], target),
            matched=drawn[run.run].at_cost(unit, matched_cost)
            if matched_cost is not None and drawn[run.run].points
            else None,
        )
        for run in arm.runs
    ]
    costs = [_reached_at(run, unit) for run in runs]
    reached = [cost for cost in costs if cost is not None]
    middle = median([float("inf") if cost is None else cost for cost in costs]) if costs else float("inf")
    qualities = _qualities(runs)
    return ArmResult(
        name=arm.name,
        control_of=arm.control_of,
        runs=runs,
        band=_band(runs),
        reached=len(reached),
        median_cost=middle if middle < float("inf") else None,
        mean_cost=fmean(reached) if reached and len(reached) == len(costs) else None,
        matched_quality=fmean(qualities) if qualities else None,
        spread=stdev(qualities) if len(qualities) > 1 else None,
    )


def _band(runs: Sequence[RunResult]) -> list[BandPoint]:
    by_index = dict[int, list[float]]()
    for run in runs:
        for point in run.curve.points:
            if point.rate.estimate is not None:
                by_index.setdefault(point.index, []).append(point.rate.estimate)
    return [
        BandPoint(index=index, runs=len(rates), mean=fmean(rates), low=min(rates), high=max(rates))
        for index, rates in sorted(by_index.items())
    ]


def _qualities(runs: Sequence[RunResult]) -> list[float]:
    rates = [run.matched.rate.estimate for run in runs if run.matched is not None]
    return [rate for rate in rates if rate is not None]


def _reached_at(run: RunResult, unit: str) -> float | None:
    """Cost at the look that has the target; None when no look does."""
    return run.passage.cost[unit][1] if run.passage.reached else None


def _left_over(seeds: int) -> str:
    return f"; {seeds} seeds that only one of them has are in no pair" if seeds else ""


def _statement(
    arm: str, other: str, quality: Difference, pairs: int, first: int, last: int, neither: int, one_sided: int
) -> str:
    parts = []
    if quality.interval is None:
        parts.append(f"{pairs} pairs are too few for an interval of the difference in quality")
    elif quality.interval[0] > 0:
        parts.append(f"{arm} is better than {other} at the same cost")
    elif quality.interval[1] < 0:
        parts.append(f"{arm} is worse than {other} at the same cost")
    else:
        parts.append(f"no difference in quality between {arm} and {other} at the same cost is shown")
    parts.append(f"{arm} had the target at less cost in {first} of {pairs} pairs, {other} in {last}")
    if neither:
        parts.append(f"in {neither} neither had it")
    if one_sided:
        parts.append(
            f"in {one_sided} only one had it, so a ratio of costs has no mean: such a run cost more than all it spent"
        )
    return "; ".join(parts)
