"""Makers of observations and estimators for the tests of this folder."""

from collections.abc import Iterator

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


def random_history(
    *, seed: int, num_rows: int = 6, num_calls: int = 12, max_jump: int = 9, max_late: int = 0
) -> Iterator[tuple[int, Observations]]:
    """Calls of some groups each, with the policy's version at the time: repeated rows, unequal sizes, graded outcomes.

    The version may stand still between two calls. Groups are up to `max_late` versions behind it.
    """
    rng = np.random.default_rng(seed)
    version = 0
    for _ in range(num_calls):
        size = int(rng.integers(0, 9))
        scored_B = rng.integers(1, 9, size)
        passes_B = np.where(rng.random(size) < 0.3, 0.0, rng.binomial(scored_B, rng.random(size)))
        passes_B = np.where(rng.random(size) < 0.2, passes_B * 0.75, passes_B)
        late_B = rng.integers(0, max_late + 1, size)
        yield (
            version,
            groups(rng.integers(0, num_rows, size), passes_B, scored=scored_B, version=np.maximum(version - late_B, 0)),
        )
        version += int(rng.integers(0, max_jump + 1))


def one_by_one(observations: Observations) -> Iterator[tuple[int, float, int, int]]:
    """Row, passes, scored and version of each group, in order."""
    for row, passes, scored, version in zip(
        observations.rows_B, observations.passes_B, observations.scored_B, observations.version_B, strict=True
    ):
        yield int(row), float(passes), int(scored), int(version)
