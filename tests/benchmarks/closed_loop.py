"""One run of the engine in a closed loop with the simulated learner, and what came of it.

Called by `simulate`. The engine is used as the service uses it, without HTTP and database: draw, apply, report, apply;
where the policy has waves or refill, as often as it says. `moments` has what weights are worth.
"""

from dataclasses import dataclass

import numpy as np

from selector.audit.auditing import audit_run
from selector.audit.values import Estimate
from selector.config import RunConfig
from selector.engine import RunEngine
from selector.pool import PoolState
from tests.benchmarks.learner_model import NUM_CATEGORIES, Constants, Learner
from tests.benchmarks.moments import Moments, moments_of
from tests.benchmarks.rolling_out import roll_out_step

GROUP_SIZE = 8  # of a run whose method has none of its own


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Closed:
    """What one run did, one entry a step where it is an array. T steps."""

    informative_T: np.ndarray  # groups that were not all alike
    groups_T: np.ndarray  # all groups
    rollouts_T: np.ndarray  # rollouts made, those of groups that were stopped or dropped among them
    heldout_T: np.ndarray  # mean pass rate of the held-out prompts after the step
    longest_wait: int  # most steps in a row without a ticket for one and the same prompt
    never_drawn: int
    revisit_draws: int | None
    uniform_error: float | None  # audit's uniform estimate of the pass rate less the truth
    reweighted_error: float | None
    covered: bool | None  # whether the uniform interval holds the truth
    moments: Moments | None  # of the weighted step, where weights are applied

    def rollouts_to(self, target: float) -> float | None:
        """Rollouts until the held-out pass rate was at the target for the first time; None: never."""
        reached = np.flatnonzero(self.heldout_T >= target)
        return float(self.rollouts_T[: reached[0] + 1].sum()) if len(reached) else None

    @property
    def informative_per_rollout(self) -> float:
        return float(self.informative_T.sum() / self.rollouts_T.sum())


def closed_loop(config: RunConfig, constants: Constants, *, seed: int, num_steps: int, told: bool = False) -> Closed:
    """Trains one learner on what the engine draws, with the weights it hands out.

    told: prompts are labelled with their true pass rates at the start, not with those of another model.
    """
    learner = Learner(constants, seed, num_steps)
    return trained(learner, config, pool_of(learner, told=told))


def trained(learner: Learner, config: RunConfig, pool: PoolState) -> Closed:
    """Trains this learner, whose prompts the pool has, for all of its steps."""
    num, num_steps = len(learner.category_N), learner.num_steps
    engine, _ = RunEngine.begin("simulated", config, pool)
    informative_T, groups_T, rollouts_T, heldout_T = np.zeros((4, num_steps))
    last_N, wait, truths = np.full(num, -1), 0, list[float]()
    moments = list[Moments]()
    for step in range(num_steps):
        pass_rate_N = learner.pass_rate()
        done = roll_out_step(engine, learner, step)
        if config.weights != "none":
            moments.append(moments_of(config, done.events[0], pass_rate_N))
        truths += [float(pass_rate_N.mean())] * len(done.events)
        learner.learn(step, done.row_K, done.weight_K)
        informative_T[step], groups_T[step], rollouts_T[step] = done.informative, done.groups, done.rollouts
        heldout_T[step] = learner.heldout_pass_rate()
        drawn = np.concatenate([event.row_K for event in done.events])
        wait = max(wait, int((step - last_N[drawn]).max(initial=0)) - 1)
        last_N[drawn] = step
    found = audit_run(engine.state).pass_rate
    truth = float(np.mean(truths))
    interval = found.uniform.interval
    return Closed(
        informative_T=informative_T,
        groups_T=groups_T,
        rollouts_T=rollouts_T,
        heldout_T=heldout_T,
        longest_wait=max(wait, int((num_steps - 1 - last_N).max())),
        never_drawn=int((last_N < 0).sum()),
        revisit_draws=engine.state.revisit_draws or None,
        uniform_error=_error(found.uniform, truth),
        reweighted_error=_error(found.reweighted, truth),
        covered=None if interval is None else interval[0] <= truth <= interval[1],
        moments=Moments.mean(moments) if moments else None,
    )


def _error(estimate: Estimate, truth: float) -> float | None:
    return None if estimate.estimate is None else estimate.estimate - truth


def pool_of(learner: Learner, *, told: bool = False) -> PoolState:
    """The learner's prompts, labelled with what another model failed, or `told` with what this one fails."""
    num = len(learner.category_N)
    return PoolState(
        name="simulated",
        revision=1,
        keys=[f"p{row:05}" for row in range(num)],
        split_N=np.zeros(num, np.uint8),
        category_N=learner.category_N.astype(np.int32),
        categories=tuple(f"category {code}" for code in range(NUM_CATEGORIES)),
        absent_N=np.zeros(num, bool),
        quarantined_N=np.zeros(num, bool),
        features={"difficulty": 1.0 - learner.pass_rate() if told else learner.label()},
    )
