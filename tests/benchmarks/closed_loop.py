"""One run of the engine in a closed loop with the simulated learner, and what came of it.

Called by `simulate`. The engine is used as the service uses it, without HTTP and database: draw, apply, report, apply.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import Beliefs
from predictors.value import informative_probability
from selector.audit_values import Estimate
from selector.auditing import audit_run
from selector.config import RunConfig
from selector.draw import DrawFrame, DrawPlan, draw
from selector.drawing import DrawRequest
from selector.engine import RunEngine
from selector.events import BatchDrawn
from selector.policies import build_policy
from selector.pool import PoolState
from selector.reports import GroupIn, Report, RolloutIn
from tests.benchmarks.learner_model import NUM_CATEGORIES, Constants, Learner

BATCH_SIZE = 128
GROUP_SIZE = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Closed:
    """What one run did, one entry a step where it is an array. T steps."""

    informative_T: np.ndarray  # groups that were not all alike
    heldout_T: np.ndarray  # mean pass rate of the held-out prompts after the step
    pool_T: np.ndarray  # mean pass rate of the pool at the draw
    longest_wait: int  # most draws in a row without a ticket for one and the same prompt
    never_drawn: int
    revisit_draws: int | None
    uniform_error: float | None  # audit's uniform estimate of the pass rate less the truth
    reweighted_error: float | None
    covered: bool | None  # whether the uniform interval holds the truth
    second_moment: float  # of the weighted step, relative to uniform, by the true pass rates
    predicted_moment: float  # the same by the beliefs at the draws
    knowing_moment: float  # the same by the truth, of the run's design fed the true pass rates
    least_moment: float  # (E s)² / E s², which no design can be below

    def rollouts_to(self, target: float) -> float | None:
        """Rollouts until the held-out pass rate was at the target for the first time; None: never."""
        reached = np.flatnonzero(self.heldout_T >= target)
        return float((reached[0] + 1) * BATCH_SIZE * GROUP_SIZE) if len(reached) else None

    @property
    def informative_per_rollout(self) -> float:
        return float(self.informative_T.sum()) / (len(self.informative_T) * BATCH_SIZE * GROUP_SIZE)


def closed_loop(config: RunConfig, constants: Constants, *, seed: int, num_steps: int) -> Closed:
    """Trains one learner on what the engine draws, with the weights it hands out."""
    learner = Learner(constants, seed, num_steps)
    num = constants.num_prompts
    engine, _ = RunEngine.begin("simulated", config, _pool(learner.category_N, 1.0 - learner.pass_rate()))
    informative_T, heldout_T, pool_T = np.zeros(num_steps), np.zeros(num_steps), np.zeros(num_steps)
    last_N, wait = np.full(num, -1), 0
    moments = np.zeros((num_steps, 4))
    for step in range(num_steps):
        request = DrawRequest(index=step, size=BATCH_SIZE, policy_version=step, group_size=GROUP_SIZE)
        event = engine.draw(request, now=0.0)
        assert event is not None
        pass_rate_N = learner.pass_rate()
        moments[step] = _moments(config, event, pass_rate_N)
        pool_T[step] = pass_rate_N.mean()
        weight_K = np.ones(len(event.row_K)) if event.weight_K is None else event.weight_K
        engine.apply(event)
        outcome_KG = learner.step(step, event.row_K, event.rollouts_K, weight_K)
        _report(engine, outcome_KG, event.rollouts_K, step)
        informative_T[step] = (outcome_KG.any(axis=1) & ~outcome_KG.all(axis=1)).sum()
        heldout_T[step] = learner.heldout_pass_rate()
        wait = max(wait, int((step - last_N[event.row_K]).max()) - 1)
        last_N[event.row_K] = step
    found = audit_run(engine.state).pass_rate
    truth = float(pool_T.mean())
    interval = found.uniform.interval
    second, predicted, knowing, least = moments.mean(axis=0).tolist()
    return Closed(
        informative_T=informative_T,
        heldout_T=heldout_T,
        pool_T=pool_T,
        longest_wait=max(wait, int((num_steps - 1 - last_N).max())),
        never_drawn=int((last_N < 0).sum()),
        revisit_draws=engine.state.revisit_draws or None,
        uniform_error=_error(found.uniform, truth),
        reweighted_error=_error(found.reweighted, truth),
        covered=None if interval is None else interval[0] <= truth <= interval[1],
        second_moment=second,
        predicted_moment=predicted,
        knowing_moment=knowing,
        least_moment=least,
    )


def _error(estimate: Estimate, truth: float) -> float | None:
    return None if estimate.estimate is None else estimate.estimate - truth


def _moments(config: RunConfig, event: BatchDrawn, pass_rate_N: np.ndarray) -> tuple[float, float, float, float]:
    """E (weight·s)² over E s², three ways, and (E s)²/E s²; s² = P(informative), the squared step of GRPO.

    Over tickets, (1/K) Σ w² s² has the mean (K/N²) Σ s²/π, and (1/K) Σ w s² that of (1/N) Σ s².
    """
    num = len(pass_rate_N)
    known = Beliefs(
        mean_N=np.clip(pass_rate_N, 1e-12, 1.0 - 1e-12),
        variance_N=np.zeros(num),
        n_eff_N=np.full(num, np.inf),
        lag_N=np.zeros(num, np.int64),
        source_N=np.ones(num, np.uint8),
    )
    squared_N = informative_probability(known.mean_N, known.variance_N, GROUP_SIZE)
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
        policy.utility(known, group_size=GROUP_SIZE),
        DrawPlan(
            size=BATCH_SIZE,
            group_size=GROUP_SIZE,
            audit_share=config.audit_share,
            floor=config.policy.floor,
            exact_uniform=policy.exact_uniform,
            sampler=config.policy.sampler,
            seed=0,
            purpose_code=0,
            index=event.index,
        ),
    ).expected_N
    return (
        float(np.mean(weight_K**2 * squared_N[event.row_K]) / squared_N.mean()),
        float(np.mean(weight_K**2 * believed_K) / np.mean(weight_K * believed_K)),
        float((squared_N / knowing).sum() * BATCH_SIZE / num / squared_N.sum()),
        float(np.sqrt(squared_N).mean() ** 2 / squared_N.mean()),
    )


def _pool(category_N: np.ndarray, difficulty_N: np.ndarray) -> PoolState:
    """difficulty_N: what prompts are labelled with, the share failed at the start."""
    num = len(category_N)
    return PoolState(
        name="simulated",
        revision=1,
        keys=[f"p{row:05}" for row in range(num)],
        split_N=np.zeros(num, np.uint8),
        category_N=category_N.astype(np.int32),
        categories=tuple(f"category {code}" for code in range(NUM_CATEGORIES)),
        absent_N=np.zeros(num, bool),
        quarantined_N=np.zeros(num, bool),
        features={"difficulty": difficulty_N},
    )


def _report(engine: RunEngine, outcome_KG: np.ndarray, size_K: np.ndarray, step: int) -> None:
    first = engine.state.batches[-1].first_ticket
    groups = [
        GroupIn(
            ticket=engine.state.ticket_id(first + place),
            rollouts=[RolloutIn(outcome=value, reward=value, tokens=1) for value in outcomes[:size]],
        )
        for place, (outcomes, size) in enumerate(zip(outcome_KG.astype(float).tolist(), size_K.tolist(), strict=True))
    ]
    decision = engine.report(Report(groups=groups, version=(step, step), branch=None))
    assert decision.event is not None
    engine.apply(decision.event)
