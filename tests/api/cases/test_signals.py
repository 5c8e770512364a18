"""Numbers that the trainer pushes: refused by row, counted once, kept over a crash, and what beliefs make of them."""

import pytest

from tests.api.harness import Http, answered, in_process, letters, refused

PATH = "/v1/runs/r/signals"


def push(http: Http, version: int = 0, **features: dict[str, float]) -> dict[str, object]:
    answer: dict[str, object] = http.post(PATH, {"policy_version": version, "features": features})
    return answer


def test_a_push_says_what_counted_and_names_what_did_not(http: Http) -> None:
    http.pool(letters())
    http.run()

    answer = push(http, a={"value": 0.25, "entropy": 3.5}, b={"value": 1.5}, nobody={"value": 0.5})

    assert (answer["applied"], answer["duplicate"], answer["late"]) == (2, 0, 0)
    rejected = answer["rejected"]
    assert isinstance(rejected, list)
    assert [(r["key"], r["name"], r["code"]) for r in rejected] == [
        ("b", "value", "bad_value"), ("nobody", None, "unknown_prompt")
    ]  # fmt: skip


def test_a_push_sent_again_is_one_event(http: Http) -> None:
    http.pool(letters())
    http.run()
    push(http, a={"value": 0.25})
    before = http.events()

    again = push(http, a={"value": 0.25})

    assert (again["applied"], again["duplicate"]) == (0, 1)
    assert http.events() == before
    assert before[-1]["kind"] == "signals_received"


@pytest.mark.parametrize(
    "body",
    [
        {"policy_version": -1, "features": {}},
        {"policy_version": 0, "features": {"": {"x": 1.0}}},
        {"policy_version": 0, "features": {"a": {"": 1.0}}},
        {"policy_version": 0, "features": {"a": {"x" * 101: 1.0}}},
        {"policy_version": 0, "features": {"a": {"x": "much"}}},
        {"policy_version": 0, "features": {"a": {"x": None}}},
        {"policy_version": 0, "features": {"a": {f"x{i}": 1.0 for i in range(101)}}},
        {"policy_version": 0, "features": {str(i): {} for i in range(20_001)}},
        {"policy_version": 0, "features": {}, "run": "r"},
    ],
)
def test_a_push_outside_the_contract_is_refused_whole(http: Http, body: object) -> None:
    http.pool(letters())
    http.run()
    before = http.events()

    refused(http.send("POST", PATH, body), 422, "invalid_request")
    assert http.events() == before


def test_numbers_that_are_not_finite_are_refused(http: Http) -> None:
    http.pool(letters())
    http.run()
    body = b'{"policy_version": 0, "features": {"a": {"x": 1e999}}}'
    refused(http.send("POST", PATH, body), 422, "invalid_request", "features.a.x", "finite")


def test_a_run_without_a_name_of_its_own_takes_no_signals(http: Http) -> None:
    refused(http.send("POST", "/v1/runs/nobody/signals", {"policy_version": 0, "features": {}}), 404, "unknown_run")


def test_signals_are_there_after_the_service_began_anew(sqlite_url: str) -> None:
    with in_process(sqlite_url) as http:
        http.pool(letters())
        http.run(policy={"preset": "pcl"})
        push(http, a={"value": 0.9}, b={"value": 0.1})
        before = http.beliefs()
    with in_process(sqlite_url) as http:
        assert http.beliefs() == before
        assert before["a"]["pass_rate"] > before["c"]["pass_rate"] > before["b"]["pass_rate"]
        assert push(http, a={"value": 0.9})["duplicate"] == 1


def test_an_empty_push_is_fine(http: Http) -> None:
    http.pool(letters())
    http.run()
    answer = answered(http.send("POST", PATH, {"policy_version": 0, "features": {}}))
    assert (answer["applied"], answer["rejected"]) == (0, [])
