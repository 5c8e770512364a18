"""Prompts that are mastered or deferred: counted, listed, reviewed, and brought back; and a pool of which all are."""

import pytest

from tests.api.harness import FLAT_BETA, Http, caller, group, letters, prompts, refused

RESTING = {**FLAT_BETA, "lifecycle": {}}
SOLVED, FAILED = [1.0] * 8, [0.0] * 8


def go_on(http: Http, solved: str, failed: str, draws: int, size: int = 4) -> None:
    """Draws and answers whole batches: some prompts always pass, some never do, the others in half of the rollouts."""
    for _ in range(draws):
        info = http.info()
        batch = http.draw(info["train_draws"], size, short="fill")
        outcomes = {**dict.fromkeys(solved, SOLVED), **dict.fromkeys(failed, FAILED)}
        http.report(*(group(t, outcomes.get(t["prompt"], [1.0, 0.0] * 4)) for t in batch["tickets"]))


def test_states_are_counted_listed_and_change_with_what_comes_back(http: Http) -> None:
    http.pool(letters())
    made = http.run(policy=RESTING)
    assert made["config"]["policy"]["lifecycle"] == {"level": 0.9, "sure": 0.9, "hopeless": 0.25, "groups": 3}

    go_on(http, "a", "b", 3)

    states = http.info()["states"]
    assert states == {"new": 0, "active": 2, "mastered": 1, "deferred": 1, "quarantined": 0, "absent": 0}
    assert {key: belief["state"] for key, belief in http.beliefs().items()} == {
        "a": "mastered", "b": "deferred", "c": "active", "d": "active"
    }  # fmt: skip
    listed = http.get("/v1/pools/p/prompts", run="r", state="mastered")
    assert [item["key"] for item in listed["items"]] == ["a"]
    go_on(http, "", "a", 1)
    assert http.info()["states"]["active"] == 4


def test_no_prompt_rests_unless_the_run_asks(http: Http) -> None:
    http.pool(letters())
    assert http.run(policy=FLAT_BETA)["config"]["policy"]["lifecycle"] is None

    go_on(http, "ab", "cd", 10)

    assert http.info()["states"]["active"] == 4
    assert http.info()["alarms"] == []


def test_a_change_of_the_policy_turns_rest_on_and_off(http: Http) -> None:
    http.pool(letters())
    http.run(policy=FLAT_BETA)
    go_on(http, "a", "b", 4)
    http.post("/v1/runs/r/config", {"policy": {**RESTING, "lifecycle": {"groups": 5}}})
    go_on(http, "a", "b", 1)
    assert (http.info()["states"]["mastered"], http.info()["states"]["deferred"]) == (1, 1)
    http.post("/v1/runs/r/config", {"policy": FLAT_BETA})
    assert http.info()["states"]["active"] == 4


@pytest.mark.parametrize(
    ("solved", "failed", "alarm", "reason"),
    [
        ("abcdefghijkl", "", "pool_all_mastered", "all_mastered"),
        ("", "abcdefghijkl", "pool_all_deferred", "all_deferred"),
        ("abcdef", "ghijkl", "pool_no_signal", "all_mastered"),
    ],
)
def test_a_pool_that_teaches_nothing_is_said_to_once_and_little_more_is_spent_on_it(
    url: str, solved: str, failed: str, alarm: str, reason: str
) -> None:
    with caller(url) as http:
        http.pool(letters(solved + failed))
        http.run(policy=RESTING, review_share=0.25)
        go_on(http, solved, failed, 3, size=12)
        outcomes = {**dict.fromkeys(solved, SOLVED), **dict.fromkeys(failed, FAILED)}
        for index in range(3, 20):
            batch = http.draw(index, 8)
            # One audit ticket and a quarter of 8 for reviews.
            assert (batch["returned"], batch["reason"]) == (3, reason)
            http.report(*(group(t, outcomes[t["prompt"]]) for t in batch["tickets"]))
        info = http.info()
        assert [a["alarm"] for a in info["alarms"]] == [alarm]
        assert info["num_alarms"] == 1
        assert info["states"]["mastered"] == len(solved)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"policy": {**FLAT_BETA, "lifecycle": {"level": 0.4}}}, "invalid_request", "lifecycle.level"),
        ({"policy": {**FLAT_BETA, "lifecycle": {"mastered": 0.9}}}, "invalid_request", "lifecycle.mastered"),
        ({"policy": {**FLAT_BETA, "lifecycle": {"groups": 0}}}, "invalid_request", "lifecycle.groups"),
        ({"policy": {"preset": "uniform", "lifecycle": {}}}, "invalid_config", "lifecycle"),
    ],
)
def test_rules_that_cannot_be_are_refused_by_name(
    http: Http, options: dict[str, object], code: str, words: str
) -> None:
    http.pool(letters())
    refused(http.send("POST", "/v1/runs", {"name": "r", "pool": "p", **options}), 422, code, words)


def test_states_are_the_same_after_a_restore_and_beliefs_may_keep_them(http: Http) -> None:
    http.pool(prompts(4))
    http.run(policy=RESTING)
    for index in range(3):
        batch = http.draw(index, 4)
        http.report(*(group(t, SOLVED if t["prompt"] == "p000" else [1.0, 0.0] * 4) for t in batch["tickets"]))
    http.post("/v1/runs/r/checkpoints", {"step": 3})
    before = {key: belief["state"] for key, belief in http.beliefs().items()}
    assert before["p000"] == "mastered"
    batch = http.draw(3, 4, short="fill")
    http.report(*(group(t, FAILED) for t in batch["tickets"]))
    after = {key: belief["state"] for key, belief in http.beliefs().items()}
    assert after["p000"] == "active"

    http.post("/v1/runs/r/restore", {"step": 3, "beliefs": "keep", "restore_id": "x"})
    assert {key: belief["state"] for key, belief in http.beliefs().items()} == after
    http.post("/v1/runs/r/restore", {"step": 3, "restore_id": "y"})
    assert {key: belief["state"] for key, belief in http.beliefs().items()} == before
