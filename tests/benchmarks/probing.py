"""Training with and without probes at equal total rollouts, on the simulated learner.

Called by its tests and by `probe_figures`. The engine is used as the service uses it: between two train draws come
probe batches, rolled out wave by wave as their rule says, until the planner has no further ones. Probes teach the
learner nothing. In a run with a store the groups of the next draw begin with what they have made, and only the rest of
these is rolled out; in others no rollout of a probe is used again. On a warm pool every prompt has been rolled out
before, by the same weights, and all arms know it. What regresses does so after as many rollouts in every arm, so that
an arm of fewer steps does not meet less of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np

from predictors.base import Beliefs
from selector.batches.drawing import DrawRequest
from selector.config import RunConfig
from selector.engine import RunEngine
from selector.groups.reports import GroupIn, Report, RolloutIn
from selector.groups.standing import what_next
from selector.run.state import RunState
from selector.types import Purpose
from tests.benchmarks.closed_loop import GROUP_SIZE, pool_of
from tests.benchmarks.learner_model import Constants, Learner
from tests.benchmarks.rolling_out import BATCH_SIZE, roll_out_step, whole_groups

STEP_ROLLOUTS = BATCH_SIZE * GROUP_SIZE
MOST_BATCHES = 40  # of probes between two steps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probed:
    """One run, one entry a step. T steps, each with the probes before it."""

    rollouts_T: np.ndarray  # of training and probes together, up to the end of the step
    probes_T: np.ndarray  # of them, of probes
    heldout_T: np.ndarray
    informative_T: np.ndarray  # groups

    def rollouts_to(self, target: float) -> float:
        """Rollouts until the held-out pass rate was at the target for the first time; infinite if never."""
        reached = np.flatnonzero(self.heldout_T >= target)
        return float(self.rollouts_T[reached[0]]) if len(reached) else np.inf


def train(
    config: RunConfig,
    constants: Constants,
    *,
    seed: int,
    num_rollouts: int,
    probes: int,
    warm: bool = False,
    knows: bool = False,
) -> Probed:
    """Trains until `num_rollouts` were made, with probe batches of up to `probes` prompts between two steps.

    knows: draws go by the true pass rates of all prompts, which cost nothing: what no probing can surpass.
    """
    learner = Learner(constants, seed, num_rollouts // STEP_ROLLOUTS + 1)
    regressions, learner.regressions = learner.regressions, []
    engine, _ = RunEngine.begin("simulated", config, pool_of(learner, told=True))
    rng = np.random.default_rng([seed, 2])
    if warm:
        _look_at_all(engine, learner, rng)
    made, probed, step, index = 0, 0, 0, 0
    lines: list[tuple[int, int, float, int]] = []
    while made < num_rollouts:
        before = made
        for batch in range(MOST_BATCHES if probes and step else 0):
            places, spent = _probe(engine, learner, rng, step, index + batch, probes)
            made, probed = made + spent, probed + spent
            if places < probes:
                break
        index += MOST_BATCHES
        with _told(learner) if knows else nullcontext():
            done = roll_out_step(engine, learner, step)
        learner.learn(step, done.row_K, done.weight_K)
        made += done.rollouts
        for when, category in regressions:
            if before < when * STEP_ROLLOUTS <= made:
                learner.skill_C[category] -= constants.regression
        lines.append((made, probed, learner.heldout_pass_rate(), done.informative))
        step += 1
    columns = [np.array(column) for column in zip(*lines, strict=True)]
    return Probed(rollouts_T=columns[0], probes_T=columns[1], heldout_T=columns[2], informative_T=columns[3])


@contextmanager
def _told(learner: Learner) -> Iterator[None]:
    """Beliefs are the truth, and sure of it."""
    read = RunState.pass_rates

    def true_rates(state: RunState) -> Beliefs:
        mean_N = np.clip(learner.pass_rate(), 1e-9, 1.0 - 1e-9)
        return replace(read(state), mean_N=mean_N, variance_N=1e-6 * mean_N * (1.0 - mean_N))

    with patch.object(RunState, "pass_rates", true_rates):
        yield


def _probe(
    engine: RunEngine, learner: Learner, rng: np.random.Generator, version: int, index: int, size: int
) -> tuple[int, int]:
    """One probe batch on the weights of this version, to its end: prompts and rollouts."""
    event = engine.draw(
        DrawRequest(index=index, size=size, policy_version=version, group_size=GROUP_SIZE, purpose=Purpose.PROBE),
        now=0.0,
    )
    assert event is not None
    engine.apply(event)
    rule = event.wave
    if not len(event.row_K) or rule is None:
        return 0, 0
    first, p_K, made = engine.state.batches[-1].first_ticket, learner.pass_rate()[event.row_K], 0
    body = b"." if engine.state.config.rollout_store is not None else None
    going = dict.fromkeys(range(len(event.row_K)), (0, int(rule["first"])))
    while going:
        groups = [
            GroupIn(
                ticket=engine.state.ticket_id(first + place),
                rollouts=[
                    RolloutIn(n=n, outcome=value, reward=value, tokens=1, body=body)
                    for n, value in enumerate((rng.random(more) < p_K[place]).astype(float).tolist(), start)
                ],
            )
            for place, (start, more) in going.items()
        ]
        made += sum(more for _, more in going.values())
        decision = engine.report(Report(groups=groups, version=(version, version), branch=None))
        assert decision.event is not None
        engine.apply(decision.event)
        following: dict[int, tuple[int, int]] = {}
        for place, (start, more), reached in zip(going, going.values(), decision.reached, strict=True):
            said, next_more = what_next(engine.state, first + place, reached)
            if said == "continue":
                following[place] = (start + more, next_more)
        going = following
    return len(event.row_K), made


def _look_at_all(engine: RunEngine, learner: Learner, rng: np.random.Generator) -> None:
    """A group of every prompt by the weights at the start, as an earlier pass over the pool would have left it."""
    num = len(learner.category_N)
    event = engine.draw(
        DrawRequest(index=0, size=num, policy_version=0, group_size=GROUP_SIZE, purpose=Purpose.AUDIT), now=0.0
    )
    assert event is not None
    engine.apply(event)
    p_K = learner.pass_rate()[event.row_K]
    outcome_KG = rng.random((len(p_K), GROUP_SIZE)) < p_K[:, None]
    engine.apply(whole_groups(engine, engine.state.batches[-1].first_ticket, outcome_KG, event.rollouts_K))
