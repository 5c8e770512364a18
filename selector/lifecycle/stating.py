"""From a run's tickets to what may be said of its mastered prompts: which have regressed, and which cohorts have.

`api` calls `state_regressions` for the audit and `state_prompts` for the alarms. Both kinds of statement use groups
drawn after the prompt was mastered and nothing else; a prompt's are followed on after it has returned to work, until it
is mastered again. They hold as long as it does not depend on a group's outcomes whether it has come back by the time
one looks.
"""

from collections import defaultdict
from dataclasses import dataclass
from math import log

import numpy as np

from selector.config import LifecycleConfig
from selector.groups.standing import fixed_counts
from selector.lifecycle.evidence import cohort_log_e, e_bh, follow
from selector.lifecycle.rules import COHORT_DRAWS
from selector.run.state import DrawnBatch, RunState
from selector.types import PURPOSE_CODE, UNSEEN_BY_BELIEFS, Purpose, TicketState

FALSE_SHARE = 0.05
"""Share of wrong ones, on average, among the prompts listed as regressed at any one time, and among the cohorts."""

RUN_LENGTH = 1_000
"""Reviews after which the detector of a prompt that stays at the level raises a false alarm, on average, or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptStatement:
    """What the groups of one prompt say of it since it was mastered.

    Passes and scored rollouts are of what was sure to be made of each group, so that their ratio estimates the pass
    rate; of a group that a rule may stop by its outcomes that is its first wave. Evidence is of all that was made.
    """

    row: int
    reviews: int
    passes: float
    scored: int
    log_e: float  # e-value, of the hypothesis that the pass rate was at the level at every one of them
    listed: bool  # by e-BH over all prompts
    detected: bool  # the detector has been at RUN_LENGTH or above


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortStatement:
    """Prompts of one category that were mastered in the same draws, as long as they stay so."""

    category: str | None
    mastered_in: tuple[int, int]  # train draws, first and last
    members: int  # that the last of the draws could take
    draws: int
    reviews: int
    log_e: float  # e-value, of the hypothesis that their mean pass rate was at the level at every draw
    listed: bool  # by e-BH over all cohorts


@dataclass(frozen=True, slots=True, kw_only=True)
class Regressions:
    """Prompts that are listed or detected, and all cohorts; the strongest evidence first."""

    level: float
    prompts: tuple[PromptStatement, ...]
    num_prompts: int  # followed
    cohorts: tuple[CohortStatement, ...]


def state_regressions(state: RunState) -> Regressions | None:
    """What the run's reviews allow to be said now; None where prompts do not rest."""
    rules = state.config.policy.lifecycle
    if rules is None:
        return None
    followed, prompts = state_prompts(state, rules)
    return Regressions(level=rules.level, prompts=prompts, num_prompts=followed, cohorts=_cohorts(state, rules))


def state_prompts(state: RunState, rules: LifecycleConfig) -> tuple[int, tuple[PromptStatement, ...]]:
    """How many prompts are followed, and those that are listed or detected, the strongest evidence first."""
    table, mastered_draw_N = state.book.tickets, state.rows["mastered_draw_N"]
    rows_M = np.flatnonzero((mastered_draw_N > 0) & state.frame_N)
    place_N = np.full(state.num_rows, -1, np.int64)
    place_N[rows_M] = np.arange(len(rows_M))
    unseen = [PURPOSE_CODE[purpose] for purpose in UNSEEN_BY_BELIEFS]
    is_review = (table["state"] == TicketState.REPORTED) & ~np.isin(table["purpose"], unseen)
    is_review &= (place_N[table["row"]] >= 0) & (table["issued_draw"] >= mastered_draw_N[table["row"]])
    reviews = np.flatnonzero(is_review)
    reviews = reviews[np.argsort(table["ended_seq"][reviews], kind="stable")]
    place_B = place_N[table["row"][reviews]]
    passes_B, scored_B = table["passes"][reviews], table["scored"][reviews].astype(np.int64)
    found = follow(place_B, passes_B, scored_B, rules.level, len(rows_M))
    listed_M = e_bh(found.log_e_M, FALSE_SHARE)
    detected_M = found.log_peak_M >= log(RUN_LENGTH)
    fixed_B, of_B = fixed_counts(state, reviews)
    passes_M = np.bincount(place_B, fixed_B, len(rows_M))
    scored_M = np.bincount(place_B, of_B, len(rows_M)).astype(np.int64)
    shown = np.flatnonzero(listed_M | detected_M)
    shown = shown[np.argsort(-found.log_e_M[shown], kind="stable")]
    return len(rows_M), tuple(
        PromptStatement(
            row=int(rows_M[place]),
            reviews=int(found.reviews_M[place]),
            passes=float(passes_M[place]),
            scored=int(scored_M[place]),
            log_e=float(found.log_e_M[place]),
            listed=bool(listed_M[place]),
            detected=bool(detected_M[place]),
        )
        for place in shown.tolist()
    )


def _cohorts(state: RunState, rules: LifecycleConfig) -> tuple[CohortStatement, ...]:
    failures = defaultdict[tuple[int, int], list[float]](list)
    reviews = defaultdict[tuple[int, int], int](int)
    members: dict[tuple[int, int], int] = {}
    for batch in _window(state):
        failing_K = _failing(state, batch).tolist()
        for cohort in batch.event.cohorts:
            name = cohort["category"], cohort["block"]
            failures[name].append(sum(failing_K[place] for place in cohort["places"]) / cohort["members"])
            reviews[name] += len(cohort["places"])
            members[name] = cohort["members"]
    names = list(failures)
    log_e_M = np.array([cohort_log_e(np.array(failures[name]), rules.level) for name in names])
    listed_M = e_bh(log_e_M, FALSE_SHARE)
    return tuple(
        CohortStatement(
            category=state.pool.categories[names[m][0]] if names[m][0] >= 0 else None,
            mastered_in=(names[m][1] * COHORT_DRAWS, (names[m][1] + 1) * COHORT_DRAWS - 1),
            members=members[names[m]],
            draws=len(failures[names[m]]),
            reviews=reviews[names[m]],
            log_e=float(log_e_M[m]),
            listed=bool(listed_M[m]),
        )
        for m in np.argsort(-log_e_M, kind="stable").tolist()
    )


def _window(state: RunState) -> list[DrawnBatch]:
    """Surviving train draws under the rules of now, in order of the log, up to the first unfinished."""
    window, ticket_state = [], state.book.tickets["state"]
    for batch in state.batches:
        if not batch.alive or batch.event.purpose != Purpose.TRAIN or batch.seq < state.lifecycle_start:
            continue
        if (ticket_state[batch.first_ticket : batch.first_ticket + len(batch.event.row_K)] == TicketState.OPEN).any():
            break
        window.append(batch)
    return window


def _failing(state: RunState, batch: DrawnBatch) -> np.ndarray:
    """(K,) each ticket's share of failures over its expected number of tickets; 0 for what never came back, which can
    only weaken the evidence.
    """
    event, table = batch.event, state.book.tickets
    num_tickets = len(event.row_K)
    span = slice(batch.first_ticket, batch.first_ticket + num_tickets)
    back_K = table["state"][span] == TicketState.REPORTED
    passes_K, scored_K = fixed_counts(state, batch.tickets)
    failing_K = np.where(back_K & (scored_K > 0), 1.0 - passes_K / np.maximum(scored_K, 1), 0.0)
    # ht_weight is K(1+c)/(N·expected tickets).
    return np.asarray(failing_K * event.ht_weight_K * event.frame / (num_tickets * (1.0 + event.credit_K)))
