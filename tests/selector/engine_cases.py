"""Runs for tests of the engine: small pools, configurations, and a `Session` that draws, reports and keeps the log.

Beliefs are hand-workable by default: a discounted Beta without discount on a fixed flat prior, so that a prompt with k
passes of n has the mean (1 + k) / (2 + n) whatever the others did and in whatever order groups came.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from predictors.beta import probability_below
from selector.batches.controlling import controlled_policy, numbers_in_force
from selector.batches.drawing import DrawRequest, due_revisits
from selector.batches.facts import row_facts
from selector.beliefs.graded import expected_informative
from selector.beliefs.reading import read_beliefs
from selector.config import PolicyConfig, RunConfig
from selector.engine import RunEngine, StepRequest
from selector.groups.reports import Decision, GroupIn, Report, RolloutIn
from selector.policies import build_policy
from selector.policies.base import FactPolicy
from selector.pool import PoolState
from selector.replay import MemoryArchive, replay
from selector.run.events import Event, PoolRevised, event_from_json
from selector.run.signals import PushedNumbers, SignalsDecision
from selector.run.snapshot import restore_snapshot, snapshot
from selector.run.state import DrawnBatch, RunState
from selector.sampling.draw import draw
from selector.sampling.draw_plan import DrawFrame, Drawn, DrawPlan
from selector.types import PURPOSE_CODE, Lifecycle, Purpose, RolloutStatus, Split, VoidReason

FLAT_BETA = {"discount": 1.0, "process_noise": 0.0, "prior_successes": 1.0, "prior_failures": 1.0}
TOKENS = 10  # of a rollout, unless a test says otherwise
MIXED = (1.0, 0.0, 0.0, 0.0)  # an informative group
HORVITZ: dict[str, Any] = {"weights": "horvitz_thompson", "audit_share": 0.2}

Outcome = float | None
Answer = Callable[[int, int, int], Outcome]
"""Outcome of rollout n of a prompt's row in the batch of an index."""


def make_pool(
    num_rows: int,
    *,
    heldout: Iterable[int] = (),
    absent: Iterable[int] = (),
    quarantined: Iterable[int] = (),
    categories: tuple[str, ...] = ("algebra", "logic"),
    revision: int = 1,
) -> PoolState:
    """Prompts p000, p001, ... whose categories alternate."""
    return PoolState(
        name="pool",
        revision=revision,
        keys=[f"p{row:03}" for row in range(num_rows)],
        split_N=np.where(marked(num_rows, heldout), Split.HELDOUT, Split.TRAIN).astype(np.uint8),
        category_N=(np.arange(num_rows) % max(len(categories), 1)).astype(np.int32) - (not categories),
        categories=categories,
        absent_N=marked(num_rows, absent),
        quarantined_N=marked(num_rows, quarantined),
        features={"difficulty": np.arange(num_rows) * 7.0 % 101.0},
    )


def marked(num_rows: int, rows: Iterable[int]) -> np.ndarray:
    """(N,) bool, true at these rows."""
    mask_N = np.zeros(num_rows, bool)
    mask_N[list(rows)] = True
    return mask_N


def make_policy(**changes: Any) -> PolicyConfig:
    """P(informative) over the hand-workable beliefs, with a floor of a fifth."""
    defaults: dict[str, Any] = {
        "preset": "midband",
        "estimator": "discounted_beta",
        "estimator_options": FLAT_BETA,
        "utility": "informative",
        "power": 1.0,
        "floor": 0.2,
    }
    return PolicyConfig(**(defaults | changes))


def make_config(policy: PolicyConfig | None = None, **changes: Any) -> RunConfig:
    """Groups of four, no audit, no weights; everything else as a run has it by default."""
    defaults: dict[str, Any] = {"pool": "pool", "group_size": 4, "audit_share": 0.0}
    return RunConfig(policy=policy or make_policy(), **(defaults | changes))


KALMAN = make_policy(estimator="kalman_arcsine", estimator_options={})
"""The beliefs of the presets, in which groups influence each other."""


def rollout(outcome: Outcome, **values: Any) -> RolloutIn:
    """One rollout whose reward is its outcome."""
    return RolloutIn(**({"outcome": outcome, "reward": outcome, "tokens": TOKENS} | values))


def rollouts(*outcomes: Outcome, tokens: int = TOKENS) -> list[RolloutIn]:
    """A whole group, numbered by place."""
    return [rollout(outcome, tokens=tokens) for outcome in outcomes]


def numbered(**outcomes: Outcome) -> list[RolloutIn]:
    """Some of a group: `numbered(n2=1.0)` is rollout 2."""
    return [rollout(outcome, n=int(name.removeprefix("n"))) for name, outcome in outcomes.items()]


def error(**values: Any) -> RolloutIn:
    """An infrastructure failure that arrives dressed as a wrong answer."""
    return rollout(0.0, status=RolloutStatus.ERROR, **values)


def coin(seed: int, pass_rate_N: np.ndarray) -> Answer:
    """Outcomes that depend on row, index and n only, whenever and however often they are asked for."""

    def answer(row: int, index: int, n: int) -> Outcome:
        return float(np.random.default_rng([seed, row, index, n]).random() < pass_rate_N[row])

    return answer


class Session:
    """A run with its log. `log` holds what was applied, as it comes back from the database."""

    def __init__(self, config: RunConfig | None = None, pool: PoolState | None = None, run: str = "r") -> None:
        pool = pool or make_pool(8)
        self.pools = {pool.revision: pool}
        self.now = 1000.0
        self.log: list[Event] = []
        self.archive = MemoryArchive(self.pools, self.log)
        self.engine, events = RunEngine.begin(run, config or make_config(), pool)
        self.log += [through_json(event) for event in events]

    @property
    def state(self) -> RunState:
        return self.engine.state

    def apply(self, event: Event) -> None:
        self.engine.apply(event)
        self.log.append(through_json(event))

    def push(self, version: int, **numbers: dict[int, float]) -> SignalsDecision:
        """Numbers by name and row; `push(3, value={0: 0.5})`. A row that the pool lacks is an unknown prompt."""
        rows = sorted({row for of_name in numbers.values() for row in of_name})
        decision = self.engine.push_signals(
            PushedNumbers(
                policy_version=version,
                keys=[f"row {row}" for row in rows],
                rows=[row if row < self.state.num_rows else None for row in rows],
                numbers=[{name: of[row] for name, of in numbers.items() if row in of} for row in rows],
            )
        )
        if decision.event is not None:
            self.apply(decision.event)
        return decision

    def draw(self, index: int, size: int, **values: Any) -> DrawnBatch:
        """The batch of an index, drawn or found."""
        request = self.request(index, size, **values)
        event = self.engine.draw(request, now=self.now)
        if event is not None:
            self.apply(event)
        return self.state.batches[self.state.surviving[request.key]]

    def request(self, index: int, size: int, **values: Any) -> DrawRequest:
        defaults = {"policy_version": self.state.policy_version, "group_size": self.state.config.group_size}
        return DrawRequest(index=index, size=size, **(defaults | values))

    def send(self, *groups: GroupIn, version: int | None = None, branch: int | None = None) -> Decision:
        """One report, applied."""
        named = None if version is None else (version, version)
        decision = self.engine.report(Report(groups=groups, version=named, branch=branch), now=self.now)
        if decision.event is not None:
            self.apply(decision.event)
        return decision

    def report(
        self, ticket: int, sent: Sequence[RolloutIn] = (), *, version: int | None = None, **values: Any
    ) -> Decision:
        """Rollouts of one ticket, named by its ordinal."""
        return self.send(GroupIn(ticket=self.id(ticket), rollouts=sent, **values), version=version)

    def void(self, ticket: int, reason: VoidReason) -> Decision:
        return self.report(ticket, void=reason)

    def answer_batch(self, batch: DrawnBatch, answer: Answer, *, version: int | None = None) -> Decision:
        """Whole groups for every open ticket of a batch, in one report."""
        table, groups = self.state.book.tickets, []
        for ticket in tickets_of(batch):
            if table["state"][ticket] == 0:
                row = int(table["row"][ticket])
                outcomes = [answer(row, batch.event.index, n) for n in range(int(table["group_size"][ticket]))]
                groups.append(GroupIn(ticket=self.id(ticket), rollouts=rollouts(*outcomes)))
        return self.send(*groups, version=version)

    def expire(self, now: float) -> list[int]:
        """Lets time pass; the tickets that ended by it."""
        self.now = now
        event = self.engine.expire(now)
        if event is None:
            return []
        self.apply(event)
        return list(event.tickets)

    def step(self, step: int, version: int, **values: Any) -> None:
        event, _ = self.engine.record_step(StepRequest(step=step, policy_version=version, **values))
        if event is not None:
            self.apply(event)

    def checkpoint(self, step: int) -> int:
        """The position that the step names."""
        event, known = self.engine.checkpoint(step)
        if event is None:
            assert known is not None
            return known.seq
        self.apply(event)
        return self.state.seq

    def restore(
        self, step: int, *, beliefs: str = "rewind", in_flight: str = "reissue", restore_id: str | None = None
    ) -> dict[str, Any]:
        event = self.engine.restore(
            step, beliefs=beliefs, in_flight=in_flight, restore_id=restore_id, now=self.now, archive=self.archive
        )
        if event is not None:
            self.apply(event)
        return self.engine.restore_answer(restore_id)

    def configure(self, **changes: Any) -> None:
        event = self.engine.configure(self.state.config.changed(**changes))
        if event is not None:
            self.apply(event)

    def revise(self, pool: PoolState) -> None:
        self.pools[pool.revision] = pool
        self.apply(PoolRevised(revision=pool.revision, pool=pool))

    def complete(self) -> None:
        event = self.engine.complete()
        if event is not None:
            self.apply(event)

    def id(self, ticket: int) -> str:
        return self.state.ticket_id(ticket)

    def replayed(self, upto: int | None = None) -> RunEngine:
        """A new engine from the log."""
        return replay(self.log[:upto], self.archive)

    def resumed(self, stored: bytes) -> RunEngine:
        """A new engine from a snapshot and the log's tail."""
        engine = RunEngine.resume(restore_snapshot(stored, self.archive.pool))
        return replay(self.log[engine.state.seq :], self.archive, engine)

    def fork(self) -> "Session":
        """The same run, to go on in another way."""
        other = object.__new__(Session)
        other.pools, other.now, other.log = dict(self.pools), self.now, list(self.log)
        other.archive = MemoryArchive(other.pools, other.log)
        other.engine = RunEngine.resume(restore_snapshot(snapshot(self.state), other.archive.pool))
        return other

    # What a test looks at.

    def ticket(self, ticket: int) -> dict[str, Any]:
        table = self.state.book.tickets
        return {name: table[name][ticket].item() for name in ("state", "reason", "attempt", "scored", "passes")}

    def mean(self, row: int) -> float:
        return float(self.state.beliefs().mean_N[row])

    def tokens(self) -> dict[str, int]:
        """Tokens by source, without those that have none."""
        return {str(source): tokens for source, tokens in self.state.ledger.tokens.items() if tokens}


def through_json(event: Event) -> Event:
    """The event as the database gives it back: attached parts are gone."""
    return event_from_json(event.kind, json.loads(json.dumps(event.to_json())))


def tickets_of(batch: DrawnBatch) -> range:
    """Ordinals of a batch's tickets."""
    return range(batch.first_ticket, batch.first_ticket + len(batch.event.row_K))


def beliefs_of(state: RunState) -> dict[str, bytes]:
    """Everything a belief is made of, to the bit."""
    return {name: array.tobytes() for name, array in state.estimator.state().items()}


def what_was_drawn(batch: DrawnBatch) -> dict[str, Any]:
    """A batch as the trainer sees it, apart from the names of its tickets, to the bit."""
    event = batch.event
    weight = None if event.weight_K is None else event.weight_K.tobytes()
    return {
        "rows": event.row_K.tolist(),
        "audit": event.audit_K.tolist(),
        "pi": event.inclusion_K.tobytes(),
        "weight": weight,
        "ht_weight": event.ht_weight_K.tobytes(),
        "predicted": event.pass_rate_K.tobytes(),
        "counts": (event.frame, event.eligible, event.blocked, event.num_audit, event.reason),
        "digest": event.digest,
    }


def due_since(state: RunState, period: int) -> np.ndarray:
    """(N,) draws since each row became due: its last turn, or, longer than that ago, the draw that it is late by."""
    late = state.train_draws - (period - period // 8) - (state.rows["last_draw_N"] - 1)
    by_turn = (state.train_draws - state.revisit_position_N) % period
    return np.where((state.rows["last_draw_N"] > 0) & (late >= 0), late, by_turn)


def redraw(state: RunState, request: DrawRequest, period: int | None) -> Drawn:
    """The draw of a train batch made anew from the state before it, as an auditor would; gives π of every row.

    period: the revisit period, which the batch says.
    """
    config, num_rows = state.config, state.num_rows
    frame_N = (state.pool.split_N == Split.TRAIN) & ~state.pool.absent_N
    frame_N &= ~(state.pool.quarantined_N | state.quarantined_N)
    seen, rules = state.beliefs(), config.policy.lifecycle
    lifecycle_N = state.rows["lifecycle_N"].copy()
    if rules is not None:
        below_N = np.array([p_below(m, v, rules.level) for m, v in zip(seen.mean_N, seen.variance_N, strict=True)])
        lifecycle_N[(lifecycle_N == Lifecycle.MASTERED) & (below_N > 0.5)] = Lifecycle.ACTIVE
    open_rows = state.book.tickets["row"][state.book.tickets["state"] == 0]
    period = period or 0
    frame = DrawFrame(
        frame_N=frame_N,
        blocked_N=frame_N & np.isin(np.arange(num_rows), open_rows),
        credit_N=state.rows["credit_N"],
        resting_code_N=np.select([lifecycle_N == Lifecycle.MASTERED, lifecycle_N == Lifecycle.DEFERRED], [1, 2], 0),
        due_N=due_revisits(state, period, lifecycle_N),
        waited_N=due_since(state, period) if period else None,
    )
    in_force = controlled_policy(config.policy, numbers_in_force(state, refill=request.refill))
    policy = build_policy(in_force, weights=config.weights, advantage=config.advantage)
    plan = DrawPlan(
        size=request.size,
        group_size=request.group_size,
        divisor=request.divisor,
        audit_share=config.audit_share,
        short=request.short,
        allow_repeat=request.allow_repeat,
        review_share=config.review_share,
        floor=config.policy.floor,
        weights=config.weights,
        max_weight=config.max_weight,
        exact_uniform=policy.exact_uniform,
        top=config.policy.design == "top",
        candidates=config.policy.candidates,
        sampler=config.policy.sampler,
        seed=config.seed,
        purpose_code=PURPOSE_CODE[Purpose.TRAIN],
        index=request.index,
        refill=request.refill,
    )
    beliefs, seen = seen, read_beliefs(seen, config.policy.reads, frame, plan)
    # Graded outcomes differ more often than passes and fails do; only what beliefs say as they are is told of it.
    graded_N = expected_informative(state, beliefs, request.group_size) if seen is beliefs else None
    if isinstance(policy, FactPolicy):
        utility_N = policy.utility(seen, group_size=request.group_size, facts=row_facts(state))
    else:
        utility_N = policy.utility(seen, group_size=request.group_size, informative_N=graded_N)
    if rules is not None:
        reviews_N = np.where(lifecycle_N >= Lifecycle.MASTERED, state.rows["reviews_N"], 0)
        utility_N = utility_N * 0.5 ** np.minimum(reviews_N, 6)
    return draw(frame, utility_N, plan)


def p_below(mean: float, variance: float, level: float) -> float:
    """P(p <= level) of one belief."""
    return float(probability_below(np.array([mean]), np.array([variance]), level)[0])


def lasting(state: RunState) -> Mapping[str, Any]:
    """What a run knows of tickets, prompts and spending apart from the order in which reports came."""
    table = state.book.tickets
    order = ("ended_seq", "issued_seq")
    return {
        "tickets": {name: table[name].tobytes() for name in state.book.tickets.state("") if name not in order},
        "rollouts": {name: array.tobytes() for name, array in state.book.rollouts.state("").items()},
        "rows": {name: array.tobytes() for name, array in state.rows.items()},
        "in_flight": state.in_flight_N.tobytes(),
        "beliefs": beliefs_of(state),
        "ledger": state.ledger.to_json(),
    }
