"""Some rollouts of a group never arrive: what is there counts if it is enough, in whatever order it came."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.api.harness import FLAT_BETA, POLL_S, Http, caller, keys_of, letters, prompts

OUTCOMES = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0]


def begin(http: Http, **options: Any) -> tuple[str, str]:
    http.pool(letters("a"))
    http.run(policy=FLAT_BETA, **options)
    ticket = http.draw(0, 1)["tickets"][0]
    return ticket["ticket"], ticket["prompt"]


def test_seven_of_eight_count_once_the_trainer_says_that_is_all(http: Http) -> None:
    ticket, prompt = begin(http)
    answer = http.report({"ticket": ticket, "rollouts": [{"n": n, "outcome": OUTCOMES[n]} for n in range(7)]})
    assert [(g["state"], g["next"], g["scored"]) for g in answer["groups"]] == [("open", "wait", 0)]
    assert http.draw(1, 1)["reason"] == "all_in_flight"
    answer = http.report({"ticket": ticket, "final": True})
    assert [(g["state"], g["next"], g["scored"], g["passes"]) for g in answer["groups"]] == [
        ("reported", "stop", 7, 4.0)
    ]
    assert http.prompt(prompt)["belief"]["pass_rate"] == (1 + 4) / (2 + 7)
    # The one that comes after all is late, and changes nothing.
    late = http.report({"ticket": ticket, "rollouts": [{"n": 7, "outcome": 1.0, "tokens": 9}]})
    assert (late["late"], late["rejected"][0]["code"]) == (1, "ticket_closed")
    assert http.prompt(prompt)["belief"]["pass_rate"] == (1 + 4) / (2 + 7)
    assert http.info()["tokens"]["rejected"] == 9


def test_one_error_among_eight_leaves_seven(http: Http) -> None:
    ticket, prompt = begin(http)
    rollouts = [{"outcome": outcome} for outcome in OUTCOMES]
    rollouts[7] = {"outcome": 0.0, "status": "error"}  # type: ignore[dict-item]
    answer = http.report({"ticket": ticket, "rollouts": rollouts})
    assert [(g["state"], g["scored"], g["passes"]) for g in answer["groups"]] == [("reported", 7, 4.0)]
    assert http.prompt(prompt)["belief"]["pass_rate"] == (1 + 4) / (2 + 7)


@pytest.mark.parametrize(("arrived", "state"), [(1, "void"), (2, "void"), (3, "reported")])
def test_a_group_below_the_minimum_is_void_and_its_prompt_is_free_again(http: Http, arrived: int, state: str) -> None:
    ticket, prompt = begin(http, min_rollouts=3)
    before = http.beliefs()
    sent = [{"n": n, "outcome": OUTCOMES[n]} for n in range(arrived)]
    answer = http.report({"ticket": ticket, "final": True, "rollouts": sent})
    assert [(g["state"], g["scored"]) for g in answer["groups"]] == [(state, arrived)]
    assert (http.beliefs() == before) is (state == "void")
    assert http.ticket(ticket)["reason"] == ("too_few" if state == "void" else None)
    assert keys_of(http.draw(1, 1)) == [prompt]


def test_a_deadline_closes_a_ticket_with_what_it_has(http: Http) -> None:
    http.pool(letters("ab"))
    http.run(policy=FLAT_BETA, ticket_ttl_s=1.5)
    full, short = http.draw(0, 2)["tickets"]
    http.report({"ticket": full["ticket"], "rollouts": [{"n": n, "outcome": 1.0} for n in range(4)]})
    http.report({"ticket": short["ticket"], "rollouts": [{"n": 5, "outcome": 1.0}]})
    assert all(ticket["deadline"] > time.time() - 60 for ticket in http.tickets())
    # Nobody draws or reports meanwhile: the service looks at the time by itself.
    while http.info()["tickets"]["open"]:
        time.sleep(POLL_S)
    states = {ticket["ticket"]: (ticket["state"], ticket["reason"]) for ticket in http.tickets()}
    assert states == {full["ticket"]: ("reported", None), short["ticket"]: ("void", "expired")}
    assert http.prompt(full["prompt"])["belief"]["pass_rate"] == (1 + 4) / (2 + 4)
    assert http.prompt(short["prompt"])["belief"]["pass_rate"] == 0.5
    assert sorted(keys_of(http.draw(1, 2))) == ["a", "b"]


@pytest.mark.parametrize("seed", range(3))
def test_rollouts_from_eight_workers_count_alike_in_every_order(url: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with caller(url) as http:
        http.pool(prompts(8))
        http.run(policy=FLAT_BETA)
        batch = http.draw(0, 4)
        sent = [(t["ticket"], n) for t in batch["tickets"] for n in range(8)]
        order = [sent[i] for i in rng.permutation(len(sent))]

        def work(share: list[tuple[str, int]]) -> None:
            with caller(url) as worker:
                for ticket, n in share:
                    rollout = {"n": n, "outcome": OUTCOMES[n], "tokens": n, "policy_version": 0}
                    worker.report({"ticket": ticket, "rollouts": [rollout]})

        with ThreadPoolExecutor(8) as executor:
            list(executor.map(work, [order[i::8] for i in range(8)]))
        assert [t["state"] for t in http.tickets()] == ["reported"] * 4
        for key in keys_of(batch):
            prompt = http.prompt(key)
            assert [(g["scored"], g["passes"], g["tokens"]) for g in prompt["groups"]] == [(8, 5.0, 28)]
            assert prompt["belief"]["pass_rate"] == (1 + 5) / (2 + 8)


def test_the_order_of_arrival_changes_no_belief_by_a_bit(http: Http) -> None:
    http.pool(letters("a"))
    graded = [0.1, 0.2, 0.3, 0.7, 0.123456789, 1 / 3, 0.999, 0.0]
    found = []
    for run, order in (("r1", range(8)), ("r2", [7, 3, 5, 0, 6, 1, 4, 2])):
        http.run(run)
        ticket = http.draw(0, 1, run=run)["tickets"][0]["ticket"]
        for n in order:
            http.report({"ticket": ticket, "rollouts": [{"n": n, "outcome": graded[n]}]}, run=run)
        found.append(http.beliefs(run))
    assert found[0] == found[1]


def test_workers_may_name_rollouts_by_id(http: Http) -> None:
    ticket, prompt = begin(http)
    for worker in (3, 1, 2, 3, 0, 1, 4, 5, 6, 7):
        http.report({"ticket": ticket, "rollouts": [{"id": f"w{worker}", "outcome": OUTCOMES[worker]}]})
    answer = http.report({"ticket": ticket, "rollouts": [{"id": "w8", "outcome": 1.0}]})
    assert answer["rejected"][0]["code"] == "ticket_closed"
    assert http.prompt(prompt)["belief"]["pass_rate"] == (1 + 5) / (2 + 8)


def test_a_list_that_is_not_the_whole_group_must_number_its_rollouts(http: Http) -> None:
    ticket, _ = begin(http)
    before = http.info()
    response = http.send(
        "POST", "/v1/runs/r/reports", {"groups": [{"ticket": ticket, "rollouts": [{"outcome": 1.0}] * 7}]}
    )
    assert response.status_code == 422
    assert ticket in response.json()["detail"]
    assert http.info() == before
