"""The endpoints on pools, as a caller sees them."""

import io
import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.db import prompts as prompt_queries
from api.importing.content import Content, hashes
from tests.api.harness import Http, Json, in_process, prompts, refused
from tests.api.pool_cases import started, upload

JSONL = "application/x-ndjson"
MESSAGES: Content = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


@pytest.fixture
def http(database_url: str) -> Iterator[Http]:
    with in_process(database_url, max_body_bytes=200_000, max_import_bytes=1_000_000) as http:
        http.post("/v1/pools", {"name": "p"})
        yield http


def exported(http: Http, form: str, **query: str) -> bytes:
    response = http.send("GET", "/v1/pools/p/export", params={"format": form, **query})
    assert response.status_code == 200, response.text
    return response.content


# Pools


def test_a_pool_is_made_once(http: Http) -> None:
    first = http.send("POST", "/v1/pools", {"name": "q", "description": "arithmetic"})
    assert (first.status_code, first.json()) == (
        201,
        {
            "name": "q", "description": "arithmetic", "revision": 0, "archived": False, "prompts": 0,
            "splits": {"train": 0, "heldout": 0}, "categories": {}, "states": {"quarantined": 0, "absent": 0},
        },
    )  # fmt: skip
    again = http.send("POST", "/v1/pools", {"name": "q", "description": "arithmetic"})
    assert (again.status_code, again.content) == (200, first.content)
    assert http.send("POST", "/v1/pools", {"name": "q"}).status_code == 200
    refused(
        http.send("POST", "/v1/pools", {"name": "q", "description": "algebra"}), 409, "pool_conflict", "'arithmetic'"
    )


def test_a_bad_name_or_field_is_refused(http: Http) -> None:
    bad: list[Json] = [{}, {"name": "a", "x": 1}]
    for body in [*bad, *({"name": name} for name in ("", "Big", "-a", "a" * 101, "a/b"))]:
        refused(http.send("POST", "/v1/pools", body), 422, "invalid_request")


def test_pools_are_listed_and_counted_by_split_category_and_state(http: Http) -> None:
    rows = [
        *prompts(3, category="sum"),
        {"key": "h", "content": "h", "split": "heldout"},
        {"key": "q", "category": "product"},
    ]
    http.put(rows)
    http.quarantine(["q"])
    http.put([{"key": "p000"}, {"key": "h"}, {"key": "q"}], mode="replace")
    pool = http.get("/v1/pools/p")
    assert (pool["prompts"], pool["splits"], pool["categories"], pool["states"], pool["revision"]) == (
        3, {"train": 2, "heldout": 1}, {"product": 1, "sum": 1}, {"quarantined": 1, "absent": 2}, 3,
    )  # fmt: skip
    assert http.get("/v1/pools")["items"] == [pool]


def test_an_archived_pool_can_be_read_and_not_changed(http: Http) -> None:
    http.put(prompts(2))
    gone = http.send("DELETE", "/v1/pools/p")
    assert (gone.status_code, gone.json()["archived"]) == (200, True)
    assert http.send("DELETE", "/v1/pools/p").json() == gone.json()
    assert http.get("/v1/pools")["items"] == []
    assert [pool["name"] for pool in http.get("/v1/pools", archived=True)["items"]] == ["p"]
    assert http.get("/v1/pools/p/prompts")["total"] == 2
    refused(upload(http, '{"key": "a"}', JSONL), 409, "pool_archived")
    refused(http.send("POST", "/v1/pools/p/quarantine", {"keys": ["a"], "reason": "x"}), 409, "pool_archived")
    refused(http.send("POST", "/v1/pools", {"name": "p"}), 409, "pool_archived")


def test_an_unknown_pool_is_404_everywhere(http: Http) -> None:
    requests = [
        ("GET", ""), ("DELETE", ""), ("GET", "/prompts"), ("GET", "/prompts/a"), ("GET", "/export"),
        ("PUT", "/prompts"),
        ("POST", "/quarantine"),
    ]  # fmt: skip
    for method, path in requests:
        body = {"keys": ["a"], "reason": "x"} if method == "POST" else b"[]" if method == "PUT" else None
        refused(http.send(method, f"/v1/pools/nobody{path}", body), 404, "unknown_pool", "no pool 'nobody'")


# Uploads


def table() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"key": ["a", "b"], "content": ["1 + 1", "2 + 2"], "answer": ["2", "4"]}), file)
    return file.getvalue()


def test_every_format_gives_the_same_pool(http: Http) -> None:
    bodies: dict[str, bytes | str] = {
        JSONL: '{"key": "a", "content": "1 + 1", "answer": "2"}\n{"key": "b", "content": "2 + 2", "answer": "4"}',
        "application/jsonl": '{"key":"a","content":"1 + 1","answer":"2"}\n{"key":"b","content":"2 + 2","answer":"4"}\n',
        "application/json": '[{"key":"a","content":"1 + 1","answer":"2"},{"key":"b","content":"2 + 2","answer":"4"}]',
        "text/csv": "key,content,answer\na,1 + 1,2\nb,2 + 2,4\n",
        "application/vnd.apache.parquet": table(),
        "application/parquet": table(),
    }
    for number, (content_type, body) in enumerate(bodies.items()):
        http.post("/v1/pools", {"name": f"p{number}"})
        assert upload(http, body, content_type, f"p{number}").json() == {
            "received": 2, "created": 2, "updated": 0, "unchanged": 0, "merged": 0, "rejected": 0,
            "errors": [], "warnings": [],
        }  # fmt: skip
        prompt = http.get(f"/v1/pools/p{number}/prompts/b")
        assert (prompt["content"], prompt["answer"], prompt["content_hash"]) == ("2 + 2", "4", hashes("2 + 2", "4")[0])


def test_bad_rows_are_listed_and_the_rest_applies(http: Http) -> None:
    lines = [
        '{"key": "a"}', '{"key": "b", "colour": "red"}', '{"key": "c", "features": {"x": NaN}}', "{broken",
        '{"key": "d", "category": 5}', '{"key": "e"}', '{"content": "the same"}', '{"content": "the same "}',
    ]  # fmt: skip
    answer = upload(http, "\n".join(lines), JSONL).json()
    counts = [answer[name] for name in ("received", "created", "updated", "unchanged", "merged", "rejected")]
    assert counts == [8, 3, 0, 0, 1, 4]
    assert [(e["row"], e["code"]) for e in answer["errors"]] == [
        (1, "unknown_field"), (2, "not_finite"), (3, "bad_json"), (4, "wrong_type"),
    ]  # fmt: skip
    assert "'colour'" in answer["errors"][0]["detail"]
    assert http.get("/v1/pools/p")["prompts"] == 3


def test_a_replacing_upload_says_how_it_matched(http: Http) -> None:
    http.put(prompts(3))
    rows = [*prompts(1), {"key": "p001", "content": "edited"}, {"key": "new", "content": "new"}]
    answer = http.put(rows, mode="replace")
    assert {name: answer[name] for name in ("matched", "linked", "absent", "created")} == {
        "matched": 1, "linked": 1, "absent": 1, "created": 1,
    }  # fmt: skip
    assert http.put(rows, mode="replace") | {"matched": 3, "linked": 0, "absent": 0, "unchanged": 3} == http.put(
        rows, mode="replace"
    )


def test_a_body_in_another_format_than_declared_changes_nothing(http: Http) -> None:
    http.put(prompts(2))
    for content_type, body in (
        (JSONL, "not json at all"),
        ("application/json", '{"key": "a"}'),
        ("application/json", '[{"key": "a"}, '),
        ("text/csv", "question,answer\na,b\n"),
        ("application/parquet", "PAR1"),
    ):
        refused(upload(http, body, content_type, mode="replace"), 422, "unreadable_body")
    assert http.get("/v1/pools/p")["revision"] == 1


def test_an_unknown_format_or_mode_is_refused(http: Http) -> None:
    refused(upload(http, "a", "text/plain"), 415, "unsupported_format", "'text/plain'", "application/x-ndjson")
    refused(upload(http, "[]", "application/json", mode="replce"), 422, "invalid_request", "query.mode", "'replce'")


def test_an_upload_reaches_the_runs_on_the_pool_at_once(http: Http) -> None:
    http.put(prompts(2))
    http.run()
    http.put(prompts(5))
    assert http.events()[-1]["kind"] == "pool_revised"
    assert http.draw(0, 5)["returned"] == 5


def test_an_empty_upload_is_fine(http: Http) -> None:
    for content_type, body in ((JSONL, ""), ("application/json", "[]"), ("text/csv", "key,content\n")):
        assert upload(http, body, content_type).json()["received"] == 0


def test_an_upload_may_be_larger_than_other_bodies_but_a_json_list_may_not(http: Http) -> None:
    lines = [json.dumps({"key": f"k{i}", "content": "x" * 1_000}) for i in range(300)]
    assert upload(http, "\n".join(lines), JSONL).json()["created"] == 300
    refused(upload(http, f"[{','.join(lines)}]", "application/json"), 413, "body_too_large", "send JSON Lines")
    refused(upload(http, "\n".join(lines * 4), JSONL), 413, "body_too_large", "1000000 bytes")


def test_a_large_upload_goes_through_a_file(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.routes.pools.MEMORY_BYTES", 1_000)
    monkeypatch.setattr("api.routes.pools.WRITE_BYTES", 100)
    for content_type, body in (
        (JSONL, "\n".join(json.dumps(row) for row in prompts(200))),
        ("application/parquet", table()),
    ):
        answer = upload(http, body, content_type).json()
        assert answer["created"] == answer["received"]


# Quarantine


def test_quarantined_prompts_are_not_drawn_until_they_are_let_in_again(http: Http) -> None:
    http.put(prompts(4))
    http.run()
    assert http.quarantine(["p000", "p001", "nobody"]) == {"changed": 2, "unchanged": 0, "unknown": ["nobody"]}
    assert http.draw(0, 4)["frame"] == 2
    assert http.info()["states"]["quarantined"] == 2
    http.put(prompts(4), mode="replace")
    assert http.get("/v1/pools/p/prompts", state="quarantined")["items"][0]["quarantine_reason"] == "broken"
    assert http.quarantine(["p000", "p001"], lift=True) == {"changed": 2, "unchanged": 0, "unknown": []}
    assert http.draw(1, 4)["frame"] == 4
    assert [e["event"]["revision"] for e in http.events() if e["kind"] == "pool_revised"] == [1, 2, 3]


def test_a_quarantine_without_keys_or_reason_is_refused(http: Http) -> None:
    bad: list[Json] = [{"keys": [], "reason": "x"}, {"keys": ["a"]}, {"keys": ["a"], "reason": ""}]
    for body in bad:
        refused(http.send("POST", "/v1/pools/p/quarantine", body), 422, "invalid_request")


# Exports


def test_an_export_uploads_again_and_changes_nothing(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_queries, "EXPORT_PAGE_ROWS", 7)
    rows = prompts(30, category="c", features={"len": 1, "v": [1, 2]}, meta={"x": [1, None, "007"]})
    rows += [{"content": MESSAGES}, {"key": "h", "content": 'a,"b"\r\nc', "split": "heldout"}, {"key": "k"}]
    http.put([*rows, {"key": "gone"}])
    http.put(rows, mode="replace")
    for form in ("jsonl", "csv", "parquet"):
        response = http.send("GET", "/v1/pools/p/export", params={"format": form})
        assert response.headers["content-disposition"] == f'attachment; filename="p.{form}"'
        answer = upload(http, response.content, response.headers["content-type"], mode="replace").json()
        assert {name: answer[name] for name in ("received", "unchanged", "absent")} == {
            "received": 33, "unchanged": 33, "absent": 0,
        }  # fmt: skip
    assert http.get("/v1/pools/p")["revision"] == 2


def test_the_default_export_is_json_lines(http: Http) -> None:
    http.put([{"key": "a", "content": "q", "meta": {"x": 1}}])
    response = http.send("GET", "/v1/pools/p/export")
    assert response.json() == {"key": "a", "content": "q", "split": "train", "meta": {"x": 1}}
    assert exported(http, "jsonl") == response.content


def test_an_export_with_a_run_has_its_beliefs(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_queries, "EXPORT_PAGE_ROWS", 11)  # the last page has one row
    started(http)
    header, *lines = exported(http, "csv", run="r").decode().splitlines()
    for found in (
        pq.read_table(io.BytesIO(exported(http, "parquet", run="r"))).to_pylist(),
        [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines],
        [{**row, **row["belief"]} for row in map(json.loads, exported(http, "jsonl", run="r").splitlines())],
    ):
        assert len(found) == 12
        assert not any("groups" in row for row in found)
        by_key = {row["key"]: row for row in found}
        rates = [float(by_key[key]["pass_rate"]) for key in ("p003", "p000", "p004")]
        assert rates == sorted(rates, reverse=True)
        assert len(set(rates)) == 3
        assert by_key["p003"]["state"] == "active"


def test_an_export_of_an_empty_pool_is_empty(http: Http) -> None:
    assert exported(http, "jsonl") == b""
    assert exported(http, "csv").decode().startswith("key,content,answer")
    assert pq.read_table(io.BytesIO(exported(http, "parquet"))).num_rows == 0
    refused(http.send("GET", "/v1/pools/p/export", params={"format": "xml"}), 422, "invalid_request", "query.format")


# Service


def test_the_service_says_that_it_lives_and_what_it_is(http: Http) -> None:
    assert http.get("/healthz") == {"status": "alive"}
    assert http.get("/readyz") == {"ready": True}
    version = http.get("/version")
    assert version["contract"] == 1
    assert version["version"]
    assert "pools" in version["capabilities"]
    response = http.send("GET", "/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    assert b"process_cpu_seconds_total" in response.content


def test_the_place_of_the_web_page_says_that_there_is_none_yet(http: Http) -> None:
    refused(http.send("GET", "/ui"), 501, "not_available", "not built yet", "/docs", "/v1/runs/{run}/report")


def test_nul_characters_are_refused_and_never_an_internal_error(http: Http) -> None:
    http.put(prompts(1))
    for method, path, body in (
        ("GET", "/v1/pools/p%00", None),
        ("GET", "/v1/pools/p/prompts/%00", None),
        ("GET", "/v1/pools/p/prompts?search=%00", None),
        ("GET", "/v1/pools/p/prompts?category=%00", None),
        ("POST", "/v1/pools", {"name": "q", "description": "\0"}),
        ("POST", "/v1/pools/p/quarantine", {"keys": ["\0"], "reason": "x"}),
        ("POST", "/v1/pools/p/quarantine", {"keys": ["p000"], "reason": "\0"}),
    ):
        assert http.send(method, path, body).status_code in (200, 201, 404, 422)
