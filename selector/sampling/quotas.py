"""Quotas: how the selected places of a batch are shared between strata of the pool, in expectation and nearly always.

Called by `draw`, for the design that draws in proportion. Knows strata by number, 0 for the rows of none that is named;
nothing of categories. N rows of the pool, J strata with a share.
"""

from dataclasses import replace

import numpy as np

from selector.sampling.designs import KeyedOrder, capped_inclusion


def quota_utility(
    utility_N: np.ndarray, gain_N: np.ndarray, stratum_N: np.ndarray, share_J: np.ndarray, places: float
) -> np.ndarray:
    """u scaled within each stratum so that Σ u(1+c) over its rows is its share, and 1−Σ share for stratum 0. (N,)

    gain_N: (N,) 1+c for rows that share the places, 0 for others. share_J: (J,) of strata 1, 2, ..., in [0, 1], Σ <= 1.
    places: > 0, of the selected part, those that are shared by utility. A row takes one of them at most: what a row
    would have beyond it goes to the others of its stratum, in proportion to theirs.
    Then π_t, with its floor, gives a stratum (1−f)·share + f·Σ(1+c)/Σ_all(1+c) of the places: the floor is spread
    evenly as before, and only the rest by quotas. A stratum with fewer rows than its places leaves what is over to all
    others, and one without rows its share. A stratum whose utilities are all 0 has no preference among its rows.
    """
    num = len(share_J) + 1
    share_S = np.concatenate([[max(0.0, 1.0 - float(share_J.sum()))], share_J])
    found_N = np.zeros(len(utility_N))
    for stratum in range(num):
        rows = np.flatnonzero((stratum_N == stratum) & (gain_N > 0.0))
        size_M = utility_N[rows]
        if not size_M.any():
            size_M = np.ones(len(rows))
        # Divided by the largest first, so that no product leaves the range of floats.
        size_M = size_M / size_M.max(initial=1e-300) * gain_N[rows]
        most = min(float(share_S[stratum]) * places, float(np.count_nonzero(size_M)))
        found_N[rows] = capped_inclusion(size_M, most) / gain_N[rows] / places
    return found_N


def by_stratum(order: KeyedOrder, stratum_N: np.ndarray) -> KeyedOrder:
    """The same order within each stratum, the strata one after another.

    A systematic grid over it hits each stratum ⌊Σπ_t⌋ or ⌈Σπ_t⌉ times: quotas are rounded at random.
    """
    rows_N = order.rows()
    sorted_N = rows_N[np.argsort(stratum_N[rows_N], kind="stable")]
    return replace(order, block_rows=1, rotation=0, block_B=sorted_N)
