"""Ridge regression from sums alone: learned as data come, its strength found by how likely it makes them.

Used by `features`. Pure; knows numbers, not rows. Axes: B observations in one call, D numbers of each, P parts
of the observations, R = 1 + P regressions; Z = D + 2, for 1, the D numbers and the outcome.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import FloatArray, IntArray

RIDGES = np.logspace(-1.0, 6.0, 15)
"""Ridges that are tried, in observations. Under the largest a column says next to nothing."""

SWEEPS = 2
"""Times that the ridge of each column is looked for."""

MIN_TOTAL = 1e-12
"""Least squared deviation of outcomes, an observation, and least share of it that is left."""

MIN_GAIN = 2.0
"""Nats by which the numbers must make the outcomes more likely than their mean alone does."""

MIN_DEVIATION = 1e-9
"""A number that varies less says nothing."""

PARTS = 5
"""Parts of the observations, each of which is predicted by the regression of the others."""


class Moments:
    """Sums of z z' over observations, z = (1, x_1, ..., x_D, y), for each part: all that the regressions need."""

    def __init__(self, size: int) -> None:
        self.sums_PZZ: FloatArray = np.zeros((PARTS, size + 2, size + 2))

    @property
    def count(self) -> int:
        return int(self.sums_PZZ[:, 0, 0].sum())

    def add(self, x_BD: FloatArray, y_B: FloatArray, part_B: IntArray) -> None:
        """Take observations in, each of a part."""
        z_BZ = np.column_stack([np.ones_like(y_B), x_BD, y_B])
        sums_PZZ = self.sums_PZZ.copy()  # what a fit was made from stays
        for part in np.unique(part_B):
            z_AZ = z_BZ[part_B == part]
            sums_PZZ[part] += z_AZ.T @ z_AZ
        self.sums_PZZ = sums_PZZ


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """y - mean y = w (x - mean x) + noise, w ~ N(0, noise / a) for each number over its standard deviation.

    The first column is the regression of everything, the others leave out one part each.
    """

    mean_D: FloatArray
    weight_DR: FloatArray

    @property
    def is_flat(self) -> bool:
        """Whether nothing was found."""
        return not self.weight_DR.any()

    def predict(self, x_BD: FloatArray, left_out_B: IntArray) -> FloatArray:
        """(B,) what x adds to the mean of y; `left_out_B` is the part that is left out, -1 for none.

        The means stay those of everything: a mean without y would say what y was.
        """
        scores_BR = (x_BD - self.mean_D) @ self.weight_DR
        return np.asarray(scores_BR[np.arange(x_BD.shape[0]), left_out_B + 1])


def fitted(sums_PZZ: FloatArray, column_D: IntArray) -> Fit:
    """The regression of the ridges under which the outcomes are likeliest, flat unless that gains MIN_GAIN.

    With S = X'X and c = X'y of standardised, centred numbers, ridges A and v(A) = (y'y - c' (S + A)^-1 c) / n, the log
    likelihood with w integrated out and the noise at its best is
        -n/2 log v - 1/2 log det(S + A) + 1/2 log det A and a constant.
    All numbers of a column, `column_D`, share a ridge: first one for all columns is found, then, SWEEPS times, that of
    each column. sums_PZZ: of at least one observation. Sources: MacKay, Neural Computation 4, 1992; Bishop, Pattern
    Recognition and Machine Learning, 3.5 and 7.2.
    """
    sums_ZZ = sums_PZZ.sum(axis=0)
    count = sums_ZZ[0, 0]
    mean_Z = sums_ZZ[0] / count
    centred_ZZ = _centred(sums_ZZ, mean_Z)
    deviation_D = np.sqrt(np.maximum(np.diag(centred_ZZ)[1:-1] / count, 0.0))
    scale_D = np.where(deviation_D > MIN_DEVIATION, 1.0 / np.maximum(deviation_D, MIN_DEVIATION), 0.0)
    scale_Z = np.r_[1.0, scale_D, 1.0]
    ridge_D = _likeliest(centred_ZZ * np.outer(scale_Z, scale_Z), count, column_D)
    if ridge_D is None:
        return Fit(mean_D=mean_Z[1:-1], weight_DR=np.zeros((scale_D.size, 1 + PARTS)))
    weights = []
    for left_out_ZZ in (np.zeros_like(sums_ZZ), *sums_PZZ):
        others_ZZ = _centred(sums_ZZ - left_out_ZZ, mean_Z) * np.outer(scale_Z, scale_Z)
        weights.append(scale_D * np.linalg.solve(others_ZZ[1:-1, 1:-1] + np.diag(ridge_D), others_ZZ[1:-1, -1]))
    return Fit(mean_D=mean_Z[1:-1], weight_DR=np.column_stack(weights))


def _likeliest(centred_ZZ: FloatArray, count: float, column_D: IntArray) -> FloatArray | None:
    """(D,) the likeliest ridges, None where they gain too little."""
    best_gain, best_D = max(
        ((_gain(centred_ZZ, count, np.full(column_D.size, ridge)), np.full(column_D.size, ridge)) for ridge in RIDGES),
        key=lambda found: found[0],
    )
    columns = np.unique(column_D)
    for column in np.tile(columns, SWEEPS if columns.size > 1 else 0):
        for ridge in RIDGES:
            ridge_D = np.where(column_D == column, ridge, best_D)
            gain = _gain(centred_ZZ, count, ridge_D)
            if gain > best_gain:
                best_gain, best_D = gain, ridge_D
    return best_D if best_gain >= MIN_GAIN else None


def _centred(sums_ZZ: FloatArray, mean_Z: FloatArray) -> FloatArray:
    """Sums of (z - mean) (z - mean)' from those of z z', for any mean whose first entry is 1."""
    moved_ZZ = sums_ZZ - np.outer(mean_Z, sums_ZZ[0]) - np.outer(sums_ZZ[0], mean_Z)
    return np.asarray(moved_ZZ + sums_ZZ[0, 0] * np.outer(mean_Z, mean_Z))


def _gain(centred_ZZ: FloatArray, count: float, ridge_D: FloatArray) -> float:
    """Log likelihood over that of the mean alone."""
    root_DD = np.linalg.cholesky(centred_ZZ[1:-1, 1:-1] + np.diag(ridge_D))
    total = max(float(centred_ZZ[-1, -1]), MIN_TOTAL * count)
    explained = float(np.sum(np.linalg.solve(root_DD, centred_ZZ[1:-1, -1]) ** 2))
    left = max(total - explained, MIN_TOTAL * total)
    log_ratio = float(np.sum(2.0 * np.log(np.diag(root_DD)) - np.log(ridge_D)))
    return 0.5 * (count * float(np.log(total / left)) - log_ratio)
