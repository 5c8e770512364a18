"""The rows of a pool in an order that a run knows: by belief or by what was drawn, all or those in one state.

The routes call it inside a run's command, so it sees the engine's state between two events. Arrays over the pool; only
an order by key sorts texts.
"""

import numpy as np

from api.db.prompts import PromptFilter
from api.errors import InvalidRequest, UnknownRun
from selector.beliefs.graded import expected_informative
from selector.pool import PoolState
from selector.run.state import RunState
from selector.types import Lifecycle, Split

STATES = tuple(stage.name.lower() for stage in Lifecycle)
BELIEF_SORTS = ("pass_rate", "pass_rate_sd", "n_eff", "lag", "informative")
NO_CATEGORY, NO_SUCH_CATEGORY = -1, -2  # codes of a pool's categories
COUNT_SORTS = {"drawn": "drawn_N", "groups_reported": "groups_N"}


def rows_in_order(
    state: RunState, pool: str, wanted: PromptFilter, *, stage: str | None, sort: str, descending: bool
) -> np.ndarray:
    """Rows that fit the filter, its `search` aside, by `sort`, ties by row; with `stage` those in that state of
    their life only, quarantine by a person or by the run among them.

    Raises UnknownRun if the run is on another pool, InvalidRequest for a sort that it does not know.
    """
    if state.pool.name != pool:
        raise UnknownRun(f"run {state.run!r} is not on pool {pool!r} but on {state.pool.name!r}")
    fits_N = _fits(state.pool, wanted)
    if stage == "quarantined":
        fits_N &= state.pool.quarantined_N | state.quarantined_N
    elif stage is not None:
        fits_N &= state.frame_N & (state.rows["lifecycle_N"][: state.num_rows] == Lifecycle[stage.upper()])
    rows = np.flatnonzero(fits_N)
    if sort == "key":
        keys = state.pool.keys
        return np.array(sorted(rows.tolist(), key=lambda row: keys[row], reverse=descending), np.int64)
    values = _values(state, sort, rows)
    # A stable sort of the negated values, not a reversed one: ties stay in the order of rows both ways.
    order = np.argsort(-values if descending else values, kind="stable")
    return rows[order]


def _fits(pool: PoolState, wanted: PromptFilter) -> np.ndarray:
    """(N,) bool. Absent prompts never fit: the route lists those by the database's orders only."""
    fits_N = ~pool.absent_N
    if wanted.quarantined is not None:
        fits_N &= pool.quarantined_N == wanted.quarantined
    if wanted.split is not None:
        fits_N &= pool.split_N == Split[wanted.split.upper()]
    if wanted.category is not None:
        known = pool.categories.index(wanted.category) if wanted.category in pool.categories else NO_SUCH_CATEGORY
        fits_N &= pool.category_N == (known if wanted.category else NO_CATEGORY)
    return fits_N


def _values(state: RunState, sort: str, rows: np.ndarray) -> np.ndarray:
    """(len(rows),) numbers to sort by."""
    pool = state.pool
    if sort == "row":
        return rows
    if sort == "category":
        ranks = np.argsort(np.argsort([*pool.categories, ""]))  # the last is the one of "no category", index -1
        in_order: np.ndarray = ranks[pool.category_N[rows]]
        return in_order
    if sort == "split":
        return np.where(pool.split_N[rows] == Split.HELDOUT, 0, 1)  # by name
    if sort in COUNT_SORTS:
        return np.asarray(state.rows[COUNT_SORTS[sort]][rows], np.int64)
    if sort not in BELIEF_SORTS:
        known = ", ".join(("key", "row", "category", "split", *BELIEF_SORTS, *COUNT_SORTS))
        raise InvalidRequest(f"sort={sort} is not known; known are {known}")
    found = state.beliefs(rows)
    match sort:
        case "pass_rate":
            return found.mean_N
        case "pass_rate_sd":
            return np.sqrt(found.variance_N)
        case "n_eff":
            return found.n_eff_N
        case "lag":
            return found.lag_N
        case _:
            return expected_informative(state, found, state.config.group_size, rows)
