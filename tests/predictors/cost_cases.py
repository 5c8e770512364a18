"""Simulated costs whose truth is known: prompts with a length of their own, growing as the policy learns."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from predictors.costs import RolloutCosts

GROUP_SIZE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """B groups at one version: costs (B, G), their rows, and the truth that they were drawn from."""

    version: int
    rows_B: np.ndarray
    cost_BG: np.ndarray
    mean_log_B: np.ndarray
    spread_B: np.ndarray  # standard deviation of the logarithm


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Lengths exp(level + growth(t) + category + own + wander + noise)."""

    num_rows: int = 400
    num_categories: int = 4
    category_sd: float = 0.4
    own_sd: float = 0.5
    spread: float = 0.45
    spread_sd: float = 0.3  # of the logarithm of a row's own spread
    growth: float = 0.004  # of the logarithm, per version
    wander: float = 0.02  # standard deviation per version of a row's own part
    seed: int = 0

    @property
    def category_N(self) -> np.ndarray:
        return (np.arange(self.num_rows) % self.num_categories).astype(np.int32)

    def batches(self, count: int, size: int) -> Iterator[Batch]:
        """`size` rows drawn without replacement at each of `count` versions."""
        rng = np.random.default_rng(self.seed)
        category_C = rng.normal(0.0, self.category_sd, self.num_categories)
        own_N = rng.normal(0.0, self.own_sd, self.num_rows)
        spread_N = self.spread * np.exp(rng.normal(0.0, self.spread_sd, self.num_rows))
        pull = self.wander**2 / (2.0 * self.own_sd**2) if self.own_sd else 0.0  # keeps the variance of own parts
        for version in range(count):
            rows_B = rng.choice(self.num_rows, size, replace=False)
            mean_B = 6.0 + self.growth * version + category_C[self.category_N[rows_B]] + own_N[rows_B]
            noise_BG = rng.normal(size=(size, GROUP_SIZE)) * spread_N[rows_B, None]
            yield Batch(
                version=version,
                rows_B=rows_B,
                cost_BG=np.exp(mean_B[:, None] + noise_BG),
                mean_log_B=mean_B,
                spread_B=spread_N[rows_B],
            )
            own_N += rng.normal(0.0, self.wander, self.num_rows) - pull * own_N


def rollouts_of(batch: Batch, limit: float = np.inf) -> RolloutCosts:
    """What is reported of a batch, in tokens and, at 50 a second, in seconds; cut at the limit."""
    cost_R = batch.cost_BG.ravel()
    return RolloutCosts(
        rows_R=np.repeat(batch.rows_B, GROUP_SIZE),
        tokens_R=np.minimum(cost_R, limit),
        seconds_R=np.minimum(cost_R, limit) / 50.0,
        truncated_R=cost_R >= limit,
        version_R=np.full(cost_R.size, batch.version),
    )
