"""Reads the mixture's beliefs of a whole pool, as every draw does: float32, one compiled loop over the rows.

The average of a row's experts is kept beside them and aged as one belief, with the speed of their average; against
ageing each expert and averaging then, this changed the log loss of a real run by less than 1e-4.
Used by the mixture alone. Axes: N rows of a pool or a block, C categories.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from predictors.base import NEVER, Beliefs, FloatArray, IntArray
from predictors.compiled import compiled, keep_pages
from predictors.levels import Levels

Float32Array = npt.NDArray[np.float32]
Int32Array = npt.NDArray[np.int32]

BLOCK_ROWS = 512
"""Rows read at once: the float32 numbers of this many (20 KiB) fit in a first-level cache."""

LEAST_PARAMETER = 0.05
"""Least alpha and beta of a belief."""

MEAN_EDGE = 1e-6
"""Mean pass rates keep this distance from 0 and 1."""

MAX_OVERLAP = 0.999
"""Largest variance, as a share of mean (1 - mean)."""

MIN_N_EFF = 1e-3
"""Least effective rollouts of a tried prompt, so that 0 means never tried."""

# The same as float32, which the loop works in.
_ONE = np.float32(1.0)
_LEAST_PARAMETER = np.float32(LEAST_PARAMETER)
_LEAST_MEAN, _LARGEST_MEAN = np.float32(MEAN_EDGE), np.float32(1.0 - MEAN_EDGE)
_MAX_OVERLAP = np.float32(MAX_OVERLAP)
_MIN_N_EFF = np.float32(MIN_N_EFF)

NUM_LEVELS, _FOUR = 4, np.uint32(4)
"""What is looked up by category: alpha and beta of the first level, mean and variance of the newest."""

_STRIDE = BLOCK_ROWS + 16
"""From one number of a block to the next: not a page, as addresses that are whole pages apart wait for each other."""

# Where a block's numbers begin in the loop's working memory: one array, so that the compiler sees that they lie apart.
_LAG, _OVERLAP = 0, _STRIDE
_FIRST_ALPHA, _FIRST_BETA, _NEWEST_MEAN, _NEWEST_VARIANCE = 2 * _STRIDE, 3 * _STRIDE, 4 * _STRIDE, 5 * _STRIDE
_WORK = 6 * _STRIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What reading needs of each row. (N,) each; alpha and beta are those of the average less the category's."""

    last_N: IntArray  # newest version of its evidence, or NEVER
    alpha_N: Float32Array
    beta_N: Float32Array
    speed_N: Float32Array  # process noise in units of the learned one

    @classmethod
    def untried(cls, num_rows: int) -> Self:
        return cls(
            last_N=np.full(num_rows, NEVER, dtype=np.int64),
            alpha_N=np.zeros(num_rows, dtype=np.float32),
            beta_N=np.zeros(num_rows, dtype=np.float32),
            speed_N=np.ones(num_rows, dtype=np.float32),
        )

    def followed_by(self, other: "Columns") -> "Columns":
        """These rows, then the others."""
        return Columns(
            last_N=np.r_[self.last_N, other.last_N],
            alpha_N=np.r_[self.alpha_N, other.alpha_N],
            beta_N=np.r_[self.beta_N, other.beta_N],
            speed_N=np.r_[self.speed_N, other.speed_N],
        )

    def take(self, rows: IntArray | slice) -> "Columns":
        """These rows; a slice is not copied."""
        return Columns(
            last_N=self.last_N[rows], alpha_N=self.alpha_N[rows], beta_N=self.beta_N[rows], speed_N=self.speed_N[rows]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What all rows share when they are read."""

    version: int
    drift: float  # radians of arcsin(sqrt(p)) per version at p = 1/2
    process_noise: float  # their variance per version
    return_rate: float  # per version; half of the jumps have happened after 1 / this
    jump_share: float
    first: Levels
    newest: Levels

    def read(self, columns: Columns, category_N: Int32Array, *, evidence: bool = True) -> Beliefs:
        """Beliefs of these rows, as fresh arrays; without evidence n_eff, lag and source are left empty."""
        size = category_N.shape[0]
        told = size if evidence else 0
        keep_pages()
        beliefs = Beliefs(
            mean_N=np.empty(size),
            variance_N=np.empty(size),
            n_eff_N=np.empty(told),
            lag_N=np.empty(told, dtype=np.int64),
            source_N=np.empty(told, dtype=np.uint8),
        )
        if evidence:
            np.greater(columns.last_N, NEVER, out=beliefs.source_N.view(np.bool_))
        mean_C = self.newest.mean
        variance_C = self.newest.overlap * mean_C * (1.0 - mean_C)
        _read_rows(
            columns.last_N,
            columns.alpha_N,
            columns.beta_N,
            columns.speed_N,
            category_N,
            np.stack([self.first.alpha, self.first.beta, mean_C, variance_C], axis=1).astype(np.float32).ravel(),
            self.version,
            np.float32(4.0 * max(self.drift, 0.0)),
            np.float32(4.0 * max(-self.drift, 0.0)),
            np.float32(4.0 * self.process_noise),
            np.float32(self.return_rate),
            np.float32(self.jump_share),
            beliefs.mean_N,
            beliefs.variance_N,
            beliefs.n_eff_N,
            beliefs.lag_N,
        )
        return beliefs


@compiled
def _read_rows(
    last_N: IntArray,
    alpha_N: Float32Array,
    beta_N: Float32Array,
    speed_N: Float32Array,
    category_N: Int32Array,
    level_J: Float32Array,
    version: int,
    rise: np.float32,
    fall: np.float32,
    noise: np.float32,
    return_rate: np.float32,
    jump_share: np.float32,
    mean_N: FloatArray,
    variance_N: FloatArray,
    n_eff_N: FloatArray,
    lag_N: IntArray,
) -> None:
    """The formulas of `experts.aged`, and of an average with the newest level, written to the last four arrays; the two
    of the evidence may be empty.

    level_J: NUM_LEVELS numbers a category. Several short loops over a block instead of one, each with few arrays: the
    compiler works on many rows at a time only where it can tell that they do not overlap; and slices, in which it can
    tell that a place is not counted from the end.
    """
    size, evidence = last_N.shape[0], n_eff_N.shape[0] > 0
    work = np.empty(_WORK, np.float32)
    level_I = np.empty(NUM_LEVELS * BLOCK_ROWS, np.float32)
    for start in range(0, size, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, size)
        count = stop - start
        last_b, category_b = last_N[start:stop], category_N[start:stop]
        alpha_b, beta_b, speed_b = alpha_N[start:stop], beta_N[start:stop], speed_N[start:stop]
        mean_b, variance_b = mean_N[start:stop], variance_N[start:stop]
        for i in range(count):
            place = _FOUR * np.uint32(category_b[i])  # unsigned, so not counted from the end
            # All are read before one is written: four at once, as the two arrays might be one.
            alpha, beta = level_J[place], level_J[place + np.uint32(1)]
            mean, variance = level_J[place + np.uint32(2)], level_J[place + np.uint32(3)]
            level_I[NUM_LEVELS * i] = alpha
            level_I[NUM_LEVELS * i + 1] = beta
            level_I[NUM_LEVELS * i + 2] = mean
            level_I[NUM_LEVELS * i + 3] = variance
        for i in range(count):
            work[_FIRST_ALPHA + i] = level_I[NUM_LEVELS * i]
            work[_FIRST_BETA + i] = level_I[NUM_LEVELS * i + 1]
            work[_NEWEST_MEAN + i] = level_I[NUM_LEVELS * i + 2]
            work[_NEWEST_VARIANCE + i] = level_I[NUM_LEVELS * i + 3]
        for i in range(count):
            last = last_b[i]
            lag = version - last
            work[_LAG + i] = np.float32(lag if (last > NEVER) & (lag > 0) else np.int64(0))
        for i in range(count):
            versions = work[_LAG + i]
            first_alpha, first_beta = work[_FIRST_ALPHA + i], work[_FIRST_BETA + i]
            alpha, beta = alpha_b[i] + first_alpha, beta_b[i] + first_beta
            alpha = alpha if alpha > _LEAST_PARAMETER else _LEAST_PARAMETER
            beta = beta if beta > _LEAST_PARAMETER else _LEAST_PARAMETER
            total = alpha + beta + _ONE
            alpha *= versions * rise + _ONE
            beta *= versions * fall + _ONE
            mean = alpha / (beta + alpha)
            wander = versions * speed_b[i] * noise
            overlap = (wander * total + _ONE) / (total * (wander + _ONE))
            work[_OVERLAP + i] = overlap
            variance = (_ONE - mean) * mean * overlap
            jumped = versions * return_rate
            jumped = jumped / (jumped + _ONE) * jump_share
            apart = work[_NEWEST_MEAN + i] - mean
            moved = apart * jumped
            variance += jumped * (apart * apart + work[_NEWEST_VARIANCE + i] - variance)
            variance -= moved * moved
            mean += moved
            most = (_ONE - mean) * mean * _MAX_OVERLAP
            mean = mean if mean > _LEAST_MEAN else _LEAST_MEAN
            mean_b[i] = mean if mean < _LARGEST_MEAN else _LARGEST_MEAN
            variance_b[i] = variance if variance < most else most
        if evidence:
            lag_b, n_eff_b = lag_N[start:stop], n_eff_N[start:stop]
            for i in range(count):
                # Rollouts: with 1 and the category's taken away.
                own = _ONE / work[_OVERLAP + i] - (work[_FIRST_ALPHA + i] + work[_FIRST_BETA + i] + _ONE)
                own = own if own > _MIN_N_EFF else _MIN_N_EFF
                n_eff_b[i] = own if last_b[i] > NEVER else np.float32(0.0)
            for i in range(count):
                tried = np.int64(1) if last_b[i] > NEVER else np.int64(0)
                lag_b[i] = max(version - last_b[i], 0) * tried + tried - 1  # NEVER where it was not tried
