"""Quotas: how the selected places of a batch are shared between strata of the pool, in expectation and nearly always.

Called by `draw`, for the design that draws in proportion. Knows strata by number, 0 for the rows of none that is named;
nothing of categories. N rows of the pool, J strata with a share.
"""

from dataclasses import replace

import numpy as np

from selector.designs import KeyedOrder


def quota_utility(utility_N: np.ndarray, gain_N: np.ndarray, stratum_N: np.ndarray, share_J: np.ndarray) -> np.ndarray:
    """u scaled within each stratum so that Σ u(1+c) over its rows is its share, and 1−Σ share for stratum 0. (N,)

    gain_N: (N,) 1+c for rows that share the places, 0 for others. share_J: (J,) of strata 1, 2, ..., in [0, 1], Σ <= 1.
    Then π_t, with its floor, gives a stratum (1−f)·share + f·Σ(1+c)/Σ_all(1+c) of the places: the floor is spread
    evenly as before, and only the rest by quotas. Rows that would be capped leave what is over to all others, and a
    stratum without rows leaves them its share. A stratum whose utilities are all 0 has no preference among its rows.
    """
    size_N = np.where(gain_N > 0.0, utility_N, 0.0)
    num = len(share_J) + 1
    largest_S = np.zeros(num)
    np.maximum.at(largest_S, stratum_N, size_N)  # scaled by the largest, so that no sum leaves the range of floats
    scaled_N = np.divide(size_N, largest_S[stratum_N], out=np.ones(len(size_N)), where=largest_S[stratum_N] > 0.0)
    total_S = np.bincount(stratum_N, weights=scaled_N * gain_N, minlength=num)
    share_S = np.concatenate([[max(0.0, 1.0 - float(share_J.sum()))], share_J])
    per_size_S = np.divide(share_S, total_S, out=np.zeros(num), where=total_S > 0.0)
    return np.where(gain_N > 0.0, scaled_N * per_size_S[stratum_N], 0.0)


def by_stratum(order: KeyedOrder, stratum_N: np.ndarray) -> KeyedOrder:
    """The same order within each stratum, the strata one after another.

    A systematic grid over it hits each stratum ⌊Σπ_t⌋ or ⌈Σπ_t⌉ times: quotas are rounded at random.
    """
    rows_N = order.rows()
    sorted_N = rows_N[np.argsort(stratum_N[rows_N], kind="stable")]
    return replace(order, block_rows=1, rotation=0, block_B=sorted_N)
