"""Mastered prompts that have regressed: alarms of the run, the audit's part on them, with what is claimed of it."""

import pytest

from tests.api.harness import FLAT_BETA, Http, group, prompts

RESTING = {**FLAT_BETA, "lifecycle": {}}
SOLVED, FAILED = [1.0] * 8, [0.0] * 8


def go_on(http: Http, failed: str, draws: int, size: int = 6) -> None:
    for _ in range(draws):
        batch = http.draw(http.info()["train_draws"], size)
        http.report(*(group(t, FAILED if t["prompt"] == failed else SOLVED) for t in batch["tickets"]))


@pytest.fixture
def mastered(http: Http) -> Http:
    """A run whose twelve prompts are all mastered."""
    http.pool(prompts(12, category="sum"))
    http.run(policy=RESTING, review_share=0.5)
    go_on(http, "", 3, size=12)
    assert http.info()["states"]["mastered"] == 12
    return http


def test_a_prompt_that_regressed_is_an_alarm_with_its_evidence(mastered: Http) -> None:
    go_on(mastered, "p003", 10)

    info = mastered.info()

    listed = [alarm for alarm in info["alarms"] if alarm["alarm"] == "prompt_regressed"]
    assert [alarm["prompt"] for alarm in listed] == ["p003"]
    assert listed[0]["passes"] == 0
    assert listed[0]["scored"] == 8 * listed[0]["reviews"] > 0
    assert listed[0]["log_e_value"] > 5
    assert listed[0]["state"] in {"active", "deferred"}
    assert info["num_alarms"] == len(info["alarms"])


def test_the_audit_says_what_it_claims_and_lists_prompts_and_cohorts(mastered: Http) -> None:
    go_on(mastered, "p003", 10)

    found = mastered.get("/v1/runs/r/audit")["regressions"]

    assert (found["level"], found["followed"]) == (0.9, 12)
    assert "at most 0.05 of what is listed at any one time" in found["claims"]["listed"]
    assert "1000 reviews or more" in found["claims"]["detected"]
    assert "does not depend on its outcomes" in found["claims"]["condition"]
    assert [p["prompt"] for p in found["listed"]] == [p["prompt"] for p in found["detected"]] == ["p003"]
    assert (found["num_listed"], found["num_detected"]) == (1, 1)
    (cohort,) = found["cohorts"]
    assert (cohort["category"], cohort["mastered_in"], cohort["draws"]) == ("sum", [0, 99], 10)
    assert found["num_cohorts"] == 1


def test_nothing_is_said_of_prompts_that_hold_and_of_runs_without_rest(mastered: Http) -> None:
    go_on(mastered, "", 10)
    mastered.run("plain", policy=FLAT_BETA)

    found = mastered.get("/v1/runs/r/audit")["regressions"]
    assert (found["listed"], found["detected"]) == ([], [])
    assert not any(cohort["listed"] for cohort in found["cohorts"])
    assert [alarm["alarm"] for alarm in mastered.info()["alarms"]] == ["pool_all_mastered"]
    assert mastered.get("/v1/runs/plain/audit")["regressions"] is None


def test_a_whole_cohort_that_regressed_is_listed_by_the_audit(http: Http) -> None:
    """Six of eight is no slip for one review: many prompts must say it before any single one does."""
    http.pool(prompts(100, category="sum"))
    http.run(policy={**RESTING, "floor": 0.05}, review_share=0.5)
    go_on(http, "", 3, size=100)
    for index in range(3, 17):
        batch = http.draw(index, 20)
        http.report(*(group(t, [1.0] * 6 + [0.0] * 2) for t in batch["tickets"]))

    (cohort,) = http.get("/v1/runs/r/audit")["regressions"]["cohorts"]

    assert cohort["category"] == "sum"
    assert cohort["listed"] is True
    assert cohort["log_e_value"] > 3


def test_what_is_said_survives_a_restore_that_discards_nothing_of_it(mastered: Http) -> None:
    go_on(mastered, "p003", 10)
    before = mastered.get("/v1/runs/r/audit")["regressions"]
    mastered.post("/v1/runs/r/checkpoints", {"step": 1})
    go_on(mastered, "p004", 6)
    assert mastered.get("/v1/runs/r/audit")["regressions"] != before

    mastered.post("/v1/runs/r/restore", {"step": 1})

    assert mastered.get("/v1/runs/r/audit")["regressions"] == before
