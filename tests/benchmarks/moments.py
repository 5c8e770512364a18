"""How far the second moment of a weighted step is from that of uniform draws, and from the least there is.

Called by `closed_loop`, which knows the true pass rates.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Self

import numpy as np

from predictors.base import Beliefs
from predictors.value import informative_probability
from selector.config import RunConfig
from selector.policies import build_policy
from selector.run.events import BatchDrawn
from selector.sampling.draw import draw
from selector.sampling.draw_plan import DrawFrame, DrawPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """E (weight·s)² over E s², s² = P(informative), the squared step of GRPO."""

    actual: float  # of the tickets drawn, by the true pass rates
    predicted: float  # the same by the beliefs at the draws
    knowing: float  # by the truth, of the run's design fed the true pass rates
    least: float  # (E s)² / E s², which no design can be below

    @classmethod
    def mean(cls, moments: Sequence[Self]) -> Self:
        actual, predicted, knowing, least = np.mean([astuple(one) for one in moments], axis=0).tolist()
        return cls(actual=actual, predicted=predicted, knowing=knowing, least=least)


def moments_of(config: RunConfig, event: BatchDrawn, pass_rate_N: np.ndarray) -> Moments:
    """Those of one draw. Over tickets, (1/K) Σ w² s² has the mean (K/N²) Σ s²/π, and (1/K) Σ w s² that of (1/N) Σ s².

    pass_rate_N: the true ones.
    """
    size, group_size = len(event.row_K), event.group_size
    num = len(pass_rate_N)
    known = Beliefs(
        mean_N=np.clip(pass_rate_N, 1e-12, 1.0 - 1e-12),
        variance_N=np.zeros(num),
        n_eff_N=np.full(num, np.inf),
        lag_N=np.zeros(num, np.int64),
        source_N=np.ones(num, np.uint8),
    )
    squared_N = informative_probability(known.mean_N, known.variance_N, group_size)
    weight_K, believed_K = event.ht_weight_K, event.informative_K
    policy = build_policy(config.policy, weights=config.weights, advantage=config.advantage)
    none_N = np.zeros(num, bool)
    knowing = draw(
        DrawFrame(
            frame_N=~none_N,
            blocked_N=none_N,
            credit_N=np.zeros(num, np.int32),
            resting_code_N=np.zeros(num, np.uint8),
            due_N=none_N,
        ),
        policy.utility(known, group_size=group_size),
        DrawPlan(
            size=size,
            group_size=group_size,
            audit_share=config.audit_share,
            floor=config.policy.floor,
            exact_uniform=policy.exact_uniform,
            sampler=config.policy.sampler,
            seed=0,
            purpose_code=0,
            index=event.index,
        ),
    ).expected_N
    return Moments(
        actual=float(np.mean(weight_K**2 * squared_N[event.row_K]) / squared_N.mean()),
        predicted=float(np.mean(weight_K**2 * believed_K) / np.mean(weight_K * believed_K)),
        knowing=float((squared_N / knowing).sum() * size / num / squared_N.sum()),
        least=float(np.sqrt(squared_N).mean() ** 2 / squared_N.mean()),
    )
