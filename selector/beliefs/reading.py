"""What of the beliefs a utility gets to see: all of them, their means, one draw from each, or another prompt's.

`batches.drawing` calls it before the policy. Keyed by the batch like all chance, so a draw made again sees the same.
N rows of the pool.
"""

from dataclasses import replace

import numpy as np

from predictors.base import Beliefs
from predictors.value import beta_parameters
from selector.config import Reads
from selector.sampling.designs import permutation
from selector.sampling.draw_plan import DrawFrame, DrawPlan
from selector.sampling.randomness import Stream

EDGE = 1e-12  # a drawn pass rate stays this far from 0 and 1, as beliefs do


def read_beliefs(beliefs: Beliefs, reads: Reads, frame: DrawFrame, plan: DrawPlan) -> Beliefs:
    """The beliefs as the run's policy reads them.

    belief: as they are, so that a utility is an expectation. mean: the mean, taken for known. draw: a pass rate drawn
    from each belief, taken for known (Thompson sampling), so that unsure prompts get their turn; inclusion
    probabilities are given that draw, which depends on nothing that comes back. shuffled: those of the frame, dealt
    out anew for every batch: as sharp a selection as the real one, that knows nothing.
    """
    match reads:
        case "belief":
            return beliefs
        case "mean":
            mean_N = beliefs.mean_N
        case "draw":
            alpha_N, beta_N = beta_parameters(beliefs.mean_N, beliefs.variance_N)
            mean_N = np.clip(plan.rng(Stream.BELIEF_DRAW).beta(alpha_N, beta_N), EDGE, 1.0 - EDGE)
        case "shuffled":
            of_N = dealt_rows(frame, plan)
            run_N = None if beliefs.run_N is None else beliefs.run_N[of_N]
            return replace(beliefs, mean_N=beliefs.mean_N[of_N], variance_N=beliefs.variance_N[of_N], run_N=run_N)
    return replace(beliefs, mean_N=mean_N, variance_N=np.zeros(len(mean_N)))


def dealt_rows(frame: DrawFrame, plan: DrawPlan) -> np.ndarray:
    """(N,) whose beliefs each row is dealt: another of the frame's, the same however often a batch asks."""
    rows = np.flatnonzero(frame.frame_N)
    of_N = np.arange(len(frame.frame_N))
    of_N[rows] = rows[permutation(len(rows), plan.rng(Stream.BELIEF_SHUFFLE))]
    return of_N
