"""Fields, paths and queries that are out of range, missing or unknown: each is named, and nothing is half done."""

import pytest

from tests.api.harness import Http, Json, refused, unchanged
from tests.api.refusals.cases import DRAW, RUN, STEP

FIELDS: list[tuple[str, Json, str, object]] = [
    *(("batches", DRAW, "size", value) for value in (0, -1, 1.5, "many", None, 10**7)),
    *(("batches", DRAW, "index", value) for value in (-1, 2**60, 10**30, "first")),
    *(("batches", DRAW, "policy_version", value) for value in (-1, 1e300, None)),
    *(("batches", DRAW, "group_size", value) for value in (0, 5_000, "eight")),
    *(("batches", DRAW, "divisor", value) for value in (0, -4, 10**9)),
    *(("batches", DRAW, "refill", value) for value in (-1, 10**5)),
    ("batches", DRAW, "purpose", "testing"),
    ("batches", DRAW, "short", "maybe"),
    ("batches", DRAW, "allow_repeat", "perhaps"),
    ("batches", DRAW, "include", ["pictures"]),
    ("batches", DRAW, "branch", -1),
    ("batches", DRAW, "sizes", 4),
    *(("steps", STEP, "step", value) for value in (-1, "one", None)),
    ("steps", STEP, "trained", "all"),
    ("steps", STEP, "weights_applied", "perhaps"),
    ("steps", STEP, "costs", {"update_s": -1.0}),
    ("steps", STEP, "costs", {"coffee_s": 1.0}),
    ("steps", STEP, "cost", {}),
    *(("checkpoints", {"step": 1}, "step", value) for value in (-1, 0.5, "one")),
    ("checkpoints", {"step": 1}, "name", "best"),
    ("restore", {"step": 0}, "beliefs", "forget"),
    ("restore", {"step": 0}, "in_flight", "maybe"),
    ("restore", {"step": 0}, "restore_id", ""),
    ("restore", {"step": 0}, "branch", 1),
    *(("config", {}, "audit_share", value) for value in (-0.1, 1.1, "half", 1e300)),
    ("config", {}, "weights", "importance"),
    ("config", {}, "max_lag", -1),
    ("config", {}, "group_size", 4),
    ("config", {}, "policy", {"floor": -0.1}),
    ("config", {}, "policy", {"power": -1.0}),
    ("config", {}, "policy", {"utility": "beauty"}),
    ("config", {}, "policy", {"temperature": 1.0}),
    ("config", {}, "policy", {"target": 1.1}),
    ("config", {}, "policy", {"candidates": 0.5}),
    ("config", {}, "policy", {"design": "cluster"}),
    ("config", {}, "policy", {"reads": "minds"}),
    ("config", {}, "policy", {"low": -0.1}),
    ("config", {}, "policy", {"staleness": 1.1}),
    ("config", {}, "policy", {"easy_weight": -0.1}),
    ("config", {}, "policy", {"controller": {"name": "adarft", "options": {"rate": "fast"}}}),
    ("config", {}, "policy", {"high": float("inf")}),
]


@pytest.mark.parametrize(("path", "body", "field", "value"), FIELDS)
def test_a_field_of_the_wrong_type_or_out_of_range_is_named(
    shared: Http, path: str, body: Json, field: str, value: object
) -> None:
    with unchanged(shared):
        refused(shared.send("POST", f"{RUN}/{path}", {**body, field: value}), 422, "invalid_request", field)


@pytest.mark.parametrize("field", ["size", "index", "policy_version"])
def test_a_field_that_is_missing_is_named(shared: Http, field: str) -> None:
    body = {name: value for name, value in DRAW.items() if name != field}
    with unchanged(shared):
        refused(shared.send("POST", f"{RUN}/batches", body), 422, "invalid_request", f"{field}: Field required")


def test_paths_and_methods_that_do_not_exist_have_the_same_shape(shared: Http) -> None:
    refused(shared.send("GET", "/v1/nothing"), 404, "not_found", "'/v1/nothing'")
    refused(shared.send("GET", "/v1/runs/r/nothing"), 404, "not_found", "'/v1/runs/r/nothing'")
    refused(shared.send("DELETE", "/v1/runs/r"), 405, "method_not_allowed", "DELETE")
    refused(shared.send("PUT", "/v1/runs/r/batches", DRAW), 405, "method_not_allowed", "PUT")
    response = shared.send("PATCH", "/v1/runs")
    refused(response, 405, "method_not_allowed", "PATCH")


def test_a_request_keeps_the_name_it_was_given_if_that_is_sane(shared: Http) -> None:
    named = shared.send("GET", "/v1/runs/nope", headers={"x-request-id": "trainer-7"})
    assert named.headers["x-request-id"] == "trainer-7"
    assert named.json()["request_id"] == "trainer-7"
    assert shared.send("GET", RUN, headers={"x-request-id": "trainer-8"}).headers["x-request-id"] == "trainer-8"
    for odd in ("a b", "x" * 101, "a;b", "<script>"):
        assert shared.send("GET", RUN, headers={"x-request-id": odd}).headers["x-request-id"] != odd
    assert shared.send("GET", RUN).headers["x-request-id"] != shared.send("GET", RUN).headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "code", "word"),
    [
        ("tickets?cursor=abc", "invalid_cursor", "abc"),
        ("tickets?cursor=-1", "invalid_cursor", "-1"),
        ("tickets?limit=0", "invalid_request", "limit"),
        ("tickets?limit=1000000", "invalid_request", "limit"),
        ("tickets?state=lost", "invalid_request", "state"),
        ("tickets?batch=-1", "invalid_request", "batch"),
        ("batches/-1", "invalid_request", "index"),
        ("batches/first", "invalid_request", "index"),
        ("batches/0?purpose=none", "invalid_request", "purpose"),
        ("batches/0?refill=-1", "invalid_request", "refill"),
        ("batches/0?include=pictures", "invalid_request", "include"),
        ("events?after=-1", "invalid_request", "after"),
        ("events?after=1000000000000000000000000000000", "invalid_request", "after"),
        ("audit?level=2", "invalid_request", "level"),
        ("audit?level=nan", "invalid_request", "level"),
        ("beliefs?format=xml", "invalid_request", "format"),
    ],
)
def test_a_query_out_of_range_is_named(shared: Http, path: str, code: str, word: str) -> None:
    refused(shared.send("GET", f"{RUN}/{path}"), 422, code, word)


def test_reading_past_the_end_gives_nothing(shared: Http) -> None:
    far = shared.get(f"{RUN}/tickets", cursor=str(10**30))
    assert far == {"items": [], "next_cursor": None}
    assert shared.events(after=2**53) == []
    refused(shared.send("GET", f"{RUN}/batches/0?branch=7"), 404, "unknown_batch")
