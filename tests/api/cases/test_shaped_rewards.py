"""The reward that is trained on differs from the outcome: difficulty follows the outcome, the signal is a setting."""

import pytest

from tests.api.harness import FLAT_BETA, Http, Json, letters

PENALTIES = [-0.10, -0.22, -0.31, -0.12, -0.45, -0.05, -0.17, -0.28]


def shaped(ticket: Json, outcomes: list[float], rewards: list[float], **fields: object) -> Json:
    rollouts = [{"outcome": o, "reward": r, **fields} for o, r in zip(outcomes, rewards, strict=True)]
    return {"ticket": ticket["ticket"], "rollouts": rollouts}


@pytest.mark.parametrize(("signal", "informative"), [("reward", True), ("outcome", False)])
def test_shaping_makes_a_signal_only_where_the_run_says_that_rewards_decide(
    http: Http, signal: str, informative: bool
) -> None:
    http.pool(letters())
    http.run(signal=signal, policy=FLAT_BETA)
    wrong, right = http.draw(0, 2)["tickets"]
    answer = http.report(
        shaped(wrong, [0.0] * 8, PENALTIES), shaped(right, [1.0] * 8, [1.0 - penalty for penalty in PENALTIES])
    )
    assert [(g["scored"], g["passes"]) for g in answer["groups"]] == [(8, 0.0), (8, 8.0)]
    assert [g["informative"] for g in answer["groups"]] == [informative, informative]
    assert http.prompt(wrong["prompt"])["belief"]["pass_rate"] == 1 / 10
    assert http.prompt(right["prompt"])["belief"]["pass_rate"] == 9 / 10
    info = http.info()
    assert info["config"]["signal"] == signal
    assert info["informative"]["groups"] == (2 if informative else 0)
    assert info["informative"]["disagreements"] == 2


def test_rewards_that_cancel_are_no_signal_and_each_of_them_is_kept(http: Http) -> None:
    http.pool(letters())
    http.run(group_size=4)
    ticket = http.draw(0, 1)["tickets"][0]
    correct, brief = [1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]
    rollouts = [
        {"outcome": c, "reward": c + b, "rewards": {"correct": c, "brief": b}}
        for c, b in zip(correct, brief, strict=True)
    ]
    answer = http.report({"ticket": ticket["ticket"], "rollouts": rollouts})
    assert [(g["passes"], g["informative"]) for g in answer["groups"]] == [(2.0, False)]
    assert http.info()["informative"]["disagreements"] == 1
    logged = next(e["event"] for e in http.events() if e["kind"] == "rollouts_reported")["groups"][0]
    assert logged["rewards"] == [{"correct": c, "brief": b} for c, b in zip(correct, brief, strict=True)]


@pytest.mark.parametrize(("spread", "informative"), [(0.5e-6, False), (2e-6, True)])
def test_rewards_closer_than_the_tolerance_are_alike(http: Http, spread: float, informative: bool) -> None:
    http.pool(letters())
    http.run(group_size=2)
    answer = http.report(shaped(http.draw(0, 1)["tickets"][0], [1.0, 1.0], [0.0, spread]))
    assert answer["groups"][0]["informative"] is informative


def test_rewards_may_be_of_any_size_and_outcomes_may_be_graded(http: Http) -> None:
    http.pool(letters())
    http.run(group_size=2, policy=FLAT_BETA)
    first, second = http.draw(0, 2)["tickets"]
    answer = http.report(shaped(first, [0.25, 0.75], [-1e300, 1e300]), shaped(second, [0.5, 0.5], [3.0, 3.0]))
    assert [(g["passes"], g["informative"]) for g in answer["groups"]] == [(1.0, True), (1.0, False)]
    assert http.prompt(first["prompt"])["belief"]["pass_rate"] == 0.5
