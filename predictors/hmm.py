"""Hidden Markov chain: each prompt is unsolved, partly solved or solved, and moves by its own transition counts.

The estimator of DPS (arXiv 2603.10887). Built by the registry. Axes: N rows, B groups; matrices are [to, from, rows].
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from predictors.base import FloatArray, IntArray, Observations, require_between
from predictors.configured import EstimatorConfig
from predictors.rows import MIN_N_EFF, Reader, Reading, RowEstimator, Rows

STATES = ("unsolved", "partial", "solved")
"""No rollout of a group passed, some did, all did. Their places here are their codes."""

UNKNOWN = -1
"""State of a prompt that was never tried."""

PRIOR_COUNT = 1.0
"""Dirichlet count that each transition starts from."""

MAX_DISCOUNT = 0.95
"""Largest discount below 1. Under one the chain changes at each step, so reading takes a pass for each of the last
20 / (1 - discount) steps."""

FORGOTTEN = 1e-9
"""Share of the counts below which a chain is taken as its prior, which forgets its state in one step."""

COUNTS = tuple(f"{new}_after_{old}_N" for new in STATES for old in STATES)


@dataclass(frozen=True, slots=True, kw_only=True)
class HmmConfig(EstimatorConfig):
    """Options."""

    discount: float = 1.0
    """Share of the transition counts that is kept at each policy version. DPS has 1, and .7 in its script for MATH."""

    group_size: float = 8.0
    """Rollouts of the groups that states speak of: what "all passed" says of a pass rate depends on it."""

    def __post_init__(self) -> None:
        if self.discount != 1.0:
            require_between("discount unless it is 1", self.discount, 0.0, MAX_DISCOUNT)
        require_between("group_size", self.group_size, 2.0, 1024.0)


class Hmm(RowEstimator[HmmConfig]):
    """Per row: the state seen last, exactly, and Dirichlet counts a[to, from]; P = a / (sum of a over `to`).

    A step is a policy version. At each step without a visit a <- d a + (1 - d) a0 and belief <- P belief. At a visit
    that shows state i, with b the belief about the step before, a <- d a + (1 - d) a0 + c, where c[i, j] is
    P[i, j] b[j] divided by its sum over j; the belief is then column i of P: it is always a forecast of the next visit.
    The first visit finds a uniform belief. Each group counts as a visit of its own, in the order of arrival; one that
    names an older version counts as if it were new, as the chain has no notion of late.

    DPS predicts states and no pass rate. The completion: in each state p has the posterior of a uniform prior given
    that state of a group of G: Beta(1, G + 1), Beta(G + 1, 1), and for `partial` what is left of the uniform.
    Counts are kept in float32 (transitions beyond 2^24 no longer count).
    """

    name = "hmm"
    whole_groups: ClassVar[bool] = True
    columns: ClassVar = {"state_N": np.int8(UNKNOWN), **dict.fromkeys(COUNTS, np.float32(PRIOR_COUNT))}

    def __init__(self, config: HmmConfig) -> None:
        super().__init__(config)
        size = config.group_size
        end_share = 1.0 / (size + 1.0)  # of the uniform prior, in either end state
        low_square = 2.0 / ((size + 2.0) * (size + 3.0))
        high_square = (size + 1.0) / (size + 3.0)
        middle_square = (1.0 / 3.0 - end_share * (low_square + high_square)) / (1.0 - 2.0 * end_share)
        self._mean_by_state = (1.0 / (size + 2.0), 0.5, (size + 1.0) / (size + 2.0))
        self._square_by_state = (low_square, middle_square, high_square)

    @classmethod
    def config_type(cls) -> type[HmmConfig]:
        return HmmConfig

    def _update(self, groups: Observations, newest_B: IntArray) -> None:
        rows_B = groups.rows_B
        steps_B = np.maximum(newest_B - self._last_N[rows_B], 1) - 1
        before_B = self._forecast(rows_B, steps_B)
        aged_B = self._aged_counts(rows_B, steps_B)
        state_B = np.where(groups.passes_B == 0.0, 0, np.where(groups.passes_B == groups.scored_B, 2, 1))
        position = np.arange(rows_B.shape[0])
        seen_B = _transitions(aged_B)[state_B, :, position].T * before_B  # (from, B)
        kept_B = PRIOR_COUNT + self._config.discount * (aged_B - PRIOR_COUNT)
        kept_B[state_B, :, position] += (seen_B / seen_B.sum(axis=0)).T
        for name, count_B in zip(COUNTS, kept_B.reshape(9, -1), strict=True):
            self._columns[name][rows_B] = count_B
        self._columns["state_N"][rows_B] = state_B

    def _reader(self) -> Reader:
        return self._read

    def _read(self, at: Rows, now_N: IntArray) -> Reading:
        chance_3N = self._forecast(at, np.maximum(now_N - self._last_N[at], 1))
        mean_N = sum(chance * mean for chance, mean in zip(chance_3N, self._mean_by_state, strict=True))
        square_N = sum(chance * square for chance, square in zip(chance_3N, self._square_by_state, strict=True))
        variance_N = square_N - mean_N**2
        # As many rollouts as, added to a flat prior, would leave this variance.
        return mean_N, variance_N, np.maximum(mean_N * (1.0 - mean_N) / variance_N - 3.0, MIN_N_EFF)

    def _forecast(self, at: Rows, steps_N: IntArray) -> FloatArray:
        """Chance of each state so many steps after the last visit: (3, N); uniform if there was none."""
        state_N = self._columns["state_N"][at]
        ends_2N = np.stack([state_N == 0, state_N == 2]).astype(np.float64)
        if self._config.discount == 1.0:
            ends_2N = _moved(self._aged_counts(at, steps_N), ends_2N, steps_N)
        else:
            ends_2N = self._moved_while_forgetting(at, ends_2N, steps_N)
        ends_2N[:, state_N == UNKNOWN] = 1.0 / 3.0
        np.clip(ends_2N, 0.0, 1.0, out=ends_2N)
        return np.stack([ends_2N[0], np.maximum(1.0 - ends_2N[0] - ends_2N[1], 0.0), ends_2N[1]])

    def _moved_while_forgetting(self, at: Rows, ends_2N: FloatArray, steps_N: IntArray) -> FloatArray:
        """Step by step, as the chain itself moves, until nothing is left of it."""
        discount = self._config.discount
        horizon = int(np.ceil(np.log(FORGOTTEN) / np.log(discount))) if discount > 0.0 else 1
        for step in range(min(int(steps_N.max(initial=0)), horizon)):
            matrix, shift = _affine(self._aged_counts(at, np.full_like(steps_N, step)))
            ends_2N = np.where(steps_N > step, _applied(matrix, shift, ends_2N), ends_2N)
        return np.where(steps_N > horizon, 1.0 / 3.0, ends_2N)

    def _aged_counts(self, at: Rows, steps_N: IntArray) -> FloatArray:
        """Counts a[to, from] of these rows so many steps after their last visit: (3, 3, N)."""
        counts = np.array([self._columns[name][at] for name in COUNTS], dtype=np.float64).reshape(3, 3, -1)
        if self._config.discount < 1.0:
            counts = PRIOR_COUNT + self._config.discount**steps_N * (counts - PRIOR_COUNT)
        return counts


def _transitions(counts: FloatArray) -> FloatArray:
    """P[to, from] expected under Dirichlet counts."""
    return np.asarray(counts / counts.sum(axis=0))


def _affine(counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same step on the chances of the two end states, the third being what is left: y <- M y + h."""
    ends = _transitions(counts)[[0, 2]]
    return ends[:, [0, 2]] - ends[:, 1:2], ends[:, 1]


def _applied(matrix: FloatArray, shift: FloatArray, ends_2N: FloatArray) -> FloatArray:
    return np.asarray(matrix[:, 0] * ends_2N[0] + matrix[:, 1] * ends_2N[1] + shift)


def _moved(counts: FloatArray, ends_2N: FloatArray, steps_N: IntArray) -> FloatArray:
    """A fixed chain's end states after each row's own number of steps, by repeated squaring of the step."""
    matrix, shift = _affine(counts)
    left_N = steps_N
    while True:
        ends_2N = np.where(left_N & 1, _applied(matrix, shift, ends_2N), ends_2N)
        left_N = left_N >> 1
        if not left_N.any():
            return ends_2N
        shift = _applied(matrix, shift, shift)
        matrix = np.stack([_applied(matrix, np.zeros(1), matrix[:, column]) for column in (0, 1)], axis=1)
