"""Prompts that come back with rewards and no outcome: when a group counts by them, and what drawing reads of them.

`groups` and the fold ask whether rewards count, the fold teaches `Rewards`, drawing and `api` read. A reward counts by
itself only in a category of which no outcome was ever seen: where a grader gives outcomes, a missing one is a missing
score, whatever else was sent. N rows of the pool, B groups.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np

from predictors.base import Beliefs
from predictors.reward_groups import RewardGroups, reward_groups
from predictors.rewards import RewardBeliefs
from selector.beliefs.reading import dealt_rows
from selector.policies import POLICIES
from selector.policies.base import Policy
from selector.run.state import RunState
from selector.run.verdict import GIVES_REWARD
from selector.sampling.draw_plan import DrawFrame, DrawPlan

UNREAD = "rewards_without_outcomes"


class CountsRewards:
    """Whether groups without any outcome count by their rewards, as the run stands."""

    def __init__(self, state: RunState) -> None:
        self._state = state

    @cached_property
    def _rewarded_C(self) -> np.ndarray:
        return ~outcome_categories(self._state)

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """(B,) bool, for groups of these rows."""
        if self._state.config.signal != "reward":
            return np.zeros(len(rows), bool)
        counts_B: np.ndarray = self._rewarded_C[self._state.pool.category_N[rows] + 1]
        return counts_B

    def of_ticket(self, ticket: int) -> Callable[[], bool]:
        """The same for one ticket, looked at when it is asked for."""
        return lambda: bool(self.of_rows(self._state.book.tickets["row"][ticket : ticket + 1])[0])


def outcome_categories(state: RunState) -> np.ndarray:
    """(C,) bool: categories, code 0 being none, of which a group with an outcome has come in."""
    size = len(state.pool.categories) + 1
    seen_C: np.ndarray = np.bincount(state.pool.category_N + 1, state.rows["rated_N"] > 0, size) > 0
    return seen_C


def reward_rows(state: RunState) -> np.ndarray | None:
    """(N,) bool: rows that are believed by their rewards; None where none is. Those of categories that only ever had
    rewards, and while that is all that was ever seen, of all others too.
    """
    if not state.rewards.is_known:
        return None
    category_N = state.pool.category_N + 1
    outcome_C = outcome_categories(state)
    by_reward_C = np.bincount(category_N, state.rewards.rewarded_N, len(outcome_C)) > 0
    by_reward_C = by_reward_C & ~outcome_C if outcome_C.any() else np.ones(len(outcome_C), bool)
    of_row_N: np.ndarray = by_reward_C[category_N]
    return of_row_N if of_row_N.any() else None


def reward_beliefs(state: RunState, group_size: int, rows: np.ndarray) -> RewardBeliefs:
    """Of these rows; only while a reward is known."""
    return state.rewards.beliefs(state.clock(state.belief_version), group_size, rows)


def with_rewards(
    state: RunState, informative_N: np.ndarray, group_size: int, rows: np.ndarray | None = None
) -> np.ndarray:
    """P(informative) of these rows, or of all, with that of rewards where rows are believed by them; the same array
    where none is.
    """
    by_reward_N = reward_rows(state)
    if by_reward_N is None:
        return informative_N
    at = np.flatnonzero(by_reward_N if rows is None else by_reward_N[rows])
    told_N = informative_N.copy()
    told_N[at] = reward_beliefs(state, group_size, at if rows is None else rows[at]).informative_N
    return told_N


def with_reward_utility(
    state: RunState, policy: Policy, utility_N: np.ndarray, frame: DrawFrame, plan: DrawPlan
) -> np.ndarray:
    """What the policy says of rewards, where rows are believed by them. A policy that needs pass rates sees such a row
    as one that was never tried. They are read as they are expected to be; only `shuffled` deals them out, as beliefs.
    """
    by_reward_N = reward_rows(state)
    if by_reward_N is None:
        return utility_N
    at = np.flatnonzero(by_reward_N)
    value_R = policy.reward_utility(reward_beliefs(state, plan.group_size, at), group_size=plan.group_size)
    if value_R is None:
        return utility_N
    of_N = dealt_rows(frame, plan) if state.config.policy.reads == "shuffled" else np.arange(state.num_rows)
    value_N = np.zeros(state.num_rows)
    value_N[at] = value_R
    told_N: np.ndarray = np.where(by_reward_N[of_N], value_N[of_N], utility_N)
    return told_N


def without_probes(state: RunState, beliefs: Beliefs) -> Beliefs:
    """Beliefs as probes are to see them: no pass rate will be learned of a prompt that has rewards, so none is open."""
    by_reward_N = reward_rows(state)
    if by_reward_N is None:
        return beliefs
    return replace(beliefs, variance_N=np.where(by_reward_N & state.rewards.rewarded_N, 0.0, beliefs.variance_N))


def learn_rewards(state: RunState, ordinals: np.ndarray) -> RewardGroups:
    """From closed groups that count by their rewards and that beliefs may see; returns what they say."""
    table, rollouts = state.book.tickets, state.book.rollouts
    size_B = table["group_size"][ordinals].astype(np.int64)
    slot_BG = table["slot"][ordinals][:, None] + np.arange(size_B.max())
    inside_BG = np.arange(size_B.max()) < size_B[:, None]
    slot_BG = np.where(inside_BG, slot_BG, 0)
    counts_BG = inside_BG & rollouts["arrived"][slot_BG] & np.isnan(rollouts["outcome"][slot_BG])
    counts_BG &= np.isin(rollouts["status"][slot_BG], GIVES_REWARD)
    groups = reward_groups(
        table["row"][ordinals],
        state.clock(table["reported_version"][ordinals]),
        np.where(counts_BG, rollouts["reward"][slot_BG], np.nan),
        state.config.tolerance,
    )
    state.rewards.observe(groups)
    return groups


def say_unread(state: RunState) -> None:
    """Raises the alarm, once, of a policy that can make nothing of the rewards that its prompts have."""
    policy = POLICIES[state.config.policy.utility]
    if UNREAD in state.alarms or policy.exact_uniform or policy.reward_utility is not Policy.reward_utility:
        return
    by_reward_N = reward_rows(state)
    if by_reward_N is not None:
        readers = [name for name, p in POLICIES.items() if p.reward_utility is not Policy.reward_utility]
        state.alarms[UNREAD] = {
            "alarm": UNREAD,
            "detail": f"{np.count_nonzero(by_reward_N)} prompts have rewards and no outcomes, and utility "
            f"{state.config.policy.utility!r} needs pass rates: it sees them as never tried; report an outcome beside "
            f"each reward, or use one of {', '.join(readers)}",
            "draws": state.train_draws,
        }
