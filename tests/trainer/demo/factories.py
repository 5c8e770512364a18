"""What came of an arm, made of hand-written figures."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.trainer.replay.factories import make_audit
from trainer.demo.beliefs import NUM_BINS, BeliefHistogram
from trainer.demo.result import ArmResult
from trainer.training.evaluate import Evaluation, PassRate

TOKENS_A_STEP = 1_000
STREAMS = {
    "uniform": {"estimate": 0.25, "interval": (0.2, 0.3)},
    "selected": {"estimate": 0.5, "interval": (0.45, 0.55)},
    "reweighted": {"estimate": 0.24, "interval": (0.1, 0.4)},
}


def make_rate(estimate: float | None, *, num_prompts: int = 10) -> PassRate:
    low, high = (0.0, 1.0) if estimate is None else (max(0.0, estimate - 0.1), min(1.0, estimate + 0.1))
    return PassRate(estimate=estimate, low=low, high=high, num_prompts=num_prompts, num_rollouts=4 * num_prompts)


def make_look(step: int, estimate: float | None, **strata: float | None) -> Evaluation:
    rates = {name: make_rate(rate, num_prompts=5) for name, rate in strata.items()}
    return Evaluation(step=step, tokens=TOKENS_A_STEP * step, overall=make_rate(estimate), strata=rates)


def make_beliefs(step: int, *, tried: Mapping[int, int], untried: Mapping[int, int]) -> BeliefHistogram:
    """Counts by bin; what is not named is 0."""
    tried_B, untried_B = ([counts.get(b, 0) for b in range(NUM_BINS)] for counts in (tried, untried))
    return BeliefHistogram(step=step, tokens=TOKENS_A_STEP * step, tried_B=tried_B, untried_B=untried_B)


def make_result(name: str = "midband", *, rates: Sequence[float | None] = (0.1, 0.2, 0.3), **changed: Any) -> ArmResult:
    """An arm of ten steps for each look but the first, 4 groups of 8 a step, 1 of them informative."""
    num_steps = 10 * max(len(rates) - 1, 0)
    values: dict[str, Any] = {
        "name": name,
        "preset": name,
        "tokens": TOKENS_A_STEP * num_steps,
        "rollouts": 32 * num_steps,
        "seconds": {"generation": 2.25, "update": 1.5, "idle": 0.75},
        "audit": make_audit(pass_rate=STREAMS),
        "informative_S": np.ones(num_steps, dtype=np.int64),
        "groups_S": np.full(num_steps, 4, dtype=np.int64),
        "tokens_S": TOKENS_A_STEP * np.arange(1, num_steps + 1),
        "looks": [make_look(10 * n, rate, hard=rate, easy=0.9) for n, rate in enumerate(rates)],
        "beliefs": [make_beliefs(10 * n, tried={0: n}, untried={5: 3}) for n in range(len(rates))],
    }
    return ArmResult(**{**values, **changed})
