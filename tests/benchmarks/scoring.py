"""What predictions of a set are worth, and whether one estimator's are worth more than another's.

Used by the benchmark of estimators. Intervals resample prompts, as the groups of one prompt are alike.
Axes: J judged predictions of a set, P prompts of a set, D draws of the bootstrap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from predictors.base import FloatArray
from predictors.calibration import beta_binomial_log_loss
from predictors.scores import COVERED, Came, Losses, Predicted
from predictors.value import informative_probability
from tests.benchmarks.outcome_sets import Bools, Episode, Ints, OutcomeSet
from tests.benchmarks.prequential import LARGEST_OVERLAP, MEAN_EDGE, Predictions

FEW = 2_000  # predictions in a bucket below which its coverage is judged by a test, not by limits
REJECTED_AT = 0.01
BOOTSTRAP_DRAWS = 1_000
BOOTSTRAP_BLOCK = 50
LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What came, for the judged predictions of a set; the same for every estimator."""

    passes_J: Ints
    scored_J: Ints
    prompt_J: Ints  # which prompt, 0..num_prompts - 1
    uniform_J: FloatArray  # for the randomised PIT
    num_prompts: int

    @classmethod
    def of(cls, outcomes: OutcomeSet) -> "Truth":
        start, prompts = 0, []
        for episode in outcomes.episodes:
            row_RN = np.broadcast_to(np.arange(episode.num_prompts), episode.passes_RN.shape)
            prompts.append(start + row_RN[episode.judged_RN])
            start += 0 if outcomes.same_prompts else episode.num_prompts
        passes_J = np.concatenate([episode.passes_RN[episode.judged_RN] for episode in outcomes.episodes])
        return cls(
            passes_J=passes_J,
            scored_J=np.concatenate([episode.scored_RN[episode.judged_RN] for episode in outcomes.episodes]),
            prompt_J=np.concatenate(prompts),
            uniform_J=np.random.default_rng(6).random(passes_J.size),
            num_prompts=start + (outcomes.episodes[0].num_prompts if outcomes.same_prompts else 0),
        )

    @property
    def informative_J(self) -> Bools:
        return (self.passes_J > 0) & (self.passes_J < self.scored_J)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Share of randomised-PIT values inside COVERED, in one bucket of lag."""

    bucket: str
    count: int
    share: float
    error: float  # standard error, prompts as clusters

    def rejected(self, num_tests: int) -> bool:
        """Whether the nominal share is rejected at REJECTED_AT, shared between so many tests."""
        nominal = COVERED[1] - COVERED[0]
        distance = abs(self.share - nominal)
        return distance > NormalDist().inv_cdf(1.0 - REJECTED_AT / num_tests / 2.0) * self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """One estimator on one set."""

    log_loss_J: FloatArray
    brier: float
    auc: float | None  # None where no group, or every group, is informative
    informative_log_loss: float | None
    coverage: float
    buckets: tuple[Coverage, ...]
    lag_J: Ints
    informative_J: FloatArray | None  # P(informative); None for groups of one
    reliability_error: float | None

    @property
    def log_loss(self) -> float:
        return float(self.log_loss_J.mean())


def log_losses(truth: Truth, episodes: Sequence[Episode], predictions: Sequence[Predictions]) -> FloatArray:
    """(J,) the log loss of each judged prediction."""
    mean_J, variance_J = beliefs_of(episodes, predictions)
    return beta_binomial_log_loss(mean_J, variance_J, truth.passes_J.astype(float), truth.scored_J)


def scored(truth: Truth, episodes: Sequence[Episode], predictions: Sequence[Predictions]) -> Scores:
    """Score the judged predictions of all episodes of a set."""
    mean_J, variance_J = beliefs_of(episodes, predictions)
    lags = [prediction.lag_RN[episode.judged_RN] for episode, prediction in zip(episodes, predictions, strict=True)]
    lag_J = np.concatenate(lags)
    event_J, informative_J = truth.informative_J, None
    if event_J.any() and not event_J.all():
        informative_J = informative_probability(mean_J, variance_J, int(truth.scored_J[0]))
    losses = Losses.of(
        Predicted(
            mean_B=mean_J,
            variance_B=variance_J,
            informative_B=np.zeros(lag_J.size) if informative_J is None else informative_J,
            lag_B=lag_J,
        ),
        Came(
            passes_B=truth.passes_J.astype(float),
            scored_B=truth.scored_J,
            informative_B=event_J,
            judged_B=np.full(lag_J.size, informative_J is not None),
            prompt_B=truth.prompt_J,
            uniform_B=truth.uniform_J,
        ),
    )
    whole = losses.together()
    assert whole.coverage is not None  # passes are whole numbers
    return Scores(
        log_loss_J=losses.log_loss_B,
        brier=whole.brier,
        auc=whole.informative_auc,
        informative_log_loss=whole.informative_log_loss,
        coverage=whole.coverage,
        buckets=tuple(
            Coverage(bucket=part.name, count=part.count, share=part.coverage, error=part.coverage_error)
            for part in losses.by_lag()
            if part.coverage is not None and part.coverage_error is not None
        ),
        lag_J=lag_J,
        informative_J=informative_J,
        reliability_error=None if informative_J is None else whole.informative.error,
    )


def beliefs_of(episodes: Sequence[Episode], predictions: Sequence[Predictions]) -> tuple[FloatArray, FloatArray]:
    """(J,) mean and variance of the judged predictions, kept where a log loss is finite."""
    parts = list(zip(episodes, predictions, strict=True))
    mean_J = np.concatenate([prediction.mean_RN[episode.judged_RN] for episode, prediction in parts])
    variance_J = np.concatenate([prediction.variance_RN[episode.judged_RN] for episode, prediction in parts])
    mean_J = np.clip(mean_J, MEAN_EDGE, 1.0 - MEAN_EDGE)
    return mean_J, np.minimum(variance_J, LARGEST_OVERLAP * mean_J * (1.0 - mean_J))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Mean log loss of one estimator less that of another, paired; negative if the first is better."""

    value: float
    interval: tuple[float, float]


def differences(truth: Truth, ours_J: FloatArray, theirs: Mapping[str, FloatArray]) -> dict[str, Difference]:
    """Ours less each of theirs, with percentile intervals of LEVEL from resampled prompts."""
    if not theirs:
        return {}
    size = truth.num_prompts
    count_P = np.bincount(truth.prompt_J, minlength=size).astype(float)
    columns = [np.bincount(truth.prompt_J, weights=ours_J - their_J, minlength=size) for their_J in theirs.values()]
    sums_PC = np.column_stack([count_P, *columns])
    rng = np.random.default_rng(7)
    drawn = []
    for _ in range(BOOTSTRAP_DRAWS // BOOTSTRAP_BLOCK):
        weight_DP = rng.poisson(1.0, (BOOTSTRAP_BLOCK, size)).astype(float)  # as resampling, for many prompts
        drawn.append(weight_DP @ sums_PC)
    total_DC = np.concatenate(drawn)
    mean_DC = total_DC[:, 1:] / total_DC[:, :1]
    low_C, high_C = np.quantile(mean_DC, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0], axis=0)
    value_C = sums_PC[:, 1:].sum(axis=0) / count_P.sum()
    return {
        name: Difference(value=float(value), interval=(float(low), float(high)))
        for name, value, low, high in zip(theirs, value_C, low_C, high_C, strict=True)
    }
