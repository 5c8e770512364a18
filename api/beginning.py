"""How a run begins: made once under its name, found again when the same is asked for, refused when something else is.

`RunService.create_run` calls it, in worker threads. It keeps no run in memory: that is done when one is first used.
"""

import time
from typing import Any

from sqlalchemy.exc import IntegrityError

from api import convert, schemas, views
from api.db import pools as pool_queries
from api.db import runs as run_queries
from api.db.features import has_few_features
from api.db.session import read
from api.errors import RunConflict
from api.hosting import Work
from api.store import RunStore
from selector.beliefs.warm_start import plan_warm_start
from selector.config import RunConfig
from selector.run.events import WarmStarted
from selector.run.restoring import find_checkpoint


def is_there(store: RunStore, name: str) -> bool:
    """Whether there is a run of this name, on this server or another."""
    with read(store.database) as connection:
        return run_queries.find_run(connection, name) is not None


def learned_by(work: Work, request: schemas.RunRequest, start: schemas.StartFrom) -> tuple[RunConfig, WarmStarted]:
    """The configuration of a run that begins with the one at work, and what it begins with: of now or of a checkpoint.

    One that names no estimator takes that of the run at work. Raises UnknownCheckpoint, and UnknownConfig where the two
    do not fit.
    """
    state = work.engine.state
    reads_features = state.config.policy.estimator == convert.DEFAULT_WITH_FEATURES
    config = convert.to_config(request, features=reads_features)
    position = state.seq if start.step is None else find_checkpoint(state, start.step).seq
    learned = state.rewindable() if start.step is None else work.rewound(position)
    return config, plan_warm_start(
        config,
        state.config,
        learned,
        run=start.run,
        step=start.step,
        position=position,
        discount=start.discount,
    )


def begin_run(
    store: RunStore, request: schemas.RunRequest, config: RunConfig | None = None, warm: WarmStarted | None = None
) -> tuple[dict[str, Any], bool]:
    """The answer to a call that makes a run, and whether it is new. Raises UnknownPool and RunConflict.

    config: if not given, it is made of the request and what the pool has.
    """
    asked = request.model_dump(mode="json", exclude_unset=True)
    with read(store.database) as connection:
        known = run_queries.find_run(connection, request.name)
        pool = pool_queries.get_pool(connection, request.pool)
        features = has_few_features(connection, pool.id, pool.revision)
    config = config or convert.to_config(request, features=features)
    if known is None:
        try:
            store.begin(request.name, pool.id, asked, config, time.time(), warm)
            return views.run_created(request.name, config), True
        except IntegrityError:  # another request made it in between
            with read(store.database) as connection:
                known = run_queries.find_run(connection, request.name)
    if known is None or known.request != asked:
        stored = {} if known is None else known.request
        names = sorted(k for k in {*stored, *asked} if stored.get(k) != asked.get(k))
        then_now = ((name, stored.get(name, "left out"), asked.get(name, "left out")) for name in names)
        differences = "; ".join(f"{name}: {then} then, {now} now" for name, then, now in then_now)
        raise RunConflict(f"run {request.name!r} exists with another configuration: {differences}")
    with read(store.database) as connection:
        return views.run_created(request.name, run_queries.begun_with(connection, known.id)), False
