"""A Kalman filter on psi = arcsin(sqrt(pass rate)) of each prompt, with rates of movement learned from surprises.

Built by the registry. After KGPS (arXiv 2607.27610), which filters log-odds, moved to the scale in which the noise of a
group does not depend on the pass rate; see `arcsine`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from predictors import arcsine
from predictors.base import (
    NEVER,
    FloatArray,
    IntArray,
    Observations,
    State,
    check_categories,
    require_between,
)
from predictors.calibration import beta_binomial_log_loss
from predictors.configured import EstimatorConfig
from predictors.drift import DriftRates, Surprise
from predictors.prior import CategoryPrior
from predictors.rows import MIN_N_EFF, Reader, Reading, RowEstimator, Rows

MAX_SHIFT = 0.5
"""Most that the common drift adds up to over one lag (2 in log-odds): a straight line is not believed for ever."""

MEAN_EDGE = 1e-9
"""Mean pass rates keep this distance from 0 and 1."""

MIN_VARIANCE = 1e-9
"""Least variance of psi: some 2.5e8 rollouts."""

MIN_ERROR_VARIANCE = 1e-3
"""Least variance of a prediction error for the drift, so that one pass of a prompt thought hopeless does not set it."""

SCORE_STEP = 0.2
"""Half the step in log process noise over which the slope of the likelihood is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KalmanArcsineConfig(EstimatorConfig):
    """Options. The learned rates make the starting ones matter little after some thousand groups."""

    process_noise: float = 1e-4
    """Variance per policy version by which psi wanders, to start with. On a real run 4e-5 was best."""

    drift: float = 0.0
    """Common movement of psi per policy version at p = 1/2, to start with; 4 times this in log-odds at any p."""

    memory_groups: float = 20000.0
    """Groups over which what was learned about the two rates fades; 0 keeps them as given."""

    def __post_init__(self) -> None:
        require_between("process_noise", self.process_noise, 0.0, 0.1)
        require_between("drift", self.drift, -0.1, 0.1)
        require_between("memory_groups", self.memory_groups, 0.0, 1e9)


class KalmanArcsine(RowEstimator[KalmanArcsineConfig]):
    """psi ~ N(m, v) per row; between versions m moves by the common drift and v grows by the process noise.

    A group of k of n is z = arcsin(sqrt(k/n)) with noise variance R = 1 / (4 n) if 0 < k < n. For k = 0 the likelihood
    (1 - p)^n = cos(psi)^2n is close to exp(-n psi^2), half a Gaussian around 0 with R = 1 / (2 n), and k = n is its
    mirror image; on the folded line both are ordinary updates: m += g (z - m), v = (1 - g) v, g = v / (v + R).
    The first group of a row meets the Gaussian with the moments of its category's prior, that group included in it.
    Evidence d versions older than what is known has process noise d added to R.

    Per row it also carries the slopes of m and v in the log of the process noise, which the same recursion gives
    exactly; with them the noise follows the gradient of the likelihood of every group.
    """

    name = "kalman_arcsine"
    columns: ClassVar = {
        "mean_psi_N": np.pi / 4.0,
        "variance_psi_N": arcsine.MAX_VARIANCE,
        "mean_slope_N": 0.0,
        "variance_slope_N": 0.0,
    }

    def __init__(self, config: KalmanArcsineConfig) -> None:
        super().__init__(config)
        self._prior = CategoryPrior()
        self._rates = DriftRates(drift=config.drift, process_noise=config.process_noise, memory=config.memory_groups)

    @classmethod
    def config_type(cls) -> type[KalmanArcsineConfig]:
        return KalmanArcsineConfig

    @property
    def drift(self) -> float:
        """Learned movement of psi per policy version at p = 1/2."""
        return self._rates.drift

    @property
    def process_noise(self) -> float:
        """Learned variance of psi per policy version."""
        return self._rates.process_noise

    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        super().resize(category_N)
        self._prior.resize(check_categories(category_N, self._last_N.shape[0]))

    def _update(self, groups: Observations, newest_B: IntArray) -> None:
        self._prior.observe(groups)
        self._start_new_rows(groups)
        rows_B, passes_B, scored_B = groups.rows_B, groups.passes_B, groups.scored_B
        columns = self._columns
        lag_B = newest_B - self._last_N[rows_B]
        centre_B, variance_B = self._aged(rows_B, lag_B)
        mean_B = np.arcsin(np.sqrt(centre_B))
        observed_B = np.arcsin(np.sqrt(passes_B / scored_B))
        at_end_B = (passes_B == 0.0) | (passes_B == scored_B)
        noise_B = np.where(at_end_B, 2.0, 1.0) / (4.0 * scored_B)
        noise_B += self._rates.process_noise * (newest_B - groups.version_B)
        gain_B = variance_B / (variance_B + noise_B)
        if self._rates.learning:
            mean_slope_B = columns["mean_slope_N"][rows_B]
            widened_B = variance_B < arcsine.MAX_VARIANCE
            variance_slope_B = columns["variance_slope_N"][rows_B] + self._rates.process_noise * lag_B * widened_B
            surprise = _surprise(groups, lag_B, mean_B, variance_B, mean_slope_B, variance_slope_B)
            gain_slope_B = variance_slope_B * noise_B / (variance_B + noise_B) ** 2
            columns["mean_slope_N"][rows_B] = (1.0 - gain_B) * mean_slope_B + (observed_B - mean_B) * gain_slope_B
            columns["variance_slope_N"][rows_B] = variance_slope_B * (1.0 - gain_B) ** 2
            self._rates.learn(surprise)
        columns["mean_psi_N"][rows_B] = mean_B + gain_B * (observed_B - mean_B)
        columns["variance_psi_N"][rows_B] = np.maximum((1.0 - gain_B) * variance_B, MIN_VARIANCE)

    def _start_new_rows(self, groups: Observations) -> None:
        """Give rows that were never tried the Gaussian of their category, as known at the version of the group."""
        is_new_B = self._last_N[groups.rows_B] == NEVER
        rows = groups.rows_B[is_new_B]
        mean_C, variance_C = self._prior_gaussian()
        category = self._prior.category_N[rows]
        self._columns["mean_psi_N"][rows], self._columns["variance_psi_N"][rows] = (
            mean_C[category],
            variance_C[category],
        )
        self._last_N[rows] = groups.version_B[is_new_B]

    def _reader(self) -> Reader:
        _, psi_variance_C = self._prior_gaussian()
        return partial(self._read, psi_variance_C, *self._prior.moments())

    def _read(
        self,
        psi_variance_C: FloatArray,
        prior_mean_C: FloatArray,
        concentration_C: FloatArray,
        at: Rows,
        now_N: IntArray,
    ) -> Reading:
        last_N, category_N = self._last_N[at], self._prior.category_N[at]
        fresh = np.flatnonzero(last_N == NEVER)
        centre_N, variance_psi_N = self._aged(at, now_N - last_N)
        mean_N, variance_N = arcsine.moments(centre_N, variance_psi_N)
        mean_N = np.clip(mean_N, MEAN_EDGE, 1.0 - MEAN_EDGE)
        variance_N = np.minimum(variance_N, 0.5 * mean_N * (1.0 - mean_N))
        mean_N[fresh] = prior_mean_C[category_N[fresh]]
        variance_N[fresh] = mean_N[fresh] * (1.0 - mean_N[fresh]) / (concentration_C[category_N[fresh]] + 1.0)
        n_eff_N = np.maximum((1.0 / variance_psi_N - 1.0 / psi_variance_C[category_N]) / 4.0, MIN_N_EFF)
        return mean_N, variance_N, n_eff_N

    def discount(self, kept: float) -> None:
        """Precision beyond the prior's, and its part in the mean."""
        require_between("discount", kept, 0.0, 1.0)
        tried = np.flatnonzero(self._last_N != NEVER)
        mean_C, variance_C = self._prior_gaussian()
        category_T = self._prior.category_N[tried]
        mean_N, variance_N = self._columns["mean_psi_N"], self._columns["variance_psi_N"]
        before_T, precision_T = 1.0 / variance_C[category_T], 1.0 / variance_N[tried]
        rest_T = np.minimum(before_T, precision_T)  # all of it where evidence has aged to less than the prior
        share_T = rest_T + kept * (precision_T - rest_T)
        pull_T = rest_T * mean_C[category_T] + kept * (precision_T * mean_N[tried] - rest_T * mean_C[category_T])
        mean_N[tried], variance_N[tried] = pull_T / share_T, 1.0 / share_T

    def state(self) -> State:
        return {**self._prior.state(), **self._rates.state(), **super().state()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().load_state(state)
        self._prior.load_state(state)
        self._rates.load_state(state)

    def _aged(self, at: Rows, lag: IntArray) -> tuple[FloatArray, FloatArray]:
        """sin^2 of the mean of psi, and its variance, for these rows `lag` versions after their last evidence."""
        shift = np.clip(self._rates.drift * lag, -MAX_SHIFT, MAX_SHIFT)
        centre = arcsine.shifted_centre(self._columns["mean_psi_N"][at], shift)
        unsure = (
            4.0 * self._rates.drift_variance * np.square(lag, dtype=np.float64) * centre * (1.0 - centre)
        )  # (sd lag sin 2m)^2
        variance = self._columns["variance_psi_N"][at] + self._rates.process_noise * lag + unsure
        return centre, np.minimum(variance, arcsine.MAX_VARIANCE)

    def _prior_gaussian(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of psi per category, for rows that were never tried."""
        mean_C, concentration_C = self._prior.moments()
        return arcsine.from_moments(mean_C, mean_C * (1.0 - mean_C) / (concentration_C + 1.0))


def _surprise(
    groups: Observations,
    lag_B: IntArray,
    mean_B: FloatArray,
    variance_B: FloatArray,
    mean_slope_B: FloatArray,
    variance_slope_B: FloatArray,
) -> Surprise:
    """What the groups say about the rates, given psi ~ N(mean, variance) before them and its slopes in log noise.

    Groups of new rows have lag 0 and slopes 0, so they say nothing.
    """
    centre_B = np.sin(mean_B) ** 2
    mean_p_B, variance_p_B = arcsine.moments(centre_B, variance_B)
    losses = []
    for step in (-SCORE_STEP, SCORE_STEP):
        stepped_mean_B = np.clip(mean_B + step * mean_slope_B, 0.0, np.pi / 2.0)
        stepped_variance_B = np.maximum(variance_B + step * variance_slope_B, MIN_VARIANCE)
        p_B, spread_B = arcsine.moments(np.sin(stepped_mean_B) ** 2, stepped_variance_B)
        p_B = np.clip(p_B, MEAN_EDGE, 1.0 - MEAN_EDGE)
        spread_B = np.minimum(spread_B, 0.5 * p_B * (1.0 - p_B))
        losses.append(beta_binomial_log_loss(p_B, spread_B, groups.passes_B, groups.scored_B))
    group_noise_B = (mean_p_B * (1.0 - mean_p_B) - variance_p_B) / groups.scored_B
    return Surprise(
        error_B=groups.passes_B / groups.scored_B - mean_p_B,
        variance_B=np.maximum(variance_p_B + group_noise_B, MIN_ERROR_VARIANCE),
        drift_slope_B=lag_B * 4.0 * centre_B * (1.0 - centre_B) * np.exp(-2.0 * variance_B),
        noise_score_B=(losses[0] - losses[1]) / (2.0 * SCORE_STEP),
    )
