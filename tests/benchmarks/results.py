"""One estimator at one setting on one set, and all of them on one set: how they are run, compared and judged.

Used by the benchmark of estimators.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from predictors.registry import ESTIMATORS
from tests.benchmarks.knobs import OURS, READS_COLUMNS, Options, grid, published
from tests.benchmarks.outcome_sets import OutcomeSet
from tests.benchmarks.prequential import Predictions, pool_mean, recalibrated, replayed, smoother
from tests.benchmarks.scoring import FEW, Difference, Scores, Truth, differences, log_losses, scored

RAW, CALIBRATED, HINDSIGHT, BOUND = "raw", "calibrated", "best knobs", "bound"
COVERAGE_LIMITS = (0.87, 0.93)
ALLOWED_EXCESS = 0.005  # over the best peer tuned in hindsight


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


def measured(outcomes: OutcomeSet, *, quick: bool) -> SetResult:
    """Run every estimator at every setting; a quick run tries a quarter of the grids."""
    truth = Truth.of(outcomes)
    cases = _bounds(outcomes, truth)
    for name in (name for name in ESTIMATORS if name not in READS_COLUMNS):
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
