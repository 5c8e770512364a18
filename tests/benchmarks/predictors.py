"""How well every registered estimator predicts real outcomes, before they are revealed to it.

Each set of `outcome_sets` is replayed for each estimator at its published settings, raw and through a read-out that is
calibrated as it goes, and at the best settings in hindsight; beside them two bounds. The only full set of trajectories
is one run of one model; the other sets are pairs of checkpoints and static pools. See `--help` for the picture.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from predictors.registry import ESTIMATORS
from tests.benchmarks.estimator_speed import speed_figures
from tests.benchmarks.knobs import OURS, Options, grid, published
from tests.benchmarks.language import Figure, arguments, show
from tests.benchmarks.outcome_sets import FEEDS, OutcomeSet, outcome_sets
from tests.benchmarks.prequential import Predictions, pool_mean, recalibrated, replayed, smoother
from tests.benchmarks.scoring import FEW, Difference, Scores, Truth, differences, log_losses, scored

RAW, CALIBRATED, HINDSIGHT, BOUND = "raw", "calibrated", "best knobs", "bound"
FEEDS_DRAWN, QUICK_FEEDS_DRAWN = 3, 1
COVERAGE_LIMITS = (0.87, 0.93)
ALLOWED_EXCESS = 0.005  # over the best peer tuned in hindsight
CATEGORY_FEED = f"{FEEDS[1]}, other model's"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One estimator at one setting, read in one way, on one set."""

    name: str
    readout: str
    scores: Scores
    options: Options
    predict_us: float | None = None  # per row and round
    observe_us: float | None = None  # per group

    @property
    def label(self) -> str:
        return self.name if self.readout in (RAW, BOUND) else f"{self.name}, {self.readout}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetResult:
    """All cases of one set."""

    outcomes: OutcomeSet
    truth: Truth
    cases: tuple[Case, ...]
    differences: Mapping[str, Difference]  # ours less each other case, by label

    @property
    def ours(self) -> Case:
        return next(case for case in self.cases if case.label == OURS)

    @property
    def peers(self) -> list[Case]:
        return [case for case in self.cases if case.readout != BOUND and case.name.partition(":")[0] != OURS]

    @property
    def best_tuned(self) -> Case:
        """The best peer at its best knobs."""
        tuned = [case for case in self.peers if case.readout == HINDSIGHT]
        return min(tuned, key=lambda case: case.scores.log_loss)

    def misses(self) -> list[str]:
        """Where our estimator does not reach its goals, in words."""
        ours, found = self.ours.scores, []
        for case in self.peers:
            difference = self.differences[case.label]
            if case.readout != HINDSIGHT and difference.interval[1] >= 0.0:
                low, high = difference.interval
                found.append(f"not surely below {case.label}: {difference.value:+.4f} [{low:+.4f}, {high:+.4f}]")
        excess = ours.log_loss / self.best_tuned.scores.log_loss - 1.0
        if excess > ALLOWED_EXCESS:
            found.append(f"{100 * excess:.1f} % above {self.best_tuned.label}")
        few = [bucket for bucket in ours.buckets if bucket.count < FEW]
        for bucket in ours.buckets:
            outside = not COVERAGE_LIMITS[0] <= bucket.share <= COVERAGE_LIMITS[1]
            if outside if bucket.count >= FEW else bucket.rejected(len(few)):
                found.append(f"covers {100 * bucket.share:.1f} % at {bucket.bucket} ({bucket.count} predictions)")
        return found


def main() -> None:
    parser = arguments("Predictions of every estimator on real outcomes.")
    parser.add_argument("--picture", type=Path, help="write reliability and loss against lag here")
    options = parser.parse_args()
    feeds = QUICK_FEEDS_DRAWN if options.quick else FEEDS_DRAWN
    begin, results = time.perf_counter(), []
    for outcomes in outcome_sets(quick=options.quick, feeds=feeds):
        results.append(_result(outcomes, quick=options.quick))
        if not options.json:
            _print(results[-1])
    if options.picture is not None and results:
        from tests.benchmarks.estimator_picture import picture

        picture(results, options.picture)
    speed = speed_figures(quick=options.quick)
    gains = _category_gains(results)
    if options.json:
        show([*(figure for result in results for figure in _figures(result)), *gains, *speed], as_json=True)
        return
    show([*gains, *speed], as_json=False)
    Console().print(f"{time.perf_counter() - begin:.0f} s")


def _result(outcomes: OutcomeSet, *, quick: bool) -> SetResult:
    truth = Truth.of(outcomes)
    cases = _bounds(outcomes, truth)
    for name in ESTIMATORS:
        settings = published(name)
        for case_name, options in settings.items():
            cases.extend(_case(outcomes, truth, case_name, name, options))
        tried = list(grid(name))
        if quick:
            tried = tried[::4]
        cases.append(_best_knobs(outcomes, truth, name, [*settings.values(), *tried]))
    ours = next(case for case in cases if case.label == OURS)
    others = {case.label: case.scores.log_loss_J for case in cases if case is not ours}
    found = differences(truth, ours.scores.log_loss_J, others)
    return SetResult(outcomes=outcomes, truth=truth, cases=tuple(cases), differences=found)


def _bounds(outcomes: OutcomeSet, truth: Truth) -> list[Case]:
    bounds = {"bound: pool mean": pool_mean(outcomes)}
    if outcomes.has_future:
        bounds["bound: smoother"] = [smoother(episode) for episode in outcomes.episodes]
    return [
        Case(name=name, readout=BOUND, scores=scored(truth, outcomes.episodes, predictions), options={})
        for name, predictions in bounds.items()
    ]


def _case(outcomes: OutcomeSet, truth: Truth, case_name: str, name: str, options: Options) -> list[Case]:
    """One setting, raw and calibrated."""
    replays = [replayed(name, options, episode) for episode in outcomes.episodes]
    num_read = sum(episode.passes_RN.size for episode in outcomes.episodes)
    num_told = sum(int(episode.revealed_RN.sum()) for episode in outcomes.episodes)
    raw = [replay.predictions for replay in replays]
    calibrated = [
        recalibrated(predictions, episode) for predictions, episode in zip(raw, outcomes.episodes, strict=True)
    ]
    return [
        Case(
            name=case_name,
            readout=readout,
            scores=scored(truth, outcomes.episodes, predictions),
            options=options,
            predict_us=1e6 * sum(replay.predict_s for replay in replays) / num_read,
            observe_us=1e6 * sum(replay.observe_s for replay in replays) / num_told,
        )
        for readout, predictions in ((RAW, raw), (CALIBRATED, calibrated))
    ]


def _best_knobs(outcomes: OutcomeSet, truth: Truth, name: str, tried: Sequence[Options]) -> Case:
    best: tuple[float, Options, list[Predictions]] | None = None
    for options in tried:
        predictions = [replayed(name, options, episode).predictions for episode in outcomes.episodes]
        loss = float(log_losses(truth, outcomes.episodes, predictions).mean())
        if best is None or loss < best[0]:
            best = (loss, options, predictions)
    assert best is not None
    return Case(name=name, readout=HINDSIGHT, scores=scored(truth, outcomes.episodes, best[2]), options=dict(best[1]))


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
