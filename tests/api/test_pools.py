"""The endpoints on pools, as a caller sees them."""

import io
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.db import prompts as prompt_queries
from api.importing.content import Content, hashes
from tests.api.harness import Http, Json, group, in_process, prompts, refused

JSONL = "application/x-ndjson"
MESSAGES: Content = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


@pytest.fixture
def http(database_url: str) -> Iterator[Http]:
    with in_process(database_url, max_body_bytes=200_000, max_import_bytes=1_000_000) as http:
        http.post("/v1/pools", {"name": "p"})
        yield http


def upload(http: Http, body: bytes | str, content_type: str, pool: str = "p", **query: str) -> Any:
    data = body.encode() if isinstance(body, str) else body
    headers = {"content-type": content_type}
    return http.send("PUT", f"/v1/pools/{pool}/prompts", data, params=query, headers=headers)


def keys(page: Json) -> list[str]:
    return [item["key"] for item in page["items"]]


def all_pages(http: Http, **query: Any) -> list[Json]:
    pages = [http.get("/v1/pools/p/prompts", **query)]
    while pages[-1]["next_cursor"] is not None:
        pages.append(http.get("/v1/pools/p/prompts", **query, cursor=pages[-1]["next_cursor"]))
    return pages


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


@pytest.mark.parametrize(
    "body",
    [{}, {"name": ""}, {"name": "Big"}, {"name": "-a"}, {"name": "a" * 101}, {"name": "a/b"}, {"name": "a", "x": 1}],
)
def test_a_bad_name_or_field_is_refused(http: Http, body: Json) -> None:
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


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (JSONL, '{"key": "a", "content": "1 + 1", "answer": "2"}\n{"key": "b", "content": "2 + 2", "answer": "4"}'),
        (
            "application/jsonl",
            '{"key":"a","content":"1 + 1","answer":"2"}\n{"key":"b","content":"2 + 2","answer":"4"}\n',
        ),
        ("application/json", '[{"key":"a","content":"1 + 1","answer":"2"},{"key":"b","content":"2 + 2","answer":"4"}]'),
        ("text/csv", "key,content,answer\na,1 + 1,2\nb,2 + 2,4\n"),
        ("application/vnd.apache.parquet", table()),
        ("application/parquet", table()),
    ],
)
def test_every_format_gives_the_same_pool(http: Http, content_type: str, body: bytes | str) -> None:
    answer = upload(http, body, content_type).json()
    assert answer == {
        "received": 2, "created": 2, "updated": 0, "unchanged": 0, "merged": 0, "rejected": 0,
        "errors": [], "warnings": [],
    }  # fmt: skip
    prompt = http.get("/v1/pools/p/prompts/b")
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


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (JSONL, "not json at all"),
        ("application/json", '{"key": "a"}'),
        ("application/json", '[{"key": "a"}, '),
        ("text/csv", "question,answer\na,b\n"),
        ("application/parquet", "PAR1"),
    ],
)
def test_a_body_in_another_format_than_declared_changes_nothing(http: Http, content_type: str, body: str) -> None:
    http.put(prompts(2))
    refused(upload(http, body, content_type, mode="replace"), 422, "unreadable_body")
    assert http.get("/v1/pools/p")["revision"] == 1


def test_an_unknown_format_or_mode_is_refused(http: Http) -> None:
    refused(upload(http, "a", "text/plain"), 415, "unsupported_format", "'text/plain'", "application/x-ndjson")
    refused(upload(http, "[]", "application/json", mode="replce"), 422, "invalid_request", "query.mode", "'replce'")


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


# Lists


def test_a_list_has_what_the_pool_knows_of_each_prompt(http: Http) -> None:
    http.put([{"key": "a", "content": MESSAGES, "category": "c"}, {"key": "b", "content": "x" * 5_000, "answer": "1"}])
    page = http.get("/v1/pools/p/prompts")
    assert (page["total"], page["next_cursor"]) == (2, None)
    short, long = page["items"]
    assert short == {
        "key": "a", "row": short["row"], "category": "c", "split": "train", "content": MESSAGES, "preview": "Hi",
        "answer": None, "content_hash": hashes(MESSAGES, None)[0], "absent": False, "quarantined": False,
        "quarantine_reason": None,
    }  # fmt: skip
    assert (long["content"], len(long["preview"]), long["answer"]) == (None, 300, "1")


@pytest.mark.parametrize("sort", ["key", "row", "category", "split"])
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_have_every_prompt_once_in_order(http: Http, sort: str, order: str) -> None:
    rows = prompts(25)
    for i, row in enumerate(rows):
        row |= {"category": [None, "b", "a"][i % 3], "split": ["train", "heldout"][i % 2]}
    http.put(rows)
    pages = all_pages(http, sort=sort, order=order, limit=4)
    assert [len(page["items"]) for page in pages] == [4] * 6 + [1]
    items = [item for page in pages for item in page["items"]]
    places = [("" if item[sort] is None else item[sort], item["row"]) for item in items]
    assert places == sorted(places, reverse=order == "desc")
    assert len({item["key"] for item in items}) == 25
    assert {page["total"] for page in pages} == {25}


def test_a_page_that_ends_with_the_list_has_no_cursor(http: Http) -> None:
    http.put(prompts(4))
    assert [len(page["items"]) for page in all_pages(http, limit=2)] == [2, 2]


def test_prompts_are_filtered(http: Http) -> None:
    rows = prompts(6)
    for row, category, split in zip(rows, "aabb", ["train", "heldout"] * 2, strict=False):
        row |= {"category": category, "split": split}
    http.put(rows)
    http.quarantine(["p000", "p001"])
    http.put(rows[:5], mode="replace")
    for query, expected in (
        ({"category": "a"}, ["p000", "p001"]),
        ({"category": ""}, ["p004"]),
        ({"split": "heldout"}, ["p001", "p003"]),
        ({"state": "quarantined"}, ["p000", "p001"]),
        ({"state": "quarantined", "split": "train"}, ["p000"]),
        ({"state": "absent"}, ["p005"]),
        ({"category": "nothing"}, []),
    ):
        page = http.get("/v1/pools/p/prompts", **query)
        assert (keys(page), page["total"]) == (expected, len(expected))


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("100%", ["percent"]),
        ("a_c", ["under"]),
        ("LIN", ["lines"]),
        ('"quoted"', ["quotes"]),
        ("one\ntwo", ["lines"]),
        ("back\\slash", ["quotes"]),
        ("größe", ["umlaut"]),
        ("42", ["umlaut"]),
        ("nobody", []),
    ],
)
def test_a_search_finds_parts_of_key_content_and_answer_literally(http: Http, search: str, expected: list[str]) -> None:
    http.put(
        [
            {"key": "percent", "content": "100% of it"},
            {"key": "per-cent", "content": "1000 of it"},
            {"key": "under", "content": "a_c"},
            {"key": "abc", "content": "abc"},
            {"key": "lines", "content": "one\ntwo"},
            {"key": "quotes", "content": 'a "quoted" back\\slash'},
            {"key": "umlaut", "content": "größe", "answer": "42"},
        ]
    )
    assert keys(http.get("/v1/pools/p/prompts", search=search)) == expected


def test_one_can_jump_to_a_place(http: Http) -> None:
    http.put(prompts(20))
    page = http.get("/v1/pools/p/prompts", offset=15, limit=3)
    assert keys(page) == ["p015", "p016", "p017"]
    assert keys(http.get("/v1/pools/p/prompts", cursor=page["next_cursor"], limit=3)) == ["p018", "p019"]
    assert keys(http.get("/v1/pools/p/prompts", offset=20)) == []


def test_a_cursor_is_of_one_list_only(http: Http) -> None:
    http.put(prompts(5))
    cursor = http.get("/v1/pools/p/prompts", limit=2)["next_cursor"]
    for query in ({"order": "desc"}, {"sort": "row"}, {"category": "a"}, {"search": "p"}):
        response = http.send("GET", "/v1/pools/p/prompts", params={**query, "cursor": cursor})
        refused(response, 422, "invalid_cursor", "leave it out")
    for bad in ("x", "é", "W10", "bnVsbA", cursor[:-4]):
        refused(http.send("GET", "/v1/pools/p/prompts", params={"cursor": bad}), 422, "invalid_cursor")
    refused(http.send("GET", "/v1/pools/p/prompts", params={"cursor": cursor, "offset": 3}), 422, "invalid_request")


def test_a_cursor_goes_on_after_rows_were_added_in_between(http: Http) -> None:
    http.put(prompts(6))
    first = http.get("/v1/pools/p/prompts", limit=3)
    http.put([{"key": "a"}, {"key": "p0015"}, {"key": "z"}])
    assert keys(http.get("/v1/pools/p/prompts", limit=9, cursor=first["next_cursor"])) == ["p003", "p004", "p005", "z"]


@pytest.mark.parametrize(
    "query",
    [
        {"limit": 0}, {"limit": 1_001}, {"limit": "many"}, {"order": "up"}, {"split": "test"}, {"state": "bored"},
        {"sort": "x'; --"}, {"colour": "red"}, {"search": "x" * 501}, {"offset": -1},
    ],
)  # fmt: skip
def test_a_bad_query_is_refused(http: Http, query: Json) -> None:
    refused(http.send("GET", "/v1/pools/p/prompts", params=query), 422, "invalid_request")


# One prompt


def test_a_prompt_is_shown_with_all_that_is_linked_to_it(http: Http) -> None:
    http.put([{"key": "a", "content": "first", "answer": "1"}])
    row = {
        "key": "a", "content": "q", "answer": "1", "features": {"len": 3}, "parent": "z",
        "meta": {"source": [None, "web"]},
    }  # fmt: skip
    http.put([row, {"key": "b", "content": "q", "answer": "2"}, {"key": "c", "content": "q ", "answer": "1"}])
    shown = http.get("/v1/pools/p/prompts/a")
    assert {name: shown[name] for name in row} == {**row, "features": {"len": 3.0}}
    assert (shown["variants"], shown["replaces"]) == (["b", "c"], 0)
    old = {"row": 0, "content_hash": hashes("first", "1")[0], "content": "first", "answer": "1"}
    assert shown["versions"] == [old]


@pytest.mark.parametrize(
    "key", ["math/algebra/1", "a b", "a?b=c&d", "ä/日本", "100%", "a#b", "/a//b/", "a%2Fb", "x" * 512]
)
def test_any_key_can_be_asked_for(http: Http, key: str) -> None:
    http.put([{"key": key, "content": "q"}])
    assert http.get(f"/v1/pools/p/prompts/{quote(key, safe='/')}")["key"] == key
    assert http.get(f"/v1/pools/p/prompts/{quote(key, safe='')}")["key"] == key


def test_an_unknown_key_is_404(http: Http) -> None:
    for key in ("nobody", "a/b", "%0A", "x" * 600):
        refused(http.send("GET", f"/v1/pools/p/prompts/{key}"), 404, "unknown_prompt")


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


@pytest.mark.parametrize("body", [{"keys": [], "reason": "x"}, {"keys": ["a"]}, {"keys": ["a"], "reason": ""}])
def test_a_quarantine_without_keys_or_reason_is_refused(http: Http, body: Json) -> None:
    refused(http.send("POST", "/v1/pools/p/quarantine", body), 422, "invalid_request")


# What a run knows


def started(http: Http) -> None:
    """A run on 12 prompts, two of them held out, in which p003 was solved and p004 was not."""
    rows = prompts(12)
    rows[10] |= {"split": "heldout"}
    rows[11] |= {"split": "heldout"}
    http.put(rows)
    http.run()
    tickets = {ticket["prompt"]: ticket for ticket in http.draw(0, 10)["tickets"]}
    http.report(group(tickets["p003"], [1.0] * 8), group(tickets["p004"], [0.0] * 8))


def test_a_list_with_a_run_has_beliefs_and_states_and_can_be_sorted_by_them(http: Http) -> None:
    started(http)
    page = http.get("/v1/pools/p/prompts", run="r", sort="pass_rate", order="desc")
    assert page["total"] == 12
    rates = [item["belief"]["pass_rate"] for item in page["items"]]
    assert rates == sorted(rates, reverse=True)
    assert (page["items"][0]["key"], page["items"][-1]["key"]) == ("p003", "p004")
    assert {item["state"] for item in page["items"]} >= {"new", "active"}
    paged = all_pages(http, run="r", sort="pass_rate", order="desc", limit=5)
    assert [key for part in paged for key in keys(part)] == keys(page)
    assert keys(http.get("/v1/pools/p/prompts", run="r", sort="pass_rate", order="asc", limit=1)) == ["p004"]
    assert keys(
        http.get("/v1/pools/p/prompts", run="r", sort="pass_rate", order="desc", split="heldout", offset=1, limit=1)
    )


@pytest.mark.parametrize(
    "sort", ["key", "row", "category", "split", "n_eff", "lag", "informative", "pass_rate_sd", "drawn"]
)
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_prompts_in_a_state_of_a_run_come_in_any_order(http: Http, sort: str, order: str) -> None:
    started(http)
    page = http.get("/v1/pools/p/prompts", run="r", state="active", sort=sort, order=order)
    assert sorted(keys(page)) == ["p003", "p004"]
    new = http.get("/v1/pools/p/prompts", run="r", state="new", sort=sort, order=order)
    assert new["total"] == 8
    values = [{**item, **item["belief"]}[sort] or "" for item in new["items"]]
    assert values == sorted(values, reverse=order == "desc")


@pytest.mark.parametrize("sort", ["key", "pass_rate"])
def test_a_list_in_a_runs_order_is_filtered_like_any_other(http: Http, sort: str) -> None:
    rows = prompts(12)
    for row, category, split in zip(rows, "aabbccaabbcc", ["train", "train", "heldout"] * 4, strict=True):
        row |= {"category": category, "split": split}
    rows[11] |= {"category": ""}
    http.put(rows)
    http.quarantine(["p001", "p002"])
    http.put([*rows[:10], rows[11], {"key": "p009", "content": "edited"}], mode="replace")
    http.put([{"key": "p009", "content": "edited", "category": "b"}])
    http.run()
    for query, expected in (
        ({}, "p000 p001 p002 p003 p004 p005 p006 p007 p008 p009 p011"),
        ({"category": "a"}, "p000 p001 p006 p007"),
        ({"category": "b", "split": "train"}, "p003 p009"),
        ({"category": ""}, "p011"),
        ({"category": "nothing"}, ""),
        ({"state": "quarantined"}, "p001 p002"),
        ({"search": "QUESTION 1"}, "p001 p011"),
        ({"search": "edited", "category": "b"}, "p009"),
    ):
        plain = http.get("/v1/pools/p/prompts", **query)
        page = http.get("/v1/pools/p/prompts", **query, run="r", sort=sort)
        assert sorted(keys(page)) == keys(plain) == expected.split()
        assert page["total"] == plain["total"] == len(expected.split())


def test_a_state_or_sort_of_a_run_needs_a_run(http: Http) -> None:
    started(http)
    for query in ({"state": "active"}, {"sort": "pass_rate"}):
        refused(http.send("GET", "/v1/pools/p/prompts", params=query), 422, "invalid_request", "which `run` names")
    for query, word in (
        ({"run": "r", "sort": "beauty"}, "pass_rate"),
        ({"run": "r", "sort": "lag", "state": "absent"}, "category"),
    ):
        refused(http.send("GET", "/v1/pools/p/prompts", params=query), 422, "invalid_request", word)


def test_an_unknown_run_or_one_on_another_pool_is_404(http: Http) -> None:
    started(http)
    http.pool(prompts(2), pool="other")
    for path in ("/prompts", "/prompts/p000", "/export"):
        refused(http.send("GET", f"/v1/pools/p{path}", params={"run": "nobody"}), 404, "unknown_run")
        refused(http.send("GET", f"/v1/pools/other{path}", params={"run": "r"}), 404, "unknown_run")
    refused(http.send("GET", "/v1/pools/other/prompts", params={"run": "r", "sort": "lag"}), 404, "unknown_run")


def test_a_prompt_with_a_run_has_its_groups(http: Http) -> None:
    started(http)
    shown = http.prompt("p003")
    assert (shown["content"], shown["state"], shown["groups"][0]["passes"]) == ("question 3", "active", 8.0)


# Exports


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_an_export_uploads_again_and_changes_nothing(http: Http, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_queries, "EXPORT_PAGE_ROWS", 7)
    rows = prompts(30, category="c", features={"len": 1, "v": [1, 2]}, meta={"x": [1, None, "007"]})
    rows += [{"content": MESSAGES}, {"key": "h", "content": 'a,"b"\r\nc', "split": "heldout"}, {"key": "k"}]
    http.put([*rows, {"key": "gone"}])
    http.put(rows, mode="replace")
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


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_an_export_with_a_run_has_its_beliefs(http: Http, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_queries, "EXPORT_PAGE_ROWS", 11)  # the last page has one row
    started(http)
    data = exported(http, form, run="r")
    if form == "parquet":
        found = pq.read_table(io.BytesIO(data)).to_pylist()
    elif form == "csv":
        header, *lines = data.decode().splitlines()
        found = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
    else:
        found = [json.loads(line) for line in data.splitlines()]
        found = [{**row, **row["belief"]} for row in found]
    assert len(found) == 12
    assert not any("groups" in row for row in found)
    by_key = {row["key"]: row for row in found}
    assert float(by_key["p003"]["pass_rate"]) > float(by_key["p000"]["pass_rate"]) > float(by_key["p004"]["pass_rate"])
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
