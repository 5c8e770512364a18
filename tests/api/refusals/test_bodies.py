"""Bodies that are no request at all, and values that JSON or a database cannot hold."""

import pytest

from tests.api.harness import Http, answered, in_process, letters, prompts, refused, unchanged
from tests.api.refusals.cases import DRAW, RUN


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[]", b'"draw"', b"7", b"{'index': 1}", b'{"index": "\xff"}', b"[" * 100_000, b"\x00"],
    ids=["empty", "broken", "null", "list", "text", "number", "single quotes", "not utf-8", "deep", "nul"],
)
@pytest.mark.parametrize("path", ["batches", "reports", "steps", "restore", "config"])
def test_a_body_that_is_no_json_object_is_refused(shared: Http, path: str, body: bytes) -> None:
    with unchanged(shared):
        refused(shared.send("POST", f"{RUN}/{path}", body), 422, "invalid_request", "body")


def test_a_body_declared_as_something_else_is_refused(shared: Http) -> None:
    with unchanged(shared):
        response = shared.send("POST", f"{RUN}/batches", DRAW, headers={"content-type": "text/plain"})
        refused(response, 422, "invalid_request", "body")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("runs", '{"name": "z", "pool": "p", "audit_share": @}', "audit_share"),
        ("runs", '{"name": "z", "pool": "p", "tolerance": @}', "tolerance"),
        ("runs", '{"name": "z", "pool": "p", "policy": {"power": @}}', "policy.power"),
        (
            "runs",
            '{"name": "z", "pool": "p", "policy": {"estimator_options": {"drift": @}}}',
            "estimator_options.drift",
        ),
        ("runs/r/config", '{"audit_share": @}', "audit_share"),
        ("runs/r/batches", '{"index": @, "size": 1, "policy_version": 1}', "index"),
        ("runs/r/steps", '{"step": 1, "policy_version": 1, "update_size": @}', "update_size"),
        ("runs/r/steps", '{"step": 1, "policy_version": 1, "costs": {"update_s": @}}', "costs.update_s"),
        (
            "runs/r/steps",
            '{"step": 1, "policy_version": 1, "costs": {"environment_s": {"act": @}}}',
            "environment_s.act",
        ),
    ],
)
def test_a_number_that_is_not_finite_is_refused_by_place(
    shared: Http, path: str, body: str, field: str, number: str
) -> None:
    with unchanged(shared):
        refused(shared.send("POST", f"/v1/{path}", body.replace("@", number).encode()), 422, "invalid_request", field)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("runs/r/steps", b'{"step": 1, "policy_version": 1, "trained": ["\\ud800"]}'),
        ("runs/r/steps", b'{"step": 1, "policy_version": 1, "costs": {"environment_s": {"\\ud800": 1}}}'),
        ("runs/r/reports", b'{"groups": [{"ticket": "\\ud800", "final": true}]}'),
        ("runs/r/restore", b'{"step": 0, "restore_id": "\\ud800"}'),
        ("runs", b'{"name": "z", "pool": "p", "policy": {"preset": "\\ud800"}}'),
        ("runs", b'{"name": "z", "pool": "p", "policy": {"estimator_options": {"\\ud800": 1}}}'),
        ("pools", b'{"name": "z", "description": "\\ud800"}'),
        ("pools/p/quarantine", b'{"keys": ["\\ud800"], "reason": "x"}'),
        ("pools/p/quarantine", b'{"keys": ["p001"], "reason": "\\ud800"}'),
    ],
)
def test_half_a_surrogate_pair_is_refused(shared: Http, path: str, body: bytes) -> None:
    with unchanged(shared):
        refused(shared.send("POST", f"/v1/{path}", body), 422, "invalid_request")


@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "streamed"])
def test_a_body_above_the_limit_is_refused_and_nothing_of_it_counts(sqlite_url: str, chunked: bool) -> None:
    with in_process(sqlite_url, max_body_bytes=4_096) as http:
        http.pool(letters("a"))
        http.run()
        ticket = http.draw(0, 1)["tickets"][0]["ticket"]
        body = (
            f'{{"groups": [{{"ticket": "{ticket}", "rollouts": [{{"n": 0, "outcome": 1}}]}}]}}' + " " * 5_000
        ).encode()
        content = iter([body[:2_000], body[2_000:]]) if chunked else body
        with unchanged(http):
            response = http.client.post(f"{RUN}/reports", content=content, headers={"content-type": "application/json"})
            refused(response, 413, "body_too_large", "4096")
        assert http.report({"ticket": ticket, "rollouts": [{"n": 0, "outcome": 1.0}]})["applied"] == 1


def test_a_malformed_upload_changes_nothing_and_a_bad_row_only_itself(http: Http) -> None:
    http.pool(letters())
    http.run()
    lines = {"content-type": "application/x-ndjson"}
    with unchanged(http):
        refused(http.send("PUT", "/v1/pools/p/prompts", b"not json\nat all", headers=lines), 422, "unreadable_body")
        refused(http.send("PUT", "/v1/pools/p/prompts", b"{}", headers={"content-type": "image/png"}), 415,
                "unsupported_format", "image/png")  # fmt: skip
        refused(http.send("PUT", "/v1/pools/q/prompts", b"{}", headers=lines), 404, "unknown_pool", "'q'")
    rows = b"\n".join(
        [
            b'{"key": "new", "content": "a new question"}',
            b'{"key": "x1", "content": "x", "colour": "red"}',
            b'{"key": "x2", "content": 7}',
            b'{"key": "x3", "content": "x", "features": {"length": NaN}}',
            b'{"key": "a", "content": "question a", "answer": "a"}',
            b'{"key": "new", "content": "another question"}',
        ]
    )
    answer = answered(http.send("PUT", "/v1/pools/p/prompts", rows, headers=lines))
    assert (answer["received"], answer["created"], answer["unchanged"], answer["rejected"]) == (6, 1, 1, 4)
    assert [(error["row"], error["code"]) for error in answer["errors"]] == [
        (1, "unknown_field"), (2, "wrong_type"), (3, "not_finite"), (5, "duplicate_key")
    ]  # fmt: skip
    assert http.draw(0, 10)["frame"] == 5


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/pools", b'{"name": "q", "description": "a\\u0000b"}'),
        ("POST", "/v1/pools/p/quarantine", b'{"keys": ["p001"], "reason": "a\\u0000b"}'),
        ("POST", "/v1/pools/p/quarantine", b'{"keys": ["\\u0000"], "reason": "x"}'),
        ("GET", "/v1/pools/p/prompts/a%00b", None),
        ("GET", "/v1/pools/p/prompts?search=%00", None),
        ("GET", "/v1/runs/%00", None),
    ],
)
def test_a_character_that_the_database_cannot_store_is_a_bad_request(
    postgres_url: str, method: str, path: str, body: bytes | None
) -> None:
    with in_process(postgres_url) as http:
        http.pool(prompts(3))
        http.run()
        with unchanged(http):
            refused(http.send(method, path, body), 422, "invalid_request", "character")
