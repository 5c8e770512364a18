"""A trainer that resumes asks for the same draws again: it gets the same answers, and nothing moves."""

from typing import Any

import pytest

from tests.api.harness import Http, group, held_out, in_process, prompts, refused


def draw_bytes(http: Http, index: int, **options: Any) -> bytes:
    body = {"index": index, "size": 4, "policy_version": index, **options}
    response = http.send("POST", "/v1/runs/r/batches", body)
    assert response.status_code == 200
    return response.content


def test_a_new_process_gets_the_same_bytes_and_moves_no_counter(database_url: str) -> None:
    with in_process(database_url) as http:
        http.pool(prompts(100))
        http.run()
        answers = []
        for index in range(4):
            answers.append(draw_bytes(http, index))
            batch = http.draw(index, 4, index)
            http.report(*(group(ticket, [1.0, 0.0] * 4) for ticket in batch["tickets"]))
        state = http.info(), http.beliefs(), http.events()
    with in_process(database_url) as again:
        assert [draw_bytes(again, index) for index in range(4)] == answers
        assert (again.info(), again.beliefs(), again.events()) == state
        assert len(again.tickets()) == 16
        fourth = again.draw(4, 4, 4)
        assert fourth["returned"] == 4
        assert not {t["ticket"] for t in fourth["tickets"]} & {t["ticket"] for t in again.tickets()[:16]}
        assert len(again.tickets()) == 20


def test_reading_a_batch_gives_what_the_draw_gave(http: Http) -> None:
    http.pool(prompts(100))
    http.run()
    drawn = draw_bytes(http, 7)
    http.report(*(group(ticket, [1.0, 0.0] * 4) for ticket in http.draw(7, 4)["tickets"]))
    assert http.send("GET", "/v1/runs/r/batches/7").content == drawn
    refused(http.send("GET", "/v1/runs/r/batches/8"), 404, "unknown_batch", "8")
    refused(http.send("GET", "/v1/runs/r/batches/7", params={"refill": 1}), 404, "unknown_batch")
    refused(http.send("GET", "/v1/runs/r/batches/7", params={"purpose": "heldout"}), 404, "unknown_batch", "heldout")


@pytest.mark.parametrize(
    "other",
    [{"size": 5}, {"group_size": 4}, {"divisor": 2}, {"short": "fill"}, {"allow_repeat": True}],
    ids=lambda change: next(iter(change)),
)
def test_a_draw_asked_for_with_other_parameters_is_a_conflict(http: Http, other: dict[str, object]) -> None:
    http.pool(prompts(100))
    http.run()
    drawn = draw_bytes(http, 0)
    state = http.info()
    body = {"index": 0, "size": 4, "policy_version": 0, **other}
    name, value = next(iter(other.items()))
    refused(http.send("POST", "/v1/runs/r/batches", body), 409, "batch_conflict", name, str(value))
    assert http.info() == state
    assert draw_bytes(http, 0) == drawn


def test_the_policy_version_is_not_compared_and_the_first_stands(http: Http) -> None:
    http.pool(prompts(100))
    http.run()
    drawn = draw_bytes(http, 0, policy_version=3)
    assert draw_bytes(http, 0, policy_version=8) == drawn
    assert http.info()["policy_version"] == 3


def test_texts_are_outside_the_digest(http: Http) -> None:
    http.pool(prompts(100))
    http.run()
    bare = http.draw(0, 4)
    full = http.draw(0, 4, include=["content", "answer"])
    assert full["digest"] == bare["digest"]
    assert all("content" not in ticket for ticket in bare["tickets"])
    for ticket in full["tickets"]:
        number = int(ticket["prompt"][1:])
        assert (ticket["content"], ticket["answer"]) == (f"question {number}", str(number))


def test_each_purpose_and_refill_has_indices_of_its_own(http: Http) -> None:
    http.pool([*prompts(50), *held_out(10)])
    http.run()
    kinds = [{"purpose": p} for p in ("train", "heldout", "probe", "control", "audit")] + [{"refill": 1}, {"refill": 2}]
    batches = [http.draw(5, 3, **kind) for kind in kinds]
    names = [ticket["ticket"] for batch in batches for ticket in batch["tickets"]]
    assert len(set(names)) == 21
    assert [http.draw(5, 3, **kind) for kind in kinds] == batches
    assert http.draw(10**15, 3)["returned"] == 3  # gaps are allowed
