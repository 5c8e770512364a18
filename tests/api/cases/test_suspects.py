"""A constant that is no opinion, errors out of line, scoring that fails: listed for a person, who decides."""

from tests.api.harness import FLAT_BETA, Http, Json, group, letters

RESTING = {**FLAT_BETA, "lifecycle": {}}
MIXED = [1.0, 0.0] * 4


def with_lengths(ticket: Json, outcome: float, lengths: list[int]) -> Json:
    rollouts = [{"outcome": outcome, "tokens": tokens} for tokens in lengths]
    return {"ticket": ticket["ticket"], "rollouts": rollouts}


def go_on(http: Http, sent: dict[str, list[float | None]], draws: int) -> None:
    for _ in range(draws):
        batch = http.draw(http.info()["train_draws"], 4, short="fill")
        http.report(*(group(t, sent.get(t["prompt"], MIXED)) for t in batch["tickets"]))


def test_a_score_that_never_differs_is_listed_with_counts_until_a_person_marks_the_prompt(http: Http) -> None:
    http.pool(letters())
    http.run(policy=RESTING)
    for index in range(30):
        batch = http.draw(index, 4, short="fill")
        for ticket in batch["tickets"]:
            match ticket["prompt"]:
                case "b":
                    http.report(with_lengths(ticket, 1.0, [90 + n for n in range(8)]))
                case "c":
                    http.report(with_lengths(ticket, 0.0, [70] * 8))
                case _:
                    http.report(group(ticket, MIXED))

    info = http.info()
    assert [(s["prompt"], s["reason"], s["score"], s["groups"], s["answers_differ"]) for s in info["suspects"]] == [
        ("b", "constant_score", 1.0, 30, True),
        ("c", "constant_score", 0.0, 30, False),
    ]
    assert info["num_suspects"] == 2
    assert (info["states"]["mastered"], info["states"]["deferred"]) == (1, 1)
    http.quarantine(["b"])
    http.pool(letters())
    assert [s["prompt"] for s in http.info()["suspects"]] == ["c"]
    assert http.prompt("b")["state"] == "quarantined"


def test_a_prompt_whose_rollouts_keep_failing_is_a_suspect_and_its_estimate_is_of_the_others(http: Http) -> None:
    http.pool(letters())
    http.run(policy=RESTING)
    failing = [{"outcome": float(n % 2), "status": "error" if n < 4 else "ok", "tokens": 5} for n in range(8)]
    for index in range(10):
        batch = http.draw(index, 4, short="fill")
        for ticket in batch["tickets"]:
            if ticket["prompt"] == "a":
                http.report({"ticket": ticket["ticket"], "rollouts": failing})
            else:
                http.report(group(ticket, MIXED))

    (suspect,) = http.info()["suspects"]

    assert (suspect["prompt"], suspect["reason"]) == ("a", "error_share")
    assert (suspect["errors"], suspect["rollouts"]) == (40, 80)
    assert http.beliefs()["a"]["pass_rate"] == 0.5


def test_a_prompt_that_is_never_scored_is_taken_out_by_the_run_and_let_in_by_a_person(http: Http) -> None:
    http.pool(letters())
    http.run(policy=RESTING)
    http.run("plain", policy=FLAT_BETA)
    go_on(http, {"c": [None] * 8}, 3)

    info = http.info()
    assert info["states"]["quarantined"] == 1
    (alarm,) = info["alarms"]
    assert (alarm["alarm"], alarm["prompts"], alarm["count"]) == ("prompts_quarantined", ["c"], 1)
    assert http.get("/v1/runs/r/audit")["quarantined"] == [{"prompt": "c", "by": "run"}]
    assert http.prompt("c")["state"] == "quarantined"
    assert [p["key"] for p in http.get("/v1/pools/p/prompts", run="r", state="quarantined")["items"]] == ["c"]
    assert http.get("/v1/pools/p/prompts", state="quarantined")["items"] == []
    assert http.info("plain")["states"]["quarantined"] == 0
    assert http.draw(3, 4, short="fill")["frame"] == 3

    http.quarantine(["c"])
    assert http.get("/v1/runs/r/audit")["quarantined"] == [{"prompt": "c", "by": "person"}]
    assert http.info()["alarms"] == []
    http.quarantine(["c"], lift=True)
    assert http.info()["states"]["quarantined"] == 0
    assert http.draw(4, 4, short="fill")["frame"] == 4


def test_a_grader_that_is_down_takes_nothing_out(http: Http) -> None:
    http.pool(letters())
    http.run(policy=RESTING)
    go_on(http, {}, 1)
    go_on(http, dict.fromkeys("abcd", [None] * 8), 8)

    assert http.info()["states"]["quarantined"] == 0
    assert http.info()["alarms"] == []
