"""Keys over HTTP: every route asks for one, and for its own scope. The walks take every route there is."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.routing import Route

from api.app import create_app
from api.auth import MANAGE, NO_KEY, READ, scopes_of
from api.key_commands import revoke
from api.keys import Scope
from api.settings import Settings
from tests.api import key_cases
from tests.api.harness import Http, Json, answered, group, in_process, refused
from tests.api.key_cases import ANY, BY_BODY, NONE, ROUTES, call, made_key, started, trail


@pytest.fixture
def anybody(database_url: str) -> Iterator[Http]:
    with started(database_url) as http:
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


def test_a_route_of_another_kind_or_naming_and_a_probe_with_a_key_stop_the_start() -> None:
    with pytest.raises(TypeError, match="'/page' cannot state a scope"):
        scopes_of([Route("/page", lambda request: None)])
    app = FastAPI(openapi_url=None)
    app.add_api_route("/v1/runs/{name}/more", lambda name: None, dependencies=[READ])
    with pytest.raises(TypeError, match="names name: a binding knows index, key, pool, run"):
        scopes_of(app.routes)
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
        ("/openapi.json", "get"),
        ("/nowhere", "get"),
        ("/healthz/", "get"),
        ("/v1/pools", "options"),
    ]
    for route in (*ROUTES, *others):
        for key in keys:
            response = call(anybody.holding(key), route)
            if ROUTES.get(route) == NONE:
                assert response.status_code in (200, 501)
                continue
            refused(response, 401, "unauthenticated")
            assert response.headers["www-authenticate"] == "Bearer"
            assert not key or key not in response.text
    assert trail(database_url) == before


def test_a_service_that_others_reach_is_closed_while_there_is_no_key(database_url: str) -> None:
    with in_process(database_url, host="0.0.0.0") as http:
        refused(http.send("GET", "/v1/runs"), 401, "unauthenticated")
        assert http.get("/healthz") == {"status": "alive"}


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
        if needed in (key_cases.REPORT, key_cases.MANAGE):
            refused(call(weak, route, pool="new" if "/{pool}" not in route[0] else "p"), 403, "missing_scope")
    assert (everything(), trail(database_url)) == before


def test_several_scopes_are_a_trainers_whole_loop(anybody: Http, database_url: str) -> None:
    http = anybody.holding(made_key(database_url, "draw", "report"))
    batch = http.draw(5, 2)
    assert http.report(group(batch["tickets"][0], [1.0, 0.0]))["applied"] == 2
    http.post("/v1/runs/r/steps", {"step": 5, "policy_version": 1})
    refused(http.send("GET", "/v1/runs/r"), 403, "missing_scope", "draw, report", "asks for read")


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
    assert stated == {route: needed for route, needed in ROUTES.items() if route[0] not in ("/", "/docs")}


def test_the_same_document_and_page_open_to_any_key(anybody: Http, database_url: str) -> None:
    before: Json = anybody.get("/openapi.json")
    http = anybody.holding(made_key(database_url, "draw"))
    assert answered(http.send("GET", "/openapi.json")) == before
    assert http.send("GET", "/docs").status_code == 200
