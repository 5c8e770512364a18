"""How well every registered estimator predicts real outcomes, before they are revealed to it.

Each set of `outcome_sets` is replayed for each estimator at its published settings, raw and through a read-out that is
calibrated as it goes, and at the best settings in hindsight; beside them two bounds. The only full set of trajectories
is one run of one model; the other sets are pairs of checkpoints and static pools. See `--help` for the picture.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.cost_figures import cost_figures
from tests.benchmarks.estimator_speed import speed_figures
from tests.benchmarks.language import Figure, arguments, show
from tests.benchmarks.outcome_sets import FEEDS, outcome_sets
from tests.benchmarks.own_training import own_training_figures
from tests.benchmarks.rate_intervals import interval_figures
from tests.benchmarks.results import RAW, Case, SetResult, measured
from tests.benchmarks.scoring import FEW, Difference, differences
from tests.benchmarks.sharing import sharing_figures

FEEDS_DRAWN, QUICK_FEEDS_DRAWN = 3, 1
CATEGORY_FEED = f"{FEEDS[1]}, other model's"


def main() -> None:
    parser = arguments("Predictions of every estimator on real outcomes.")
    parser.add_argument("--picture", type=Path, help="write reliability and loss against lag here")
    options = parser.parse_args()
    feeds = QUICK_FEEDS_DRAWN if options.quick else FEEDS_DRAWN
    begin, results = time.perf_counter(), []
    for outcomes in outcome_sets(quick=options.quick, feeds=feeds):
        results.append(measured(outcomes, quick=options.quick))
        if not options.json:
            _print(results[-1])
    if options.picture is not None and results:
        from tests.benchmarks.estimator_picture import picture

        picture(results, options.picture)
    speed = [*speed_figures(quick=options.quick), *cost_figures(quick=options.quick)]
    gains = [
        *_category_gains(results),
        *sharing_figures(result.outcomes for result in results),
        *own_training_figures(result.outcomes for result in results),
        *interval_figures(quick=options.quick),
    ]
    if options.json:
        show([*(figure for result in results for figure in _figures(result)), *gains, *speed], as_json=True)
        return
    show([*gains, *speed], as_json=False)
    Console().print(f"{time.perf_counter() - begin:.0f} s")


def _figures(result: SetResult) -> list[Figure]:
    figures = []
    best = result.best_tuned
    for case in result.cases:
        scores, reference = case.scores, best if case is result.ours else result.ours
        values: list[tuple[str, float | None, str]] = [
            ("brier", scores.brier, "squared share"),
            ("informative_auc", scores.auc, "chance"),
            ("informative_log_loss", scores.informative_log_loss, "nats"),
            ("informative_reliability_error", scores.reliability_error, "chance"),
            ("coverage", scores.coverage, "share"),
            *((f"coverage, {bucket.bucket}", bucket.share, "share") for bucket in scores.buckets),
            ("predict", case.predict_us, "us/row"),
            ("observe", case.observe_us, "us/group"),
        ]
        figures.append(_figure(result, case, "log_loss", scores.log_loss, "nats/group", reference=reference))
        if case is not result.ours:
            found = result.differences[case.label]
            figures.append(_figure(result, case, "log_loss_of_mixture_less_this", found.value, "nats/group", found))
        figures += [_figure(result, case, metric, value, unit) for metric, value, unit in values if value is not None]
    return figures


def _figure(
    result: SetResult,
    case: Case,
    metric: str,
    value: float,
    unit: str,
    difference: Difference | None = None,
    reference: Case | None = None,
) -> Figure:
    return Figure(
        benchmark="predictors",
        case=case.label,
        metric=metric,
        value=value,
        unit=unit,
        reference_name=None if reference is None else reference.label,
        reference_value=None if reference is None else reference.scores.log_loss,
        n=result.outcomes.num_prompts,
        seeds=len(result.outcomes.episodes) if result.outcomes.same_prompts else 1,
        interval=None if difference is None else difference.interval,
        setting={
            "set": result.outcomes.name,
            "feed": result.outcomes.feed,
            "kind": result.outcomes.kind,
            "readout": case.readout,
            "options": dict(case.options),
            "predictions": int(result.truth.passes_J.size),
        },
    )


def _category_gains(results: Sequence[SetResult]) -> list[Figure]:
    """Log loss with categories less log loss without, on the same predictions of the sparse feed."""
    found = {(result.outcomes.kind, result.outcomes.feed): result for result in results}
    without, given = found.get(("over time", FEEDS[1])), found.get(("over time", CATEGORY_FEED))
    if without is None or given is None:
        return []
    figures = []
    for case in given.cases:
        if case.readout == RAW:
            plain = next(other for other in without.cases if other.label == case.label)
            gain = differences(given.truth, case.scores.log_loss_J, {"": plain.scores.log_loss_J})[""]
            figures.append(
                _figure(given, case, "log_loss_with_categories_less_without", gain.value, "nats/group", gain)
            )
    return figures


def _print(result: SetResult) -> None:
    table = Table(
        *(
            "case",
            "log loss",
            "ours less this",
            "Brier",
            "AUC inf.",
            "loss inf.",
            "covered",
            "by lag",
            "us/row",
            "us/group",
        ),
        title=f"{result.outcomes.name} - {result.outcomes.feed}: {result.outcomes.num_prompts:,} prompts, "
        f"{result.truth.passes_J.size:,} predictions",
    )
    for case in sorted(result.cases, key=lambda case: case.scores.log_loss):
        scores = case.scores
        large = [bucket.share for bucket in scores.buckets if bucket.count >= FEW] or [scores.coverage]
        difference = result.differences.get(case.label)
        table.add_row(
            f"[bold]{case.label}[/bold]" if case is result.ours else case.label,
            f"{scores.log_loss:.4f}",
            "" if difference is None else "{:+.4f} [{:+.4f}, {:+.4f}]".format(difference.value, *difference.interval),
            f"{scores.brier:.4f}",
            "" if scores.auc is None else f"{scores.auc:.4f}",
            "" if scores.informative_log_loss is None else f"{scores.informative_log_loss:.4f}",
            f"{scores.coverage:.3f}",
            f"{min(large):.3f}-{max(large):.3f}",
            "" if case.predict_us is None else f"{case.predict_us:.2f}",
            "" if case.observe_us is None else f"{case.observe_us:.1f}",
        )
    console = Console(width=180)
    console.print(table)
    for miss in result.misses():
        console.print(f"  misses: {miss}", highlight=False)


if __name__ == "__main__":
    main()
