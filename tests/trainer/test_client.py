"""The client's calls as they go over the wire; what the real service makes of them is in test_against_the_service."""

import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import httpx
import numpy as np
import pytest
from pydantic import BaseModel

from api import schemas
from tests.trainer.factories import CLAIM, Script, batch_body, make_client, ok
from trainer import options
from trainer.client import Client
from trainer.errors import InvalidRequest, ServiceUnavailable
from trainer.options import ConfigOptions, DrawOptions, RunOptions, StepOptions

IMPORTED = {
    "received": 1, "created": 1, "updated": 0, "unchanged": 0, "merged": 0, "rejected": 0, "errors": [], "warnings": []
}  # fmt: skip
CREATED = {"run": "r", "config": {}, "config_hash": "h", "claim": CLAIM}
RESTORED = {"step": 3, "branch": 1, "next_index": 4, "resume_from": 4, "lost": 0, "reissued": []}


def test_signals_of_many_prompts_go_out_in_parts_and_their_answers_are_added_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schemas, "MAX_PROMPTS_PER_PUSH", 2)
    refusal = {"key": "c", "name": None, "code": "unknown_prompt", "detail": "none"}
    counts = {"policy_version": 4, "duplicate": 1, "late": 0}
    network = Script(ok({**counts, "applied": 2, "rejected": []}), ok({**counts, "applied": 0, "rejected": [refusal]}))

    answer = make_client(network).push_signals(
        "r", {"a": {"value": 0.5}, "b": {"x": 1}, "c": {"x": 2.5}}, policy_version=4
    )

    assert network.sent(0) == {"policy_version": 4, "features": {"a": {"value": 0.5}, "b": {"x": 1.0}}}
    assert network.sent(1) == {"policy_version": 4, "features": {"c": {"x": 2.5}}}
    assert (answer.applied, answer.duplicate, answer.late) == (2, 2, 0)
    assert [(refused.key, refused.code) for refused in answer.rejected] == [("c", "unknown_prompt")]


def test_a_signal_that_is_no_finite_number_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(InvalidRequest, match=r"features\.a\.x"):
        make_client(Script()).push_signals("r", {"a": {"x": float("nan")}}, policy_version=0)


@pytest.mark.parametrize(
    ("typed", "model", "positional"),
    [
        (RunOptions, schemas.RunRequest, {"name", "pool", "policy"}),
        (ConfigOptions, schemas.ConfigRequest, {"policy"}),
        (DrawOptions, schemas.BatchRequest, {"index", "size", "policy_version"}),
        (StepOptions, schemas.StepRequest, {"step", "policy_version"}),
    ],
)
def test_keyword_arguments_are_those_of_the_contract(
    typed: type[Any], model: type[BaseModel], positional: set[str]
) -> None:
    hints = get_type_hints(typed)
    assert set(hints) | positional == set(model.model_fields)
    for name, hint in hints.items():
        # A choice of words must be the same choice; numbers have their ranges in the contract alone.
        assert _words(hint) == _words(model.model_fields[name].annotation), f"{options.__name__}.{name}"


def _words(hint: Any) -> set[str]:
    parts = get_args(hint)
    return {part for part in parts if isinstance(part, str)}.union(*(_words(part) for part in parts))


def test_a_run_is_asked_for_with_what_was_given_and_no_more() -> None:
    network = Script(ok(CREATED))
    client = make_client(network)
    client.create_run("r", pool="p")
    client.create_run("r", pool="p", policy="uniform", seed=3, max_lag=None)
    client.create_run("r", pool="p", policy={"preset": "midband", "power": 2})
    client.create_run("r", pool="p", policy=schemas.PolicyRequest(preset="midband", floor=0.5))
    assert [network.sent(place) for place in range(4)] == [
        {"name": "r", "pool": "p"},
        {"name": "r", "pool": "p", "policy": {"preset": "uniform"}, "seed": 3, "max_lag": None},
        {"name": "r", "pool": "p", "policy": {"preset": "midband", "power": 2.0}},
        {"name": "r", "pool": "p", "policy": {"preset": "midband", "floor": 0.5}},
    ]
    client.configure("r", audit_share=0.2)
    assert network.sent() == {"audit_share": 0.2}
    assert network.requests[-1].url.path == "/v1/runs/r/config"


def test_a_step_is_told_with_what_was_given_and_no_more() -> None:
    network = Script(ok({"step": 3, "branch": 0, "state": "recorded", "rejected": []}))
    client = make_client(network)
    client.step("r", 3, policy_version=4)
    client.step("r", 3, policy_version=4, trained=None, weights_applied=None, update_size=None, costs=None)
    client.step("r", 3, policy_version=4, trained=("a", "b"), weights_applied=False, update_size=0.5)
    client.step("r", 3, policy_version=4, trained=[], costs={"update_s": 2, "environment": {"model": "m"}})
    said = {"step": 3, "policy_version": 4}
    assert network.sent(0) == network.sent(1) == said
    assert network.sent(2) == said | {"trained": ["a", "b"], "weights_applied": False, "update_size": 0.5}
    costs = network.sent(3)["costs"]
    assert network.sent(3) == said | {"trained": [], "costs": costs}
    assert costs["update_s"] == 2.0
    assert costs["environment"]["model"] == "m"
    assert len(costs["environment"]) > 1, "what this process runs on goes with it"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c.draw("r", -1, 4, 0), "index: .* got -1"),
        (lambda c: c.draw("r", 0, 0, 0), "size: .* got 0"),
        (lambda c: c.draw("r", 0, 4, 0, purpose="trian"), "purpose: .* got 'trian'"),
        (lambda c: c.draw("r", 0, 4, 0, sizes=4), "sizes: "),
        (lambda c: c.create_run("Run 1", pool="p"), "name: .* got 'Run 1'"),
        (lambda c: c.create_run("r", pool="p", audit_share=float("nan")), "audit_share: .* got nan"),
        (lambda c: c.step("r", 0, policy_version=0, update_size=float("inf")), "update_size"),
        (lambda c: c.quarantine("p", [], reason="x"), "keys"),
        (lambda c: c.put_prompts("p", [{"key": "a"}, {"key": object()}]), "row 1 cannot be written as JSON: object"),
        (lambda c: c.put_prompts("p", Path("prompts.xlsx")), r"prompts.xlsx: the format .* \.parquet"),
        (lambda c: c.put_prompts("p", Path("missing.jsonl")), "no such file"),
    ],
)
def test_what_the_contract_does_not_allow_is_not_sent(call: Any, words: str) -> None:
    network = Script(ok({}))
    with pytest.raises(InvalidRequest, match=words):
        call(make_client(network))
    assert network.requests == []


def test_a_draw_is_answered_with_typed_tickets() -> None:
    network = Script(ok(batch_body("a", "b/c")))
    batch = make_client(network).draw("r", 0, 2, 0, purpose="train", divisor=2, include=["content"])
    assert [(ticket.prompt, ticket.predicted.pass_rate) for ticket in batch.tickets] == [("a", 0.5), ("b/c", 0.5)]
    assert network.requests[0].method == "POST"
    assert network.sent() == {
        "index": 0, "size": 2, "policy_version": 0, "purpose": "train", "divisor": 2, "include": ["content"]
    }  # fmt: skip


def test_fields_of_a_newer_service_are_no_error() -> None:
    body = batch_body("a") | {"new_field": 1}
    body["tickets"][0]["another"] = 2
    assert make_client(Script(ok(body))).draw("r", 0, 1, 0).returned == 1


def test_reading_a_batch_names_it_in_full() -> None:
    network = Script(ok(batch_body("a")))
    make_client(network).batch("r", 17, purpose="heldout", refill=2, branch=0)
    assert network.requests[0].url.raw_path == b"/v1/runs/r/batches/17?purpose=heldout&refill=2&branch=0"


@pytest.mark.parametrize("given", [True, False])
def test_rows_may_hold_what_numpy_makes(given: bool) -> None:
    network = Script(ok(IMPORTED))
    row = {"key": "a", "features": {"x": np.float32(0.5), "n": np.int64(3)}, "meta": {"v": np.array([1.0, 2.0])}}
    rows: Any = [row] if given else (one for one in [row])
    make_client(network).put_prompts("p", rows, mode="replace")
    assert network.requests[0].url.raw_path == b"/v1/pools/p/prompts?mode=replace"
    assert network.requests[0].headers["content-type"] == "application/x-ndjson"
    assert network.sent() == {"key": "a", "features": {"x": 0.5, "n": 3}, "meta": {"v": [1.0, 2.0]}}


def test_a_number_that_is_none_is_left_for_the_service_to_refuse_with_its_row() -> None:
    network = Script(ok(IMPORTED))
    make_client(network).put_prompts("p", [{"key": "a", "features": {"x": float("nan")}}])
    assert network.bodies[0] == b'{"key": "a", "features": {"x": NaN}}\n'


def test_many_rows_arrive_in_order() -> None:
    network = Script(ok(IMPORTED))
    make_client(network).put_prompts("p", ({"key": str(n)} for n in range(2_345)))
    assert [json.loads(line)["key"] for line in network.bodies[0].splitlines()] == [str(n) for n in range(2_345)]


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("a.jsonl", "application/x-ndjson"),
        ("a.JSON", "application/json"),
        ("a.csv", "text/csv"),
        ("a.parquet", "application/vnd.apache.parquet"),
    ],
)
def test_a_file_is_sent_as_it_is(tmp_path: Path, name: str, content_type: str) -> None:
    file = tmp_path / name
    file.write_bytes(bytes(range(256)) * 9_000)
    for given in (file, str(file)):
        network = Script(httpx.ReadError("gone"), ok(IMPORTED))
        make_client(network).put_prompts("p", given)
        assert network.requests[0].headers["content-type"] == content_type
        assert network.bodies == [file.read_bytes()] * 2


def test_a_restore_without_an_id_gets_one_that_its_second_try_keeps() -> None:
    network = Script(httpx.ReadTimeout("slow"), ok(RESTORED))
    client = make_client(network)
    client.restore("r", 3)
    assert network.sent(0) == network.sent(1)
    client.restore("r", 3)
    assert network.sent(2)["restore_id"] != network.sent(1)["restore_id"]
    client.restore("r", 3, restore_id="mine", in_flight="void")
    assert network.sent() == {"step": 3, "beliefs": "rewind", "in_flight": "void", "restore_id": "mine"}


@pytest.mark.parametrize("end", ["\n", ""])
def test_beliefs_come_as_columns(end: str) -> None:
    lines = '{"key":"a\u2028","pass_rate":0.5,"state":"new"}\n{"key":"b","pass_rate":0.25,"state":"active"}'
    client = make_client(Script(httpx.Response(200, text=lines + end)))
    assert client.beliefs("r") == {"key": ["a\u2028", "b"], "pass_rate": [0.5, 0.25], "state": ["new", "active"]}


class BrokenStream(httpx.SyncByteStream):
    """A body that breaks off."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts

    def __iter__(self) -> Any:
        yield from self._parts
        raise httpx.ReadError("the line broke")


def test_a_log_that_breaks_off_is_read_on_behind_the_last_event() -> None:
    answers = [
        httpx.Response(200, stream=BrokenStream(b'{"seq":1}\n{"se', b'q":2}\n{"seq":')),
        httpx.Response(200, text='{"seq":3}\n{"seq":4}\n'),
    ]
    asked: list[str] = []

    def network(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.query.decode())
        return answers.pop(0)

    assert [event["seq"] for event in make_client(network).events("r")] == [1, 2, 3, 4]
    assert asked == ["after=0", "after=2"]


def test_a_log_that_never_gets_on_is_an_error() -> None:
    def network(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=BrokenStream(b'{"seq":'))

    with pytest.raises(ServiceUnavailable, match="log of r broke off behind event 7"):
        list(make_client(network).events("r", after=7))


def test_an_export_that_breaks_off_leaves_no_file(tmp_path: Path) -> None:
    client = make_client(lambda request: httpx.Response(200, stream=BrokenStream(b"half")))
    with pytest.raises(ServiceUnavailable, match=r"pool\.csv was not written"):
        client.export_prompts("p", tmp_path / "pool.csv")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidRequest, match=r"one of \.jsonl, \.csv, \.parquet"):
        client.export_prompts("p", tmp_path / "pool.txt")


def test_a_closed_client_may_be_closed_again() -> None:
    with Client() as client:
        client.close()
    assert repr(client) == "Client('http://127.0.0.1:8765')"
