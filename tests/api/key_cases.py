"""Keys as the tests make them, every route with what it asks for, and a service to call all of them on."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from sqlalchemy import text

from api.db.session import create_database, read
from api.key_commands import create
from api.settings import Settings
from tests.api.harness import Http, in_process, letters

Call = tuple[str | None, str, str]  # prefix of the key, action, target


READ, DRAW, REPORT, MANAGE = "read", "draw", "report", "manage"
ANY, NONE = "any key", "no key"

# Every route, and what it asks for. A new one is added here on purpose.
ROUTES = {
    ("/", "get"): ANY,
    ("/docs", "get"): ANY,
    ("/healthz", "get"): NONE,
    ("/readyz", "get"): NONE,
    ("/ui", "get"): NONE,
    ("/metrics", "get"): READ,
    ("/version", "get"): ANY,
    ("/v1/pools", "get"): READ,
    ("/v1/pools", "post"): MANAGE,
    ("/v1/pools/{pool}", "get"): READ,
    ("/v1/pools/{pool}", "delete"): MANAGE,
    ("/v1/pools/{pool}/prompts", "get"): READ,
    ("/v1/pools/{pool}/prompts", "put"): MANAGE,
    ("/v1/pools/{pool}/prompts/{key}", "get"): READ,
    ("/v1/pools/{pool}/quarantine", "post"): MANAGE,
    ("/v1/pools/{pool}/export", "get"): READ,
    ("/v1/runs", "get"): READ,
    ("/v1/runs", "post"): MANAGE,
    ("/v1/runs/{run}", "get"): READ,
    ("/v1/runs/{run}/config", "post"): MANAGE,
    ("/v1/runs/{run}/complete", "post"): MANAGE,
    ("/v1/presets", "get"): ANY,
    ("/v1/runs/{run}/batches", "post"): DRAW,
    ("/v1/runs/{run}/batches/{index}", "get"): READ,
    ("/v1/runs/{run}/tickets", "get"): READ,
    ("/v1/runs/{run}/rollouts/fetch", "post"): READ,
    ("/v1/runs/{run}/reports", "post"): REPORT,
    ("/v1/runs/{run}/steps", "post"): REPORT,
    ("/v1/runs/{run}/checkpoints", "get"): READ,
    ("/v1/runs/{run}/checkpoints", "post"): REPORT,
    ("/v1/runs/{run}/restore", "post"): MANAGE,
    ("/v1/runs/{run}/signals", "post"): REPORT,
    ("/v1/runs/{run}/audit", "get"): READ,
    ("/v1/runs/{run}/costs", "get"): READ,
    ("/v1/runs/{run}/beliefs", "get"): READ,
    ("/v1/runs/{run}/events", "get"): READ,
    ("/v1/runs/{run}/curve", "get"): READ,
    ("/v1/runs/{run}/diagnosis", "get"): READ,
    ("/v1/runs/{run}/report", "get"): READ,
    ("/v1/comparisons", "post"): READ,
}
# Without a pool or a run in the path, and not only looked at: these name them in the body and are tested one by one.
BY_BODY = {("/v1/pools", "post"), ("/v1/runs", "post"), ("/v1/comparisons", "post")}

BODIES: dict[tuple[str, str], object] = {
    ("/v1/pools", "post"): {"name": "{pool}"},
    ("/v1/pools/{pool}/prompts", "put"): [{"key": "z"}],
    ("/v1/pools/{pool}/quarantine", "post"): {"keys": ["a"], "reason": "x"},
    ("/v1/runs", "post"): {"name": "{run}", "pool": "{pool}"},
    ("/v1/runs/{run}/config", "post"): {"max_lag": 9},
    ("/v1/runs/{run}/complete", "post"): {},
    ("/v1/runs/{run}/batches", "post"): {"index": 1, "size": 1, "policy_version": 1},
    ("/v1/runs/{run}/rollouts/fetch", "post"): {"ids": ["none"]},
    ("/v1/runs/{run}/reports", "post"): {"groups": [{"ticket": "none", "final": True}]},
    ("/v1/runs/{run}/steps", "post"): {"step": 1, "policy_version": 1},
    ("/v1/runs/{run}/checkpoints", "post"): {"step": 7},
    ("/v1/runs/{run}/restore", "post"): {"step": 7},
    ("/v1/runs/{run}/signals", "post"): {"policy_version": 1, "features": {}},
}


def made_key(
    database_url: str, *scopes: str, pools: Iterable[str] = (), runs: Iterable[str] = (), days: float | None = None
) -> str:
    """A new key, with all scopes unless some are named."""
    settings = Settings(database_url=database_url)
    return create(settings, name=None, scopes=scopes, pools=pools, runs=runs, days=days)[0]


def trail(database_url: str) -> list[Call]:
    """The management calls, oldest first, as a person reads them: with SQL."""
    engine = create_database(database_url)
    try:
        with read(engine) as connection:
            rows = connection.execute(text("SELECT key, action, target FROM management_calls ORDER BY id")).all()
    finally:
        engine.dispose()
    return [(row[0], row[1], row[2]) for row in rows]


@contextmanager
def started(database_url: str) -> Iterator[Http]:
    """A service with pools p and q, and runs r and r2 on p, s on q, made before there were keys.

    It looks for keys at each call: what the bound is otherwise, tests/api/test_keyring.py says.
    """
    with pytest.MonkeyPatch.context() as patch, in_process(database_url) as http:
        patch.setattr("api.keyring.KEYS_LIVE_S", 0.0)
        for pool in "pq":
            http.pool(letters(), pool)
        for run, pool in (("r", "p"), ("r2", "p"), ("s", "q")):
            http.run(run, pool, group_size=2)
            http.draw(0, 2, run=run)
        yield http


def call(http: Http, route: tuple[str, str], *, pool: str = "p", run: str = "r", **query: str) -> httpx.Response:
    """A call of a route that is right in all but who makes it."""
    path, method = route
    path = path.format(pool=pool, run=run, key="a", index=0)
    body = BODIES.get(route)
    if isinstance(body, dict):
        body = {k: v.format(pool=pool, run=run) if isinstance(v, str) else v for k, v in body.items()}
    return http.send(method.upper(), path, body, params=query)
