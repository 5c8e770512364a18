"""Lists of prompts and single prompts, as a caller sees them: alone, and with what a run knows."""

from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest

from api.importing.content import Content, hashes
from tests.api.harness import Http, Json, in_process, prompts, refused
from tests.api.pool_cases import started

MESSAGES: Content = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


@pytest.fixture
def http(database_url: str) -> Iterator[Http]:
    with in_process(database_url, max_body_bytes=200_000, max_import_bytes=1_000_000) as http:
        http.post("/v1/pools", {"name": "p"})
        yield http


def keys(page: Json) -> list[str]:
    return [item["key"] for item in page["items"]]


def all_pages(http: Http, **query: Any) -> list[Json]:
    pages = [http.get("/v1/pools/p/prompts", **query)]
    while pages[-1]["next_cursor"] is not None:
        pages.append(http.get("/v1/pools/p/prompts", **query, cursor=pages[-1]["next_cursor"]))
    return pages


# Lists


def test_a_list_has_what_the_pool_knows_of_each_prompt(http: Http) -> None:
    http.put(
        [
            {"key": "a", "content": MESSAGES, "category": "c", "meta": {"level": 3}},
            {"key": "b", "content": "x" * 5_000, "answer": "1", "meta": {"note": "y" * 5_000}},
        ]
    )
    page = http.get("/v1/pools/p/prompts")
    assert (page["total"], page["next_cursor"]) == (2, None)
    short, long = page["items"]
    assert short == {
        "key": "a", "row": short["row"], "category": "c", "split": "train", "content": MESSAGES, "preview": "Hi",
        "answer": None, "content_hash": hashes(MESSAGES, None)[0], "absent": False, "quarantined": False,
        "quarantine_reason": None, "meta": {"level": 3},
    }  # fmt: skip
    assert long["meta"] is None
    assert (long["content"], len(long["preview"]), long["answer"]) == (None, 300, "1")


def test_pages_have_every_prompt_once_in_order(http: Http) -> None:
    rows = prompts(25)
    for i, row in enumerate(rows):
        row |= {"category": [None, "b", "a"][i % 3], "split": ["train", "heldout"][i % 2]}
    http.put(rows)
    for sort, order in product(["key", "row", "category", "split"], ["asc", "desc"]):
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


def test_a_search_finds_parts_of_key_content_and_answer_literally(http: Http) -> None:
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
    for search, expected in (
        ("100%", "percent"),
        ("a_c", "under"),
        ("LIN", "lines"),
        ('"quoted"', "quotes"),
        ("one\ntwo", "lines"),
        ("back\\slash", "quotes"),
        ("größe", "umlaut"),
        ("42", "umlaut"),
        ("nobody", ""),
    ):
        assert keys(http.get("/v1/pools/p/prompts", search=search)) == expected.split()


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


def test_a_bad_query_is_refused(http: Http) -> None:
    bad: list[Json] = [
        {"limit": 0}, {"limit": 1_001}, {"limit": "many"}, {"order": "up"}, {"split": "test"}, {"state": "bored"},
        {"sort": "x'; --"}, {"colour": "red"}, {"search": "x" * 501}, {"offset": -1},
    ]  # fmt: skip
    for query in bad:
        refused(http.send("GET", "/v1/pools/p/prompts", params=query), 422, "invalid_request", *query)


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


def test_any_key_can_be_asked_for(http: Http) -> None:
    odd = ["math/algebra/1", "a b", "a?b=c&d", "ä/日本", "100%", "a#b", "/a//b/", "a%2Fb", "x" * 512]
    http.put([{"key": key} for key in odd])
    for key, safe in product(odd, ["/", ""]):
        assert http.get(f"/v1/pools/p/prompts/{quote(key, safe=safe)}")["key"] == key


def test_an_unknown_key_is_404(http: Http) -> None:
    for key in ("nobody", "a/b", "%0A", "x" * 600):
        refused(http.send("GET", f"/v1/pools/p/prompts/{key}"), 404, "unknown_prompt")


# What a run knows


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


def test_prompts_in_a_state_of_a_run_come_in_any_order(http: Http) -> None:
    started(http)
    sorts = ["key", "row", "category", "split", "n_eff", "lag", "informative", "pass_rate_sd", "drawn"]
    for sort, order in product(sorts, ["asc", "desc"]):
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
