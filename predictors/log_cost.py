"""One cost of a rollout, such as its tokens, for every row of a pool: a hierarchical normal model of its logarithm.

Owned by `costs`, one for each kind of cost. Knows rows, categories, logarithms and lags; not prompts, policies or
units. Axes: N rows, C categories, U rows touched by a call (each once), R rollouts of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from predictors.base import FloatArray, IntArray, State
from predictors.log_normal import expected_maximum, hazard, truncated_moments

CATEGORY_VARIANCE = 0.5
"""Prior variance of a category's offset: costs of categories differ by a factor of 2 or so."""

CATEGORY_PACE = 0.1
"""How fast offsets of categories move, as a share of the level's variance per version."""

UNKNOWN = 1e4
"""Variance of the level before anything is known."""

LEVEL_MEMORY = 20_000.0
"""Rows over which the level's precision fades by a factor of e even if no version is ever named."""

SPREAD_MEMORY = 20_000.0
"""Rollouts over which a category's spread fades by a factor of e."""

SPREAD_START, SPREAD_WEIGHT = 0.25, 20.0
"""Variance of a logarithm among siblings to start with, and the rollouts that this counts for; a category leans on the
pool with as much."""

OWN_SPREAD_MEMORY = 24.0
"""Rollouts over which a row's own spread is averaged, its category's being the start."""

OWN_SPREAD_RANGE = (0.05, 20.0)
"""A row's variance as a multiple of its category's stays in here."""

VARIANCE_RANGE = (1e-4, 4.0)
"""Variances of logarithms that are learned stay in here."""

FORGETTING_RANGE = (1e-6, 1.0)
"""Share of a row's deviation that fades per version stays in here."""

PACE_RANGE = (1e-9, 1e-1)
"""Variance by which the level wanders per version stays in here."""

PRIOR_INFORMATION = 3.0
"""It takes surprises worth this much to move a learned logarithm by 1."""

SCORE_MEMORY = 5_000.0
"""Rows over which the information about what is learned fades by a factor of e."""

MAX_STEP = 0.5
"""Most that a learned logarithm moves in one call."""

MAX_SURPRISE = 4.0
"""Standard deviations that a surprise counts for at most when variances are learned."""

LEAST_EXCESS, LEAST_COUNT = 1e-6, 1e-9
"""Least standard deviations by which a value is taken to pass where it was cut off, and the rollouts that such a one
counts for at least."""

LEARNED = {"between": 0.25, "forgetting": 1e-3, "pace": 1e-4}
"""What is learned of the pool, with its start: the variance of rows about their category, the share of a deviation that
fades per version, and the variance by which the level wanders per version."""
RANGES = {"between": VARIANCE_RANGE, "forgetting": FORGETTING_RANGE, "pace": PACE_RANGE}

ROW_COLUMNS: dict[str, type[np.generic]] = {
    "deviation_N": np.float32,  # of the row from its category, when it was last seen
    "known_N": np.float32,  # 1 - the variance of that deviation / the variance between rows, in [0, 1]
    "own_spread_N": np.float16,  # log of the row's variance as a multiple of its category's
}
CATEGORY_COLUMNS = {"offset_C": 0.0, "offset_variance_C": CATEGORY_VARIANCE, "scatter_C": 0.0, "freedom_C": 0.0}
SCALARS = {"level": 0.0, "level_variance": UNKNOWN, "seen": 0.0, "largest": 0.0}
"""Of all rows: their common level, how many rollouts were seen, and the largest cost among them (no logarithm)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is expected of the logarithm of a rollout's cost, for some rows."""

    mean_N: FloatArray
    unsure_N: FloatArray  # variance of that mean
    spread_N: FloatArray  # variance of siblings about it


def mean_of(expected: Expected) -> FloatArray:
    """E exp(log cost) = exp(mean + (unsure + spread) / 2)."""
    return np.asarray(np.exp(expected.mean_N + 0.5 * (expected.unsure_N + expected.spread_N)))


def longest_of(count: int) -> Callable[[Expected], FloatArray]:
    """Expected largest of so many siblings, which share what is unsure. Raises ValueError if count < 1."""
    largest = expected_maximum(count)
    return lambda expected: np.asarray(
        np.exp(expected.mean_N + 0.5 * expected.unsure_N) * largest(np.sqrt(expected.spread_N))
    )


class LogCost:
    """log cost of a rollout of row i in category c = level + offset_c + d_i + N(0, s_i).

    d_i ~ N(0, t) at first sight, and is drawn back to that by k = 1 / (1 + f lag) over `lag` versions without evidence:
    mean d k, variance t (1 - known k^2). The level wanders by `pace` per version. t, f and pace are learned by
    natural-gradient steps on the log likelihood of what comes, as in `pace.Pace`. A call with B rows updates level,
    offsets and rows in this order, each as a Kalman filter that takes the ones above it as known then. s_i is the
    variance among siblings, by category and shrunk to the pool, times the row's own running multiple.
    A value that was cut off counts as `_told` says, and for the spread as its mean given that it is at least so large,
    with the variance that is left (one step of EM).
    """

    def __init__(self) -> None:
        self._rows = {name: np.zeros(0, dtype) for name, dtype in ROW_COLUMNS.items()}
        self._categories = {name: np.zeros(0) for name in CATEGORY_COLUMNS}
        self._scalars = dict(SCALARS)
        self._learned = dict(LEARNED)
        self._information = dict.fromkeys(LEARNED, 0.0)

    @property
    def is_known(self) -> bool:
        """Whether a cost was ever seen."""
        return self._scalars["seen"] > 0.0

    def note_largest(self, cost: float) -> None:
        """A cost that was seen, itself and no logarithm."""
        self._scalars["largest"] = max(self._scalars["largest"], cost)

    @property
    def largest(self) -> float:
        """The dearest rollout of any row so far: where a limit cuts rollouts, none costs more than it."""
        return self._scalars["largest"]

    def resize(self, num_rows: int, num_categories: int) -> None:
        """Old rows and categories keep their state."""
        for name, dtype in ROW_COLUMNS.items():
            self._rows[name] = np.r_[self._rows[name], np.zeros(num_rows - self._rows[name].size, dtype)]
        for name, start in CATEGORY_COLUMNS.items():
            column_C = self._categories[name]
            self._categories[name] = np.r_[column_C, np.full(max(num_categories - column_C.size, 0), start)]

    def expected(self, at: IntArray | slice, category_N: npt.NDArray[np.int32], lag_N: FloatArray) -> Expected:
        """Of these rows, their categories and the versions since their evidence; of no use while nothing is known."""
        kept_N = 1.0 / (1.0 + self._learned["forgetting"] * lag_N)
        offset_C, offset_variance_C = self._categories["offset_C"], self._categories["offset_variance_C"]
        own_N = np.exp(self._rows["own_spread_N"][at].astype(np.float64))
        place_N = category_N.astype(np.intp)  # ten times as fast to look up with
        return Expected(
            mean_N=(self._scalars["level"] + offset_C).take(place_N) + self._rows["deviation_N"][at] * kept_N,
            unsure_N=(self._scalars["level_variance"] + offset_variance_C).take(place_N)
            + self._learned["between"] * (1.0 - self._rows["known_N"][at] * kept_N**2),
            spread_N=self._spread_C().take(place_N) * own_N,
        )

    def observe(
        self,
        rows_U: IntArray,
        category_U: npt.NDArray[np.int32],
        lag_U: FloatArray,
        elapsed: float,
        place_R: IntArray,
        log_R: FloatArray,
        cut_R: np.ndarray,
    ) -> None:
        """Rollouts by the place of their row in rows_U, each of which has at least one. cut_R: at least so large.

        elapsed: versions since the call before.
        """
        self._wander(elapsed, rows_U.size)
        before = self.expected(rows_U, category_U, lag_U)
        told = _told(log_R, cut_R, before, place_R)
        size_U = np.bincount(place_R, minlength=rows_U.size).astype(np.float64)
        middle_U = np.bincount(place_R, told.filled_R, rows_U.size) / size_U
        scatter_R = (told.filled_R - middle_U[place_R]) ** 2 + told.left_R
        scatter_U = np.asarray(np.bincount(place_R, scatter_R, rows_U.size), np.float64)
        count_U = np.bincount(place_R, told.count_R, rows_U.size)
        error_U = np.bincount(place_R, told.count_R * told.value_R, rows_U.size) / count_U - before.mean_N
        noise_U = before.spread_N / count_U
        variance_U = self._row_variance(rows_U, lag_U)
        self._learn(rows_U, lag_U, error_U, before.unsure_N + noise_U)
        rest_U = error_U - self._learn_levels(category_U, error_U, 1.0 / (variance_U + noise_U), elapsed)
        self._learn_rows(rows_U, lag_U, rest_U, variance_U, noise_U)
        self._learn_spread(rows_U, category_U, scatter_U, size_U - 1.0)
        self._scalars["seen"] += float(log_R.size)

    def _wander(self, elapsed: float, num_rows: int) -> None:
        """Ages level and offsets to this call."""
        moved = self._learned["pace"] * elapsed
        self._scalars["level_variance"] *= np.exp(num_rows / LEVEL_MEMORY)
        self._scalars["level_variance"] = float(min(self._scalars["level_variance"] + moved, UNKNOWN))
        variance_C = self._categories["offset_variance_C"]
        np.minimum(variance_C + CATEGORY_PACE * moved, CATEGORY_VARIANCE, out=variance_C)

    def _row_variance(self, rows_U: IntArray, lag_U: FloatArray) -> FloatArray:
        kept_U = 1.0 / (1.0 + self._learned["forgetting"] * lag_U)
        return self._learned["between"] * (1.0 - self._rows["known_N"][rows_U] * kept_U**2)

    def _learn(self, rows_U: IntArray, lag_U: FloatArray, error_U: FloatArray, total_U: FloatArray) -> None:
        """Variance between rows and forgetting, by slopes of the log likelihood of each row's average."""
        between, forgetting = self._learned["between"], self._learned["forgetting"]
        known_U = self._rows["known_N"][rows_U].astype(np.float64)
        kept_U = 1.0 / (1.0 + forgetting * lag_U)
        surprise_U = np.clip(error_U / np.sqrt(total_U), -MAX_SURPRISE, MAX_SURPRISE)
        by_variance_U = 0.5 * (surprise_U**2 - 1.0) / total_U
        faded_U = -forgetting * lag_U * kept_U**2  # change of kept per unit of the log of forgetting
        by_mean_U = surprise_U / np.sqrt(total_U) * self._rows["deviation_N"][rows_U] * faded_U
        # What is left unsure of a row after n rollouts, t (1 - known), moves by (1 - known)^2 of t only.
        self._step("between", by_variance_U * between * (1.0 - kept_U**2 + (kept_U * (1.0 - known_U)) ** 2))
        self._step("forgetting", by_mean_U - by_variance_U * between * 2.0 * known_U * kept_U * faded_U)

    def _step(self, name: str, score: FloatArray) -> None:
        """One step on the log of what is learned; information fades by rows."""
        kept = np.exp(-score.size / SCORE_MEMORY)
        self._information[name] = float(kept * self._information[name] + np.sum(score**2))
        step = np.clip(np.sum(score) / (self._information[name] + PRIOR_INFORMATION), -MAX_STEP, MAX_STEP)
        self._learned[name] = float(np.clip(self._learned[name] * np.exp(step), *RANGES[name]))

    def _learn_levels(
        self, category_U: npt.NDArray[np.int32], error_U: FloatArray, precision_U: FloatArray, elapsed: float
    ) -> FloatArray:
        """Level, then offsets; returns by how much each row's expectation has moved."""
        offset_C, variance_C = self._categories["offset_C"], self._categories["offset_variance_C"]
        precision_C = np.bincount(category_U, precision_U, offset_C.size)
        met = np.flatnonzero(precision_C)
        error_M = np.bincount(category_U, precision_U * error_U, offset_C.size)[met] / precision_C[met]
        unsure_M = variance_C[met] + 1.0 / precision_C[met]
        weight = float(np.sum(1.0 / unsure_M))
        error = float(np.sum(error_M / unsure_M)) / weight
        total = self._scalars["level_variance"] + 1.0 / weight
        surprise = np.clip(error / np.sqrt(total), -MAX_SURPRISE, MAX_SURPRISE)
        self._step("pace", np.array([0.5 * (surprise**2 - 1.0) / total * self._learned["pace"] * elapsed]))
        gain = self._scalars["level_variance"] / total
        self._scalars["level"] += gain * error
        self._scalars["level_variance"] *= 1.0 - gain
        moved_C = np.zeros(offset_C.size)
        moved_C[met] = variance_C[met] / unsure_M * (error_M - gain * error)
        offset_C += moved_C
        variance_C[met] *= 1.0 - variance_C[met] / unsure_M
        return gain * error + moved_C[category_U]

    def _learn_rows(
        self, rows_U: IntArray, lag_U: FloatArray, rest_U: FloatArray, variance_U: FloatArray, noise_U: FloatArray
    ) -> None:
        deviation_N = self._rows["deviation_N"]
        kept_U = 1.0 / (1.0 + self._learned["forgetting"] * lag_U)
        gain_U = variance_U / (variance_U + noise_U)
        deviation_N[rows_U] = deviation_N[rows_U] * kept_U + gain_U * rest_U
        left_U = variance_U * (1.0 - gain_U) / self._learned["between"]
        self._rows["known_N"][rows_U] = np.clip(1.0 - left_U, 0.0, 1.0)

    def _learn_spread(
        self, rows_U: IntArray, category_U: npt.NDArray[np.int32], scatter_U: FloatArray, freedom_U: FloatArray
    ) -> None:
        """Scatter of siblings about their average, with count - 1 degrees of freedom."""
        base_U = self._spread_C()[category_U]
        own_U = np.exp(self._rows["own_spread_N"][rows_U].astype(np.float64))
        moved_U = (OWN_SPREAD_MEMORY * own_U + scatter_U / base_U) / (OWN_SPREAD_MEMORY + freedom_U)
        self._rows["own_spread_N"][rows_U] = np.log(np.clip(moved_U, *OWN_SPREAD_RANGE))
        kept = np.exp(-freedom_U.sum() / SPREAD_MEMORY)
        for name, values_U in (("scatter_C", scatter_U), ("freedom_C", freedom_U)):
            column_C = self._categories[name]
            column_C *= kept
            column_C += np.bincount(category_U, values_U, column_C.size)

    def _spread_C(self) -> FloatArray:
        """(C,) variance among siblings, each category's shrunk to the pool's."""
        scatter_C, freedom_C = self._categories["scatter_C"], self._categories["freedom_C"]
        pool = (scatter_C.sum() + SPREAD_WEIGHT * SPREAD_START) / (freedom_C.sum() + SPREAD_WEIGHT)
        return np.asarray(np.clip((scatter_C + SPREAD_WEIGHT * pool) / (freedom_C + SPREAD_WEIGHT), *VARIANCE_RANGE))

    def state(self) -> State:
        """Copies: columns by row, columns by category, numbers."""
        return {
            **{name: column.copy() for name, column in (*self._rows.items(), *self._categories.items())},
            **{name: np.array(value) for name, value in self._scalars.items()},
            **{name: np.array(value) for name, value in self._learned.items()},
            **{f"{name}_information": np.array(value) for name, value in self._information.items()},
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take arrays that the owner has checked."""
        self._rows = {name: np.array(state[name]) for name in ROW_COLUMNS}
        self._categories = {name: np.array(state[name]) for name in CATEGORY_COLUMNS}
        self._scalars = {name: float(state[name]) for name in SCALARS}
        self._learned = {name: float(state[name]) for name in LEARNED}
        self._information = {name: float(state[f"{name}_information"]) for name in LEARNED}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What each rollout says: a value, how many rollouts it counts for, and what it adds to the scatter of siblings."""

    value_R: FloatArray
    count_R: FloatArray
    filled_R: FloatArray
    left_R: FloatArray


def _told(log_R: FloatArray, cut_R: np.ndarray, before: Expected, place_R: IntArray) -> _Told:
    """A value that was seen says itself. One cut off at c says, with x = (c - m) / sd and h = hazard(x), what
    w = h (h - x) rollouts at m + sd / (h - x) would: the slope and the curvature of log P(value >= c) at m.
    """
    value_R, filled_R = log_R.copy(), log_R.copy()
    count_R, left_R = np.ones(log_R.size), np.zeros(log_R.size)
    at = np.flatnonzero(cut_R)
    if at.size:
        mean, spread = before.mean_N[place_R[at]], before.spread_N[place_R[at]]
        x = (log_R[at] - mean) / np.sqrt(spread)
        above = np.maximum(hazard(x) - x, LEAST_EXCESS)
        count_R[at] = np.clip(hazard(x) * above, LEAST_COUNT, 1.0)
        value_R[at] = mean + np.sqrt(spread) / above
        filled_R[at], left_R[at] = truncated_moments(mean, spread, log_R[at])
    return _Told(value_R=value_R, count_R=count_R, filled_R=filled_R, left_R=left_R)
