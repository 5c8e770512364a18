"""Kalman filter on the log-odds of each prompt's pass rate. A reconstruction of KGPS (arXiv 2607.27610).

Built by the registry. The paper's abstract is all that could be read; what is written here is the standard form of it.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from predictors.base import FloatArray, IntArray, Observations, require_between
from predictors.configured import EstimatorConfig
from predictors.rows import MIN_N_EFF, Reader, Reading, RowEstimator, Rows

START_VARIANCE = 2.0
"""Variance of the log-odds of a prompt never tried, which reads as Beta(1, 1); also the most a variance grows to."""

MAX_LOGIT = 20.0
"""Log-odds stay within this of 0: pass rates of 2e-9 to 1 - 2e-9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KalmanLogitConfig(EstimatorConfig):
    """Options."""

    process_noise: float = 1e-3
    """Variance per policy version by which log-odds wander: by 1 in a thousand versions. KGPS ties it to the size of
    the policy's update, which is not known here; no value could be found."""

    def __post_init__(self) -> None:
        require_between("process_noise", self.process_noise, 0.0, 1.0)


class KalmanLogit(RowEstimator[KalmanLogitConfig]):
    """x ~ N(m, v) per row, p = 1 / (1 + e^-x). x is a random walk: m stays, v grows by process_noise a version.

    A group of k of n at a prompt believed to have p = 1 / (1 + e^-m) is, by the delta method, an observation of x with
    noise R = 1 / (n p (1 - p)). With the gain g = v / (v + R), v <- (1 - g) v, and m becomes the log-odds of
    p + g (k/n - p): to first order the linear update m + g (k/n - p) / (p (1 - p)), and never past k/n, where that one
    overshoots without bound when a prompt thought hopeless is solved. Evidence d versions older than what is known has
    process noise d added to R. R explodes at both ends (a prompt believed at p = .01 hardly moves), as in any filter of
    log-odds.

    Read as the Beta whose Laplace approximation in log-odds this Gaussian is (MacKay, Machine Learning 33, 1998):
    mean p, concentration 1 / (v p (1 - p)). On that scale a group adds n where p stays, so a start of N(0, 2) is
    Beta(1, 1) and without noise the filter is close to counting. v never exceeds that of a prompt never tried.
    """

    name = "kalman_logit"
    columns: ClassVar = {"mean_logit_N": 0.0, "variance_logit_N": START_VARIANCE}

    @classmethod
    def config_type(cls) -> type[KalmanLogitConfig]:
        return KalmanLogitConfig

    def _update(self, groups: Observations, newest_B: IntArray) -> None:
        rows_B = groups.rows_B
        mean_N, variance_N = self._columns["mean_logit_N"], self._columns["variance_logit_N"]
        variance_B = self._aged(rows_B, newest_B)
        fail_B, pass_B = _both_rates(mean_N[rows_B])
        noise_B = 1.0 / (groups.scored_B * pass_B * fail_B)
        noise_B += self._config.process_noise * (newest_B - groups.version_B)
        gain_B = variance_B / (variance_B + noise_B)
        odds_B = (pass_B + gain_B * (groups.passes_B / groups.scored_B - pass_B)) / (
            fail_B + gain_B * ((groups.scored_B - groups.passes_B) / groups.scored_B - fail_B)
        )
        mean_N[rows_B] = np.clip(np.log(odds_B), -MAX_LOGIT, MAX_LOGIT)
        variance_N[rows_B] = (1.0 - gain_B) * variance_B

    def discount(self, kept: float) -> None:
        """Precision beyond the start's, and its part in the mean, which starts at 0."""
        require_between("discount", kept, 0.0, 1.0)
        mean_N, variance_N = self._columns["mean_logit_N"], self._columns["variance_logit_N"]
        own_N = kept * (1.0 / variance_N - 1.0 / START_VARIANCE)
        mean_N *= kept / variance_N / (own_N + 1.0 / START_VARIANCE)
        variance_N[:] = 1.0 / (own_N + 1.0 / START_VARIANCE)

    def _reader(self) -> Reader:
        return self._read

    def _read(self, at: Rows, now_N: IntArray) -> Reading:
        fail_N, pass_N = _both_rates(self._columns["mean_logit_N"][at])
        spread_N = pass_N * fail_N
        overlap_N = self._aged(at, now_N) * spread_N  # 1 / concentration
        n_eff_N = np.maximum(1.0 / overlap_N - 1.0 / (START_VARIANCE * spread_N), MIN_N_EFF)
        return pass_N, spread_N * overlap_N / (1.0 + overlap_N), n_eff_N

    def _aged(self, at: Rows, version: IntArray) -> FloatArray:
        """Variance of the log-odds of these rows at `version`; the start's for rows that were never tried."""
        lag = version - self._last_N[at]
        variance = self._columns["variance_logit_N"][at] + self._config.process_noise * lag
        return np.asarray(np.minimum(variance, START_VARIANCE))


def _both_rates(logit: FloatArray) -> tuple[FloatArray, FloatArray]:
    """1 - p and p, each without loss of digits."""
    odds = np.exp(-logit)
    return odds / (1.0 + odds), 1.0 / (1.0 + odds)
