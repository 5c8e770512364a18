"""What the tests of the mixture share: one on a pool, visits to all of its rows, and what it keeps of its experts."""

import numpy as np

from predictors.base import Beliefs, FloatArray
from predictors.mixture import Mixture
from tests.predictors.groups import estimator, groups

LAG = 10


def mixture(num_rows: int, **options: float) -> Mixture:
    made = estimator("mixture", num_rows=num_rows, **options)
    assert isinstance(made, Mixture)
    return made


def visit(made: Mixture, version: int, pass_rate_N: FloatArray, rng: np.random.Generator) -> tuple[Beliefs, FloatArray]:
    """Beliefs before a group of 8 of every row at this version, and the passes that then came."""
    made.advance(version)
    beliefs, rows = made.beliefs(), np.arange(pass_rate_N.size)
    passes = rng.binomial(8, pass_rate_N).astype(float)
    made.observe(groups(rows, passes, version=version))
    return beliefs, passes


def wandered(pass_rate_N: FloatArray, *, drift: float, noise: float, rng: np.random.Generator) -> FloatArray:
    """After LAG versions: log-odds drift, p wanders with its ends drawing it in."""
    odds = pass_rate_N / (1 - pass_rate_N) * np.exp(4 * drift * LAG)
    p = odds / (1 + odds)
    for _ in range(LAG):
        p = p + rng.normal(0, np.sqrt(4 * noise * p * (1 - p)))
        p = np.clip(p, 1e-6, 1 - 1e-6)
    return np.asarray(p)


def known(made: Mixture) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(E, N) alpha, beta and weight of the experts with a memory, as they are stored, for a pool of one category."""
    state, level = made.state(), untried_levels(made)
    alpha = np.stack([state[f"alpha_{name}_N"] for name in ("long", "middle", "short")]).astype(float) + level[0]
    beta = np.stack([state[f"beta_{name}_N"] for name in ("long", "middle", "short")]).astype(float) + level[1]
    weight = np.stack([state["weight_long_N"], state["weight_middle_N"]]).astype(float)
    return alpha, beta, np.concatenate([weight, 1 - weight.sum(axis=0, keepdims=True)])


def untried_levels(made: Mixture) -> tuple[float, float]:
    """alpha and beta of category 0 now, from the belief of a row that was never tried."""
    size = made.beliefs().mean_N.size
    grown = mixture(0)
    grown.load_state(made.state())
    grown.resize(np.zeros(size + 1, dtype=np.int32))
    belief = grown.beliefs(np.array([size]))
    mean, variance = belief.mean_N[0], belief.variance_N[0]
    concentration = mean * (1 - mean) / variance - 1
    return mean * concentration, (1 - mean) * concentration
