"""The trail of management calls: who changed what, written before it is changed, without contents."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from api.key_commands import revoke
from api.settings import Settings
from tests.api.harness import Http, refused
from tests.api.key_cases import MANAGE, ROUTES, call, made_key, started, trail


@pytest.fixture
def anybody(database_url: str) -> Iterator[Http]:
    with started(database_url) as http:
        yield http


def test_every_management_call_is_in_the_trail_and_no_other_is(anybody: Http, database_url: str) -> None:
    key = made_key(database_url)
    prefix = key.rpartition("_")[0]
    for route, needed in ROUTES.items():
        path, method = route
        before = trail(database_url)
        call(anybody.holding(key), route)
        target = "run r" if "{run}" in path or path == "/v1/runs" else "pool p"
        template = path.replace("{key}", "{key:path}")
        line = [(prefix, f"{method.upper()} {template}", target)] if needed == MANAGE else []
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
