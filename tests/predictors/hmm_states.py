"""Chances of a hidden Markov chain's states, read off its beliefs: for tests of it and of the preset that uses it."""

import numpy as np

from predictors.base import FloatArray, IntArray
from predictors.hmm import Hmm


def chances(made: Hmm, rows: IntArray, *, group_size: int = 8) -> FloatArray:
    """(3, rows): unsolved, partial, solved at the next visit.

    Solved for from the belief's mean and square, which are averages over the states: of Beta(1, G + 1), of Beta(G + 1,
    1), and of what those two, with 1 / (G + 1) each, leave of the uniform law.
    """
    size = float(group_size)
    end = 1.0 / (size + 1.0)
    low, high = 2.0 / ((size + 2.0) * (size + 3.0)), (size + 1.0) / (size + 3.0)
    middle = (1.0 / 3.0 - end * (low + high)) / (1.0 - 2.0 * end)
    mean = [1.0 / (size + 2.0), 0.5, (size + 1.0) / (size + 2.0)]
    beliefs = made.beliefs(rows)
    told = np.stack([np.ones(rows.shape[0]), beliefs.mean_N, beliefs.variance_N + beliefs.mean_N**2])
    return np.asarray(np.linalg.solve(np.array([[1.0, 1.0, 1.0], mean, [low, middle, high]]), told))
