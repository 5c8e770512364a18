"""Budgets: how many rollouts each ticket of a batch gets, of one total that all of them share.

`batches.drawing` calls it for the train tickets of a draw; an audit ticket always has the run's group size. Knows
beliefs and numbers; nothing of tickets, prompts or how they were drawn. K tickets, n rollouts of one, p its pass rate.

All rules are concave in n, so the best whole numbers are those of the largest gains from one more rollout (Fox,
Discrete optimization via marginal analysis, Management Science 13, 1966):

  fixed      every ticket the same, as far as whole numbers allow;
  neyman     least Σ E[p(1−p)]/n, the variance of the mean outcomes: n ∝ √E[p(1−p)] (Neyman, JRSS 97, 1934). DUET's
             allocation (arXiv 2605.08441) where answers cost alike and the spread of outcomes stands for its signal;
  knapsack   most Σ E[(1−p^n−(1−p)^n)·p(1−p)²] (Knapsack RL, arXiv 2509.25849), in expectation over the belief where
             the method takes the last epoch's share for p.
"""

import numpy as np

from predictors.value import beta_moment, expected_outcome_variance
from selector.config import BudgetConfig


def spread_rollouts(mean_K: np.ndarray, variance_K: np.ndarray, total: int, budget: BudgetConfig) -> np.ndarray:
    """(K,) int32 rollouts by ticket, low <= n <= high, Σ = total.

    mean_K, variance_K: beliefs, as `predictors.base` has them. Ties go to the ticket with fewer rollouts, then to the
    earlier one. Raises ValueError when the total is not within K·low and K·high.
    """
    num, steps = len(mean_K), budget.high - budget.low
    extra = total - num * budget.low
    if not 0 <= extra <= num * steps:
        raise ValueError(
            f"{total} rollouts cannot be spread over {num} tickets of {budget.low} to {budget.high} rollouts each"
        )
    match budget.rule:
        case "fixed":
            gain_SK = np.zeros((steps, num))
        case "neyman":
            size_S = np.arange(budget.low, budget.high, dtype=np.float64)[:, None]
            gain_SK = expected_outcome_variance(mean_K, variance_K) / (size_S * (size_S + 1.0))
        case "knapsack":
            gain_SK = _knapsack_gains(mean_K, variance_K, budget.low, steps)
    return greedy(gain_SK, extra).astype(np.int32) + np.int32(budget.low)


def greedy(gain_SK: np.ndarray, extra: int) -> np.ndarray:
    """(K,) int64, how many steps each column takes, Σ = extra, so that the gains taken add up to the most there is.

    gain_SK: (S, K) gain from step s of column k, never rising along s; what rises by rounding is levelled. Exact for
    concave gains, as the `extra` largest of all then form the beginnings of columns. Ties to the earlier step, then to
    the earlier column.
    """
    num = gain_SK.shape[1]
    gain_SK = np.minimum.accumulate(gain_SK, axis=0)
    taken = np.argsort(-gain_SK, axis=None, kind="stable")[:extra]
    return np.bincount(taken % max(num, 1), minlength=num)


def _knapsack_gains(mean_K: np.ndarray, variance_K: np.ndarray, low: int, steps: int) -> np.ndarray:
    """(S, K) E[(p^n(1−p) + (1−p)^n·p)·p(1−p)²] for n = low, low+1, ...: the gain from rollout n+1.

    = E[p^(n+1)(1−p)³] + E[p²(1−p)^(n+2)], each moment from the one before: E[p^(a+1)(1−p)^b] is E[p^a(1−p)^b] times
    (m(1−r) + a·r)/(1−r + (a+b)·r), r = v/(m(1−m)).
    """
    overlap_K = np.minimum(variance_K / (mean_K * (1.0 - mean_K)), 1.0)
    rest_K = 1.0 - overlap_K
    pass_K, fail_K = beta_moment(mean_K, variance_K, low + 1, 3), beta_moment(mean_K, variance_K, 2, low + 2)
    gain_SK = np.empty((steps, len(mean_K)))
    for step in range(steps):
        n = low + step
        gain_SK[step] = pass_K + fail_K
        below_K = rest_K + (n + 4) * overlap_K  # both moments are of n + 4 outcomes
        pass_K = pass_K * (mean_K * rest_K + (n + 1) * overlap_K) / below_K
        fail_K = fail_K * ((1.0 - mean_K) * rest_K + (n + 2) * overlap_K) / below_K
    return gain_SK
