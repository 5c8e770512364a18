"""A pass rate seen as p = sin(psi)^2 with psi Gaussian: closed forms, and the way back.

Used by the Kalman estimator. In psi the noise of a group is the same at every p, 1 / (4 n), which is why pass rates are
filtered there and not in log-odds, where it explodes at 0 and 1. The line is folded: psi and -psi are the same p, so a
Gaussian that reaches past 0 or pi/2 needs no cutting. All functions work on arrays of one shape.
"""

import numpy as np

from predictors.base import FloatArray

MAX_VARIANCE = 0.35
"""Largest variance of psi. Here p has 94 % of the variance that psi without bounds would give it (1/8)."""


def moments(centre: FloatArray, variance_psi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of p = sin(psi)^2, psi ~ N(m, v), from the centre c = sin(m)^2 in [0, 1] and v >= 0.

    E p = (1 - e^-2v cos 2m) / 2 = c + (1 - e^-2v) (1 - 2 c) / 2, and Var p = (1 - x) (1 - x cos 4m) / 8 with x = e^-4v,
    where 1 - x cos 4m = (1 - x) + 8 x c (1 - c): no two terms cancel. Var p is at most 2 E[p]^2 (1 - E[p])^2.
    """
    lost = -np.expm1(-2.0 * variance_psi)  # 1 - e^-2v
    lost_4 = lost * (2.0 - lost)  # 1 - e^-4v
    mean_p = centre + lost * (0.5 - centre)
    variance_p = lost_4 * (lost_4 / 8.0 + (1.0 - lost_4) * centre * (1.0 - centre))
    return mean_p, variance_p


def from_moments(mean_p: FloatArray, variance_p: FloatArray) -> tuple[FloatArray, FloatArray]:
    """m in [0, pi/2] and v in (0, MAX_VARIANCE] of the Gaussian psi for which p has these moments.

    With d = 1 - 2 E[p]: e^-4v = d^2 + sqrt((1 - d^2)^2 - 8 Var[p]), cos 2m = d e^2v. A variance above what a Gaussian
    psi can give p, 2 E[p]^2 (1 - E[p])^2, is taken as that. mean_p in (0, 1), variance_p >= 0.
    """
    lean = 1.0 - 2.0 * mean_p
    square = lean**2 + np.sqrt(np.maximum((1.0 - lean**2) ** 2 - 8.0 * variance_p, 0.0))
    decay = np.sqrt(np.clip(square, np.exp(-4.0 * MAX_VARIANCE), 1.0 - 1e-12))
    return np.arccos(np.clip(lean / decay, -1.0, 1.0)) / 2.0, -np.log(decay) / 2.0


def shifted_centre(mean_psi: FloatArray, shift: FloatArray) -> FloatArray:
    """sin(m)^2 after m has moved by dm = sin(2 m) ds, s from 0 to shift: the step 4 shift in log-odds, at every m.

    Keeps 0 and pi/2 where they are. mean_psi in [0, pi/2], any finite shift; returns values in [0, 1].
    """
    centre = np.sin(mean_psi) ** 2
    raised = centre * np.exp(4.0 * shift)
    return np.asarray(raised / (raised + (1.0 - centre)))
