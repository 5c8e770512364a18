"""Makers of observations and estimators for the tests of this folder."""

import numpy as np
import numpy.typing as npt

from predictors.base import Estimator, FloatArray, IntArray, Observations
from predictors.registry import build_estimator


def groups(
    rows: npt.ArrayLike, passes: npt.ArrayLike, *, scored: npt.ArrayLike = 8, version: npt.ArrayLike = 0
) -> Observations:
    """Groups of these rows; one number for `scored` or `version` counts for all of them."""
    rows_B = np.asarray(rows, dtype=np.int64)
    return Observations(
        rows_B=rows_B,
        passes_B=np.broadcast_to(np.asarray(passes, dtype=np.float64), rows_B.shape).copy(),
        scored_B=np.broadcast_to(np.asarray(scored, dtype=np.int64), rows_B.shape).copy(),
        version_B=np.broadcast_to(np.asarray(version, dtype=np.int64), rows_B.shape).copy(),
    )


def estimator(name: str, *, num_rows: int = 0, **options: float) -> Estimator:
    """An estimator with so many rows, all of category 0."""
    made = build_estimator(name, options)
    made.resize(np.zeros(num_rows, dtype=np.int32))
    return made


def feed(
    made: Estimator, pass_rate_N: FloatArray, *, versions: IntArray, rng: np.random.Generator, group_size: int = 8
) -> None:
    """Observe one simulated group of every row at each of these versions."""
    rows = np.arange(pass_rate_N.size)
    for version in versions:
        made.advance(int(version))
        made.observe(groups(rows, rng.binomial(group_size, pass_rate_N), scored=group_size, version=version))
