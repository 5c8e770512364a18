"""Infrastructure failures dressed as wrong answers: an error says nothing of the policy, a cut-off answer does."""

import numpy as np
import pytest

from tests.api.harness import FLAT_BETA, Http, Json, letters


def rollout(outcome: float | None, status: str = "ok", tokens: int = 10) -> Json:
    return {"outcome": outcome, "status": status, "tokens": tokens}


def test_crashes_reported_as_zeros_leave_the_pass_rate_alone(http: Http) -> None:
    http.pool(letters("a"))
    http.run(policy=FLAT_BETA)
    rng = np.random.default_rng(7)
    for index in range(100):
        ticket = http.draw(index, 1)["tickets"][0]["ticket"]
        crashed, solved = rng.random(8) < 0.5, rng.random(8) < 0.5
        rollouts = [
            rollout(0.0, "error", 0) if down else rollout(float(right))
            for down, right in zip(crashed, solved, strict=True)
        ]
        http.report({"ticket": ticket, "rollouts": rollouts})
    prompt, info = http.prompt("a"), http.info()
    # 400 scored rollouts or so: four standard errors are 0.1, and 0.25 is ten away.
    assert prompt["belief"]["pass_rate"] == pytest.approx(0.5, abs=0.1)
    assert prompt["error_share"] == pytest.approx(0.5, abs=0.08)
    assert prompt["state"] == "active"
    assert info["rollouts"]["error"] + info["rollouts"]["scored"] == info["rollouts"]["reported"] == 800
    assert info["states"]["deferred"] == 0


def test_a_zero_without_a_status_is_taken_at_its_word(http: Http) -> None:
    http.pool(letters("a"))
    http.run(group_size=4, policy=FLAT_BETA)
    ticket = http.draw(0, 1)["tickets"][0]["ticket"]
    http.report(
        {"ticket": ticket, "rollouts": [{"outcome": 0.0}, {"outcome": 0.0}, {"outcome": 1.0}, {"outcome": 1.0}]}
    )
    assert http.prompt("a")["belief"]["pass_rate"] == 0.5


@pytest.mark.parametrize(
    ("status", "tokens", "scored", "counted"),
    [("truncated", 16_000, 4, "truncated"), ("truncated", 0, 3, "error"), ("error", 500, 3, "error")],
    ids=["cut after work", "cut before any", "crashed after work"],
)
def test_what_the_policy_caused_is_a_fail_and_what_it_never_touched_an_error(
    http: Http, status: str, tokens: int, scored: int, counted: str
) -> None:
    http.pool(letters("a"))
    http.run(group_size=4, policy=FLAT_BETA)
    ticket = http.draw(0, 1)["tickets"][0]["ticket"]
    answer = http.report({"ticket": ticket, "rollouts": [*[rollout(1.0)] * 3, rollout(0.0, status, tokens)]})
    assert [(g["scored"], g["passes"]) for g in answer["groups"]] == [(scored, 3.0)]
    assert http.prompt("a")["belief"]["pass_rate"] == (1 + 3) / (2 + scored)
    rollouts = http.info()["rollouts"]
    assert rollouts[counted] == 1
    assert rollouts["scored"] == scored


def test_a_group_of_errors_is_void_and_may_be_tried_again(http: Http) -> None:
    http.pool(letters("a"))
    http.run(group_size=4, policy=FLAT_BETA)
    ticket = http.draw(0, 1)["tickets"][0]["ticket"]
    before = http.beliefs()
    crashed = {"ticket": ticket, "rollouts": [rollout(0.0, "error", 5)] * 4}
    answer = http.report(crashed)
    assert [(g["state"], g["attempt"]) for g in answer["groups"]] == [("void", 1)]
    assert http.ticket(ticket)["reason"] == "error"
    assert http.beliefs() == before
    again = http.report({"ticket": ticket, "attempt": 2, "rollouts": [rollout(1.0)] * 4})
    assert [(g["state"], g["attempt"], g["scored"]) for g in again["groups"]] == [("reported", 2, 4)]
    assert http.info()["tokens"] | {"train": 0, "audit": 40, "rejected": 20} == http.info()["tokens"]
    # What belonged to the first attempt is known and counts no more.
    late = http.report({**crashed, "attempt": 1})
    assert late["applied"] == 0
    assert http.prompt("a")["belief"]["pass_rate"] == 5 / 6
