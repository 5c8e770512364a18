"""How each event changes a run's state: the fold over the log.

`RunEngine.apply` calls `fold` and nothing else does. Deterministic: no clock, no randomness; the same events give the
same state to the bit. Decisions (who was drawn, which rollout counts, how a ticket closed) are in the events already.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from predictors.base import Observations
from selector import lifecycle, priors, progress, restoring
from selector.config import RunConfig
from selector.controlling import count_groups, fold_numbers
from selector.costing import rollout_costs
from selector.drawing import due_revisits
from selector.eligibility import renew_credit
from selector.events import (
    BatchDrawn,
    CheckpointMade,
    Closing,
    ConfigChanged,
    Event,
    GroupEvidence,
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
from selector.graded import learn_ties
from selector.ledger import whole_microseconds
from selector.quota_holding import count_draw, count_ended, count_trained
from selector.revisits import next_overdue
from selector.rewarded import CountsRewards, learn_rewards, say_unread
from selector.rollout_store import Held
from selector.silence import count_heard, loss_share
from selector.standing import fixed_counts, fixed_shares, observed
from selector.state import Checkpoint, DrawnBatch, RunState
from selector.suspects import same_score
from selector.tickets import hash_id
from selector.types import (
    PURPOSE_CODE,
    PURPOSES,
    UNSEEN_BY_BELIEFS,
    Lifecycle,
    Purpose,
    RolloutStatus,
    Source,
    TicketState,
    VoidReason,
)
from selector.verdict import COUNTED
from selector.warm_start import unpacked

DRY_DRAWS_ALARM = 20  # train draws without a usable group before the run says so
QUARANTINE_GROUPS = 3  # groups of a prompt in a row without any score before a run with a lifecycle takes it out
STATUS_NAME = {status: status.name.lower() for status in RolloutStatus}


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
            _report(state, event)
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


def close(state: RunState, tickets: Sequence[int], closings: Sequence[Closing]) -> None:
    """Ends open ticket attempts, frees their prompts, and shows the usable groups to the beliefs."""
    if not tickets:
        return
    table = state.book.tickets
    ordinals = np.asarray(tickets, np.int64)
    reported = np.array([c.reported for c in closings], bool)
    table["state"][ordinals] = np.where(reported, TicketState.REPORTED, TicketState.VOID)
    table["reason"][ordinals] = [c.reason for c in closings]
    table["scored"][ordinals] = [c.scored for c in closings]
    table["passes"][ordinals] = [c.passes for c in closings]
    table["rewarded"][ordinals] = [c.rewarded for c in closings]
    table["informative"][ordinals] = [-1 if c.informative is None else int(c.informative) for c in closings]
    table["disagrees"][ordinals] = [c.disagrees for c in closings]
    table["ended_seq"][ordinals] = state.seq
    table["draws_between"][ordinals] = state.train_draws - table["issued_draw"][ordinals]
    rows = table["row"][ordinals]
    np.subtract.at(state.in_flight_N, rows, 1)
    for ticket in tickets:
        del state.book.open[ticket]
    table["reported_version"][ordinals[reported]] = state.book.first_versions(ordinals[reported])
    for ticket in ordinals[~reported].tolist():
        state.ledger.move(
            state.source_of(ticket),
            Source.REJECTED,
            tokens=int(table["tokens"][ticket]),
            rollouts=int(table["arrived"][ticket]),
            microseconds=int(table["microseconds"][ticket]),
        )
    _observe(state, ordinals[reported])
    _quarantine(state, ordinals[~reported])
    count_ended(state, ordinals)
    if state.config.feed == "informative_only":
        count_heard(state, ordinals)
        _hear_silence(state, ordinals[table["reason"][ordinals] == VoidReason.SILENT])


def _observe(state: RunState, ordinals: np.ndarray) -> None:
    table = state.book.tickets
    unseen = [PURPOSE_CODE[purpose] for purpose in UNSEEN_BY_BELIEFS]
    ordinals = ordinals[~np.isin(table["purpose"][ordinals], unseen)]
    if not len(ordinals):
        return
    state.dry_draws = 0
    rows = table["row"][ordinals]
    np.add.at(state.rows["groups_N"], rows, 1)
    stage_N = state.rows["lifecycle_N"]
    stage_N[rows[stage_N[rows] == Lifecycle.NEW]] = Lifecycle.ACTIVE
    state.rows["unscored_N"][rows] = 0
    state.costs.observe(rollout_costs(state, ordinals))
    by_reward = table["rewarded"][ordinals] > 0
    if by_reward.any():
        _observe_rewards(state, ordinals[by_reward])
        ordinals = ordinals[~by_reward]
        rows = table["row"][ordinals]
    if not len(ordinals):
        return
    learn_ties(state, ordinals)
    ticket_B, passes_B, scored_B = observed(state, ordinals)
    state.estimator.observe(
        Observations(
            rows_B=table["row"][ticket_B],
            passes_B=passes_B,
            scored_B=scored_B,
            version_B=state.clock(table["reported_version"][ticket_B]),
        )
    )
    progress.rate(state.rows, rows, fixed_shares(state, ordinals))
    count_groups(state, ordinals)
    _move(state, ordinals)


def _observe_rewards(state: RunState, ordinals: np.ndarray) -> None:
    """Groups that count by their rewards: no stage moves, as stages are about pass rates."""
    groups, columns = learn_rewards(state, ordinals), state.rows
    rows_U, place_B = np.unique(groups.rows_B, return_inverse=True)
    score_B = np.where(groups.is_alike_B, groups.mean_B, np.nan)
    columns["same_N"][rows_U], columns["score_N"][rows_U] = same_score(
        columns["same_N"][rows_U], columns["score_N"][rows_U], place_B, score_B
    )


def _hear_silence(state: RunState, ordinals: np.ndarray) -> None:
    if len(ordinals):
        table = state.book.tickets
        silent = Observations(
            rows_B=table["row"][ordinals],
            passes_B=np.zeros(len(ordinals)),
            scored_B=table["group_size"][ordinals].astype(np.int64),
            version_B=state.clock(table["issued_version"][ordinals]),
        )
        state.estimator.observe_silence(silent, loss_share(state))


def _move(state: RunState, ordinals: np.ndarray) -> None:
    """Stages of the prompts whose groups were just shown to the beliefs. B groups of U prompts."""
    table, columns = state.book.tickets, state.rows
    rows_U, place_B = np.unique(table["row"][ordinals], return_inverse=True)
    passes_B, scored_B = table["passes"][ordinals], table["scored"][ordinals]
    quiet_B = (passes_B == 0) & (table["informative"][ordinals] == 0)
    columns["failed_N"][rows_U] = lifecycle.failures_in_a_row(columns["failed_N"][rows_U], place_B, quiet_B)
    constant_B = (table["informative"][ordinals] == 0) & ~table["disagrees"][ordinals]
    score_B = np.where(constant_B, passes_B / scored_B, np.nan)
    columns["same_N"][rows_U], columns["score_N"][rows_U] = same_score(
        columns["same_N"][rows_U], columns["score_N"][rows_U], place_B, score_B
    )
    rules = state.config.policy.lifecycle
    if rules is None:
        return
    # A group issued before its prompt went to rest is no review.
    is_review_B = table["issued_draw"][ordinals] >= columns["mastered_draw_N"][rows_U][place_B]
    slip_B = is_review_B & lifecycle.is_slip(*fixed_counts(state, ordinals), rules.level)
    before_U = columns["lifecycle_N"][rows_U]
    after_U = lifecycle.next_stage(
        lifecycle.Touched(
            stage_U=before_U,
            groups_U=columns["groups_N"][rows_U],
            failed_U=columns["failed_N"][rows_U],
            passed_U=np.bincount(place_B, passes_B > 0) > 0,
            slipped_U=np.bincount(place_B, slip_B) > 0,
        ),
        state.beliefs(rows_U),
        group_size=state.config.group_size,
        config=rules,
    )
    columns["lifecycle_N"][rows_U] = after_U
    at_rest_U = (after_U == before_U) & (after_U >= Lifecycle.MASTERED)
    columns["reviews_N"][rows_U] = np.where(at_rest_U, columns["reviews_N"][rows_U] + 1, 0)
    columns["mastered_draw_N"][rows_U[(after_U == Lifecycle.MASTERED) & ~at_rest_U]] = state.train_draws + 1


def _quarantine(state: RunState, ordinals: np.ndarray) -> None:
    """Counts groups that came back without any score, and takes out prompts of which that has happened repeatedly.

    Where the draws before bring no usable group either, it is the grader and not the prompt.
    """
    table = state.book.tickets
    unseen = [PURPOSE_CODE[purpose] for purpose in UNSEEN_BY_BELIEFS]
    unscored = (table["reason"][ordinals] == VoidReason.TOO_FEW) & (table["scored"][ordinals] == 0)
    unscored &= table["rewarded"][ordinals] == 0
    unscored &= table["arrived"][ordinals] >= state.config.min_rollouts
    rows = table["row"][ordinals[unscored & ~np.isin(table["purpose"][ordinals], unseen)]]
    if not len(rows) or state.dry_draws > 1:
        return
    np.add.at(state.rows["unscored_N"], rows, 1)
    if state.config.policy.lifecycle is not None:
        state.quarantined_N[rows] |= state.rows["unscored_N"][rows] >= QUARANTINE_GROUPS


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
    np.add.at(state.in_flight_N, event.row_K, 1)
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
    np.add.at(state.rows["drawn_N"], event.row_K, 1)
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


def _report(state: RunState, event: RolloutsReported) -> None:
    waiting: list[GroupEvidence] = []
    for group in event.groups:
        if group.reopens:
            _take_in(state, waiting)  # the attempt before may have ended in this report
            waiting = []
            _retry(state, group.ticket, event.deadline)
        waiting.append(group)
    _take_in(state, waiting)
    for refused in event.refused:
        state.refused.setdefault(refused.ticket, []).append(refused)
        state.ledger.add(Source.REJECTED, tokens=refused.tokens, rollouts=refused.code != "report_conflict")
    if event.groups:
        state.last_change = state.seq


def _take_in(state: RunState, groups: Sequence[GroupEvidence]) -> None:
    """Rollouts first, then the closings that they led to."""
    if any(group.n for group in groups):
        _add_rollouts(state, groups)
        priors.hold(state, groups)
    for group in groups:
        if group.decisions:
            state.book.note(group.ticket, group.decisions)
    closed = [(group.ticket, group.closing) for group in groups if group.closing is not None]
    close(state, [ticket for ticket, _ in closed], [closing for _, closing in closed])


def _add_rollouts(state: RunState, groups: Sequence[GroupEvidence]) -> None:
    """All rollouts of a report at once. B of them; one whose slot has arrived is a further fragment of it."""
    table, rollouts = state.book.tickets, state.book.rollouts
    ticket_B = np.repeat([group.ticket for group in groups], [len(group.n) for group in groups])
    slot_B = table["slot"][ticket_B] + np.array(_joined(groups, "n"), np.int64)
    tokens_B = np.array(_joined(groups, "tokens"), np.int64)
    outcomes = _floats(_joined(groups, "outcome"))
    fragments = _joined(groups, "fragment")
    new_B = np.zeros(len(slot_B), bool)
    new_B[np.unique(slot_B, return_index=True)[1]] = True
    new_B &= ~rollouts["arrived"][slot_B]
    for i in np.flatnonzero(~new_B).tolist():
        of_slot = state.book.fragments.setdefault(int(slot_B[i]), {})
        of_slot[fragments[i]] = (float(outcomes[i]), int(tokens_B[i]))
    slots, tickets = slot_B[new_B], ticket_B[new_B]
    status_B = np.array(_joined(groups, "status"), np.uint8)[new_B]
    rollouts["arrived"][slots] = True
    rollouts["fragment"][slots] = np.array(fragments, np.int64)[new_B]
    rollouts["outcome"][slots] = outcomes[new_B]
    rollouts["reward"][slots] = _floats(_joined(groups, "reward"))[new_B]
    rollouts["status"][slots] = status_B
    rollouts["tokens"][slots] = tokens_B[new_B]
    np.add.at(rollouts["seconds"], slot_B, np.array(_joined(groups, "seconds"), np.float64))
    rollouts["version"][slots] = np.array(_joined(groups, "version"), np.int64)[new_B]
    rollouts["id_hash"][slots] = np.array([hash_id(name) for name in _joined(groups, "ids")], np.uint64)[new_B]
    np.add.at(table["arrived"], tickets, 1)
    np.add.at(table["tokens"], ticket_B, tokens_B)
    microseconds_B = whole_microseconds(np.array(_joined(groups, "seconds"), np.float64))
    np.add.at(table["microseconds"], ticket_B, microseconds_B)
    np.add.at(state.rows["rollouts_N"], table["row"][tickets], 1)
    np.add.at(state.rows["errors_N"], table["row"][tickets], status_B == RolloutStatus.ERROR)
    _count(state, ticket_B, tokens_B, microseconds_B, new_B)
    statuses = state.ledger.statuses
    statuses["reported"] += len(slots)
    for status in (RolloutStatus.UNSCORED, RolloutStatus.ERROR, RolloutStatus.TRUNCATED):
        statuses[STATUS_NAME[status]] += int(np.count_nonzero(status_B == status))
    counted = np.isin(status_B, [int(status) for status in COUNTED]) & ~np.isnan(outcomes[new_B])
    statuses["scored"] += int(np.count_nonzero(counted))
    rewarded = np.flatnonzero(status_B == RolloutStatus.REWARDED)
    if len(rewarded):
        counts_B = CountsRewards(state).of_rows(table["row"][tickets[rewarded]])
        counts_B &= ~np.isin(tickets[rewarded], tickets[~np.isnan(outcomes[new_B])])
        counts = int(np.count_nonzero(counts_B))
        statuses["scored"] += counts
        statuses["unscored"] += len(rewarded) - counts


def _count(
    state: RunState, ticket_B: np.ndarray, tokens_B: np.ndarray, microseconds_B: np.ndarray, new_B: np.ndarray
) -> None:
    """Tokens, rollouts and their time to the ledger: under their tickets' purpose, or rejected if those are void."""
    table = state.book.tickets
    void_B = table["state"][ticket_B] == TicketState.VOID
    code_B = np.where(void_B, len(PURPOSES), table["purpose"][ticket_B])
    for code in np.unique(code_B).tolist():
        of_code = code_B == code
        source = Source.REJECTED if code == len(PURPOSES) else Source(PURPOSES[code].value)
        state.ledger.add(
            source,
            tokens=int(tokens_B[of_code].sum()),
            rollouts=int(np.count_nonzero(new_B & of_code)),
            microseconds=int(microseconds_B[of_code].sum()),
        )


def _joined(groups: Sequence[GroupEvidence], name: str) -> list[Any]:
    return [value for group in groups for value in getattr(group, name)]


def _retry(state: RunState, ticket: int, deadline: float | None) -> None:
    """Begins the next attempt of a void ticket; its prompt is in flight again."""
    book = state.book
    book.begin_attempt(ticket, state.seq)
    state.in_flight_N[book.tickets["row"][ticket]] += 1
    book.tickets["deadline"][ticket] = np.nan if deadline is None else deadline
    if deadline is not None:
        book.next_deadline = min(book.next_deadline, deadline)


def _step(state: RunState, event: StepRecorded) -> None:
    count_trained(state, event.trained)
    state.steps[event.branch, event.step] = {**event.to_json(), "seq": state.seq}
    state.step = max(state.step, event.step)
    state.ledger.add_costs(event.costs)
    state.see_version(event.policy_version)
    state.last_change = state.seq


def _floats(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], np.float64)
