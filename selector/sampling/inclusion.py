"""The chances of a whole pool to be in a batch, kept as what they follow from and worked out where they are asked for.

Made by `draw`, read by whoever looks at a batch's chances: most draws need those of their tickets alone. N rows of the
pool.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from selector.sampling.designs import UNIT
from selector.sampling.scans import with_fillers


@dataclass(frozen=True, kw_only=True, eq=False)
class Inclusion:
    """Expected tickets of each row: written out, or π_t + (1 − π_t) · share of eligible rows, π_t in units."""

    written_N: np.ndarray  # float64; empty where units say it
    units_N: np.ndarray  # int64, of 2⁻⁴⁰, 0 where not eligible; empty where it is written out
    eligible_N: np.ndarray  # bool; counts for units alone
    share: float  # chance that an eligible row which was not selected comes in; counts for units alone

    @classmethod
    def of(cls, written_N: np.ndarray) -> "Inclusion":
        nobody_N = np.zeros(0, bool)
        return cls(written_N=written_N, units_N=np.zeros(0, np.int64), eligible_N=nobody_N, share=0.0)

    @classmethod
    def of_units(cls, units_N: np.ndarray, eligible_N: np.ndarray, share: float) -> "Inclusion":
        return cls(written_N=np.zeros(0), units_N=units_N, eligible_N=eligible_N, share=share)

    def __len__(self) -> int:
        return max(len(self.written_N), len(self.units_N))

    def at(self, rows: np.ndarray) -> np.ndarray:
        """Those of these rows, float64."""
        if len(self.written_N):
            of_rows: np.ndarray = self.written_N[rows]
            return of_rows
        chance = self.units_N[rows] / UNIT
        of_rows = np.where(self.eligible_N[rows], chance + (1.0 - chance) * self.share, chance)
        return of_rows

    @cached_property
    def all_N(self) -> np.ndarray:
        """(N,) float64."""
        if len(self.written_N) or not len(self.units_N):
            return self.written_N
        all_N = np.empty(len(self.units_N))
        with_fillers(self.units_N, self.eligible_N, float(UNIT), self.share, all_N)
        return all_N
