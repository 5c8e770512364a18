"""The engine of one run: decisions that change nothing, and `apply`, the one method that changes state.

`api` keeps one per run: it asks for events, applies them, stores them, answers. Live use and replay call the same
`apply`, so the state after a crash is the state before it. No clock, no I/O: time is an argument, randomness is keyed
by counters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from selector.batches.drawing import DrawRequest, find_drawn, plan_batch
from selector.batches.facts import feature_column
from selector.batches.simulated_inclusion import SimulatedInclusion, simulated_inclusion
from selector.beliefs.rewarded import CountsRewards
from selector.beliefs.silence import may_be_silent
from selector.config import RunConfig
from selector.errors import RunComplete, StepConflict
from selector.folding.fold import fold
from selector.groups.deciding import decide
from selector.groups.priors import standing
from selector.groups.reports import Decision, Refusal, Report
from selector.ledger import compared
from selector.pool import PoolState, empty_pool
from selector.run.events import (
    BatchDrawn,
    CheckpointMade,
    Closing,
    ConfigChanged,
    Event,
    PoolRevised,
    Restored,
    RunBegun,
    RunCompleted,
    StepRecorded,
    TicketsExpired,
    WarmStarted,
)
from selector.run.restoring import find_checkpoint
from selector.run.signals import PushedNumbers, SignalsDecision, decide_signals
from selector.run.state import Checkpoint, RunState, make_estimator
from selector.run.tickets import read_ticket_name
from selector.run.verdict import judge
from selector.types import PURPOSE_CODE, Purpose


class Archive(Protocol):
    """Where attached parts of events come from."""

    def pool(self, revision: int) -> PoolState:
        """The run's pool at a revision."""
        ...

    def rewound(self, position: int) -> Mapping[str, np.ndarray]:
        """`RunState.rewindable()` as it was right after the event at this position."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """What the trainer says of one optimiser step."""

    step: int
    policy_version: int
    trained: Sequence[str] | None = None
    weights_applied: bool | None = None
    update_size: float | None = None
    costs: Mapping[str, Any] | None = None


class RunEngine:
    """One run. Every method but `apply` leaves the state alone."""

    def __init__(self, run: str, config: RunConfig, config_hash: str) -> None:
        self.state = RunState(
            run=run,
            config=config,
            config_hash=config_hash,
            pool=empty_pool(config.pool),
            estimator=make_estimator(config),
        )
        self.state.see_pool(self.state.pool)

    @classmethod
    def begin(
        cls, run: str, config: RunConfig, pool: PoolState, warm: WarmStarted | None = None
    ) -> tuple[Self, list[Event]]:
        """A new run and the first events of its log, applied already. warm: what it begins with, if not with nothing.
        Raises UnknownConfig for a feature that the pool lacks.
        """
        feature_column(pool, config.policy.feature)
        engine = cls(run, config, config.config_hash())
        events: list[Event] = [
            RunBegun(run=run, config=config.to_dict(), config_hash=config.config_hash()),
            PoolRevised(revision=pool.revision, pool=pool),
            *([] if warm is None else [warm]),
        ]
        for event in events:
            engine.apply(event)
        return engine, events

    @classmethod
    def resume(cls, state: RunState) -> Self:
        """An engine on a state that a snapshot kept."""
        engine = cls.__new__(cls)
        engine.state = state
        return engine

    def apply(self, event: Event) -> None:
        """Folds one event into the state."""
        fold(self.state, event)

    def draw(self, request: DrawRequest, *, now: float) -> BatchDrawn | None:
        """The event of a new batch, or None when this batch exists: read it with `batch`.

        Raises BatchConflict, BranchSuperseded, RevisitImpossible, RunComplete.
        """
        if find_drawn(self.state, request) is not None:
            return None
        if self.state.completed:
            raise RunComplete(f"run {self.state.run!r} is complete; a restore reopens it")
        return plan_batch(self.state, request, now=now)

    def simulate_inclusion(self, request: DrawRequest, *, num_draws: int) -> SimulatedInclusion:
        """Each prompt's chance to be in a batch drawn now, with its error, where the design has no formula for it."""
        return simulated_inclusion(self.state, request, num_draws)

    def report(self, report: Report, *, now: float | None = None) -> Decision:
        """What a report adds; `now` starts the clock of attempts that it begins. Raises BranchSuperseded,
        BranchUnknown, ReportInvalid; then nothing counts.
        """
        return decide(self.state, report, now)

    def expire(self, now: float) -> TicketsExpired | None:
        """The event that ends tickets whose deadline has passed, or None."""
        book = self.state.book
        if now < book.next_deadline:
            return None
        tickets = sorted(ticket for ticket in book.open if book.tickets["deadline"][ticket] <= now)
        if not tickets:
            return None
        return TicketsExpired(tickets=tickets, closings=[self._expired(ticket) for ticket in tickets])

    def record_step(self, request: StepRequest) -> tuple[StepRecorded | None, list[Refusal]]:
        """The event of a step, None for a duplicate, and the tickets in `trained` that cannot be. Raises
        StepConflict.
        """
        trained, rejected = self._trained(request.trained)
        event = StepRecorded(
            branch=self.state.branch,
            step=request.step,
            policy_version=request.policy_version,
            trained=trained,
            weights_applied=request.weights_applied,
            update_size=request.update_size,
            costs=dict(request.costs or {}),
        )
        known = self.state.steps.get((self.state.branch, request.step))
        if known is None:
            return event, rejected
        sent = event.to_json()
        differences = [name for name, value in sent.items() if compared(known[name]) != compared(value)]
        if differences:
            raise StepConflict(f"step {request.step} was recorded with other values of {differences}; the first stands")
        return None, rejected

    def push_signals(self, pushed: PushedNumbers) -> SignalsDecision:
        """What pushed numbers add; those that are refused are named, and the others count."""
        return decide_signals(self.state.signals, pushed, run_version=self.state.policy_version)

    def checkpoint(self, step: int) -> tuple[CheckpointMade | None, Checkpoint | None]:
        """The event of a new checkpoint, or the one that has this step in this branch already."""
        known = next(
            (c for c in self.state.checkpoints if c.step == step and c.branch == self.state.branch),
            None,
        )
        return (None, known) if known else (CheckpointMade(branch=self.state.branch, step=step), None)

    def restore(
        self, step: int, *, beliefs: str, in_flight: str, restore_id: str | None, now: float, archive: Archive
    ) -> Restored | None:
        """The event of a restore, or None when this restore id was carried out before. Raises UnknownCheckpoint."""
        if restore_id and restore_id in self.state.restores:
            return None
        checkpoint = find_checkpoint(self.state, step)
        # What is voided ends for good too, and its index may be drawn anew under names of its own.
        discards = self.state.last_change > checkpoint.seq or (in_flight == "void" and bool(self.state.book.open))
        return Restored(
            step=step,
            position=checkpoint.seq,
            restore_id=restore_id,
            beliefs=beliefs,
            in_flight=in_flight,
            branch=self.state.branch + discards,
            at=now,
            rewound=archive.rewound(checkpoint.seq),
        )

    def restore_answer(self, restore_id: str | None) -> dict[str, Any]:
        """What the trainer was told at the restore with this id, or at the last one without."""
        return self.state.restores[restore_id or ""]

    def configure(self, config: RunConfig) -> ConfigChanged | None:
        """The event of a change in mid-run, None when nothing changes. Raises UnknownConfig for a feature that the pool
        lacks.
        """
        feature_column(self.state.pool, config.policy.feature)
        config_hash = config.config_hash()
        if config_hash == self.state.config_hash:
            return None
        return ConfigChanged(config=config.to_dict(), config_hash=config_hash)

    def complete(self) -> RunCompleted | None:
        """The event that ends the run, None when it has ended."""
        return None if self.state.completed else RunCompleted()

    def _expired(self, ticket: int) -> Closing:
        slots = self.state.book.slots(ticket)
        rollouts = self.state.book.rollouts
        arrived = rollouts["arrived"][slots]
        columns = [rollouts[name][slots][arrived].tolist() for name in ("outcome", "reward", "status")]
        outcomes, rewards = ([None if np.isnan(v) else v for v in column] for column in columns[:2])
        return judge(
            outcomes,
            rewards,
            columns[2],
            config=self.state.config,
            expired=True,
            may_be_silent=may_be_silent(self.state, ticket),
            rewards_count=CountsRewards(self.state).of_ticket(ticket),
            prior=standing(self.state, ticket),
        )

    def _trained(self, trained: Sequence[str] | None) -> tuple[list[int] | None, list[Refusal]]:
        if trained is None:
            return None, []
        ordinals, rejected = [], []
        for text in trained:
            name = read_ticket_name(text)
            ticket = None if name is None or name.run != self.state.run else self.state.find_ticket(name)
            if ticket is None:
                rejected.append(
                    Refusal(ticket=text, n=None, code="unknown_ticket", detail="this run never issued the ticket")
                )
            elif self.state.book.tickets["purpose"][ticket] == PURPOSE_CODE[Purpose.HELDOUT]:
                rejected.append(
                    Refusal(ticket=text, n=None, code="heldout_leak", detail="a held-out prompt must not be trained on")
                )
            else:
                ordinals.append(ticket)
        return ordinals, rejected
