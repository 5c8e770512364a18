"""Pools whose pass rates are known at every visit, for tests and the benchmark of intervals.

Each is a sequence of visits LAG versions apart. Rates are made from a seed before anybody looks at them.
Axes: T visits, N prompts.
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from predictors.base import Estimator, FloatArray, IntArray
from predictors.beta import beta_cdf
from tests.predictors.groups import groups

LAG = 10
NUM_VISITS = 45
CHANGE_AT = 20
"""The visit from which a pool that jumps, or prompts that regress, are elsewhere."""

DRIFT, NOISE = 6e-4, 4e-5
"""Movement of arcsin(sqrt(p)) per version at p = 1/2, and its variance per version: those of a recorded run."""

Truth = Iterator[FloatArray]


def static(num_rows: int, rng: np.random.Generator) -> Truth:
    rate_N = rng.beta(0.6, 0.8, num_rows)
    for _ in range(NUM_VISITS):
        yield rate_N


def linear_drift(num_rows: int, rng: np.random.Generator) -> Truth:
    rate_N = rng.beta(1.0, 2.5, num_rows)
    for _ in range(NUM_VISITS):
        yield rate_N
        rate_N = moved(rate_N, rng, drift=DRIFT)


def drift_and_wander(num_rows: int, rng: np.random.Generator) -> Truth:
    rate_N = rng.beta(1.0, 2.5, num_rows)
    for _ in range(NUM_VISITS):
        yield rate_N
        rate_N = moved(rate_N, rng, drift=DRIFT, noise=NOISE)


def jump(num_rows: int, rng: np.random.Generator) -> Truth:
    """Every prompt is drawn anew at once."""
    rate_N = rng.beta(0.6, 0.8, num_rows)
    for visit in range(NUM_VISITS):
        if visit == CHANGE_AT:
            rate_N = rng.beta(0.8, 0.6, num_rows)
        yield rate_N


def regression_after_mastery(num_rows: int, rng: np.random.Generator) -> Truth:
    """Six tenths are near 0.98; a tenth of those falls to between 0.2 and 0.7 at once.

    Near, not at: a rate that so many prompts share is inside nearly every interval that reaches it, which would hide
    how the others fare.
    """
    mastered_N = rng.random(num_rows) < 0.6
    rate_N = np.where(mastered_N, rng.beta(49.0, 1.0, num_rows), rng.random(num_rows))
    for visit in range(NUM_VISITS):
        if visit == CHANGE_AT:
            falls_N = mastered_N & (rng.random(num_rows) < 0.1)
            rate_N = np.where(falls_N, rng.uniform(0.2, 0.7, num_rows), rate_N)
        yield rate_N


POOLS: dict[str, Callable[[int, np.random.Generator], Truth]] = {
    "static": static,
    "linear drift": linear_drift,
    "drift and wander": drift_and_wander,
    "jump": jump,
    "regression after mastery": regression_after_mastery,
}


def moved(rate_N: FloatArray, rng: np.random.Generator, *, drift: float, noise: float = 0.0) -> FloatArray:
    """LAG versions later: psi = arcsin(sqrt(p)) drifts by d sin(2 psi), wanders, and turns back at the ends."""
    psi_N = np.arcsin(np.sqrt(rate_N))
    psi_N = psi_N + LAG * drift * np.sin(2.0 * psi_N) + rng.normal(0.0, np.sqrt(noise * LAG), rate_N.size)
    psi_N = np.abs(psi_N)
    return np.asarray(np.sin(np.where(psi_N > np.pi / 2.0, np.pi - psi_N, psi_N)) ** 2)


def replayed(
    made: Estimator, pool: str, *, share: float, seed: int
) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
    """(T, N) mean, variance, truth and lag before the groups of 8 of each visit, when a share of the prompts is seen.

    `made` has its rows, and nothing has been told to it.
    """
    rng, found = np.random.default_rng(seed), []
    num_rows = made.beliefs().mean_N.size
    for visit, rate_N in enumerate(POOLS[pool](num_rows, rng)):
        made.advance(LAG * visit)
        beliefs = made.beliefs()
        found.append((beliefs.mean_N, beliefs.variance_N, rate_N, beliefs.lag_N))
        rows = rng.permutation(num_rows)[: round(share * num_rows)]
        made.observe(groups(rows, rng.binomial(8, rate_N[rows]), version=LAG * visit))
    mean_TN, variance_TN, rate_TN, lag_TN = (np.array(part) for part in zip(*found, strict=True))
    return mean_TN, variance_TN, rate_TN, lag_TN


def inside(mean: FloatArray, variance: FloatArray, rate: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether the belief's equal-tailed 90 % interval for p holds the truth. Any shape; returns the same."""
    total = np.minimum(mean * (1.0 - mean) / variance - 1.0, 1e4)
    below = beta_cdf((mean * total).ravel(), ((1.0 - mean) * total).ravel(), rate.ravel()).reshape(mean.shape)
    return np.asarray((below >= 0.05) & (below <= 0.95))
