"""Predict, then reveal: an estimator's beliefs before each round of an episode, and bounds in the same form.

Used by the benchmark of estimators. Every prompt is predicted in every round, revealed or not, so that figures are of
uniformly drawn prompts in every feed. Axes: R rounds, N prompts, B groups.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from predictors.base import NEVER, Column, FloatArray
from predictors.calibration import beta_binomial_log_loss
from predictors.registry import build_estimator
from tests.benchmarks.outcome_sets import Episode, Ints, OutcomeSet

GROUPS_PER_REPORT = 128  # groups told in one call
SMOOTHER_DISCOUNT = 0.85  # a round away
SMOOTHER_PRIOR = 0.2  # pseudo-counts on each side
MEAN_EDGE = 1e-6  # bounds and read-outs keep this distance from 0 and 1
LARGEST_OVERLAP = 0.999  # variance over mean (1 - mean) stays below this

NUM_PARAMETERS = 4
RECALIBRATION_WEIGHT = 50.0  # information with which a read-out stays as it is: some 150 groups
RECALIBRATION_STEP = 0.02  # half the step over which a loss's slope is measured
LOG_CONCENTRATION_RANGE = (-4.0, 14.0)
LOG_CONCENTRATION_CENTRE = 2.0  # 7 rollouts; the slope of the log concentration turns around it


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Beliefs of all prompts before each round."""

    mean_RN: FloatArray
    variance_RN: FloatArray
    lag_RN: Ints  # NEVER: not tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """An estimator's predictions of one episode, and what they took."""

    predictions: Predictions
    predict_s: float
    observe_s: float


def replayed(
    name: str, options: Mapping[str, float], episode: Episode, columns: Mapping[str, Column] | None = None
) -> Replay:
    """Run a fresh estimator through an episode, with these columns attached."""
    estimator = build_estimator(name, options)
    estimator.resize(episode.category_N)
    estimator.attach(columns or {})
    shape = episode.passes_RN.shape
    mean_RN, variance_RN = np.empty(shape), np.empty(shape)
    lag_RN = np.empty(shape, dtype=np.int64)
    predict_s = observe_s = 0.0
    rng = np.random.default_rng(0)
    for place, version in enumerate(episode.version_R):
        begin = time.perf_counter()
        estimator.advance(int(version))
        beliefs = estimator.beliefs()
        predict_s += time.perf_counter() - begin
        mean_RN[place], variance_RN[place], lag_RN[place] = beliefs.mean_N, beliefs.variance_N, beliefs.lag_N
        rows_B = rng.permutation(np.flatnonzero(episode.revealed_RN[place]))
        for start in range(0, rows_B.size, GROUPS_PER_REPORT):
            groups = episode.revealed(place, rows_B[start : start + GROUPS_PER_REPORT])
            begin = time.perf_counter()
            estimator.observe(groups)
            observe_s += time.perf_counter() - begin
    predictions = Predictions(mean_RN=mean_RN, variance_RN=variance_RN, lag_RN=lag_RN)
    return Replay(predictions=predictions, predict_s=predict_s, observe_s=observe_s)


def pool_mean(outcomes: OutcomeSet) -> list[Predictions]:
    """One Beta for every prompt and round, with the moments of all outcomes of the set, future ones included."""
    groups = [(episode.passes_RN, episode.scored_RN, episode.judged_RN) for episode in outcomes.episodes]
    passes = np.concatenate([passes[judged] for passes, _, judged in groups]).astype(float)
    scored = np.concatenate([scored[judged] for _, scored, judged in groups]).astype(float)
    mean = float(np.clip(passes.sum() / scored.sum(), MEAN_EDGE, 1.0 - MEAN_EDGE))
    pairs = float(np.sum(scored * (scored - 1.0)))
    square = float(np.sum(passes * (passes - 1.0))) / pairs if pairs else mean**2  # groups of one: no spread is seen
    variance = float(np.clip(square - mean**2, 0.0, 0.99 * mean * (1.0 - mean)))
    return [
        Predictions(
            mean_RN=np.full(episode.passes_RN.shape, mean),
            variance_RN=np.full(episode.passes_RN.shape, variance),
            lag_RN=np.full(episode.passes_RN.shape, NEVER, dtype=np.int64),
        )
        for episode in outcomes.episodes
    ]


def smoother(episode: Episode) -> Predictions:
    """Every other group of the prompt, earlier or later, revealed or not, discounted by its distance in rounds."""
    rounds = np.arange(episode.version_R.size)
    kernel_RR = SMOOTHER_DISCOUNT ** np.abs(rounds[:, None] - rounds[None, :])
    np.fill_diagonal(kernel_RR, 0.0)
    alpha_RN = kernel_RR @ episode.passes_RN + SMOOTHER_PRIOR
    total_RN = kernel_RR @ episode.scored_RN + 2.0 * SMOOTHER_PRIOR
    mean_RN = np.clip(alpha_RN / total_RN, MEAN_EDGE, 1.0 - MEAN_EDGE)
    return Predictions(
        mean_RN=mean_RN,
        variance_RN=mean_RN * (1.0 - mean_RN) / (total_RN + 1.0),
        lag_RN=np.zeros(episode.passes_RN.shape, dtype=np.int64),
    )


def recalibrated(predictions: Predictions, episode: Episode) -> Predictions:
    """The same beliefs read through a map that is learned from the groups revealed in earlier rounds.

    Log-odds of the mean and log of the concentration each through a straight line, one pair of lines for tried prompts
    and one for others. Learned by natural-gradient steps on the log loss, with the empirical Fisher information.
    """
    mean_RN, variance_RN = predictions.mean_RN.copy(), predictions.variance_RN.copy()
    maps = {True: _Lines(), False: _Lines()}
    for place in range(mean_RN.shape[0]):
        for tried, lines in maps.items():
            rows = np.flatnonzero((predictions.lag_RN[place] != NEVER) == tried)
            mean_N, variance_N = predictions.mean_RN[place, rows], predictions.variance_RN[place, rows]
            mean_RN[place, rows], variance_RN[place, rows] = lines.read(mean_N, variance_N, lines.parameters)
            shown = episode.revealed_RN[place, rows]
            lines.learn(
                mean_N[shown],
                variance_N[shown],
                episode.passes_RN[place, rows[shown]].astype(float),
                episode.scored_RN[place, rows[shown]],
            )
    return Predictions(mean_RN=mean_RN, variance_RN=variance_RN, lag_RN=predictions.lag_RN)


class _Lines:
    """Parameters: shift and added slope of the log-odds, shift and added slope of the log concentration."""

    def __init__(self) -> None:
        self.parameters = np.zeros(NUM_PARAMETERS)
        self._information = np.eye(NUM_PARAMETERS) * RECALIBRATION_WEIGHT

    @staticmethod
    def read(
        mean_B: FloatArray, variance_B: FloatArray, parameters: npt.NDArray[np.float64]
    ) -> tuple[FloatArray, FloatArray]:
        mean_B = np.clip(mean_B, MEAN_EDGE, 1.0 - MEAN_EDGE)
        overlap_B = np.clip(variance_B / (mean_B * (1.0 - mean_B)), MEAN_EDGE, LARGEST_OVERLAP)
        log_odds_B = np.log(mean_B / (1.0 - mean_B))
        log_concentration_B = np.log(1.0 / overlap_B - 1.0)
        shift, slope, widening, bend = parameters
        moved_B = np.clip(1.0 / (1.0 + np.exp(-shift - (1.0 + slope) * log_odds_B)), MEAN_EDGE, 1.0 - MEAN_EDGE)
        stretched_B = log_concentration_B + widening + bend * (log_concentration_B - LOG_CONCENTRATION_CENTRE)
        concentration_B = np.exp(np.clip(stretched_B, *LOG_CONCENTRATION_RANGE))
        return moved_B, moved_B * (1.0 - moved_B) / (1.0 + concentration_B)

    def learn(self, mean_B: FloatArray, variance_B: FloatArray, passes_B: FloatArray, scored_B: Ints) -> None:
        """One step on the groups of a round."""

        def loss_B(step: npt.NDArray[np.float64]) -> FloatArray:
            read = self.read(mean_B, variance_B, self.parameters + step)
            return beta_binomial_log_loss(*read, passes_B, scored_B)

        steps = np.eye(NUM_PARAMETERS) * RECALIBRATION_STEP
        score_PB = np.array([loss_B(-step) - loss_B(step) for step in steps]) / (2.0 * RECALIBRATION_STEP)
        self._information += score_PB @ score_PB.T
        self.parameters = self.parameters + np.linalg.solve(self._information, score_PB.sum(axis=1))
