"""Whether intervals for the pass rate itself hold it as often as they say, on simulated pools where it is known.

On recorded outcomes only the next group can be covered; the rate behind it is never seen. Used by the benchmark of
estimators.
"""

from collections.abc import Iterator

import numpy as np

from predictors.base import FloatArray
from predictors.registry import ESTIMATORS, build_estimator
from predictors.scores import LAG_BUCKETS
from tests.benchmarks.knobs import OURS, READS_COLUMNS
from tests.benchmarks.language import Figure
from tests.predictors.known_truth import POOLS, inside, replayed

NUM_ROWS, QUICK_ROWS = 1_000, 300
SEEDS = 3
SHARES = (("full", 1.0), ("random 10 %", 0.1))


def interval_figures(*, quick: bool) -> Iterator[Figure]:
    """Share of true rates inside the middle 90 % of their belief, from the second visit on."""
    names = [OURS] if quick else [name for name in ESTIMATORS if name not in READS_COLUMNS]
    num_rows, seeds = (QUICK_ROWS, 1) if quick else (NUM_ROWS, SEEDS)
    for name in names:
        for pool in POOLS:
            for feed, share in SHARES:
                yield from _figures(name, pool, feed, share, num_rows, seeds)


def _figures(name: str, pool: str, feed: str, share: float, num_rows: int, seeds: int) -> Iterator[Figure]:
    inside_STN, lag_STN = [], []
    for seed in range(seeds):
        made = build_estimator(name, {})
        made.resize(np.zeros(num_rows, dtype=np.int32))
        mean_TN, variance_TN, rate_TN, lag_TN = replayed(made, pool, share=share, seed=seed)
        inside_STN.append(inside(mean_TN, variance_TN, rate_TN)[1:])
        lag_STN.append(lag_TN[1:])
    covered, lag = np.array(inside_STN), np.array(lag_STN)
    by_visit = covered.mean(axis=(0, 2))
    values: dict[str, float | None] = {
        "interval_coverage": float(covered.mean()),
        "interval_coverage, least of a visit": float(by_visit.min()),
        "interval_coverage, most of a visit": float(by_visit.max()),
    }
    for bucket, low, high in LAG_BUCKETS:
        values[f"interval_coverage, {bucket}"] = _share(covered, (lag >= low) & (lag <= high))
    for metric, value in values.items():
        if value is not None:
            yield Figure(
                benchmark="predictors",
                case=name,
                metric=metric,
                value=value,
                unit="share",
                n=num_rows,
                seeds=seeds,
                setting={"set": f"simulated: {pool}", "feed": feed, "nominal": 0.9},
            )


def _share(covered: np.ndarray, at: np.ndarray) -> float | None:
    values: FloatArray = covered[at]
    return float(values.mean()) if values.size else None
