"""Which prompts rest, and how often one at rest is looked at: what the fold moves on evidence and drawing on age.

new → active ⇄ mastered, active ⇄ deferred. This is action and claims nothing; what may be claimed of prompts that were
mastered is in `evidence`. Knows rows and numbers; nothing of tickets, events or why a prompt was drawn.

Axes: N rows of the pool, U rows that a report touched, each once, B groups of that report.
"""

from dataclasses import dataclass
from functools import cache
from math import exp, lgamma, log
from typing import Any

import numpy as np

from predictors.base import Beliefs
from predictors.beta import probability_below
from predictors.value import informative_probability
from selector.config import LifecycleConfig
from selector.types import Lifecycle

SLIP_CHANCE = 0.05
"""Chance that one review sends a prompt whose pass rate is the level back to work, at most."""

COHORT_DRAWS = 100
"""Train draws whose newly mastered prompts of a category make up one cohort."""

MAX_BACKOFF = 6
"""Halvings of a resting prompt's share of the reviews: never below 1/64 of that of one that has just gone to rest."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Touched:
    """Prompts of which groups have just come in, these groups counted."""

    stage_U: np.ndarray  # Lifecycle, none NEW
    groups_U: np.ndarray  # int, own groups so far
    failed_U: np.ndarray  # int, of them the last ones in a row in which nothing passed and nothing differed
    passed_U: np.ndarray  # bool, something passed in a group that came in
    slipped_U: np.ndarray  # bool, one of these was a review with too few passes


def next_stage(touched: Touched, beliefs: Beliefs, *, group_size: int, config: LifecycleConfig) -> np.ndarray:
    """The stage of each row after its groups: (U,) uint8.

    active → mastered   P(p >= level) >= sure, by at least `groups` own groups
    mastered → active   P(p < level) > 1/2, or one review with too few passes
    active → deferred   P(informative) <= hopeless, after at least `groups` own groups in a row with k = 0
    deferred → active   any pass

    beliefs: of these rows, the new groups included. A row that returns stays active until its next group.
    """
    stage_U = touched.stage_U.astype(np.uint8)
    at_work_U = stage_U == Lifecycle.ACTIVE
    # By Markov's inequality P(p >= level) <= mean/level: the others need not be looked at closely.
    near_U = at_work_U & (touched.groups_U >= config.groups) & (touched.failed_U == 0)
    near_U &= beliefs.mean_N >= config.sure * config.level
    near_U |= stage_U == Lifecycle.MASTERED
    below_U = np.ones(len(stage_U))
    below_U[near_U] = probability_below(beliefs.mean_N[near_U], beliefs.variance_N[near_U], config.level)
    masters_U = at_work_U & near_U & (1.0 - below_U >= config.sure)
    informative_U = informative_probability(beliefs.mean_N, beliefs.variance_N, group_size)
    defers_U = at_work_U & (touched.failed_U >= config.groups) & (informative_U <= config.hopeless)
    returns_U = (stage_U == Lifecycle.MASTERED) & (touched.slipped_U | (below_U > 0.5))
    returns_U |= (stage_U == Lifecycle.DEFERRED) & touched.passed_U
    stage_U[masters_U] = Lifecycle.MASTERED
    stage_U[defers_U] = Lifecycle.DEFERRED
    stage_U[returns_U] = Lifecycle.ACTIVE
    return stage_U


def waking_rows(lifecycle_N: np.ndarray, beliefs: Beliefs, config: LifecycleConfig) -> np.ndarray:
    """Mastered rows whose belief has come to say P(p < level) > 1/2 without a group of their own, by age or by what
    others showed: row numbers, in order.

    Where the mean is at the level, which is at least 1/2, the median is too: it lies between mean and mode.
    """
    rows = np.flatnonzero((lifecycle_N == Lifecycle.MASTERED) & (beliefs.mean_N < config.level))
    if not len(rows):
        return rows
    below = probability_below(beliefs.mean_N[rows], beliefs.variance_N[rows], config.level)
    return rows[below > 0.5]


def review_rate(lifecycle_N: np.ndarray, reviews_N: np.ndarray) -> np.ndarray:
    """What a row's utility is multiplied by among those at rest: 2^-b, b the reviews in a row that left it there, at
    most MAX_BACKOFF; 1 for rows at work. (N,) in (0, 1]. So the time between two reviews doubles, while the places for
    reviews, the floor and the promised revisits stay as they are.
    """
    rate_N = np.ones(len(lifecycle_N))
    resting = np.flatnonzero(lifecycle_N >= Lifecycle.MASTERED)
    rate_N[resting] = 0.5 ** np.minimum(reviews_N[resting], MAX_BACKOFF)
    return rate_N


def is_slip(passes_B: np.ndarray, scored_B: np.ndarray, level: float) -> np.ndarray:
    """(B,) bool: reviews with fewer passes than `least_passes` of their size."""
    sizes, where_B = np.unique(scored_B, return_inverse=True)
    least = np.array([least_passes(int(size), level) for size in sizes])
    too_few_B: np.ndarray = passes_B < least[where_B]
    return too_few_B


@cache
def least_passes(num_rollouts: int, level: float) -> int:
    """The largest c with P(Binomial(n, level) < c) <= SLIP_CHANCE: fewer passes than c are a slip. 6 of 8 at 0.9."""
    below = 0.0
    for passes in range(num_rollouts):
        failures = num_rollouts - passes
        ways = lgamma(num_rollouts + 1) - lgamma(passes + 1) - lgamma(failures + 1)
        below += exp(ways + passes * log(level) + failures * log(1.0 - level))
        if below > SLIP_CHANCE:
            return passes
    return num_rollouts


def failures_in_a_row(failed_U: np.ndarray, place_B: np.ndarray, quiet_B: np.ndarray) -> np.ndarray:
    """`failed_U` after groups of the rows at these places, in order: one more for each quiet group, 0 at any other."""
    result_U = failed_U.copy()
    order_B = np.arange(1, len(place_B) + 1)
    last_U = np.zeros(len(failed_U), np.int64)
    np.maximum.at(last_U, place_B, np.where(quiet_B, 0, order_B))
    result_U[place_B[~quiet_B]] = 0
    np.add.at(result_U, place_B[order_B > last_U[place_B]], 1)
    return result_U


def find_cohorts(
    category_N: np.ndarray, mastered_draw_N: np.ndarray, could_N: np.ndarray, rows_K: np.ndarray
) -> list[dict[str, Any]]:
    """The cohorts of a draw: mastered prompts of one category that were mastered in the same COHORT_DRAWS train draws.

    could_N: (N,) bool, mastered prompts that this draw could take. rows_K: what it took. For each cohort its category
    code, its block of draws, how many prompts of it could be drawn, and the places of its tickets in the batch.
    """
    num_codes = int(category_N.max(initial=-1)) + 2  # with one for "no category"
    cohort_N = np.where(could_N, (mastered_draw_N - 1) // COHORT_DRAWS * num_codes + category_N + 1, -1)
    members = np.bincount(cohort_N[could_N])
    cohort_K = cohort_N[rows_K]
    return [
        {
            "category": code % num_codes - 1,
            "block": code // num_codes,
            "members": int(members[code]),
            "places": np.flatnonzero(cohort_K == code).tolist(),
        }
        for code in np.flatnonzero(members).tolist()
    ]
