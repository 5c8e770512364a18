"""What estimators that keep a few numbers a row have in common: columns, evidence, state, and fast reading.

Such an estimator is a configuration, a table of columns, a rule for a group and a rule for a belief. Reading goes
through the pool in blocks that stay in the processor's cache. Knows nothing of what the columns mean.
Axes: N rows of the pool, or of one block; B groups in one call.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from predictors.base import (
    NEVER,
    Beliefs,
    FloatArray,
    IntArray,
    Observations,
    State,
    check_categories,
    check_rows,
    check_state,
    require_between,
)
from predictors.configured import ConfigT, ConfiguredEstimator, EstimatorConfig

BLOCK_ROWS = 8192
"""Rows read at once: a dozen float64 buffers of this length fit in a second-level cache."""

MIN_N_EFF = 1e-3
"""Least effective rollouts of a tried prompt, so that 0 means never tried."""

PRIOR_PARAMETER_RANGE = (0.1, 1000.0)
"""alpha and beta of a fixed prior stay in here."""

Rows = IntArray | slice
Reading = tuple[FloatArray, FloatArray, FloatArray]
"""Mean, variance and n_eff of some rows; n_eff of rows that were never tried is not looked at."""

Reader = Callable[[Rows, IntArray], Reading]
"""Reads rows at the policy version given for each, which is not before its last evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPriorConfig(EstimatorConfig):
    """What each prompt starts from, whatever other prompts did."""

    prior_successes: float = 1.0
    """alpha of the Beta prior."""

    prior_failures: float = 1.0
    """beta of the Beta prior."""

    def __post_init__(self) -> None:
        require_between("prior_successes", self.prior_successes, *PRIOR_PARAMETER_RANGE)
        require_between("prior_failures", self.prior_failures, *PRIOR_PARAMETER_RANGE)

    def posterior(self, successes_N: FloatArray, failures_N: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of p after so many successes and failures."""
        return beta_moments(self.prior_successes + successes_N, self.prior_failures + failures_N)


class RowEstimator(ConfiguredEstimator[ConfigT]):
    """Base of estimators whose knowledge of a row is one number in each of a few columns.

    A subclass names itself, its configuration and its columns, and writes `_update` and `_reader`. Its columns are
    `self._columns[name]`, (N,) each, and `self._last_N` has the newest version of a row's evidence, or NEVER.
    """

    columns: ClassVar[Mapping[str, float | np.generic]]
    """Columns by their name in the state, each with its value for a row that was never tried, which sets its type."""

    def __init__(self, config: ConfigT) -> None:
        super().__init__(config)
        self._last_N: IntArray = np.empty(0, dtype=np.int64)
        self._columns = {name: np.empty(0, dtype=np.asarray(start).dtype) for name, start in self.columns.items()}

    @abstractmethod
    def _update(self, groups: Observations, newest_B: IntArray) -> None:
        """Change the columns of these rows, each of which occurs once; `_last_N` becomes `newest_B` afterwards."""

    @abstractmethod
    def _reader(self) -> Reader:
        """The rule for a belief, with what all rows share worked out once."""

    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        added = check_categories(category_N, self._last_N.shape[0]).shape[0] - self._last_N.shape[0]
        self._last_N = np.r_[self._last_N, np.full(added, NEVER, dtype=np.int64)]
        for name, start in self.columns.items():
            column_N = self._columns[name]
            self._columns[name] = np.r_[column_N, np.full(added, start, dtype=column_N.dtype)]

    def observe(self, observations: Observations) -> None:
        check_rows(observations.rows_B, self._last_N.shape[0])
        for groups in observations.rounds():
            newest_B = np.maximum(self._last_N[groups.rows_B], groups.version_B)
            self._update(groups, newest_B)
            self._last_N[groups.rows_B] = newest_B

    def beliefs(self, rows: IntArray | None = None) -> Beliefs:
        if rows is not None:
            check_rows(rows, self._last_N.shape[0])
        size = self._last_N.shape[0] if rows is None else rows.shape[0]
        mean_N, variance_N, n_eff_N = np.empty((3, size))
        lag_N, source_N = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.uint8)
        read = self._reader()
        for start in range(0, size, BLOCK_ROWS):
            block = slice(start, min(start + BLOCK_ROWS, size))
            at: Rows = block if rows is None else rows[block]
            last_N = self._last_N[at]
            tried_N = last_N != NEVER
            now_N = np.maximum(last_N, self._version)
            mean_N[block], variance_N[block], n_eff = read(at, now_N)
            n_eff_N[block] = n_eff * tried_N
            lag_N[block] = np.where(tried_N, now_N - last_N, NEVER)
            source_N[block] = tried_N
        return Beliefs(mean_N=mean_N, variance_N=variance_N, n_eff_N=n_eff_N, lag_N=lag_N, source_N=source_N)

    def state(self) -> State:
        columns = {name: column_N.copy() for name, column_N in self._columns.items()}
        return {"version": np.array(self._version, dtype=np.int64), "last_N": self._last_N.copy(), **columns}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        check_state(state, self.state(), rows_from="last_N")
        self._version = int(state["version"])
        self._last_N = np.array(state["last_N"])
        self._columns = {name: np.array(state[name]) for name in self._columns}


def beta_moments(alpha_N: FloatArray, beta_N: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of Beta(alpha, beta): a / (a + b), and a b / ((a + b)^2 (a + b + 1)). Both > 0."""
    total_N = alpha_N + beta_N
    mean_N = alpha_N / total_N
    return mean_N, mean_N * (beta_N / total_N) / (total_N + 1.0)
