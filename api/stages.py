"""Which state each prompt is in, as the contract names them: of the pool first, of the run's lifecycle otherwise.

Views call it. Reads the state of a run and never changes it.
"""

from collections.abc import Sequence

import numpy as np

from selector.state import RunState
from selector.types import Lifecycle

LISTED_AT_MOST = 100  # alarms, suspects or prompts in one list of an answer


def lifecycle_counts(state: RunState) -> dict[str, int]:
    """Prompts of the train split by state."""
    pool = state.pool
    counts = np.bincount(state.rows["lifecycle_N"][pool.frame_N], minlength=len(Lifecycle))
    train_N = pool.split_N == 0
    named = {stage.name.lower(): int(counts[stage]) for stage in Lifecycle}
    quarantined = int(np.count_nonzero(train_N & pool.quarantined_N & ~pool.absent_N))
    return {**named, "quarantined": quarantined, "absent": int(np.count_nonzero(train_N & pool.absent_N))}


def state_names(state: RunState, rows: Sequence[int]) -> list[str]:
    pool, lifecycle_N = state.pool, state.rows["lifecycle_N"]
    return [
        "absent"
        if pool.absent_N[row]
        else "quarantined"
        if pool.quarantined_N[row]
        else Lifecycle(int(lifecycle_N[row])).name.lower()
        for row in rows
    ]
