"""Four numbers of a pool that the mixture learns from how well it predicted: how fast pass rates wander and drift, how
often they jump, and how much a category says.

Owned by the mixture, which tells it the slopes of each group's log likelihood. Selection depends on the past only, so
every group may teach, whichever policy chose it. Knows rates, not rows. Axes: B groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from predictors.base import FloatArray, State

NOISE_WEIGHT = 1.0
"""Prior information on the log of the process noise: it takes surprises worth this much to move it by a factor of e."""

NOISE_RANGE = (1e-10, 1e-1)
"""Process noise per policy version stays in here. 1e-1 forgets a prompt within a few versions."""

START_JUMP_SHARE = 0.5
"""Share of prompts that are taken as drawn anew from their category once a long time has passed, to start with.
On a real run with a visit every ten steps it is learned to be none, between models before and after training .1 to
.8."""

JUMP_WEIGHT = 3.0
"""Groups, each told perfectly apart, that the start of the log-odds of a jump counts for."""

JUMP_LOG_ODDS_RANGE = (-7.0, 3.0)
"""Log-odds of a jump stay in here."""

STRENGTH_WEIGHT = 3.0
"""Prior information on the log of the strength of categories."""

LOG_STRENGTH_RANGE = (-3.0, 3.0)
"""Log of the strength of categories stays in here."""

MAX_STEP, MAX_STRENGTH_STEP = 1.0, 0.5
"""Most that a logarithm moves in one call, whatever the surprise."""

DRIFT_SHARE = 0.5
"""Prior standard deviation of the drift over a usual lag, as a share of the random walk's over that lag."""

START_LAG, START_LAG_WEIGHT = 30.0, 10.0
"""Versions between groups of a row, when they are not of one version, and the groups that this start counts for."""

MIN_ERROR_VARIANCE = 1e-3
"""Least variance of a prediction error for the drift, so that one pass of a prompt thought hopeless does not set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surprise:
    """What B groups say; of rows that were not tried before nothing, in zeros. All (B,).

    Scores are slopes of the log likelihood.
    """

    lag_B: FloatArray  # versions since the row's evidence
    error_B: FloatArray  # observed pass rate minus predicted mean
    variance_B: FloatArray  # predicted variance of that error
    drift_slope_B: FloatArray  # change of the predicted mean per unit of drift
    noise_score_B: FloatArray  # per unit of log process noise
    jump_score_B: FloatArray  # per unit of the log-odds of a jump


class Pace:
    """Learns by natural-gradient steps on the log likelihood, with the empirical Fisher information,

        x += sum score / (sum w score^2 + prior information),

    where weights w fall by a factor e over `memory` groups. The drift d, in radians of arcsin(sqrt(p)) per version at
    p = 1/2 (4 d in log-odds at any p), is a discounted ridge regression of errors on slopes h with variances S,

        d = sum w h (e + h d') / S / (sum w h^2 / S + 1 / sd^2),    d' the drift that the error was made with,

    sd^2 = DRIFT_SHARE^2 q / L at process noise q and mean lag L, so that neither knows what a trainer calls a version.
    """

    def __init__(self, *, process_noise: float, memory: float) -> None:
        self.process_noise = process_noise
        self.drift = 0.0
        self._memory = memory
        self._log_odds = float(np.log(START_JUMP_SHARE / (1.0 - START_JUMP_SHARE)))
        self._log_strength = 0.0
        self._noise_information = self._jump_information = self._strength_information = 0.0
        self._drift_evidence = self._drift_information = 0.0
        self._lag_sum, self._lag_count = START_LAG * START_LAG_WEIGHT, START_LAG_WEIGHT

    @property
    def least_jump_share(self) -> float:
        """Share of prompts that are elsewhere once a long time has passed, for learning: it never sinks to 0."""
        return float(1.0 / (1.0 + np.exp(-self._log_odds)))

    @property
    def jump_share(self) -> float:
        """The same for beliefs: 0 once it is as small as it can be learned, so that reading need not look at jumps."""
        return 0.0 if self._log_odds == JUMP_LOG_ODDS_RANGE[0] else self.least_jump_share

    @property
    def strength(self) -> float:
        """Factor on the concentration of every category's Beta."""
        return float(np.exp(self._log_strength))

    def learn_strength(self, score_B: FloatArray) -> None:
        """From all groups, first ones included: slopes of the log likelihood in the log of the strength."""
        self._strength_information = self._kept(score_B) * self._strength_information + float(np.sum(score_B**2))
        step = float(np.sum(score_B)) / (self._strength_information + STRENGTH_WEIGHT)
        moved = self._log_strength + np.clip(step, -MAX_STRENGTH_STEP, MAX_STRENGTH_STEP)
        self._log_strength = float(np.clip(moved, *LOG_STRENGTH_RANGE))

    def learn(self, surprise: Surprise) -> None:
        """Move noise, drift and jumps. All groups of one call count alike."""
        kept = self._kept(surprise.error_B)
        self._learn_drift(surprise, kept)
        score_B = surprise.noise_score_B
        self._noise_information = kept * self._noise_information + float(np.sum(score_B**2))
        step = float(np.sum(score_B)) / (self._noise_information + NOISE_WEIGHT)
        moved = self.process_noise * np.exp(np.clip(step, -MAX_STEP, MAX_STEP))
        self.process_noise = float(np.clip(moved, *NOISE_RANGE))

        score_B, share = surprise.jump_score_B, self.least_jump_share
        self._jump_information = kept * self._jump_information + float(np.sum(score_B**2))
        step = float(np.sum(score_B)) / (self._jump_information + JUMP_WEIGHT * (share * (1.0 - share)) ** 2)
        self._log_odds = float(np.clip(self._log_odds + np.clip(step, -MAX_STEP, MAX_STEP), *JUMP_LOG_ODDS_RANGE))

    def _learn_drift(self, surprise: Surprise, kept: float) -> None:
        self._lag_sum = kept * self._lag_sum + float(np.sum(surprise.lag_B))
        self._lag_count = kept * self._lag_count + int(np.count_nonzero(surprise.lag_B))
        slope_B = surprise.drift_slope_B
        weighted_B = slope_B / np.maximum(surprise.variance_B, MIN_ERROR_VARIANCE)
        target_B = surprise.error_B + slope_B * self.drift
        self._drift_evidence = kept * self._drift_evidence + float(np.sum(weighted_B * target_B))
        self._drift_information = kept * self._drift_information + float(np.sum(weighted_B * slope_B))
        usual_lag = max(self._lag_sum / self._lag_count, 1.0)
        prior_information = usual_lag / (DRIFT_SHARE**2 * max(self.process_noise, NOISE_RANGE[0]))
        self.drift = self._drift_evidence / (self._drift_information + prior_information)

    def _kept(self, groups_B: FloatArray) -> float:
        return float(np.exp(-groups_B.shape[0] / self._memory))

    def state(self) -> State:
        """Everything, as numbers without an axis."""
        return {f"pace_{name}": np.array(getattr(self, field)) for name, field in _FIELDS.items()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take numbers that the owner has checked."""
        for name, field in _FIELDS.items():
            setattr(self, field, float(state[f"pace_{name}"]))


_FIELDS = {
    "process_noise": "process_noise",
    "drift": "drift",
    "log_odds": "_log_odds",
    "log_strength": "_log_strength",
    "noise_information": "_noise_information",
    "jump_information": "_jump_information",
    "strength_information": "_strength_information",
    "drift_evidence": "_drift_evidence",
    "drift_information": "_drift_information",
    "lag_sum": "_lag_sum",
    "lag_count": "_lag_count",
}
"""Numbers by their name in the state."""
