"""The compiled loop over a pool, against the same formulas in plain numpy, to the bit."""

import numpy as np
import pytest

from predictors.base import NEVER, Beliefs
from predictors.levels import Levels
from predictors.reading import BLOCK_ROWS, LEAST_PARAMETER, MAX_OVERLAP, MEAN_EDGE, MIN_N_EFF, Columns, Moment


def slow(moment: Moment, columns: Columns, category_N: np.ndarray) -> Beliefs:
    """Whole arrays, a line for each step; float32 throughout, as numbers of Python do not widen it."""
    tried_N = columns.last_N != NEVER
    lag_N = np.where(tried_N, np.maximum(moment.version - columns.last_N, 0), 0)
    lag = lag_N.astype(np.float32)
    first_alpha, first_beta = (
        level.astype(np.float32)[category_N] for level in (moment.first.alpha, moment.first.beta)
    )
    newest_mean = moment.newest.mean.astype(np.float32)[category_N]
    newest_variance = moment.newest.overlap * moment.newest.mean * (1.0 - moment.newest.mean)
    newest_variance = newest_variance.astype(np.float32)[category_N]
    alpha = np.maximum(columns.alpha_N + first_alpha, LEAST_PARAMETER)
    beta = np.maximum(columns.beta_N + first_beta, LEAST_PARAMETER)
    total = alpha + beta + 1.0
    odds = lag * (4.0 * abs(moment.drift)) + 1.0
    alpha, beta = (alpha * odds, beta) if moment.drift >= 0.0 else (alpha, beta * odds)
    mean = alpha / (beta + alpha)
    wander = lag * columns.speed_N * (4.0 * moment.process_noise)
    overlap = (wander * total + 1.0) / (total * (wander + 1.0))
    n_eff = np.maximum(1.0 / overlap - (first_alpha + first_beta + 1.0), MIN_N_EFF) * tried_N
    variance = (1.0 - mean) * mean * overlap
    gone = lag * moment.return_rate
    jumped = gone / (gone + 1.0) * moment.jump_share
    apart = newest_mean - mean
    moved = apart * jumped
    variance = variance + jumped * (apart * apart + newest_variance - variance)
    variance = variance - moved * moved
    mean = mean + moved
    assert mean.dtype == variance.dtype == n_eff.dtype == np.float32
    return Beliefs(
        mean_N=np.clip(mean, MEAN_EDGE, 1.0 - MEAN_EDGE).astype(np.float64),
        variance_N=np.minimum(variance, (1.0 - mean) * mean * MAX_OVERLAP).astype(np.float64),
        n_eff_N=n_eff.astype(np.float64),
        lag_N=np.where(tried_N, lag_N, NEVER),
        source_N=tried_N.astype(np.uint8),
    )


@pytest.mark.parametrize("num_rows", [0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, 3 * BLOCK_ROWS + 17])
@pytest.mark.parametrize(("num_categories", "drift", "jump_share"), [(1, 0.0, 0.0), (5, 1e-3, 0.1), (300, -2e-3, 0.5)])
def test_the_loop_gives_what_whole_arrays_give(
    num_rows: int, num_categories: int, drift: float, jump_share: float
) -> None:
    rng = np.random.default_rng([num_rows, num_categories])
    # Some evidence is newer than the policy, and some alpha and beta are below the least.
    columns = Columns(
        last_N=np.where(rng.random(num_rows) < 0.5, rng.integers(0, 120, num_rows), NEVER),
        alpha_N=rng.uniform(-2, 9, num_rows).astype(np.float32),
        beta_N=rng.uniform(-2, 9, num_rows).astype(np.float32),
        speed_N=rng.uniform(0, 5, num_rows).astype(np.float32),
    )
    levels = [
        Levels(alpha=rng.uniform(0.05, 3, num_categories), beta=rng.uniform(0.05, 3, num_categories)) for _ in "ab"
    ]
    moment = Moment(
        version=100,
        drift=drift,
        process_noise=1e-3,
        return_rate=0.02,
        jump_share=jump_share,
        first=levels[0],
        newest=levels[1],
    )
    category_N = rng.integers(0, num_categories, num_rows).astype(np.int32)

    found, expected = moment.read(columns, category_N), slow(moment, columns, category_N)

    for name in ("mean_N", "variance_N", "n_eff_N", "lag_N", "source_N"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name, strict=True)
