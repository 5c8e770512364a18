"""Streak: how often in a row a prompt was all right or all wrong. What GRESO (arXiv 2506.02177) knows of a prompt.

Built by the registry. The chance of keeping a prompt is here too, for whoever draws; the controller that moves its
bases is not.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from predictors.base import Beliefs, FloatArray, IntArray, Observations, check_rows, require_between
from predictors.rows import FixedPriorConfig, Reader, Reading, RowEstimator, Rows

KEEP_BASE = 0.5
"""Chance of keeping a prompt after one degenerate visit, for easy and hard ones alike, before a controller moves it."""

KEEP_FLOOR = 0.01
"""Least chance of keeping a prompt, however long its streak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreakConfig(FixedPriorConfig):
    """Options. The thresholds are GRESO's; they suit outcomes of 0 and 1, and up to 8 rollouts."""

    easy_mean: float = 0.98
    """Group means from here on count as all right."""

    hard_mean: float = 0.11
    """Group means up to here count as all wrong."""

    def __post_init__(self) -> None:
        FixedPriorConfig.__post_init__(self)
        require_between("easy_mean", self.easy_mean, 0.5, 1.0)
        require_between("hard_mean", self.hard_mean, 0.0, 0.5)
        if not self.hard_mean < self.easy_mean:
            raise ValueError(f"hard_mean must be below easy_mean, got {self.hard_mean!r} and {self.easy_mean!r}")


class Streak(RowEstimator[StreakConfig]):
    """Trailing run of z visits that were all easy or all hard; any other visit ends it.

    GRESO has a rule for keeping a prompt (`keep_probability`) and no pass rate. The completion is the posterior
    Beta(alpha0 + K, beta0 + N - K), K of N being the rollouts of the run, or of the last group when that was mixed: the
    evidence is what the run itself holds, and is forgotten when the run ends, as in the original. Visits count in the
    order of arrival, and do not age.
    """

    name = "streak"
    whole_groups: ClassVar[bool] = True
    columns: ClassVar = {"run_N": np.int32(0), "passes_N": 0.0, "scored_N": 0.0}

    @classmethod
    def config_type(cls) -> type[StreakConfig]:
        return StreakConfig

    def _update(self, groups: Observations, newest_B: IntArray) -> None:
        rows_B = groups.rows_B
        run_N, passes_N, scored_N = (self._columns[name] for name in ("run_N", "passes_N", "scored_N"))
        mean_B = groups.passes_B / groups.scored_B
        kind_B = np.where(mean_B >= self._config.easy_mean, 1, np.where(mean_B <= self._config.hard_mean, -1, 0))
        goes_on_B = (kind_B != 0) & (np.sign(run_N[rows_B]) == kind_B)
        run_N[rows_B] = kind_B + goes_on_B * run_N[rows_B]
        passes_N[rows_B] = groups.passes_B + goes_on_B * passes_N[rows_B]
        scored_N[rows_B] = groups.scored_B + goes_on_B * scored_N[rows_B]

    def runs(self, rows: IntArray | None = None) -> IntArray:
        """Length of the trailing run of these rows, or of all: > 0 easy, < 0 hard, 0 mixed or never tried."""
        if rows is not None:
            check_rows(rows, self._last_N.shape[0])
        return self._columns["run_N"][slice(None) if rows is None else rows].astype(np.int64)

    def beliefs(self, rows: IntArray | None = None) -> Beliefs:
        return replace(RowEstimator.beliefs(self, rows), run_N=self.runs(rows))

    def _reader(self) -> Reader:
        return self._read

    def _read(self, at: Rows, now_N: IntArray) -> Reading:
        passes_N, scored_N = self._columns["passes_N"][at], self._columns["scored_N"][at]
        mean_N, variance_N = self._config.posterior(passes_N, scored_N - passes_N)
        return mean_N, variance_N, scored_N


def keep_probability(run_N: IntArray, *, easy_base: float = KEEP_BASE, hard_base: float = KEEP_BASE) -> FloatArray:
    """Chance that GRESO keeps a prompt after a run of z visits: max(base^z, KEEP_FLOOR), and 1 without a run.

    run_N: (N,) as `Streak.runs` gives them. Returns (N,) in [KEEP_FLOOR, 1]. Source: arXiv 2506.02177 and its code,
    where a controller moves both bases by .01 a step within [.05, .95]. Raises ValueError for a base outside (0, 1].
    """
    for name, base in (("easy_base", easy_base), ("hard_base", hard_base)):
        if not 0.0 < base <= 1.0:
            raise ValueError(f"{name} must be in (0, 1], got {base!r}")
    return np.asarray(np.maximum(np.where(run_N > 0, easy_base, hard_base) ** np.abs(run_N), KEEP_FLOOR))
