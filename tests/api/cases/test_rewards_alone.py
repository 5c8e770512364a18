"""A reward model scores every rollout and nothing says right or wrong: rewards come without outcomes."""

from typing import Any

from tests.api.harness import Http, in_process, letters

GROUP = 4


def rewards(prompt: str, index: int) -> list[float]:
    """Prompts a to e have scores that differ, the others one and the same, far from 0 and 1."""
    number = ord(prompt[0]) - ord("a")
    if number >= 5:
        return [-12.5] * GROUP
    return [100.0 * number + ((number * 7 + index * 5 + n * 3) % 11) for n in range(GROUP)]


def begin(http: Http, **values: Any) -> None:
    http.pool(letters("abcdefghijklmnopqrst"))
    http.post("/v1/runs", {"name": "r", "pool": "p", "group_size": GROUP, "audit_share": 0.25, **values})


def play(http: Http, first: int, last: int) -> list[Any]:
    drawn = []
    for index in range(first, last):
        batch = http.draw(index, 8, version=index)
        drawn.append([[ticket[n] for n in ("prompt", "predicted", "purpose")] for ticket in batch["tickets"]])
        groups = [
            {
                "ticket": ticket["ticket"],
                "rollouts": [{"outcome": None, "reward": value} for value in rewards(ticket["prompt"], index)],
            }
            for ticket in batch["tickets"]
        ]
        answer = http.post("/v1/runs/r/reports", {"policy_version": index, "groups": groups})
        for group in answer["groups"]:
            assert (group["state"], group["scored"], group["passes"]) == ("reported", GROUP, 0.0)
    return drawn


def test_prompts_whose_rewards_differ_are_drawn_and_shown_with_them(http: Http) -> None:
    begin(http)
    before = http.beliefs()
    play(http, 0, 12)
    drawn = play(http, 12, 20)
    info, found = http.info(), http.beliefs()

    assert info["rollouts"]["scored"] == info["rollouts"]["reported"] == 20 * 8 * GROUP
    assert info["rollouts"]["unscored"] == 0
    assert info["tickets"]["void"] == 0
    assert info["informative"]["reported_groups"] == 20 * 8
    assert info["alarms"] == []
    chosen = [prompt for batch in drawn for prompt, _, purpose in batch if purpose == "train"]
    assert sum(prompt[0] in "abcde" for prompt in chosen) / len(chosen) > 0.5  # 5 of 20 prompts
    assert all(row["reward_mean"] is None and row["reward_sd"] is None for row in before.values())
    for key, row in found.items():
        if row["source"] == "own":
            assert row["n_eff"] > 0
            assert row["lag"] >= 0
            assert (row["informative"] > 0.8) == (key in "abcde")
            true = 100.0 * "abcde".index(key) + 5.0 if key in "abcde" else -12.5
            assert abs(row["reward_mean"] - true) < 6.0
    (same,) = {row["pass_rate"] for row in found.values()}
    assert same == before[next(iter(before))]["pass_rate"]
    prompt = http.get("/v1/pools/p/prompts/" + next(k for k, row in found.items() if row["source"] == "own"), run="r")
    assert prompt["belief"]["reward_mean"] is not None
    assert prompt["groups"][0]["scored"] == GROUP


def test_the_audit_and_the_report_say_that_there_are_no_pass_rates(http: Http) -> None:
    begin(http)
    play(http, 0, 8)
    audit = http.get("/v1/runs/r/audit")

    assert audit["pass_rate"]["uniform"]["estimate"] is None
    assert audit["degenerate"]["uniform"]["estimate"] is not None
    assert audit["verdict"] is None
    assert all(found["share"] == 1.0 for found in audit["response"]["purpose"])
    assert any("have rewards and no outcome" in warning for warning in audit["warnings"])
    for path in ("costs", "diagnosis", "report?format=md", "report?format=html", "curve?q=0.5"):
        assert http.send("GET", f"/v1/runs/r/{path}").status_code == 200, path
    assert http.send("GET", "/metrics").status_code == 200


def test_a_policy_that_needs_pass_rates_raises_an_alarm(http: Http) -> None:
    begin(http, policy={"utility": "band", "low": 0.2, "high": 0.8})
    play(http, 0, 3)

    (alarm,) = http.info()["alarms"]
    assert alarm["alarm"] == "rewards_without_outcomes"
    assert "'band' needs pass rates" in alarm["detail"]


def test_a_served_run_recovers_what_it_learned_to_the_bit(database_url: str) -> None:
    with in_process(database_url) as http:
        begin(http)
        play(http, 0, 6)
        seen = http.beliefs()
    with in_process(database_url) as http:
        assert http.beliefs() == seen
        play(http, 6, 8)
        after = http.beliefs()
    with in_process(database_url) as http:
        assert http.beliefs() == after
