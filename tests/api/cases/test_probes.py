"""Probes over HTTP: what a ticket says, how its waves go on, and what bounds them."""

import pytest

from tests.api.harness import Http, prompts, refused


def rollouts(start: int, *outcomes: float) -> list[dict[str, float]]:
    return [{"n": n, "outcome": outcome, "tokens": 10} for n, outcome in enumerate(outcomes, start)]


def test_a_probe_begins_with_two_rollouts_and_is_told_how_to_go_on(http: Http) -> None:
    http.pool(prompts(6))
    http.run(weights="horvitz_thompson")
    (ticket,) = http.draw(0, 1, purpose="probe")["tickets"]
    assert (ticket["purpose"], ticket["group_size"], ticket["first_wave"]) == ("probe", 8, 2)
    assert ticket["weight"] is None
    assert ticket["inclusion_probability"] == pytest.approx(1 / 6)

    end, told = 0, ("continue", 2)
    while told[0] == "continue":
        answer = http.report({"ticket": ticket["ticket"], "rollouts": rollouts(end, *[0.0] * told[1])})
        end, told = end + told[1], (answer["groups"][0]["next"], answer["groups"][0]["more"])
    assert told == ("stop", 0)
    assert 2 <= end <= 8
    assert http.info()["tickets"] == {"open": 0, "reported": 1, "void": 0}
    assert http.info()["tokens"]["probe"] == 10 * end


def test_a_batch_asked_for_again_is_the_same_after_its_beliefs_have_changed(http: Http) -> None:
    http.pool(prompts(6))
    http.run()
    first = http.draw(0, 3, purpose="probe")
    http.report(*({"ticket": t["ticket"], "rollouts": rollouts(0, 1.0, 0.0)} for t in first["tickets"]))
    assert http.draw(0, 3, purpose="probe") == first


def test_bounds_are_part_of_the_policy(http: Http) -> None:
    http.pool(prompts(30))
    run = http.run(policy={"preset": "midband", "probing": {"tokens": 60}})
    assert run["config"]["policy"]["probing"] == {"tokens": 60, "share": None}
    first = http.draw(0, 2, purpose="probe")
    http.report(*({"ticket": t["ticket"], "rollouts": rollouts(0, *[0.0] * 8)} for t in first["tickets"]))
    short = http.draw(1, 20, purpose="probe")
    assert short["returned"] < 3
    assert short["reason"] == "probe_budget"


@pytest.mark.parametrize("probing", [{"tokens": 0}, {"share": -1}, {"prompts": 3}])
def test_bounds_that_cannot_be_are_refused(http: Http, probing: dict[str, float]) -> None:
    http.pool(prompts(3))
    body = {"name": "r", "pool": "p", "policy": {"preset": "midband", "probing": probing}}
    refused(http.send("POST", "/v1/runs", body), 422, "invalid_request", next(iter(probing)))
