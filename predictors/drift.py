"""How fast pass rates move between visits: a common drift and a random walk, both learned from surprises.

Owned by the Kalman estimator, which tells it, before each update, what it predicted for groups of rows that were tried
before. Selection depends on the past only, so every such group may teach, whichever policy chose it. Scalars only: it
knows rates, not rows. Axes: B groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from predictors.base import FloatArray, State

DRIFT_SD = 3e-3
"""Prior standard deviation of the drift, in radians per policy version. On a real run it was 6e-4; a trainer that
counts a version every few steps has more. A rate that is unsure widens beliefs, so this must not be generous."""

NOISE_WEIGHT = 3.0
"""Prior information on the log of the process noise: it takes surprises worth this much to move it by a factor of e."""

MAX_LOG_STEP = 0.5
"""Most that the log of the process noise moves in one call, whatever the surprise."""

NOISE_RANGE = (1e-10, 1e-1)
"""Process noise per policy version stays in here. 1e-1 forgets a prompt within a few versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surprise:
    """What was predicted for B groups and what came. All (B,)."""

    error_B: FloatArray  # observed pass rate minus predicted mean
    variance_B: FloatArray  # predicted variance of that error, > 0
    drift_slope_B: FloatArray  # change of the predicted mean per unit of drift
    noise_score_B: FloatArray  # change of the log likelihood per unit of log process noise


class DriftRates:
    """Common drift and process noise per policy version, learned with a memory of so many groups.

    Drift d is a discounted ridge regression of errors on slopes around its start d0: with h the slope, S the variance
    and d' the drift that the error was made with,

        d = (sum w h (e + h d') / S + d0 / DRIFT_SD^2) / (sum w h^2 / S + 1 / DRIFT_SD^2).

    Process noise q climbs its likelihood by Newton steps with the empirical Fisher information,

        log q += sum score / (sum w score^2 + NOISE_WEIGHT).

    Weights w fall by a factor e over `memory` groups. Memory 0 keeps both rates as given.
    """

    def __init__(self, *, drift: float, process_noise: float, memory: float) -> None:
        self.drift = drift
        self.process_noise = process_noise
        self._start = drift
        self._memory = memory
        self._drift_evidence = 0.0
        self._drift_information = 0.0
        self._noise_information = 0.0

    @property
    def learning(self) -> bool:
        """Whether the rates move at all."""
        return self._memory > 0.0

    @property
    def drift_variance(self) -> float:
        """How unsure the drift is, in squared radians per squared version; 0 when it is given, not learned."""
        return 1.0 / (self._drift_information + DRIFT_SD**-2) if self.learning else 0.0

    def learn(self, surprise: Surprise) -> None:
        """Move both rates. All groups of one call count alike."""
        num_groups = surprise.error_B.shape[0]
        if not self.learning or num_groups == 0:
            return
        kept = float(np.exp(-num_groups / self._memory))
        slope_B = surprise.drift_slope_B
        target_B = surprise.error_B + slope_B * self.drift
        self._drift_evidence = kept * self._drift_evidence + float(np.sum(slope_B * target_B / surprise.variance_B))
        self._drift_information = kept * self._drift_information + float(np.sum(slope_B**2 / surprise.variance_B))
        prior_information = DRIFT_SD**-2
        self.drift = (self._drift_evidence + self._start * prior_information) / (
            self._drift_information + prior_information
        )
        score_B = surprise.noise_score_B
        self._noise_information = kept * self._noise_information + float(np.sum(score_B**2))
        step = float(np.sum(score_B)) / (self._noise_information + NOISE_WEIGHT)
        log_noise = np.log(max(self.process_noise, NOISE_RANGE[0])) + np.clip(step, -MAX_LOG_STEP, MAX_LOG_STEP)
        self.process_noise = float(np.clip(np.exp(log_noise), *NOISE_RANGE))

    def state(self) -> State:
        """What learning has changed."""
        return {
            "rates_drift": np.array(self.drift),
            "rates_process_noise": np.array(self.process_noise),
            "rates_drift_evidence": np.array(self._drift_evidence),
            "rates_drift_information": np.array(self._drift_information),
            "rates_noise_information": np.array(self._noise_information),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take numbers that the owner has checked."""
        self.drift = float(state["rates_drift"])
        self.process_noise = float(state["rates_process_noise"])
        self._drift_evidence = float(state["rates_drift_evidence"])
        self._drift_information = float(state["rates_drift_information"])
        self._noise_information = float(state["rates_noise_information"])
