"""A replay's figures for people, as a table, and for machines, as JSON lines in the language of the benchmarks."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from api.schemas import Estimate
from trainer.replay.result import WARM_UP_ROUNDS, ReplayResult

NONE = "–"


def table(results: Sequence[ReplayResult]) -> Table:
    """One column a policy; pass rates with the audit's intervals, whose level the caption states."""
    first = results[0]
    size = f"{first.num_prompts:,} prompts, {first.batch_size} groups of {first.group_size} a round"
    view = Table(
        title=f"{first.record}: {size}",
        caption=(
            "A group is informative if its rollouts do not all score alike. Log loss: of the prediction made at the "
            f"draw, uniformly drawn tickets only. Intervals: level {first.audit.level:g}, valid at any time. Groups "
            "drawn are no sample of the pool; re-weighted by their inclusion probabilities they are."
        ),
        title_justify="left",
        caption_justify="left",
    )
    view.add_column("")
    for result in results:
        view.add_column(Text(result.arm.name), justify="right", overflow="fold")
    for name, show in _ROWS:
        view.add_row(name, *(show(result) for result in results))
    return view


def json_lines(results: Sequence[ReplayResult]) -> list[dict[str, Any]]:
    """One object for each policy and metric, compared with the `uniform` policy of the same replay if there is one."""
    reference = next((result for result in results if result.arm.policy.preset == "uniform"), results[0])
    return [
        _line(result, metric, unit, value, interval, reference_value, reference.arm.name)
        for result in results
        for (metric, unit, value, interval), (_, _, reference_value, _) in zip(
            _metrics(result), _metrics(reference), strict=True
        )
    ]


def write_json_lines(results: Sequence[ReplayResult], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(line, allow_nan=False) for line in json_lines(results))
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


Metric = tuple[str, str, float | None, tuple[float, float] | None]  # name, unit, value, interval


def _metrics(result: ReplayResult) -> list[Metric]:
    rates = result.audit.pass_rate
    plain: Iterable[tuple[str, str, float]] = (
        ("informative_groups", "groups", result.num_informative),
        ("informative_share", "share of groups", result.informative_share),
        ("informative_share_settled", "share of groups", result.settled_share),
        ("informative_groups_per_100_rollouts", "groups", result.informative_per_100_rollouts),
        ("never_seen", "prompts", result.never_seen),
        ("log_loss", "nats per rollout", result.log_loss),
        ("brier", "squared error per rollout", result.brier),
        ("wall", "s", math.nan if result.resumed else result.wall_s),
    )
    audited: Iterable[tuple[str, Estimate]] = (
        ("pass_rate_uniform", rates.uniform),
        ("pass_rate_selected", rates.selected),
        ("pass_rate_reweighted", rates.reweighted),
    )
    return [
        *((name, unit, value if math.isfinite(value) else None, None) for name, unit, value in plain),
        *((name, "share of rollouts", view.estimate, view.interval) for name, view in audited),
    ]


def _line(
    result: ReplayResult,
    metric: str,
    unit: str,
    value: float | None,
    interval: tuple[float, float] | None,
    reference_value: float | None,
    reference_name: str,
) -> dict[str, Any]:
    comparable = value is not None and reference_value is not None and reference_value != 0
    return {
        "benchmark": "replay",
        "case": result.arm.name,
        "metric": metric,
        "value": value,
        "unit": unit,
        "reference": {"name": reference_name, "value": reference_value},
        "ratio": value / reference_value if comparable and value is not None and reference_value else None,
        "n": result.num_prompts,
        "seeds": 1,
        "interval": None if interval is None else list(interval),
        "setting": {
            "set": result.record,
            "feed": "all",
            "rounds": len(result.rounds.groups_R),
            "batch_size": result.batch_size,
            "group_size": result.group_size,
            "audit_share": result.audit_share,
            "seed": result.seed,
            "policy": result.arm.policy.model_dump(exclude_unset=True),
            "stopped": result.stopped,
        },
    }


def _percent(share: float) -> str:
    return f"{share:.1%}" if math.isfinite(share) else NONE


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else NONE


def _estimate(view: Estimate) -> str:
    if view.estimate is None:
        return NONE
    if view.interval is None:
        return f"{view.estimate:.3f}"
    return f"{view.estimate:.3f} [{view.interval[0]:.3f}, {view.interval[1]:.3f}]"


_ROWS: tuple[tuple[str, Callable[[ReplayResult], str]], ...] = (
    ("rollouts", lambda one: f"{one.num_rollouts:,}"),
    ("informative groups", lambda one: f"{one.num_informative:,}"),
    ("  of all groups", lambda one: _percent(one.informative_share)),
    (f"  from round {WARM_UP_ROUNDS + 1} on", lambda one: _percent(one.settled_share)),
    ("  per 100 rollouts", lambda one: _number(one.informative_per_100_rollouts, 2)),
    ("prompts never drawn", lambda one: f"{one.never_seen:,}"),
    ("log loss, nats a rollout", lambda one: _number(one.log_loss, 4)),
    ("pass rate, uniform audit", lambda one: _estimate(one.audit.pass_rate.uniform)),
    ("pass rate, groups drawn", lambda one: _estimate(one.audit.pass_rate.selected)),
    ("pass rate, re-weighted", lambda one: _estimate(one.audit.pass_rate.reweighted)),
    ("wall time, s", lambda one: NONE if one.resumed else f"{one.wall_s:.1f}"),
)
