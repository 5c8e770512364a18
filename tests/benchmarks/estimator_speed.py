"""What beliefs and updates of large pools cost, beside a pass of numpy over the same arrays in the same run.

Seconds are the processor's, so that other load of the machine does not count.
"""

import time
from collections.abc import Callable

import numpy as np

from predictors.base import Estimator, Observations
from predictors.registry import ESTIMATORS, build_estimator
from tests.benchmarks.knobs import OURS
from tests.benchmarks.language import Figure

POOL, QUICK_POOL = 1_000_000, 200_000
SMALL_POOL, LARGE_POOL = 100_000, 10_000_000
GROUPS, GROUP_SIZE = 4_096, 8
TRIED_SHARE = 0.5
NUM_CATEGORIES = 20
REPEATS = 15


def speed_figures(*, quick: bool) -> list[Figure]:
    """Beliefs of all rows for every estimator; for ours also an update at a hundred times the rows."""
    num_rows = QUICK_POOL if quick else POOL
    figures = []
    for name in ESTIMATORS:
        for num_categories in (1, NUM_CATEGORIES):
            figures.append(_reading(name, num_rows, num_categories))
    small_s = _update_s(SMALL_POOL)
    large = num_rows if quick else LARGE_POOL
    figures.append(
        Figure(
            benchmark="predictors",
            case=OURS,
            metric=f"update of {GROUPS} groups",
            value=1e3 * _update_s(large),
            unit="ms",
            reference_name=f"the same at {SMALL_POOL} rows",
            reference_value=1e3 * small_s,
            n=large,
            setting={"set": "made up", "feed": "random rows", "groups": GROUPS},
        )
    )
    return figures


def _reading(name: str, num_rows: int, num_categories: int) -> Figure:
    estimator = _estimator(name, num_rows, num_categories)
    mean_N = estimator.beliefs().mean_N
    pass_s, read_s = _alternating(lambda: mean_N * (1.0 - mean_N), estimator.beliefs)
    return Figure(
        benchmark="predictors",
        case=name,
        metric="beliefs of all rows",
        value=1e3 * read_s,
        unit="ms",
        reference_name="numpy m * (1 - m)",
        reference_value=1e3 * pass_s,
        n=num_rows,
        setting={"set": "made up", "feed": "half of the rows tried", "categories": num_categories},
    )


def _estimator(name: str, num_rows: int, num_categories: int) -> Estimator:
    """Half of the rows tried, at versions 0 to 99, read at version 100."""
    rng = np.random.default_rng(0)
    estimator = build_estimator(name, {})
    estimator.resize(rng.integers(0, num_categories, num_rows).astype(np.int32))
    rows = rng.permutation(num_rows)[: round(TRIED_SHARE * num_rows)]
    for version, part in enumerate(np.array_split(rows, 100)):
        estimator.advance(version)
        estimator.observe(_groups(part, version, rng))
    estimator.advance(100)
    return estimator


def _groups(rows: np.ndarray, version: int, rng: np.random.Generator) -> Observations:
    return Observations(
        rows_B=rows,
        passes_B=rng.binomial(GROUP_SIZE, rng.beta(0.5, 0.7, rows.size)).astype(float),
        scored_B=np.full(rows.size, GROUP_SIZE),
        version_B=np.full(rows.size, version),
    )


def _update_s(num_rows: int) -> float:
    """Median seconds of an update of random rows, each at a new version."""
    rng = np.random.default_rng(1)
    estimator = _estimator(OURS, num_rows, NUM_CATEGORIES)
    seconds = []
    for version in range(101, 101 + REPEATS):
        estimator.advance(version)
        groups = _groups(rng.permutation(num_rows)[:GROUPS], version, rng)
        begin = time.thread_time()
        estimator.observe(groups)
        seconds.append(time.thread_time() - begin)
    return float(np.median(seconds))


def _alternating(one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """Median seconds of each, taken in turn, so that both meet the same load of the machine."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPEATS):
        for taken, call in zip(seconds, (one, other), strict=True):
            begin = time.thread_time()
            call()
            taken.append(time.thread_time() - begin)
    return float(np.median(seconds[0])), float(np.median(seconds[1]))
