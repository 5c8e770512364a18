"""Whether a prompt's pass rate is moving: two averages of its shares passed.

The fold calls `rate` for groups that the beliefs are shown; policies see the difference as a fact. N rows, B groups.
"""

from collections.abc import Mapping

import numpy as np

FAST = np.float32(0.5)
"""Weight of the newest group in the average that forgets sooner: half is forgotten with each group."""

SLOW = np.float32(0.1)
"""Its weight in the other: half is forgotten with every six or seven."""

MIN_GROUPS = 2
"""Groups from which there is a difference to speak of."""


def rate(rows: Mapping[str, np.ndarray], rows_B: np.ndarray, share_B: np.ndarray) -> None:
    """Takes groups into both averages, in order; a prompt's first group is what both begin with.

    fast ← fast + FAST·(q − fast), slow likewise. rows: the run's columns, changed in place. rows_B: (B,) int64, repeats
    allowed. share_B: (B,) in [0, 1], k/n of each.
    """
    share_B = share_B.astype(np.float32)
    left = np.arange(len(rows_B))
    while len(left):
        at, first = np.unique(rows_B[left], return_index=True)
        share = share_B[left[first]]
        is_new = rows["rated_N"][at] == 0
        for name, weight in (("fast_N", FAST), ("slow_N", SLOW)):
            before = rows[name][at]
            rows[name][at] = np.where(is_new, share, before + weight * (share - before))
        rows["rated_N"][at] += 1
        left = np.delete(left, first)
