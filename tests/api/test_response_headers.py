"""What answers tell a browser, and which websites may call."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.response_headers import SECURITY_HEADERS
from tests.api.harness import Http, in_process, refused
from tests.api.key_cases import ROUTES, call, made_key, started

LAB = "https://lab.example"


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    with started(f"sqlite:///{tmp_path_factory.mktemp('headers')}/midband.db") as http:
        yield http


def allowed(response: httpx.Response) -> dict[str, str]:
    """What an answer lets other websites do."""
    return {name: value for name, value in response.headers.items() if name.startswith("access-control-")}


def test_every_answer_has_the_headers_once(http: Http) -> None:
    for route in (*ROUTES, ("/nowhere", "get"), ("/v1/runs", "delete"), ("/openapi.json", "get")):
        response = call(http, route)
        for name, value in SECURITY_HEADERS.items():
            assert response.headers.get_list(name) == [value], (route, name)
        assert allowed(response) == {}
        assert "server" not in response.headers


def test_a_failure_inside_has_them_too(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("api.views.costs_info", fail)
    response = http.send("GET", "/v1/runs/r/costs")
    refused(response, 500, "internal_error")
    assert {name: response.headers[name] for name in SECURITY_HEADERS} == dict(SECURITY_HEADERS)


def test_the_page_of_the_document_loads_nothing_and_has_the_policy_of_every_answer(http: Http) -> None:
    page = http.send("GET", "/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"] == SECURITY_HEADERS["Content-Security-Policy"]
    links = [part.split('"')[0] for part in page.text.split('href="')[1:]]
    assert {link for link in links if not link.startswith("#")} == {"/openapi.json"}
    assert not any(word in page.text for word in ("<script", "<style", "<img", "<link", "src=", "style=", "http"))


# Calls from pages


def preflight(http: Http, origin: str) -> httpx.Response:
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    return http.send("OPTIONS", "/v1/runs/r/batches", headers=headers)


def test_unless_it_is_configured_no_website_may_call(http: Http) -> None:
    assert allowed(preflight(http, LAB)) == {}
    assert preflight(http, LAB).status_code == 403


@pytest.mark.parametrize("origin", [LAB, "null", "http://midband.example", "http://midband:81", "https://midband@evil"])
def test_without_keys_a_page_of_another_website_changes_nothing(http: Http, origin: str) -> None:
    before = http.get("/v1/pools")
    sent = http.send("POST", "/v1/pools", {"name": "new"}, headers={"origin": origin})
    refused(sent, 403, "foreign_origin", "MIDBAND_CORS_ORIGINS")
    refused(http.send("POST", "/v1/runs/r2/complete", headers={"origin": origin}), 403, "foreign_origin")
    assert http.get("/v1/pools") == before
    assert http.info("r2")["tickets"]["open"] > 0


def test_a_page_of_the_service_itself_may_call(http: Http) -> None:
    assert http.send("GET", "/v1/pools", headers={"origin": "http://midband"}).status_code == 200


def test_the_websites_that_are_configured_may_call_with_and_without_keys(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/midband.db"
    with pytest.MonkeyPatch.context() as patch, in_process(url, cors_origins=(LAB,)) as http:
        patch.setattr("api.keyring.KEYS_LIVE_S", 0.0)
        assert http.send("GET", "/v1/pools", headers={"origin": LAB}).status_code == 200
        refused(http.send("GET", "/v1/pools", headers={"origin": "https://other.example"}), 403, "foreign_origin")
        key = made_key(url)
        asked = preflight(http, LAB)
        assert asked.status_code == 200
        assert allowed(asked)["access-control-allow-origin"] == LAB
        assert "authorization" in allowed(asked)["access-control-allow-headers"].lower()
        assert "access-control-allow-credentials" not in allowed(asked)
        for name, value in SECURITY_HEADERS.items():
            assert asked.headers[name] == value
        sent = http.holding(key).send("GET", "/v1/pools", headers={"origin": LAB})
        assert (sent.status_code, allowed(sent)["access-control-allow-origin"]) == (200, LAB)
        # A refusal has to be readable for the page that may call, and says nothing to another.
        unknown = http.send("GET", "/v1/pools", headers={"origin": LAB})
        refused(unknown, 401, "unauthenticated")
        assert allowed(unknown)["access-control-allow-origin"] == LAB
        assert "access-control-allow-origin" not in allowed(preflight(http, "https://other.example"))


def test_with_keys_a_key_is_what_counts_and_not_the_page(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/midband.db"
    key = made_key(url)
    with in_process(url) as http:
        sent = http.holding(key).send("GET", "/v1/pools", headers={"origin": LAB})
        assert (sent.status_code, allowed(sent)) == (200, {})
        refused(http.send("GET", "/v1/pools", headers={"origin": LAB}), 401, "unauthenticated")
