"""Last mean: a prompt is what its last group was. What the difficulty pools of prime-rl know. Built by the registry."""

from typing import ClassVar

from predictors.base import IntArray, Observations
from predictors.rows import FixedPriorConfig, Reader, Reading, RowEstimator, Rows


class LastMean(RowEstimator[FixedPriorConfig]):
    """Beta(alpha0 + k, beta0 + n - k) of the last group alone, k of n.

    Source: prime-rl, orchestrator/curriculum/samplers/pool.py, which keeps the mean k/n of the group that arrived last,
    without decay, without uncertainty and without versions: a late group replaces a newer one. A mean alone is no
    belief; the completion is Laplace's rule of succession, the posterior of that group under a flat prior. Thresholds
    and weights of the pools belong to whoever draws.
    """

    name = "last_mean"
    whole_groups: ClassVar[bool] = True
    columns: ClassVar = {"passes_N": 0.0, "scored_N": 0.0}

    @classmethod
    def config_type(cls) -> type[FixedPriorConfig]:
        return FixedPriorConfig

    def _update(self, groups: Observations, newest_B: IntArray) -> None:
        self._columns["passes_N"][groups.rows_B] = groups.passes_B
        self._columns["scored_N"][groups.rows_B] = groups.scored_B

    def _reader(self) -> Reader:
        return self._read

    def _read(self, at: Rows, now_N: IntArray) -> Reading:
        passes_N, scored_N = self._columns["passes_N"][at], self._columns["scored_N"][at]
        mean_N, variance_N = self._config.posterior(passes_N, scored_N - passes_N)
        return mean_N, variance_N, scored_N
