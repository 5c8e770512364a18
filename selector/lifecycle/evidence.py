"""What may be claimed of prompts that were mastered: e-values against "the pass rate is at the level still".

`stating` calls it with the reviews of a run. Knows numbers of passes; nothing of tickets, draws or prompts' names. A
large e-value is evidence: under the null hypothesis its mean is at most 1. Logarithms throughout, as products of many
reviews leave the range of floats. No rollout is counted as an observation of its own in what speaks of many prompts;
within one review the rollouts share p, and given p they are independent.

Axes: B reviews in the order in which they count, M prompts, T draws, J alternatives in a mixture.

Sources: e-processes by betting, Waudby-Smith and Ramdas (arXiv 2010.09686); e-detectors in Shiryaev–Roberts form, Shin,
Ramdas and Rinaldo (arXiv 2203.03532); e-BH, Wang and Ramdas (arXiv 2009.02824).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

ODDS_STEPS = 5
"""Alternatives to the level: odds of failing 2, 4, 8, 16 and 32 times those at the level."""

BETS = 2.0 ** -np.arange(1, 9)
"""Shares of the wealth put on a cohort's failures, from the bold to the careful: observations can be rare and large."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Followed:
    """Each prompt's reviews put together, all (M,)."""

    reviews_M: Integers
    log_e_M: Floats  # e-process: at any moment, of mean <= 1 while p >= level at every review
    log_peak_M: Floats  # largest value so far of the detector; −inf without a review


def follow(place_B: Integers, passes_B: Floats, scored_B: Integers, level: float, num_prompts: int) -> Followed:
    """E-process and detector of each prompt after its reviews.

    With e_n the factor of review n (`log_factors`), for each alternative and averaged over them:
      detector   R_n = (1 + R_{n−1})·e_n, R_0 = 0. R_n − n has mean <= 0 while p >= level, so the first n with R_n >= A
                 comes after A reviews or more on average; many good reviews before a change cost it nothing.
      e-process  E_n = S_n + 1/(n+1), S_n = (S_{n−1} + 1/(n(n+1)))·e_n: a bet placed at each review on a change there.

    place_B: prompt of each review, 0 … M−1, in the order in which they count. Raises ValueError for a level outside
    (0, 1).
    """
    log_factor_BJ = log_factors(passes_B, scored_B, level)
    reviews_M = np.bincount(place_B, minlength=num_prompts).astype(np.int64)
    log_r_MJ = np.full((num_prompts, ODDS_STEPS), -np.inf)
    log_s_MJ = np.full((num_prompts, ODDS_STEPS), -np.inf)
    log_peak_M = np.full(num_prompts, -np.inf)
    order_B = np.argsort(place_B, kind="stable")
    start_M = np.cumsum(reviews_M) - reviews_M
    for n in range(1, int(reviews_M.max(initial=0)) + 1):
        have = np.flatnonzero(reviews_M >= n)
        log_e_HJ = log_factor_BJ[order_B[start_M[have] + n - 1]]
        log_r_MJ[have] = np.logaddexp(0.0, log_r_MJ[have]) + log_e_HJ
        log_s_MJ[have] = np.logaddexp(-np.log(n * (n + 1.0)), log_s_MJ[have]) + log_e_HJ
        log_peak_M[have] = np.maximum(log_peak_M[have], _log_mean(log_r_MJ[have]))
    log_e_M = np.logaddexp(_log_mean(log_s_MJ), -np.log(reviews_M + 1.0))
    return Followed(reviews_M=reviews_M, log_e_M=log_e_M, log_peak_M=log_peak_M)


def log_factors(passes_B: Floats, scored_B: Integers, level: float) -> Floats:
    """Log-likelihood ratio of each review, alternative q_j < level over the level: (B, J).

    k·log(q/level) + (n−k)·log((1−q)/(1−level)), k passes of n. For outcomes 0 or 1 its exponential has the mean
    [p·q/level + (1−p)(1−q)/(1−level)]^n, which is 1 at p = level and less above. A graded outcome counts as that part
    of a pass: its factor is then at most 1 + λ(level − x), the one of a bet on it, as log is concave. The product goes
    rollout by rollout, so its mean is at most 1 too where the outcomes so far decide whether another one is made:
    unlike k/n, the ratio of a group that was stopped is not biased.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be in (0, 1), got {level}")
    q_J = alternatives(level)
    passes_B = np.asarray(passes_B, np.float64)
    return np.asarray(
        np.multiply.outer(passes_B, np.log(q_J / level))
        + np.multiply.outer(scored_B - passes_B, np.log((1.0 - q_J) / (1.0 - level)))
    )


def alternatives(level: float) -> Floats:
    """(J,) pass rates below the level, of 2, 4, … times its odds of failing."""
    odds_J = (1.0 - level) / level * 2.0 ** np.arange(1, ODDS_STEPS + 1)
    return np.asarray(1.0 / (1.0 + odds_J))


def cohort_log_e(failure_T: Floats, level: float) -> float:
    """Log e-value against "at every draw the mean pass rate of the cohort's members is at least the level".

    failure_T: (T,) >= 0, one number a draw: an unbiased estimate of the members' mean failure rate, or less. Under the
    hypothesis its mean is at most 1 − level whatever came before, so that with a share b of the wealth in play

      Σ_b (1/J) Π_t (1 − b + b·failure_t/(1 − level))

    is an e-process: of mean <= 1 at any draw one chooses to look. No upper bound of an observation is needed. Raises
    ValueError for a negative or non-finite observation or a level outside (0, 1).
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be in (0, 1), got {level}")
    failure_T = np.asarray(failure_T, np.float64)
    if failure_T.size and not (failure_T.min() >= 0.0 and failure_T.max() < np.inf):
        raise ValueError("estimates of a failure rate must be finite and >= 0")
    gain_TJ = np.multiply.outer(failure_T / (1.0 - level) - 1.0, BETS)
    return float(_log_mean(np.log1p(gain_TJ).sum(axis=0)[None])[0])


def e_bh(log_e_M: Floats, alpha: float) -> Bools:
    """Which hypotheses are rejected so that on average at most a share alpha of them is rejected wrongly: (M,).

    The k largest e-values for the largest k whose k-th is at least M/(k·alpha). Holds however the e-values depend on
    each other. Raises ValueError unless alpha is in (0, 1).
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must be in (0, 1), got {alpha}")
    num = len(log_e_M)
    order = np.argsort(-log_e_M, kind="stable")
    rank = np.arange(1, num + 1)
    enough = np.flatnonzero(log_e_M[order] >= np.log(num / (rank * alpha)))
    rejected_M = np.zeros(num, bool)
    if len(enough):
        rejected_M[order[: enough[-1] + 1]] = True
    return rejected_M


def _log_mean(log_MJ: Floats) -> Floats:
    """log((1/J) Σ_j exp), over the last axis; −inf where all are."""
    top_M = log_MJ.max(axis=-1)
    safe_M = np.where(np.isfinite(top_M), top_M, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(safe_M + np.log(np.exp(log_MJ - safe_M[..., None]).mean(axis=-1)))
