"""Keys over HTTP: what each call asks for, what a binding hides, what the trail holds. The walks take every route."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from sqlalchemy import Engine
from starlette.routing import Route

from api.app import create_app
from api.auth import MANAGE, NO_KEY, READ, scopes_of
from api.key_commands import revoke
from api.keys import Scope
from api.settings import Settings
from tests.api.harness import Http, Json, answered, group, in_process, letters, refused
from tests.api.key_cases import made_key, trail

READ_, DRAW_, REPORT_, MANAGE_ = "read", "draw", "report", "manage"
ANY, NONE = "any key", "no key"

# Every route, and what it asks for. A new one is added here on purpose.
ROUTES = {
    ("/", "get"): ANY,
    ("/healthz", "get"): NONE,
    ("/readyz", "get"): NONE,
    ("/metrics", "get"): READ_,
    ("/version", "get"): ANY,
    ("/v1/pools", "get"): READ_,
    ("/v1/pools", "post"): MANAGE_,
    ("/v1/pools/{pool}", "get"): READ_,
    ("/v1/pools/{pool}", "delete"): MANAGE_,
    ("/v1/pools/{pool}/prompts", "get"): READ_,
    ("/v1/pools/{pool}/prompts", "put"): MANAGE_,
    ("/v1/pools/{pool}/prompts/{key}", "get"): READ_,
    ("/v1/pools/{pool}/quarantine", "post"): MANAGE_,
    ("/v1/pools/{pool}/export", "get"): READ_,
    ("/v1/runs", "get"): READ_,
    ("/v1/runs", "post"): MANAGE_,
    ("/v1/runs/{run}", "get"): READ_,
    ("/v1/runs/{run}/config", "post"): MANAGE_,
    ("/v1/runs/{run}/complete", "post"): MANAGE_,
    ("/v1/presets", "get"): ANY,
    ("/v1/runs/{run}/batches", "post"): DRAW_,
    ("/v1/runs/{run}/batches/{index}", "get"): READ_,
    ("/v1/runs/{run}/tickets", "get"): READ_,
    ("/v1/runs/{run}/rollouts/fetch", "post"): READ_,
    ("/v1/runs/{run}/reports", "post"): REPORT_,
    ("/v1/runs/{run}/steps", "post"): REPORT_,
    ("/v1/runs/{run}/checkpoints", "get"): READ_,
    ("/v1/runs/{run}/checkpoints", "post"): REPORT_,
    ("/v1/runs/{run}/restore", "post"): MANAGE_,
    ("/v1/runs/{run}/signals", "post"): REPORT_,
    ("/v1/runs/{run}/audit", "get"): READ_,
    ("/v1/runs/{run}/costs", "get"): READ_,
    ("/v1/runs/{run}/beliefs", "get"): READ_,
    ("/v1/runs/{run}/events", "get"): READ_,
    ("/v1/runs/{run}/curve", "get"): READ_,
    ("/v1/runs/{run}/diagnosis", "get"): READ_,
    ("/v1/runs/{run}/report", "get"): READ_,
    ("/v1/comparisons", "post"): READ_,
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
    ("/v1/runs/{run}/reports", "post"): {"groups": [{"ticket": "none", "final": True}]},
    ("/v1/runs/{run}/steps", "post"): {"step": 1, "policy_version": 1},
    ("/v1/runs/{run}/checkpoints", "post"): {"step": 7},
    ("/v1/runs/{run}/restore", "post"): {"step": 7},
    ("/v1/runs/{run}/signals", "post"): {"policy_version": 1, "features": {}},
}


def call(http: Http, route: tuple[str, str], *, pool: str = "p", run: str = "r", **query: str) -> httpx.Response:
    """A call of a route that is right in all but who makes it."""
    path, method = route
    path = path.format(pool=pool, run=run, key="a", index=0)
    body = BODIES.get(route)
    if isinstance(body, dict):
        body = {k: v.format(pool=pool, run=run) if isinstance(v, str) else v for k, v in body.items()}
    return http.send(method.upper(), path, body, params=query)


@pytest.fixture
def anybody(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Http]:
    """A service with pools p and q, and runs r and r2 on p, s on q, made before there were keys."""
    monkeypatch.setattr("api.keyring.KEYS_LIVE_S", 0.0)  # what the bound is, tests/api/test_keyring.py says
    with in_process(database_url) as http:
        for pool in "pq":
            http.pool(letters(), pool)
        for run, pool in (("r", "p"), ("r2", "p"), ("s", "q")):
            http.run(run, pool, group_size=2)
            http.draw(0, 2, run=run)
        yield http


# By construction


def test_every_route_states_what_it_asks_for_and_the_list_is_pinned() -> None:
    guards = scopes_of(create_app(Settings(database_url="sqlite://")).routes)
    stated = {
        route: NONE if guard.open else ANY if guard.scope is None else str(guard.scope)
        for route, guard in guards.items()
    }
    assert stated == ROUTES


def test_a_route_that_changes_something_and_names_its_target_in_the_body_is_known() -> None:
    by_body = {
        (path, method) for path, method in ROUTES if method != "get" and "{pool}" not in path and "{run}" not in path
    }
    assert by_body == BY_BODY


@pytest.mark.parametrize("guards", [[], [READ, MANAGE], [NO_KEY]], ids=["none", "two", "open to all"])
def test_a_route_without_one_stated_scope_stops_the_start(guards: list[Any]) -> None:
    app, inner, outer = FastAPI(openapi_url=None), APIRouter(), APIRouter()
    inner.add_api_route("/forgotten", lambda: None, dependencies=guards)
    outer.include_router(inner)
    app.include_router(outer)
    with pytest.raises(TypeError, match="'/forgotten'"):
        scopes_of(app.routes)


def test_a_route_of_another_kind_and_a_probe_with_a_key_stop_the_start() -> None:
    with pytest.raises(TypeError, match="'/page' cannot state a scope"):
        scopes_of([Route("/page", lambda request: None)])
    app = FastAPI(openapi_url=None)
    app.add_api_route("/healthz", lambda: None, dependencies=[READ])
    with pytest.raises(TypeError, match="'/healthz'"):
        scopes_of(app.routes)


# Who is calling


def test_without_keys_every_call_is_answered_with_or_without_a_header(anybody: Http) -> None:
    for route, needed in ROUTES.items():
        assert call(anybody, route).status_code not in (401, 403), (route, needed)
        assert call(anybody.holding("anything"), route).status_code not in (401, 403)


def test_every_call_but_the_probes_asks_for_a_key_that_is_in_force(anybody: Http, database_url: str) -> None:
    revoked = made_key(database_url)
    revoke(Settings(database_url=database_url), revoked)
    keys = [None, "", "mb_0123456789", "x" * 5_000, revoked, made_key(database_url, days=0.0)]
    before = trail(database_url)
    others = [
        ("/docs", "get"),
        ("/openapi.json", "get"),
        ("/nowhere", "get"),
        ("/healthz/", "get"),
        ("/v1/pools", "options"),
    ]
    for route in (*ROUTES, *others):
        for key in keys:
            response = call(anybody.holding(key), route)
            if ROUTES.get(route) == NONE:
                assert response.status_code == 200
                continue
            refused(response, 401, "unauthenticated")
            assert response.headers["www-authenticate"] == "Bearer"
            assert not key or key not in response.text
    assert trail(database_url) == before


def test_a_refused_key_says_why_only_to_who_holds_it(anybody: Http, database_url: str) -> None:
    key = made_key(database_url, days=0.0)
    prefix, _, secret = key.rpartition("_")
    get = anybody.holding(key).send("GET", "/v1/runs")
    assert secret not in refused(get, 401, "unauthenticated", prefix, "expired", "midband key create")
    forged = anybody.holding(f"{prefix}_{'0' * len(secret)}").send("GET", "/v1/runs")
    assert "expired" not in refused(forged, 401, "unauthenticated", "not one of this service")
    refused(anybody.send("GET", "/v1/runs"), 401, "unauthenticated", "Authorization: Bearer <key>")


def test_a_key_is_asked_for_before_anything_of_the_request_is_read(anybody: Http, database_url: str) -> None:
    made_key(database_url)
    refused(anybody.send("POST", "/v1/runs/r/batches", b"{not json"), 401, "unauthenticated")
    refused(anybody.send("POST", "/v1/runs", b"x", headers={"content-length": "1" * 12}), 401, "unauthenticated")


@pytest.mark.parametrize("scheme", ["Basic", "Token", ""])
def test_another_scheme_is_no_key_and_the_word_bearer_has_no_case(
    anybody: Http, database_url: str, scheme: str
) -> None:
    key = made_key(database_url)
    headers = {"authorization": f"{scheme} {key}".strip()}
    refused(anybody.send("GET", "/version", headers=headers), 401, "unauthenticated")
    assert anybody.send("GET", "/version", headers={"authorization": f"bEARER  {key}"}).status_code == 200


# Scopes


def test_each_scope_opens_its_own_calls_and_no_others(anybody: Http, database_url: str) -> None:
    for scope in Scope:
        http = anybody.holding(made_key(database_url, scope))
        for route, needed in ROUTES.items():
            response = call(http, route)
            if needed in (ANY, NONE, scope):
                assert response.status_code not in (401, 403), (scope, route)
            else:
                refused(response, 403, "missing_scope", f"asks for {needed}", scope)


def test_a_call_that_lacks_the_scope_changes_nothing(anybody: Http, database_url: str) -> None:
    weak, reader = (anybody.holding(made_key(database_url, scope)) for scope in ("draw", "read"))

    def everything() -> tuple[object, ...]:
        return (
            reader.info(),
            reader.events(),
            reader.get("/v1/pools/p"),
            reader.get("/v1/pools"),
            reader.get("/v1/runs"),
        )

    before = everything(), trail(database_url)
    for route, needed in ROUTES.items():
        if needed in (REPORT_, MANAGE_):
            refused(call(weak, route, pool="new" if "/{pool}" not in route[0] else "p"), 403, "missing_scope")
    assert (everything(), trail(database_url)) == before


def test_several_scopes_are_a_trainers_whole_loop(anybody: Http, database_url: str) -> None:
    http = anybody.holding(made_key(database_url, "draw", "report"))
    batch = http.draw(5, 2)
    assert http.report(group(batch["tickets"][0], [1.0, 0.0]))["applied"] == 2
    http.post("/v1/runs/r/steps", {"step": 5, "policy_version": 1})
    refused(http.send("GET", "/v1/runs/r"), 403, "missing_scope", "draw, report", "asks for read")


# Bindings

OF_A_POOL = [route for route in ROUTES if "{pool}" in route[0]]
OF_A_RUN = [route for route in ROUTES if "{run}" in route[0]]


def hidden(response: httpx.Response, name: str, code: str) -> None:
    """The answer for what is not there, in every word."""
    detail = refused(response, 404, code, repr(name))
    missing = {
        "unknown_pool": "there is no pool {!r}; GET /v1/pools",
        "unknown_run": "no run is called {!r}; GET /v1/runs",
    }
    assert detail == f"{missing[code].format(name)} lists those that exist"


def test_a_key_bound_to_a_pool_reaches_it_and_its_runs_and_nothing_else(anybody: Http, database_url: str) -> None:
    http = anybody.holding(made_key(database_url, pools=["p"]))
    for route in OF_A_POOL:
        hidden(call(http, route, pool="q"), "q", "unknown_pool")
        hidden(call(http, route, pool="none"), "none", "unknown_pool")
        assert call(http, route).status_code in (200, 409), route
    for route in OF_A_RUN:
        hidden(call(http, route, run="s"), "s", "unknown_run")
        hidden(call(http, route, run="none"), "none", "unknown_run")
        assert call(http, route).status_code in (200, 409, 501), route
        assert call(http, route, run="r2").status_code in (200, 409, 501), route
    assert [pool["name"] for pool in http.get("/v1/pools", archived="true")["items"]] == ["p"]
    assert [run["run"] for run in http.get("/v1/runs")["items"]] == ["r", "r2"]


def test_a_key_bound_to_a_run_reaches_it_alone(anybody: Http, database_url: str) -> None:
    http = anybody.holding(made_key(database_url, runs=["r"]))
    for route in OF_A_POOL:
        hidden(call(http, route), "p", "unknown_pool")
    for route in OF_A_RUN:
        for other in ("r2", "s", "none"):
            hidden(call(http, route, run=other), other, "unknown_run")
        assert call(http, route).status_code in (200, 409, 501), route
    assert http.get("/v1/pools")["items"] == []
    assert [run["run"] for run in http.get("/v1/runs")["items"]] == ["r"]


def test_a_key_bound_to_a_pool_and_a_run_reaches_both(anybody: Http, database_url: str) -> None:
    http = anybody.holding(made_key(database_url, pools=["p"], runs=["r"]))
    assert http.get("/v1/pools/p")["name"] == "p"
    assert http.info()["run"] == "r"
    hidden(http.send("GET", "/v1/runs/r2"), "r2", "unknown_run")
    assert http.prompt("a")["key"] == "a"


def test_a_run_in_the_query_is_hidden_like_one_in_the_path(anybody: Http, database_url: str) -> None:
    for bound in ({"pools": ["p"]}, {"pools": ["p"], "runs": ["r"]}):
        http = anybody.holding(made_key(database_url, **bound))  # type: ignore[arg-type]
        for path in ("/v1/pools/p/prompts", "/v1/pools/p/prompts/a", "/v1/pools/p/export"):
            assert http.send("GET", path, params={"run": "r"}).status_code == 200
            hidden(http.send("GET", path, params={"run": "s"}), "s", "unknown_run")
            hidden(http.send("GET", f"{path}?run=r&run=s"), "s", "unknown_run")


def test_a_bound_key_makes_only_the_pools_that_it_is_bound_to(anybody: Http, database_url: str) -> None:
    http = anybody.holding(made_key(database_url, pools=["p", "mine"]))
    assert http.send("POST", "/v1/pools", {"name": "mine"}).status_code == 201
    for taken in ("q", "new"):
        hidden(http.send("POST", "/v1/pools", {"name": taken}), taken, "unknown_pool")
    hidden(
        anybody.holding(made_key(database_url, runs=["r"])).send("POST", "/v1/pools", {"name": "x"}),
        "x",
        "unknown_pool",
    )


def test_a_key_bound_to_a_pool_begins_runs_on_it_and_learns_nothing_of_others(anybody: Http, database_url: str) -> None:
    http = anybody.holding(made_key(database_url, pools=["p"]))
    assert begun(http, "mine", "p").status_code == 201
    assert begun(http, "r", "p").status_code == 200
    hidden(begun(http, "more", "q"), "q", "unknown_pool")
    hidden(begun(http, "more", "none"), "none", "unknown_pool")
    # Another pool's run has the name: its configuration must not show in a conflict.
    hidden(begun(http, "s", "p", seed=5), "s", "unknown_run")
    hidden(begun(http, "mine2", "p", start_from={"run": "s"}), "s", "unknown_run")


def test_a_key_bound_to_a_run_may_ask_for_it_again_and_begin_none(anybody: Http, database_url: str) -> None:
    http = anybody.holding(made_key(database_url, runs=["r", "unborn"]))
    assert begun(http, "r", "p").status_code == 200
    refused(begun(http, "r", "p", seed=5), 409, "run_conflict", "seed")
    for pool in ("q", "none"):
        hidden(begun(http, "r", pool), pool, "unknown_pool")
    hidden(begun(http, "unborn", "p"), "p", "unknown_pool")
    hidden(begun(http, "other", "p"), "other", "unknown_run")
    hidden(begun(http, "r2", "p"), "r2", "unknown_run")
    both = anybody.holding(made_key(database_url, runs=["unborn"], pools=["p"]))
    assert begun(both, "unborn", "p").status_code == 201
    assert begun(http, "unborn", "p").status_code == 200


def begun(http: Http, run: str, pool: str, **options: object) -> httpx.Response:
    return http.send("POST", "/v1/runs", {"name": run, "pool": pool, "group_size": 2, **options})


def test_figures_of_everything_ask_for_a_key_that_is_bound_to_nothing(anybody: Http, database_url: str) -> None:
    bound = anybody.holding(made_key(database_url, "read", pools=["p"]))
    refused(bound.send("GET", "/metrics"), 403, "missing_scope", "bound to pools or runs")
    assert anybody.holding(made_key(database_url, "read")).send("GET", "/metrics").status_code == 200


# The trail


def test_every_management_call_is_in_the_trail_and_no_other_is(anybody: Http, database_url: str) -> None:
    key = made_key(database_url)
    prefix = key.rpartition("_")[0]
    for route, needed in ROUTES.items():
        path, method = route
        before = trail(database_url)
        call(anybody.holding(key), route)
        target = "run r" if "{run}" in path or path == "/v1/runs" else "pool p"
        template = path.replace("{key}", "{key:path}")
        line = [(prefix, f"{method.upper()} {template}", target)] if needed == MANAGE_ else []
        assert trail(database_url)[len(before) :] == line


def test_the_trail_begins_before_keys_and_holds_what_the_command_did(anybody: Http, database_url: str) -> None:
    assert trail(database_url)[:2] == [
        (None, "POST /v1/pools", "pool p"),
        (None, "PUT /v1/pools/{pool}/prompts", "pool p"),
    ]
    prefix = made_key(database_url).rpartition("_")[0]
    for _ in range(2):
        revoke(Settings(database_url=database_url), prefix)
    assert trail(database_url)[-2:] == [(None, "midband key create", prefix), (None, "midband key revoke", prefix)]


def test_the_trail_has_no_contents_and_cuts_names_that_nothing_can_have(anybody: Http, database_url: str) -> None:
    http = anybody.holding(made_key(database_url))
    http.put([{"key": "a secret key", "content": "a secret prompt"}])
    http.quarantine(["a secret key"], reason="a secret reason")
    http.post("/v1/pools", {"name": "new", "description": "a secret description"})
    refused(http.send("DELETE", f"/v1/pools/{'x' * 5_000}"), 404, "unknown_pool")
    lines = trail(database_url)
    assert "secret" not in str(lines)
    assert lines[-1][2] == "pool " + "x" * 195


def test_where_the_trail_cannot_be_written_nothing_is_changed(anybody: Http, database_url: str) -> None:
    engine: Engine = anybody.client._transport._app.state.database  # type: ignore[attr-defined]
    before = anybody.get("/v1/pools")
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE management_calls RENAME TO hidden")
    assert anybody.send("POST", "/v1/pools", {"name": "new"}).status_code >= 500
    assert anybody.send("DELETE", "/v1/pools/p").status_code >= 500
    assert anybody.get("/v1/pools") == before


# What the document says


def test_the_document_declares_the_scheme_the_scopes_and_the_refusals(anybody: Http) -> None:
    document = anybody.get("/openapi.json")
    scheme = document["components"]["securitySchemes"]["key"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    stated: dict[tuple[str, str], str] = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            security, statuses = operation["security"], set(operation["responses"])
            if not security:
                stated[path, method] = NONE
                assert not {"401", "403"} & statuses
                continue
            assert {"401", "403"} <= statuses
            assert security[1:] == [{}]
            stated[path, method] = "".join(security[0]["key"]) or ANY
    assert stated == {route: needed for route, needed in ROUTES.items() if route[0] != "/"}


def test_the_same_document_and_page_open_to_any_key(anybody: Http, database_url: str) -> None:
    before: Json = anybody.get("/openapi.json")
    http = anybody.holding(made_key(database_url, "draw"))
    assert answered(http.send("GET", "/openapi.json")) == before
    assert http.send("GET", "/docs").status_code == 200
