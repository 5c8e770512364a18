"""What the API shows of costs, held-out quality, curves, diagnoses and comparisons: from states to JSON-ready values.

Routes and the report call it, in worker threads. Pure; it reads states and never changes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from selector.diagnosis import diagnose, saving_of_small_groups
from selector.groups.standing import may_stop
from selector.heldout.comparing import Arm, ArmResult, Comparison, RunResult, SeedRun
from selector.heldout.curves import Curve, Passage, Point, curve, first_passage
from selector.heldout.looks import held_out_looks, informative_groups, selected_draws
from selector.heldout.quality import Quality, Rate, quality
from selector.ledger import Efficiency, efficiency
from selector.run.state import RunState
from selector.types import PURPOSE_CODE, Purpose, TicketState

METRIC = "pass_rate"
NEVER_REACHED = (
    "a run that never has the target counts as having cost more than all it spent: it is infinite in medians, stays in "
    "the count of who was first, and leaves means of costs out; none is dropped"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run as a comparison needs it."""

    seed_run: SeedRun
    pool: str
    costs: Mapping[str, Any]
    setup: Mapping[str, Any]


def costs(state: RunState) -> dict[str, Any]:
    ledger, found = state.ledger.to_json(), _efficiency(state)
    names = ("tokens", "rollouts", "seconds", "environment_seconds", "accelerators", "peak_memory_bytes", "environment")
    return {
        **{name: ledger[name] for name in (*names, "steps")},
        "rollout_seconds": {source.value: us / 1e6 for source, us in state.ledger.microseconds.items()},
        "spent": state.ledger.spent(),
        "informative": {"groups": found.informative, "judged": found.judged, "share": found.share},
        "per_informative_group": dict(found.per_informative_group),
    }


def setup(state: RunState) -> dict[str, Any]:
    """The configuration in the words of a report's table."""
    config = state.config
    return {
        "preset": config.policy.preset,
        "weights": config.weights,
        "group_size": config.group_size,
        "audit_share": config.audit_share,
        "max_lag": config.max_lag,
        "seed": config.seed,
        "config_hash": state.config_hash,
    }


def curve_info(state: RunState, q: float | None) -> dict[str, Any]:
    looks, _ = held_out_looks(state)
    found, said = curve(looks), quality_of(state)
    warnings = list(said.warnings)
    if found.left_out:
        warnings.append(f"{found.left_out} looks are not on the curve: nothing was scored, or their cost was not noted")
    if not found.points:
        warnings.append("no look at the held-out split yet: draw with purpose heldout and report it")
    return {
        "run": state.run,
        "metric": METRIC,
        "units": found.units,
        "points": [point(p) for p in found.points],
        "passage": None if q is None else passage(found, first_passage(found, q)),
        "quality": quality_info(said),
        "warnings": warnings,
    }


def quality_of(state: RunState) -> Quality:
    looks, waiting = held_out_looks(state)
    return quality(looks, selected_draws(state), categories=state.pool.categories, waiting=waiting)


def quality_info(found: Quality) -> dict[str, Any]:
    return {
        "verdict": found.verdict,
        "finding": found.finding,
        "overall": rate(found.looks[-1]) if found.looks else None,
        "category": {name: rate(value) for name, value in found.category.items()},
        "stratum": {name: rate(value) for name, value in found.stratum.items()},
        "unranked": found.unranked,
        "tail": None if found.tail is None else asdict(found.tail),
        "gaps": [asdict(gap) for gap in found.gaps],
    }


def diagnosis_info(state: RunState) -> dict[str, Any]:
    informative, judged = informative_groups(state)
    table = state.book.tickets
    trained = np.isin(table["purpose"], [PURPOSE_CODE[Purpose.TRAIN], PURPOSE_CODE[Purpose.AUDIT]])
    trained &= table["state"] == TicketState.REPORTED
    whole = np.flatnonzero(trained)
    whole = whole[~may_stop(state, whole)]
    found = diagnose(
        state.ledger.seconds,
        informative=informative,
        judged=judged,
        small_groups=saving_of_small_groups(table["passes"][whole], table["scored"][whole].astype(np.int64)),
        peak_memory_bytes=state.ledger.peak_memory_bytes,
        environment=state.ledger.environment,
    )
    return {"run": state.run, **asdict(found)}


def answer_lengths(state: RunState) -> dict[str, float] | None:
    """Tokens of the rollouts that were drawn to be trained on; None when none came back with its tokens."""
    book = state.book
    trained = np.isin(book.tickets["purpose"], [PURPOSE_CODE[Purpose.TRAIN], PURPOSE_CODE[Purpose.AUDIT]])
    first, size = book.tickets["slot"][trained], book.tickets["group_size"][trained]
    slot_B = np.repeat(first - np.cumsum(size) + size, size) + np.arange(size.sum())
    tokens_B = book.rollouts["tokens"][slot_B][book.rollouts["arrived"][slot_B]]
    if not tokens_B.any():
        return None
    quantiles = np.quantile(tokens_B, (0.5, 0.9, 0.99))
    names = ("median", "p90", "p99")
    return {
        "mean": float(tokens_B.mean()),
        **dict(zip(names, quantiles.tolist(), strict=True)),
        "max": float(tokens_B.max()),
    }


def measured(state: RunState) -> Measured:
    looks, _ = held_out_looks(state)
    return Measured(
        seed_run=SeedRun(run=state.run, seed=state.config.seed, looks=looks),
        pool=state.pool.name,
        costs=costs(state),
        setup=setup(state),
    )


def arms(
    runs: Sequence[Sequence[str]],
    controls: Sequence[Sequence[str]],
    names: Sequence[str],
    found: Mapping[str, Measured],
) -> list[Arm]:
    """Each configuration, followed by its equal-work control if it has one."""
    result = []
    for i, (name, seeds) in enumerate(zip(names, runs, strict=True)):
        result.append(Arm(name=name, runs=[found[run].seed_run for run in seeds]))
        if i < len(controls) and controls[i]:
            chosen = [found[run].seed_run for run in controls[i]]
            result.append(Arm(name=control_name(name), runs=chosen, control_of=name))
    return result


def control_name(name: str) -> str:
    return f"control of {name}"


def comparison_info(found: Comparison, of_run: Mapping[str, Measured]) -> dict[str, Any]:
    pools = sorted({one.pool for one in of_run.values()})
    warnings = list(found.warnings)
    if len(pools) > 1:
        warnings.append(f"the runs are on different pools, {', '.join(pools)}: their held-out prompts differ")
    return {
        "quality": {"metric": METRIC, "target": found.target},
        "unit": found.unit,
        "units": list(found.units),
        "grid": list(found.indices),
        "matched_cost": found.matched_cost,
        "configurations": [_arm(arm, of_run) for arm in found.arms],
        "contrasts": [asdict(contrast) for contrast in found.contrasts],
        "never_reached": NEVER_REACHED,
        "warnings": warnings,
    }


def point(value: Point) -> dict[str, Any]:
    return {
        "index": value.index,
        "policy_version": value.policy_version,
        "spent": dict(value.spent),
        **rate(value.rate),
        "smoothed": value.smoothed,
    }


def rate(value: Rate) -> dict[str, Any]:
    return {
        "estimate": value.estimate,
        "interval": list(value.interval),
        "prompts": value.num_prompts,
        "missing": value.num_missing,
    }


def passage(found: Curve, value: Passage) -> dict[str, Any]:
    """`cost`: unit -> [more than, at most]; without an upper end where the target was never reached."""
    return {
        "target": value.target,
        "reached": value.reached,
        "after_index": None if value.after is None else found.points[value.after].index,
        "by_index": None if value.by is None else found.points[value.by].index,
        "cost": {unit: list(ends) for unit, ends in value.cost.items()},
    }


def _efficiency(state: RunState) -> Efficiency:
    informative, judged = informative_groups(state)
    return efficiency(state.ledger.spent(), informative=informative, judged=judged)


def _arm(arm: ArmResult, of_run: Mapping[str, Measured]) -> dict[str, Any]:
    names = ("name", "control_of", "reached", "median_cost", "mean_cost", "matched_quality", "spread")
    return {
        **{name: getattr(arm, name) for name in names},
        "seeds": len(arm.runs),
        "band": [asdict(value) for value in arm.band],
        "runs": [_run(run, of_run[run.run]) for run in arm.runs],
    }


def _run(run: RunResult, known: Measured) -> dict[str, Any]:
    return {
        "run": run.run,
        "seed": run.seed,
        "setup": known.setup,
        "points": [point(p) for p in run.curve.points],
        "passage": passage(run.curve, run.passage),
        "matched": None if run.matched is None else point(run.matched),
        "spent": known.costs["spent"],
        "informative": known.costs["informative"],
        "per_informative_group": known.costs["per_informative_group"],
        "peak_memory_bytes": known.costs["peak_memory_bytes"],
    }
