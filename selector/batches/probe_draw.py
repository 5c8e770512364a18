"""A probe batch: from a run's state to the prompts that the planner chose, within what the run allows probes to cost.

`drawing` calls it. The planner and its arithmetic are in `probing`; the chances recorded here are those of its choice,
which is certain but for ties. So they say what was done and weigh nothing: probes are no part of the audit or of any
claim, and their tickets have no weight.
"""

from dataclasses import asdict, replace
from math import inf
from typing import Any

import numpy as np

from predictors.base import Beliefs
from selector.beliefs.costing import expected_tokens
from selector.probing import FIRST_WAVE, displaced, plan_probes, settle_rule
from selector.run.state import RunState
from selector.sampling.draw_plan import DrawFrame, Drawn, DrawPlan, RestingCode, ShortReason
from selector.sampling.inclusion import Inclusion
from selector.sampling.randomness import Stream
from selector.types import PURPOSE_CODE, Lifecycle, Purpose, Source
from selector.waves import wave_ends


def draw_probes(
    state: RunState,
    frame: DrawFrame,
    plan: DrawPlan,
    beliefs: Beliefs,
    informative_N: np.ndarray,
    utility_N: np.ndarray,
) -> tuple[Drawn, dict[str, Any] | None]:
    """The batch, and the rule that stops its groups as it goes into the log; None where groups run to their end.

    informative_N and utility_N: (N,) of a training group under the run's policy, which says what it is compared with.
    """
    config = state.config
    at_rest_N = frame.resting_code_N != int(RestingCode.NONE)
    places = _places(state)
    new_N = frame.frame_N & (state.rows["lifecycle_N"] == Lifecycle.NEW)
    owed_N = at_rest_N & frame.due_N
    if places is None or np.array_equal(new_N, frame.frame_N):
        owed_N |= new_N  # what draws find is a guess as yet, so all that was never tried is worth a look
    eligible_N = frame.frame_N & ~frame.blocked_N
    at_work = np.flatnonzero(frame.frame_N & ~at_rest_N)
    needed = displaced(informative_N[at_work], utility_N[at_work], config.policy.floor, places)
    # A feed of informative groups leaves out the others, and a rule would wait for them.
    rule = (
        None if config.feed == "informative_only" else settle_rule(plan.group_size, needed.least, config.min_rollouts)
    )
    found = plan_probes(
        beliefs.mean_N,
        beliefs.variance_N,
        expected_tokens(state, np.arange(state.num_rows)),
        eligible_N & (~at_rest_N | owed_N),
        owed_N,
        plan.rng(Stream.UNIFORM_ORDER).permutation(state.num_rows),
        size=plan.size,
        ends=wave_ends(rule, plan.group_size),
        group_size=config.group_size,
        needed=needed,
        open_N=_probed_now(state),
        budget=_budget(state),
    )
    num = len(found.rows_K) - len(found.rows_K) % plan.unit
    rows_K = found.rows_K[:num]
    num_frame, eligible = int(np.count_nonzero(frame.frame_N)), int(np.count_nonzero(eligible_N))
    inclusion_N = found.inclusion_N * (num / max(len(found.rows_K), 1))
    reason = None
    if num < plan.size:
        reason = _reason(num_frame, eligible, found.num_worth, plan.size, found.unaffordable, num < len(found.rows_K))
    drawn = Drawn(
        rows_K=rows_K,
        audit_K=np.zeros(num, bool),
        inclusion_K=inclusion_N[rows_K],
        weight_K=np.ones(num),
        ht_weight_K=num * (1.0 + frame.credit_N[rows_K]) / (num_frame * inclusion_N[rows_K]),
        reason=reason,
        frame=num_frame,
        eligible=eligible,
        blocked=num_frame - eligible,
        num_audit=0,
        due_unplaced=0,
        most=num,
        selected_N=inclusion_N,
        unit=1.0,
        expected=Inclusion.of(inclusion_N),
    )
    return drawn, None if rule is None else asdict(replace(rule, price=found.price))


def _reason(
    num_frame: int, eligible: int, num_worth: int, size: int, unaffordable: bool, is_cut: bool
) -> ShortReason | None:
    if num_frame == 0:
        return ShortReason.POOL_EMPTY
    if unaffordable:
        return ShortReason.PROBE_BUDGET
    if is_cut and num_worth >= size:
        return ShortReason.DIVISOR
    if num_worth < eligible:
        return ShortReason.NOTHING_TO_LEARN
    return ShortReason.ALL_IN_FLIGHT if eligible == 0 or num_frame >= size else ShortReason.POOL_EXHAUSTED


def _budget(state: RunState) -> float | None:
    """Tokens that probes may still generate now; None without a bound. Open probes count as their first wave."""
    bounds = state.config.policy.probing
    if bounds is None:
        return None
    left, tokens = inf, state.ledger.tokens
    table = state.book.tickets
    open_tickets = np.fromiter(state.book.open, np.int64, len(state.book.open))
    open_tickets = open_tickets[table["purpose"][open_tickets] == PURPOSE_CODE[Purpose.PROBE]]
    expected = expected_tokens(state, table["row"][open_tickets])
    due = np.zeros(len(open_tickets)) if expected is None else FIRST_WAVE * expected
    due = np.maximum(due - table["tokens"][open_tickets], 0.0)  # beyond what has come
    if bounds.share is not None:
        trained = tokens[Source.TRAIN] + tokens[Source.AUDIT]
        left = min(left, bounds.share * trained - tokens[Source.PROBE] - float(due.sum()))
    if bounds.tokens is not None:
        first = _first_since_training(state)
        spent = table["tokens"][first:][table["purpose"][first:] == PURPOSE_CODE[Purpose.PROBE]].sum()
        left = min(left, bounds.tokens - float(spent) - float(due[open_tickets >= first].sum()))
    return max(left, 0.0)


def _first_since_training(state: RunState) -> int:
    """The ticket from which on there was no train draw on this branch."""
    for batch in reversed(state.batches):
        if batch.alive and batch.event.purpose == Purpose.TRAIN:
            return batch.first_ticket + len(batch.event.row_K)
    return 0


def _places(state: RunState) -> float | None:
    """Selected tickets of the last training batch on this branch; None before the first."""
    for batch in reversed(state.batches):
        if batch.alive and batch.event.purpose == Purpose.TRAIN and batch.event.refill == 0:
            return float(max(len(batch.event.row_K) - batch.event.num_audit, 1))
    return None


def _probed_now(state: RunState) -> np.ndarray:
    """(N,) bool: rows with an open probe."""
    table, open_N = state.book.tickets, np.zeros(state.num_rows, bool)
    tickets = np.fromiter(state.book.open, np.int64, len(state.book.open))
    tickets = tickets[table["purpose"][tickets] == PURPOSE_CODE[Purpose.PROBE]]
    open_N[table["row"][tickets]] = True
    return open_N
