"""What a key's binding hides: pools and runs outside it look as if they were not there, wherever they are named."""

from collections.abc import Iterator

import httpx
import pytest

from tests.api.harness import Http, refused
from tests.api.key_cases import ROUTES, call, made_key, started

OF_A_POOL = [route for route in ROUTES if "{pool}" in route[0]]
OF_A_RUN = [route for route in ROUTES if "{run}" in route[0]]


@pytest.fixture
def anybody(database_url: str) -> Iterator[Http]:
    with started(database_url) as http:
        yield http


def hidden(response: httpx.Response, name: str, code: str) -> None:
    """The answer for what is not there, in every word."""
    detail = refused(response, 404, code, repr(name))
    missing = {
        "unknown_pool": "there is no pool {!r}; GET /v1/pools lists those that exist, POST /v1/pools makes one",
        "unknown_run": "no run is called {!r}; GET /v1/runs lists those that exist",
    }
    assert detail == missing[code].format(name)


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


def test_a_run_begins_with_another_ones_beliefs_only_for_a_key_that_may_read_them(
    anybody: Http, database_url: str
) -> None:
    start = {"run": "r", "discount": 1}
    blind = anybody.holding(made_key(database_url, "manage"))
    refused(begun(blind, "warm", "p", start_from=start), 403, "missing_scope", "read")
    assert begun(blind, "cold", "p").status_code == 201
    assert begun(anybody.holding(made_key(database_url)), "warm", "p", start_from=start).status_code == 201
