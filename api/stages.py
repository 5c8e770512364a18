"""Which state each prompt is in, as the contract names them: of the pool first, of the run's lifecycle otherwise.

Views call it. Reads the state of a run and never changes it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from selector.run.state import RunState
from selector.types import Lifecycle, Split

LISTED_AT_MOST = 100  # alarms, suspects or prompts in one list of an answer


def lifecycle_counts(state: RunState) -> dict[str, int]:
    """Prompts of the train split by state."""
    pool = state.pool
    counts = np.bincount(state.rows["lifecycle_N"][state.frame_N], minlength=len(Lifecycle))
    train_N = pool.split_N == 0
    named = {stage.name.lower(): int(counts[stage]) for stage in Lifecycle}
    quarantined = int(np.count_nonzero(train_N & (pool.quarantined_N | state.quarantined_N) & ~pool.absent_N))
    return {**named, "quarantined": quarantined, "absent": int(np.count_nonzero(train_N & pool.absent_N))}


def state_names(state: RunState, rows: Sequence[int]) -> list[str]:
    pool, lifecycle_N = state.pool, state.rows["lifecycle_N"]
    return [
        "absent"
        if pool.absent_N[row]
        else "quarantined"
        if pool.quarantined_N[row] or state.quarantined_N[row]
        else Lifecycle(int(lifecycle_N[row])).name.lower()
        for row in rows
    ]


def quarantine_alarms(state: RunState) -> list[dict[str, Any]]:
    """One alarm for all prompts that this run took out by itself."""
    rows = np.flatnonzero(state.quarantined_N & state.pool.frame_N)
    if not len(rows):
        return []
    return [
        {
            "alarm": "prompts_quarantined",
            "detail": f"{len(rows)} prompts came back without any score again and again and are no longer drawn; "
            "quarantine them in the pool, and lift that once their grader works",
            "prompts": [state.pool.keys[row] for row in rows[:LISTED_AT_MOST].tolist()],
            "count": len(rows),
        }
    ]


def quarantined_info(state: RunState) -> dict[str, Any]:
    """Prompts of the train split whose chance is zero, with who took them out."""
    pool = state.pool
    rows = np.flatnonzero((pool.split_N == Split.TRAIN) & ~pool.absent_N & (pool.quarantined_N | state.quarantined_N))
    return {
        "quarantined": [
            {"prompt": pool.keys[row], "by": "person" if pool.quarantined_N[row] else "run"}
            for row in rows[:LISTED_AT_MOST].tolist()
        ],
        "num_quarantined": len(rows),
    }
