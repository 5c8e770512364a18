"""How far tickets are with their waves: read from a run's state by `group_reports`, by the audit and by the API.

Changes nothing. Rules and their arithmetic are in `waves`.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import fsum
from typing import Literal

import numpy as np

from selector.config import RunConfig
from selector.probing import settled
from selector.run.state import DrawnBatch, RunState
from selector.run.verdict import COUNTED, GIVES_REWARD, is_informative
from selector.types import PURPOSE_CODE, Purpose, TicketState
from selector.waves import RIGHT_ABOVE, Seen, Verdict, WaveConfig, WaveDecision, decide, wave_ends, wave_from_dict

Next = Literal["wait", "continue", "stop"]
IN_WAVES = (PURPOSE_CODE[Purpose.TRAIN], PURPOSE_CODE[Purpose.PROBE])
Arrived = tuple[float | None, float | None, int]
"""Outcome, reward and status of a rollout."""


def rule_of(state: RunState, ticket: int) -> WaveConfig | None:
    """The rule that a ticket was drawn under. Of train tickets and probes; every other runs its whole group."""
    if state.book.tickets["purpose"][ticket] not in IN_WAVES:
        return None
    return wave_from_dict(state.batch_of(ticket).event.wave)


def belief_at_draw(state: RunState, ticket: int) -> tuple[float, float]:
    """Mean and variance that its draw recorded."""
    event, position = state.batch_of(ticket).event, state.book.tickets["position"][ticket]
    return float(event.pass_rate_K[position]), float(event.variance_K[position])


def observed(state: RunState, tickets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(B,) tickets, passes and rollouts scored, as the beliefs are to see them: wave by wave, in order.

    How many rollouts a stopped group has depends on them, and so its share passed is biased. A wave's size is settled
    by the waves before it: given those, its share is unbiased, for estimators that learn from surprises too.
    """
    table, rollouts = state.book.tickets, state.book.rollouts
    batches = np.unique(table["batch"][tickets]).tolist()
    if not any(state.batches[ordinal].event.wave for ordinal in batches):
        return tickets, table["passes"][tickets], table["scored"][tickets].astype(np.int64)
    has_wave = [rule_of(state, ticket) for ticket in tickets.tolist()]
    if state.estimator.whole_groups or not any(has_wave):
        return tickets, table["passes"][tickets], table["scored"][tickets].astype(np.int64)
    ticket_B, passes_B, scored_B = list[int](), list[float](), list[int]()
    for ticket, rule in zip(tickets.tolist(), has_wave, strict=True):
        slots = state.book.slots(ticket)
        outcome_G = rollouts["outcome"][slots]
        counts_G = np.isin(rollouts["status"][slots], [int(s) for s in COUNTED]) & ~np.isnan(outcome_G)
        counts_G &= rollouts["arrived"][slots]
        start = 0
        for end in wave_ends(rule, len(outcome_G)):
            seen = outcome_G[start:end][counts_G[start:end]].tolist()
            if seen:
                ticket_B.append(ticket)
                passes_B.append(fsum(seen))  # as a closing sums them
                scored_B.append(len(seen))
            start = end
    return np.array(ticket_B, np.int64), np.array(passes_B), np.array(scored_B, np.int64)


def decide_waves(
    rule: WaveConfig,
    wave: int,
    rollouts: Sequence[Arrived | None],
    config: RunConfig,
    belief: tuple[float, float] | None = None,
    rewards_count: Callable[[], bool] | None = None,
) -> list[WaveDecision]:
    """Decisions of every wave from `wave` on that is complete, up to one that ends the ticket or the last wave.

    rollouts: the group's, by number, None for what has not arrived. Decided on the rollouts numbered below the wave's
    end alone: what a worker sent beyond it counts for the group, and has no say in whether the group goes on. belief:
    of the ticket at its draw, for a rule that goes by it. rewards_count: whether a group without outcomes counts by its
    rewards; then only rule "screen", which asks whether they differ, ever ends it.
    """
    ends, made = wave_ends(rule, len(rollouts)), list[WaveDecision]()
    first = [one for one in rollouts[: ends[0]] if one is not None and _counts(one)]
    right_first = sum(_is_right(one) for one in first)
    while wave + 1 < len(ends) and None not in rollouts[: ends[wave]] and (not made or made[-1].more):
        counted = [one for one in rollouts[: ends[wave]] if one is not None and _counts(one)]
        right = sum(_is_right(one) for one in counted)
        signal = [outcome if config.signal == "outcome" else reward for outcome, reward, _ in counted]
        seen = Seen(
            right=right,
            scored=len(counted),
            right_first=right_first,
            scored_first=len(first),
            informative=is_informative(signal, config.tolerance),
        )
        alone = [one[1] for one in rollouts[: ends[wave]] if one is not None and _gives_reward(one)]
        if not counted and alone and rewards_count is not None and rewards_count():
            stops = rule.rule == "screen" and not is_informative(alone, config.tolerance)
            verdict = Verdict.STOP if stops else Verdict.CONTINUE
        elif belief is not None and rule.rule == "settle":
            left = ends[-1] - ends[wave]
            kept = None
            if config.rollout_store is not None:
                kept = min(config.group_size - config.min_rollouts - ends[wave], left)
            verdict = settled(rule, seen, belief, left=left, group_size=config.group_size, kept=kept)
        else:
            verdict = decide(rule, seen)
        more = ends[wave + 1] - ends[wave] if verdict is Verdict.CONTINUE else 0
        made.append(
            WaveDecision(
                rule=rule.rule,
                wave=wave,
                end=ends[wave],
                right=right,
                scored=seen.scored,
                verdict=verdict,
                more=more,
            )
        )
        wave += 1
    return made


def _counts(rollout: Arrived) -> bool:
    outcome, _, status = rollout
    return outcome is not None and status in COUNTED


def _gives_reward(rollout: Arrived) -> bool:
    outcome, reward, status = rollout
    return outcome is None and reward is not None and status in GIVES_REWARD


def _is_right(rollout: Arrived) -> bool:
    return rollout[0] is not None and rollout[0] > RIGHT_ABOVE


def what_next(state: RunState, ticket: int, reached: int) -> tuple[Next, int]:
    """What a caller is told about the wave of rollout `reached` (−1: nothing known was sent), and how many more.

    About the wave of what was sent, and not the one that is waited for: the same report again gets the same answer.
    """
    table = state.book.tickets
    if table["state"][ticket] == TicketState.VOID:
        return "stop", 0
    rule = rule_of(state, ticket)
    if rule is not None and reached >= 0:
        ends = wave_ends(rule, int(table["group_size"][ticket]))
        wave = bisect_right(ends, reached)
        if wave < table["wave"][ticket]:
            return "continue", ends[wave + 1] - ends[wave]
    return ("wait" if table["state"][ticket] == TicketState.OPEN else "stop"), 0


def fixed_counts(state: RunState, tickets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(B,) passes and (B,) rollouts scored, of as many rollouts of each ticket as were sure to be made.

    Of a ticket that could be stopped by its outcomes that is the first wave: k/n of the whole is biased (0.117 in the
    mean of those that a balanced exit lets go, where the pass rate is 0.05), while the first wave has a fixed size.
    """
    table = state.book.tickets
    passes_B, scored_B = table["passes"][tickets], table["scored"][tickets]
    first_B = _sure_rollouts(state, tickets)
    waved = np.flatnonzero(first_B)
    if not len(waved):
        return passes_B, scored_B
    rollouts, number_F = state.book.rollouts, np.arange(first_B.max())
    is_first_WF = number_F < first_B[waved][:, None]
    slot_WF = table["slot"][tickets[waved]][:, None] + np.where(is_first_WF, number_F, 0)
    outcome_WF = rollouts["outcome"][slot_WF]
    counts_WF = is_first_WF & rollouts["arrived"][slot_WF] & ~np.isnan(outcome_WF)
    counts_WF &= np.isin(rollouts["status"][slot_WF], [int(s) for s in COUNTED])
    passes_B, scored_B = passes_B.copy(), scored_B.copy()
    passes_B[waved] = np.where(counts_WF, outcome_WF, 0.0).sum(axis=1)
    scored_B[waved] = counts_WF.sum(axis=1)
    return passes_B, scored_B


def may_stop(state: RunState, tickets: np.ndarray) -> np.ndarray:
    """(B,) bool: tickets that could be stopped by their outcomes."""
    return _sure_rollouts(state, tickets) > 0


def fixed_shares(state: RunState, tickets: np.ndarray) -> np.ndarray:
    """(B,) share passed of each reported ticket, unbiased for its prompt's pass rate by `fixed_counts`. Where the part
    that was sure to be made has no score, which takes errors in all of it, k/n of the whole.
    """
    table = state.book.tickets
    passes_B, scored_B = fixed_counts(state, tickets)
    is_known_B = scored_B > 0
    passes_B = np.where(is_known_B, passes_B, table["passes"][tickets])
    return np.asarray(passes_B / np.where(is_known_B, scored_B, table["scored"][tickets]))


def _sure_rollouts(state: RunState, tickets: np.ndarray) -> np.ndarray:
    """(B,) size of each ticket's first wave, 0 for one that runs its whole group."""
    table = state.book.tickets
    batches_U, place_B = np.unique(table["batch"][tickets], return_inverse=True)
    first_U = np.array([_first_wave(state.batches[ordinal]) for ordinal in batches_U.tolist()], np.int64)
    if not first_U.any():
        return np.zeros(len(tickets), np.int64)
    return np.where(np.isin(table["purpose"][tickets], IN_WAVES), first_U[place_B], 0)


def _first_wave(batch: DrawnBatch) -> int:
    """Rollouts of the first wave of a batch's tickets that have waves; 0 where none has."""
    rule = wave_from_dict(batch.event.wave)
    return 0 if rule is None else wave_ends(rule, batch.event.group_size)[0]
