"""Closings: how open ticket attempts end, and what beliefs, stages and the quarantine learn of the groups they leave.

`fold` and `arrivals` call `close` with closings that are decided already; nothing else does. Deterministic, as the
fold.
"""

from collections.abc import Sequence

import numpy as np

from predictors.base import Observations
from selector.batches.controlling import count_groups
from selector.batches.quota_holding import count_ended
from selector.beliefs import progress
from selector.beliefs.costing import rollout_costs
from selector.beliefs.graded import learn_ties
from selector.beliefs.rewarded import learn_rewards
from selector.beliefs.silence import count_heard, loss_share
from selector.groups.standing import fixed_counts, fixed_shares, observed
from selector.lifecycle import rules as lifecycle
from selector.lifecycle.suspects import same_score
from selector.run.events import Closing
from selector.run.state import RunState
from selector.types import PURPOSE_CODE, UNSEEN_BY_BELIEFS, Lifecycle, Source, TicketState, VoidReason

QUARANTINE_GROUPS = 3  # groups of a prompt in a row without any score before a run with a lifecycle takes it out


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
