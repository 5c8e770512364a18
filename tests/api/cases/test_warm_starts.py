"""`start_from`: a run that begins with another one's beliefs, over HTTP."""

import json
from typing import Any

import pytest

from tests.api.harness import Http, refused


def begin(http: Http) -> None:
    """A pool, a run on it with some groups, a checkpoint of step 5, and groups after it."""
    http.send("POST", "/v1/pools", {"name": "p"})
    rows = [{"key": f"k{n:02}", "category": "ab"[n % 2]} for n in range(24)]
    http.send("PUT", "/v1/pools/p/prompts", rows)
    assert new(http, "s").status_code == 201
    play(http, "s", 0, 6)
    http.send("POST", "/v1/runs/s/checkpoints", {"step": 5})


def new(http: Http, name: str, **values: Any) -> Any:
    return http.send("POST", "/v1/runs", {"name": name, "pool": "p", "group_size": 4, **values})


def play(http: Http, run: str, first: int, last: int) -> list[Any]:
    drawn = []
    for index in range(first, last):
        batch = http.send(
            "POST", f"/v1/runs/{run}/batches", {"index": index, "size": 8, "policy_version": index}
        ).json()
        drawn.append(without_names(batch))
        groups = []
        for ticket in batch["tickets"]:
            number = int(ticket["prompt"][1:])
            rollouts = [{"outcome": float((number * 7 + index * 5 + n * 3) % 24 < number)} for n in range(4)]
            groups.append({"ticket": ticket["ticket"], "rollouts": rollouts})
        http.send("POST", f"/v1/runs/{run}/reports", {"policy_version": index, "groups": groups})
    return drawn


def without_names(batch: dict[str, Any]) -> list[Any]:
    """What was drawn and predicted, without the run's name."""
    return [[ticket[name] for name in ("prompt", "predicted", "inclusion_probability")] for ticket in batch["tickets"]]


def beliefs(http: Http, run: str) -> list[dict[str, Any]]:
    text = http.send("GET", f"/v1/runs/{run}/beliefs").text
    return [json.loads(line) for line in text.splitlines()]


def means(http: Http, run: str) -> list[float]:
    return [row["pass_rate"] for row in beliefs(http, run)]


def test_a_run_begins_where_another_one_stands_or_stood_at_a_checkpoint(http: Http) -> None:
    begin(http)
    then = means(http, "s")
    play(http, "s", 6, 9)
    now = means(http, "s")
    assert new(http, "now", start_from={"run": "s", "discount": 1}).status_code == 201
    assert new(http, "then", start_from={"run": "s", "step": 5, "discount": 1}).status_code == 201
    assert new(http, "cold").status_code == 201

    assert means(http, "now") == now
    assert means(http, "then") == then
    assert len(set(means(http, "cold"))) == 1
    told = http.send("GET", "/v1/runs/then").json()["started_from"]
    assert (told["run"], told["step"], told["discount"]) == ("s", 5, 1.0)
    assert http.send("GET", "/v1/runs/cold").json()["started_from"] is None
    kinds = [json.loads(line)["kind"] for line in http.send("GET", "/v1/runs/now/events").text.splitlines()]
    assert kinds == ["run_begun", "pool_revised", "warm_started"]


def test_asking_again_finds_the_run_as_it_began_however_far_the_other_one_is(http: Http) -> None:
    begin(http)
    start = {"run": "s", "discount": 0.5}
    first = new(http, "r", start_from=start).json()
    before = beliefs(http, "r")
    play(http, "s", 6, 8)
    again = new(http, "r", start_from=start)

    assert (again.status_code, again.json()) == (200, first)
    assert beliefs(http, "r") == before
    refused(new(http, "r", start_from={"run": "s", "discount": 0.25}), 409, "run_conflict")
    refused(new(http, "r"), 409, "run_conflict")


def test_a_served_run_recovers_to_the_bit_after_the_other_one_has_ended(database_url: str) -> None:
    from tests.api.harness import in_process

    with in_process(database_url) as http:
        begin(http)
        for name in ("one", "two"):
            new(http, name, start_from={"run": "s", "discount": 0.5})
        straight = play(http, "one", 0, 5)
        half = play(http, "two", 0, 2)
        http.send("POST", "/v1/runs/s/complete")
        seen = beliefs(http, "two")
    with in_process(database_url) as http:
        assert beliefs(http, "two") == seen
        assert half + play(http, "two", 2, 5) == straight
        assert [row["pass_rate"] for row in beliefs(http, "one")] == means(http, "two")


@pytest.mark.parametrize(
    ("start", "values", "status", "code", "word"),
    [
        ({"run": "nobody"}, {}, 404, "unknown_run", "nobody"),
        ({"run": "r"}, {}, 404, "unknown_run", "'r'"),
        ({"run": "s", "step": 7}, {}, 404, "unknown_checkpoint", "[5]"),
        ({"run": "s"}, {"pool": "q"}, 422, "invalid_config", "pool 'p'"),
        ({"run": "s"}, {"policy": {"estimator": "hmm"}}, 422, "invalid_config", "'hmm'"),
        ({"run": "s", "discount": 1.5}, {}, 422, "invalid_request", "discount"),
        ({"run": "s", "steps": 5}, {}, 422, "invalid_request", "steps"),
    ],
)
def test_what_cannot_be_started_from_is_refused_by_name_and_makes_no_run(
    http: Http, start: dict[str, Any], values: dict[str, Any], status: int, code: str, word: str
) -> None:
    begin(http)
    http.send("POST", "/v1/pools", {"name": "q"})
    refused(new(http, "r", start_from=start, **values), status, code, word)
    refused(http.send("GET", "/v1/runs/r"), 404, "unknown_run", "r")


def test_an_estimator_that_cannot_discount_is_taken_over_whole_or_not_at_all(http: Http) -> None:
    begin(http)
    policy = {"estimator": "last_mean"}
    new(http, "l", policy=policy)
    play(http, "l", 0, 2)
    refused(new(http, "r", policy=policy, start_from={"run": "l"}), 422, "invalid_config", "give 1")
    assert new(http, "r", policy=policy, start_from={"run": "l", "discount": 1}).status_code == 201
    assert means(http, "r") == means(http, "l")
