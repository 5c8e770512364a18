"""One step of a trainer that has a simulated learner for an engine: draws, waves and refills, as the run's policy says.

Called by `closed_loop`. Reports reach the engine as a trainer's would, wave by wave; what a rule stops is not made.
Whole groups are made into their event here, as deciding on every rollout by itself takes most of a run's time.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from selector.batches.drawing import DrawRequest
from selector.batches.refilling import refill_standing
from selector.engine import RunEngine
from selector.groups.reports import GroupIn, Report, RolloutIn
from selector.groups.standing import rule_of, what_next
from selector.run.events import BatchDrawn, GroupEvidence, RolloutsReported
from selector.run.verdict import judge
from selector.types import RolloutStatus
from selector.waves import wave_ends
from tests.benchmarks.learner_model import Learner

BATCH_SIZE = 128


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RolledOut:
    """What a step drew and what it is to be trained on: K informative groups."""

    events: list[BatchDrawn]
    row_K: np.ndarray
    weight_K: np.ndarray
    informative: int  # groups that were not all alike, those that are not trained on among them
    groups: int
    rollouts: int  # made, for groups of any kind


def roll_out_step(engine: RunEngine, learner: Learner, step: int) -> RolledOut:
    """Draws a batch, rolls it out and reports it, with its refills if the policy has them."""
    events = [_roll_out(engine, learner, step, 0, BATCH_SIZE)]
    config, table = engine.state.config, engine.state.book.tickets
    first = engine.state.batches[-1].first_ticket
    factor = 1.0
    if config.policy.refill is None:
        tickets = np.arange(first, first + len(events[0].row_K))
        kept = tickets[(table["informative"][tickets] == 1) & ~table["dropped"][tickets]]
    else:
        standing = refill_standing(engine.state, step)
        while standing.refill is not None and standing.size is not None:
            events.append(_roll_out(engine, learner, step, standing.refill, standing.size))
            standing = refill_standing(engine.state, step)
        kept, factor = np.array(standing.kept, np.int64), standing.factor
    table = engine.state.book.tickets
    made = slice(first, first + sum(len(event.row_K) for event in events))
    weight_K = np.concatenate([np.ones(len(e.row_K)) if e.weight_K is None else e.weight_K for e in events])
    return RolledOut(
        events=events,
        row_K=table["row"][kept],
        weight_K=factor * weight_K[kept - first],
        informative=int(np.count_nonzero(table["informative"][made] == 1)),
        groups=made.stop - made.start,
        rollouts=int(table["arrived"][made].sum()),
    )


def _roll_out(engine: RunEngine, learner: Learner, step: int, refill: int, size: int) -> BatchDrawn:
    request = DrawRequest(
        index=step, size=size, policy_version=step, group_size=engine.state.config.group_size, refill=refill
    )
    event = engine.draw(request, now=0.0)
    assert event is not None
    engine.apply(event)
    state, first = engine.state, engine.state.batches[-1].first_ticket
    outcome_KG = learner.roll_out(step, event.row_K, event.rollouts_K, refill)
    if state.config.policy.wave is not None:
        _in_waves(engine, first, outcome_KG, event.rollouts_K)
    elif event.priors:
        _begun(engine, event, first, outcome_KG)
    else:
        engine.apply(whole_groups(engine, first, outcome_KG, event.rollouts_K))
    return event


def _begun(engine: RunEngine, event: BatchDrawn, first: int, outcome_KG: np.ndarray) -> None:
    """Groups of which some begin with what a probe made: of those only the rest is rolled out."""
    num_prior_K = np.zeros(len(event.row_K), np.int64)
    for prior in event.priors:
        num_prior_K[prior["place"]] = len(prior["rollouts"])
    groups = [
        GroupIn(
            ticket=engine.state.ticket_id(first + place),
            rollouts=[
                RolloutIn(n=n, outcome=outcome, reward=outcome, tokens=1)
                for n, outcome in enumerate(outcomes[have:size], start=have)
            ],
        )
        for place, (outcomes, have, size) in enumerate(
            zip(outcome_KG.astype(float).tolist(), num_prior_K.tolist(), event.rollouts_K.tolist(), strict=True)
        )
    ]
    decision = engine.report(Report(groups=groups))
    assert decision.event is not None
    assert decision.applied == (event.rollouts_K - num_prior_K).sum()
    engine.apply(decision.event)


def whole_groups(engine: RunEngine, first: int, outcome_KG: np.ndarray, size_K: np.ndarray) -> RolloutsReported:
    """What `RunEngine.report` makes of whole groups for fresh tickets from `first` on, without looking at each rollout.

    One list stands for all groups of a size in each column that is the same in all of them.
    """
    config, version = engine.state.config, engine.state.policy_version
    groups, alike = list[GroupEvidence](), dict[int, dict[str, Any]]()
    for place, (outcomes, size) in enumerate(zip(outcome_KG.astype(float).tolist(), size_K.tolist(), strict=True)):
        if size not in alike:
            ok, zeros, nones = [int(RolloutStatus.OK)] * size, [0] * size, [None] * size
            alike[size] = {
                "n": list(range(size)), "fragment": zeros, "status": ok, "tokens": [1] * size,
                "seconds": [0.0] * size, "version": [version] * size, "ids": nones, "rewards": nones,
            }  # fmt: skip
        outcomes = outcomes[:size]
        closing = judge(outcomes, outcomes, alike[size]["status"], config=config)
        groups.append(
            GroupEvidence(
                ticket=first + place, attempt=1, outcome=outcomes, reward=outcomes, closing=closing, **alike[size]
            )
        )
    return RolloutsReported(groups=groups, refused=[])


def _in_waves(engine: RunEngine, first: int, outcome_KG: np.ndarray, size_K: np.ndarray) -> None:
    state = engine.state
    made_K = np.zeros(len(size_K), np.int64)
    more_K = np.array(
        [wave_ends(rule_of(state, first + place), size)[0] for place, size in enumerate(size_K.tolist())], np.int64
    )
    while more_K.any():
        groups = []
        for place in np.flatnonzero(more_K).tolist():
            start, end = int(made_K[place]), int(made_K[place] + more_K[place])
            rollouts = [
                RolloutIn(n=n, outcome=outcome, reward=outcome, tokens=1)
                for n, outcome in enumerate(outcome_KG[place, start:end].astype(float).tolist(), start=start)
            ]
            groups.append(GroupIn(ticket=state.ticket_id(first + place), rollouts=rollouts))
        decision = engine.report(Report(groups=groups))
        assert decision.event is not None
        assert decision.applied == more_K.sum()
        engine.apply(decision.event)
        made_K += more_K
        more_K[:] = 0
        for (_, ticket), reached in zip(decision.tickets, decision.reached, strict=True):
            assert ticket is not None
            more_K[ticket - first] = what_next(state, ticket, reached)[1]
