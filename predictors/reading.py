"""Reads the mixture's beliefs of a whole pool, as every draw does: float32, in blocks that stay in the cache.

The average of a row's experts is kept beside them and aged as one belief, with the speed of their average; against
ageing each expert and averaging then, this changed the log loss of a real run by less than 1e-4.
Used by the mixture alone. Axes: N rows of a pool or a block, C categories.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from predictors.base import NEVER, Beliefs, IntArray
from predictors.levels import Levels

Float32Array = npt.NDArray[np.float32]
Int32Array = npt.NDArray[np.int32]

BLOCK_ROWS = 8192
"""Rows read at once: a dozen float32 arrays of this length (384 KiB) fit in a second-level cache."""

LEAST_PARAMETER = 0.05
"""Least alpha and beta of a belief."""

MEAN_EDGE = 1e-6
"""Mean pass rates keep this distance from 0 and 1."""

MAX_OVERLAP = 0.999
"""Largest variance, as a share of mean (1 - mean)."""

MIN_N_EFF = 1e-3
"""Least effective rollouts of a tried prompt, so that 0 means never tried."""


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

    def read(self, columns: Columns, category_N: Int32Array) -> Beliefs:
        """Beliefs of these rows, as fresh arrays."""
        size = category_N.shape[0]
        beliefs = Beliefs(
            mean_N=np.empty(size),
            variance_N=np.empty(size),
            n_eff_N=np.empty(size),
            lag_N=np.empty(size, dtype=np.int64),
            source_N=np.empty(size, dtype=np.uint8),
        )
        mean_C = self.newest.mean
        variance_C = self.newest.overlap * mean_C * (1.0 - mean_C)
        table_QC = np.array([self.first.alpha, self.first.beta, mean_C, variance_C], dtype=np.float32)
        for start in range(0, size, BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            part = Beliefs(
                mean_N=beliefs.mean_N[block],
                variance_N=beliefs.variance_N[block],
                n_eff_N=beliefs.n_eff_N[block],
                lag_N=beliefs.lag_N[block],
                source_N=beliefs.source_N[block],
            )
            self._read_block(columns.take(block), _looked_up(table_QC, category_N[block]), part)
        return beliefs

    def _read_block(self, columns: Columns, levels: list[Float32Array], out: Beliefs) -> None:
        """The formulas of `experts.aged`, and of an average with the newest level, most of them in place."""
        lag_N = _lags(self.version, columns.last_N, out)
        first_alpha_N, first_beta_N, newest_mean_N, newest_variance_N = levels
        alpha_N = np.maximum(columns.alpha_N + first_alpha_N, LEAST_PARAMETER)
        beta_N = np.maximum(columns.beta_N + first_beta_N, LEAST_PARAMETER)
        total_N = alpha_N + beta_N
        total_N += 1.0
        odds_N = lag_N * (4.0 * abs(self.drift))
        odds_N += 1.0
        if self.drift >= 0.0:
            alpha_N *= odds_N
        else:
            beta_N *= odds_N
        beta_N += alpha_N
        mean_N = np.divide(alpha_N, beta_N, out=alpha_N)
        wander_N = np.multiply(lag_N, columns.speed_N, out=odds_N)
        wander_N *= 4.0 * self.process_noise
        overlap_N = np.multiply(wander_N, total_N, out=beta_N)
        overlap_N += 1.0
        wander_N += 1.0
        total_N *= wander_N
        overlap_N /= total_N

        own_N = np.divide(1.0, overlap_N, out=total_N)  # rollouts, with 1 and the category's among them
        own_N -= first_alpha_N + first_beta_N + 1.0
        np.maximum(own_N, MIN_N_EFF, out=own_N)
        own_N *= out.source_N
        out.n_eff_N[:] = own_N

        spread_N = _spread(mean_N, wander_N)
        variance_N = np.multiply(spread_N, overlap_N, out=overlap_N)
        if self.jump_share > 0.0:
            jumped_N = np.multiply(lag_N, self.return_rate, out=lag_N)
            jumped_N /= jumped_N + 1.0
            jumped_N *= self.jump_share
            apart_N = newest_mean_N - mean_N
            moved_N = apart_N * jumped_N
            variance_N += jumped_N * (apart_N * apart_N + newest_variance_N - variance_N)
            variance_N -= moved_N * moved_N
            mean_N += moved_N
            spread_N = _spread(mean_N, wander_N)
        spread_N *= MAX_OVERLAP
        out.variance_N[:] = np.minimum(variance_N, spread_N, out=variance_N)
        np.maximum(mean_N, MEAN_EDGE, out=mean_N)
        out.mean_N[:] = np.minimum(mean_N, 1.0 - MEAN_EDGE, out=mean_N)


def _lags(version: int, last_N: IntArray, out: Beliefs) -> Float32Array:
    """Versions since the evidence of each row, 0 for a row without any; fills in lag and source of the beliefs."""
    whole_N, tried_N = out.lag_N, out.source_N
    np.greater(last_N, NEVER, out=tried_N.view(np.bool_))
    np.subtract(version, last_N, out=whole_N)
    np.maximum(whole_N, 0, out=whole_N)
    whole_N *= tried_N
    lag_N = whole_N.astype(np.float32)
    whole_N += tried_N
    whole_N -= 1  # now NEVER where it was not tried
    return lag_N


def _spread(mean_N: Float32Array, out_N: Float32Array) -> Float32Array:
    """m (1 - m), written to out."""
    np.subtract(1.0, mean_N, out=out_N)
    out_N *= mean_N
    return out_N


def _looked_up(table_QC: Float32Array, category_N: Int32Array) -> list[Float32Array]:
    """Columns of the table by category, (1,) each where there is but one category."""
    if table_QC.shape[1] == 1:
        return list(table_QC)
    place_N = category_N.astype(np.intp)
    return [level_C.take(place_N) for level_C in table_QC]
