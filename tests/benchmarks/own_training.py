"""What a drift of its own for prompts that were trained on lately could gain at most.

A group that is all right or all wrong moves no policy by itself, so prompts whose last group was informative were
trained on and the others were not. Their predictions are shifted by the one number of log-odds that is best in
hindsight: a learned drift of recently trained prompts cannot gain more. The common drift has been learned before.
Used by the benchmark of estimators.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from predictors.base import NEVER, FloatArray
from predictors.calibration import beta_binomial_log_loss
from tests.benchmarks.knobs import OURS
from tests.benchmarks.language import Figure
from tests.benchmarks.outcome_sets import FEEDS, Bools, Episode, OutcomeSet
from tests.benchmarks.prequential import replayed
from tests.benchmarks.scoring import Truth, beliefs_of, differences

SHIFTS = np.linspace(-0.4, 0.4, 81)
"""Log-odds."""


def own_training_figures(sets: Iterable[OutcomeSet]) -> Iterator[Figure]:
    """For each feed of the trajectories, of the prompts trained on and of those not."""
    for outcomes in sets:
        if outcomes.kind == "over time" and outcomes.feed in FEEDS:
            yield from _figures(outcomes)


def _figures(outcomes: OutcomeSet) -> Iterator[Figure]:
    truth = Truth.of(outcomes)
    predictions = [replayed(OURS, {}, episode).predictions for episode in outcomes.episodes]
    mean_J, variance_J = beliefs_of(outcomes.episodes, predictions)
    overlap_J = variance_J / (mean_J * (1.0 - mean_J))
    lag_J = np.concatenate([p.lag_RN[e.judged_RN] for e, p in zip(outcomes.episodes, predictions, strict=True)])
    last_J = np.concatenate([last_informative(episode)[episode.judged_RN] for episode in outcomes.episodes])
    plain_J = beta_binomial_log_loss(mean_J, variance_J, truth.passes_J.astype(float), truth.scored_J)
    for part, at_J in (("trained on", last_J), ("not trained on", ~last_J & (lag_J != NEVER))):
        at = np.flatnonzero(at_J)
        losses = [_shifted_loss(mean_J[at], overlap_J[at], shift, truth, at) for shift in SHIFTS]
        best = int(np.argmin([loss_A.sum() for loss_A in losses]))
        shifted_J = plain_J.copy()
        shifted_J[at] = losses[best]
        gain = differences(truth, shifted_J, {"": plain_J})[""]
        for metric, value, unit, interval in (
            ("log_loss_of_best_shift_less_none", gain.value, "nats/group", gain.interval),
            ("best_shift", float(SHIFTS[best]), "log-odds", None),
        ):
            yield Figure(
                benchmark="predictors",
                case=f"{OURS}: last group {part}",
                metric=metric,
                value=value,
                unit=unit,
                n=outcomes.num_prompts,
                seeds=len(outcomes.episodes),
                interval=interval,
                setting={"set": outcomes.name, "feed": outcomes.feed, "predictions": int(at.size)},
            )


def last_informative(episode: Episode) -> Bools:
    """(R, N) whether the newest group revealed before each round was neither all right nor all wrong."""
    last_N = np.zeros(episode.num_prompts, dtype=bool)
    last_RN = np.empty(episode.revealed_RN.shape, dtype=bool)
    for place, revealed_N in enumerate(episode.revealed_RN):
        last_RN[place] = last_N
        mixed_N = (episode.passes_RN[place] > 0) & (episode.passes_RN[place] < episode.scored_RN[place])
        last_N = np.where(revealed_N, mixed_N, last_N)
    return last_RN


def _shifted_loss(mean_A: FloatArray, overlap_A: FloatArray, shift: float, truth: Truth, at: np.ndarray) -> FloatArray:
    odds_A = mean_A / (1.0 - mean_A) * np.exp(shift)
    moved_A = odds_A / (1.0 + odds_A)
    variance_A = overlap_A * moved_A * (1.0 - moved_A)
    return beta_binomial_log_loss(moved_A, variance_A, truth.passes_J[at].astype(float), truth.scored_J[at])
