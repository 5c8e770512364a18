"""How each event changes a run's state: the fold over the log.

`RunEngine.apply` calls `fold` and nothing else does. Deterministic: no clock, no randomness; the same events give the
same state to the bit. Decisions (who was drawn, which rollout counts, how a ticket closed) are in the events already.
"""

import numpy as np

from selector.batches.controlling import fold_numbers
from selector.batches.drawing import due_revisits
from selector.batches.quota_holding import count_draw, count_trained
from selector.beliefs.rewarded import say_unread
from selector.beliefs.warm_start import unpacked
from selector.config import RunConfig
from selector.folding.arrivals import take_report
from selector.folding.closings import close
from selector.groups import priors
from selector.rollout_store import Held
from selector.run import restoring
from selector.run.events import (
    BatchDrawn,
    CheckpointMade,
    Closing,
    ConfigChanged,
    Event,
    PoolRevised,
    Restored,
    RolloutsReported,
    RunBegun,
    RunCompleted,
    SignalsReceived,
    StepRecorded,
    TicketsExpired,
    WarmStarted,
)
from selector.run.state import Checkpoint, DrawnBatch, RunState
from selector.sampling.eligibility import renew_credit
from selector.sampling.revisits import next_overdue
from selector.types import PURPOSE_CODE, Lifecycle, Purpose, VoidReason

DRY_DRAWS_ALARM = 20  # train draws without a usable group before the run says so


def fold(state: RunState, event: Event) -> None:
    """Applies one event; `state.seq` is its position in the log."""
    state.seq += 1
    match event:
        case RunBegun() | ConfigChanged():
            rules, policy = state.config.policy.lifecycle, state.config.policy
            state.config = RunConfig.from_dict(event.config)
            if state.config.policy != policy:
                state.begin_controller()
            if state.config.policy.lifecycle != rules:
                state.wake_all()
                state.quarantined_N[:] = False
                state.rows["unscored_N"][:] = 0
            state.config_hash = event.config_hash
            state.segment_start = state.seq
        case PoolRevised():
            if event.pool is None:
                raise ValueError("a pool_revised event needs its pool attached")
            state.see_pool(event.pool)
        case BatchDrawn():
            _draw(state, event)
        case RolloutsReported():
            take_report(state, event)
        case TicketsExpired():
            close(state, event.tickets, event.closings)
            state.book.find_next_deadline()
            state.last_change = state.seq
        case StepRecorded():
            _step(state, event)
        case SignalsReceived():
            state.see_signals(event)
        case WarmStarted():
            told = {"run": event.run, "step": event.step, "position": event.position, "discount": event.discount}
            state.begin_with(unpacked(event), event.policy_version, told)
        case CheckpointMade():
            state.checkpoints.append(Checkpoint(event.step, event.branch, state.seq))
        case Restored():
            restoring.fold_restored(state, event)
        case RunCompleted():
            end = Closing(reported=False, reason=VoidReason.ENDED, scored=0, passes=0.0, informative=None)
            tickets = list(state.book.open)
            close(state, tickets, [end] * len(tickets))
            state.completed = True
            state.held = Held()  # nothing is drawn any more
            state.last_change = state.seq
        case _:
            raise TypeError(f"no fold for {type(event).__name__}")
    if state.config.rollout_store is not None:
        state.held = state.held.within(state.config.rollout_store, state.policy_version)


def _draw(state: RunState, event: BatchDrawn) -> None:
    state.see_version(event.policy_version)
    purpose = Purpose(event.purpose)
    if purpose is Purpose.TRAIN:
        _count_train_draw(state, event)
    num_tickets = len(event.row_K)
    first = state.book.tickets.size
    ordinals = state.book.issue(num_tickets, event.rollouts_K)
    batch = DrawnBatch(ordinal=len(state.batches), event=event, seq=state.seq, first_ticket=first)
    state.batches.append(batch)
    state.surviving[batch.key] = batch.ordinal
    state.by_branch[event.branch, *batch.key] = batch.ordinal
    table = state.book.tickets
    table["batch"][ordinals] = batch.ordinal
    table["position"][ordinals] = np.arange(num_tickets)
    table["row"][ordinals] = event.row_K
    table["purpose"][ordinals] = np.where(event.audit_K, PURPOSE_CODE[Purpose.AUDIT], PURPOSE_CODE[purpose])
    table["issued_seq"][ordinals] = state.seq
    table["issued_draw"][ordinals] = state.train_draws
    table["issued_version"][ordinals] = event.policy_version
    if event.deadline is not None:
        table["deadline"][ordinals] = event.deadline
        state.book.next_deadline = min(state.book.next_deadline, event.deadline)
    np.add.at(state.in_flight_N, event.row_K, np.int32(1))
    priors.fold_begun(state, batch)
    state.last_change = state.seq


def _count_train_draw(state: RunState, event: BatchDrawn) -> None:
    """Credits, overdue revisits and counters: the part of a train draw that is not in its tickets."""
    fold_numbers(state, event.controlled, refill=event.refill)
    say_unread(state)
    if state.config.policy.lifecycle is not None:
        state.rows["lifecycle_N"][event.woken] = Lifecycle.ACTIVE
        state.rows["reviews_N"][event.woken] = 0
        _say_when_all_rest(state)
    if len(event.row_K):  # a draw that handed out nothing estimates nothing, and owes nothing
        if event.allow_repeat:  # nobody is blocked
            state.rows["credit_N"][:] = 0
        else:
            renew_credit(state.frame_N, state.in_flight_N, state.rows["credit_N"])
    state.revisit_draws = event.revisit_draws or 0
    due_N = due_revisits(state, state.revisit_draws)
    state.rows["overdue_N"] = next_overdue(due_N, event.row_K)
    np.add.at(state.rows["drawn_N"], event.row_K, np.int32(1))
    state.rows["last_draw_N"][event.row_K] = state.train_draws + 1
    state.train_draws += 1
    count_draw(state, event.refill)
    state.dry_draws += 1
    if state.dry_draws >= DRY_DRAWS_ALARM and "no_usable_groups" not in state.alarms:
        state.alarms["no_usable_groups"] = {
            "alarm": "no_usable_groups",
            "detail": f"{state.dry_draws} train draws without a usable group; check the grader, max_lag, the workers",
            "draws": state.train_draws,
        }


def _say_when_all_rest(state: RunState) -> None:
    """Raises the alarm of a pool without a prompt left to train on, once for each kind."""
    count = np.bincount(state.rows["lifecycle_N"][state.frame_N], minlength=len(Lifecycle))
    mastered, deferred = int(count[Lifecycle.MASTERED]), int(count[Lifecycle.DEFERRED])
    if mastered + deferred < count.sum() or not count.sum():
        return
    name = "pool_no_signal" if mastered and deferred else "pool_all_mastered" if mastered else "pool_all_deferred"
    if name not in state.alarms:
        state.alarms[name] = {
            "alarm": name,
            "detail": f"of {mastered + deferred} prompts {mastered} are mastered and {deferred} deferred: draws are "
            "audit and reviews only; stop, or add prompts",
            "draws": state.train_draws,
        }


def _step(state: RunState, event: StepRecorded) -> None:
    count_trained(state, event.trained)
    state.steps[event.branch, event.step] = {**event.to_json(), "seq": state.seq}
    state.step = max(state.step, event.step)
    state.ledger.add_costs(event.costs)
    state.see_version(event.policy_version)
    state.last_change = state.seq
