"""What rewards of a category look like: means and spreads for prompts without rewards, and how unlike prompts are.

Owned by `rewards`, which tells it the first group of each row: no policy could choose it by how it would score. Knows
categories and groups; not rows. Axes: C categories, B groups, U groups that are not all alike.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from predictors.base import FloatArray, IntArray, State
from predictors.reward_groups import RewardGroups

CATEGORY_WEIGHT = 4.0
"""First groups that the pool counts for in a category."""

FIRST_MEMORY = 5_000.0
"""First groups of rows over which what they showed of categories fades by a factor of e."""

BETWEEN_START, LOG_BETWEEN_START, START_WEIGHT = 1.0, 1.0, 8.0
"""Variance of means between rows, in that among siblings, and variance of the log of the spread between rows, to start
with; and the first groups that each counts for."""

LEAST_LOG_BETWEEN = 0.02
"""Least variance of the log of the spread between rows."""

LOG_RANGE = (-80.0, 80.0)
"""The log of a variance stays in here when it is read."""

MAX_SURPRISE = 4.0
"""Standard deviations that a surprise counts for at most when variances are learned."""

TINY = float(np.finfo(np.float64).tiny)

SUMS = ("groups", "mean", "logs", "log_sum")
"""Over categories: first groups, their means, those of them that are not all alike, the logs of their variances."""

SCALARS = (
    "between",  # of first groups: sum of squared distances from the category, less their noise
    "between_noise",  # sum of the variances among siblings that go with it
    "between_count",
    "log_between",
    "log_between_count",
)


class RewardLevels:
    """Fading sums over first groups; variances between rows are found by moments, categories shrunk to the pool."""

    def __init__(self) -> None:
        self._sums = {name: np.zeros(1) for name in SUMS}
        self._scalars = dict.fromkeys(SCALARS, 0.0)

    def resize(self, num_categories: int) -> None:
        """At least so many."""
        for name, column_C in self._sums.items():
            self._sums[name] = np.r_[column_C, np.zeros(max(num_categories - column_C.size, 0))]

    def start(self, first: RewardGroups, category_B: npt.NDArray[np.int32], track: float) -> None:
        """Take first groups of rows. category_B: (B,) theirs. track: where rewards of the pool are by now."""
        count = first.rows_B.size
        if not count:
            return
        size = self._sums["groups"].size
        value_B = first.mean_B - track
        told = np.flatnonzero(~first.is_alike_B)
        log_U, noise_U = log_variances(first.variance_B[told], first.size_B[told])
        kept = float(np.exp(-count / FIRST_MEMORY))
        self._spread_between(category_B, value_B, first, kept)
        if told.size:
            self._log_spread_between(category_B[told], log_U, noise_U, kept)
        added = (
            np.bincount(category_B, minlength=size),
            np.bincount(category_B, value_B, size),
            np.bincount(category_B[told], minlength=size),
            np.bincount(category_B[told], log_U, size),
        )
        for name, added_C in zip(SUMS, added, strict=True):
            self._sums[name] = kept * self._sums[name] + added_C

    def _spread_between(
        self, category_B: npt.NDArray[np.int32], value_B: FloatArray, first: RewardGroups, kept: float
    ) -> None:
        """Variance of means between rows, by moments about what was known of their categories before."""
        scalars, noise_B = self._scalars, first.variance_B / first.size_B
        mean_B = self.means()[category_B] if self._sums["groups"].sum() else np.full(value_B.size, value_B.mean())
        square_B = (value_B - mean_B) ** 2
        if scalars["between_count"] >= START_WEIGHT:
            square_B = np.minimum(square_B, MAX_SURPRISE**2 * (self.between + noise_B))
        for name, added in (
            ("between", np.sum(square_B - noise_B)),
            ("between_noise", np.sum(first.variance_B)),
            ("between_count", value_B.size),
        ):
            scalars[name] = kept * scalars[name] + float(added)

    def _log_spread_between(
        self, category_U: npt.NDArray[np.int32], log_U: FloatArray, noise_U: FloatArray, kept: float
    ) -> None:
        """Variance of the log of the spread between rows, likewise."""
        scalars = self._scalars
        mean_U = self.log_means()[category_U] if self._sums["logs"].sum() else np.full(log_U.size, log_U.mean())
        square_U = np.minimum((log_U - mean_U) ** 2, MAX_SURPRISE**2 * (self.log_between + noise_U))
        scalars["log_between"] = kept * scalars["log_between"] + float(np.sum(square_U - noise_U))
        scalars["log_between_count"] = kept * scalars["log_between_count"] + log_U.size

    @property
    def between(self) -> float:
        """Variance of means between rows of a category, > 0."""
        found, count = self._scalars, self._scalars["between_count"]
        usual = found["between_noise"] / max(count, 1.0)
        return max((found["between"] + START_WEIGHT * BETWEEN_START * usual) / (count + START_WEIGHT), TINY)

    @property
    def log_between(self) -> float:
        """Variance of the log of the spread between rows of a category, > 0."""
        found, count = self._scalars, self._scalars["log_between_count"]
        shrunk = (found["log_between"] + START_WEIGHT * LOG_BETWEEN_START) / (count + START_WEIGHT)
        return max(shrunk, LEAST_LOG_BETWEEN)

    def means(self) -> FloatArray:
        """(C,) of rows, less the track."""
        return _shrunk(self._sums["mean"], self._sums["groups"], 0.0)

    def log_means(self) -> FloatArray:
        """(C,) of the log of the spread among siblings of groups that differ."""
        return _shrunk(self._sums["log_sum"], self._sums["logs"], LOG_RANGE[0])

    def state(self) -> State:
        """Sums and scalars."""
        return {
            **{f"{name}_C": column_C.copy() for name, column_C in self._sums.items()},
            **{name: np.array(value) for name, value in self._scalars.items()},
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take arrays that the owner has checked."""
        self._sums = {name: np.array(state[f"{name}_C"]) for name in SUMS}
        self._scalars = {name: float(state[name]) for name in SCALARS}


def _shrunk(sum_C: FloatArray, count_C: FloatArray, start: float) -> FloatArray:
    """Averages by category, each shrunk to the pool's; `start` while there is none."""
    total = float(count_C.sum())
    pool = float(sum_C.sum()) / total if total else start
    return np.asarray((sum_C + CATEGORY_WEIGHT * pool) / (count_C + CATEGORY_WEIGHT))


def log_variances(variance_U: FloatArray, size_U: IntArray) -> tuple[FloatArray, FloatArray]:
    """Log of each variance without its bias, and the variance of that: psi(f) - log f and psi'(f), f = (n - 1)/2."""
    freedom_U = size_U - 1
    bias, noise = _chi_square_logs(int(freedom_U.max(initial=1)))
    return np.log(np.maximum(variance_U, TINY)) - bias[freedom_U], noise[freedom_U]


def _chi_square_logs(largest: int) -> tuple[FloatArray, FloatArray]:
    """psi(f/2) - log(f/2) and psi'(f/2) for f = 1 .. largest, by psi(x + 1) = psi(x) + 1/x; place 0 is not used."""
    digamma, trigamma = np.zeros(largest + 3), np.zeros(largest + 3)
    digamma[1], digamma[2] = -np.euler_gamma - 2.0 * np.log(2.0), -np.euler_gamma
    trigamma[1], trigamma[2] = np.pi**2 / 2.0, np.pi**2 / 6.0
    for freedom in range(3, largest + 1):
        digamma[freedom] = digamma[freedom - 2] + 2.0 / (freedom - 2)
        trigamma[freedom] = trigamma[freedom - 2] - 4.0 / (freedom - 2) ** 2
    half = np.maximum(np.arange(largest + 1), 1) / 2.0
    return digamma[: largest + 1] - np.log(half), trigamma[: largest + 1]
