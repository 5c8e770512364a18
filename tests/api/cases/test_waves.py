"""A ticket may stop or go on in the middle: several workers, any order, sent twice, late."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.api.harness import FLAT_BETA, Http, Json, caller, letters, refused

SPEED = {**FLAT_BETA, "wave": {"rule": "screen", "first": 2}}
UNTIL = {**FLAT_BETA, "wave": {"rule": "until_success", "first": 2, "step": 2}}


def begin(http: Http, policy: Json, size: int = 1, **options: Any) -> list[Json]:
    http.pool(letters("abcd"))
    http.run(policy=policy, **{"group_size": 6, "audit_share": 0, **options})
    tickets = http.draw(0, size)["tickets"]
    assert isinstance(tickets, list)
    return tickets


def part(ticket: Json, outcomes: dict[int, float | None], **options: Any) -> Json:
    rollouts = [{"n": n, "outcome": outcome, "tokens": 5} for n, outcome in outcomes.items()]
    return {"ticket": ticket["ticket"], "rollouts": rollouts, **options}


def told(answer: Json) -> list[tuple[str, str, int]]:
    return [(group["state"], group["next"], group["more"]) for group in answer["groups"]]


def test_the_first_wave_is_in_the_ticket_and_the_answer_says_how_to_go_on(http: Http) -> None:
    mixed, alike = begin(http, SPEED, size=2)
    assert [(t["first_wave"], t["group_size"]) for t in (mixed, alike)] == [(2, 6), (2, 6)]
    assert told(http.report(part(mixed, {0: 1.0}))) == [("open", "wait", 0)]
    answer = http.report(part(mixed, {1: 0.0}), part(alike, {0: 1.0, 1: 1.0}))
    assert told(answer) == [("open", "continue", 4), ("reported", "stop", 0)]
    answer = http.report(part(mixed, dict.fromkeys(range(2, 6), 0.0)))
    assert told(answer) == [("reported", "stop", 0)]
    assert [(g["scored"], g["passes"]) for g in answer["groups"]] == [(6, 1.0)]
    # Counts and the rule are on record, and beliefs come from the counts.
    (group,) = http.prompt(alike["prompt"])["groups"]
    assert group["waves"] == [{"rule": "screen", "wave": 0, "right": 2, "scored": 2, "more": 0, "verdict": "stop"}]
    assert http.prompt(alike["prompt"])["belief"]["pass_rate"] == (1 + 2) / (2 + 2)
    assert http.prompt(mixed["prompt"])["belief"]["pass_rate"] == (1 + 1) / (2 + 6)
    assert http.info()["claim"]["type"] == "modified"


def test_the_same_report_again_gets_the_same_answer(http: Http) -> None:
    (ticket,) = begin(http, UNTIL)
    sent = [part(ticket, {0: 0.0, 1: 0.0}), part(ticket, {2: 0.0}), part(ticket, {3: 1.0})]
    answers = [http.report(group) for group in sent]
    assert [told(answer)[0][1:] for answer in answers] == [("continue", 2), ("wait", 0), ("stop", 0)]
    again = [http.report(group) for group in sent]
    assert [(a["applied"], a["duplicate"]) for a in again] == [(0, 2), (0, 1), (0, 1)]
    # The second was told to wait for the third, which has come.
    assert [told(answer)[0][1:] for answer in again] == [("continue", 2), ("stop", 0), ("stop", 0)]
    late = http.report(part(ticket, {4: 1.0}))
    assert (late["late"], told(late)) == (1, [("reported", "stop", 0)])


def test_every_order_of_arrival_comes_to_the_same_decision(http: Http) -> None:
    outcomes = {0: 0.0, 1: 0.0, 2: 1.0, 3: 0.0}
    http.pool(letters("a"))
    found = set()
    for number, order in enumerate(itertools.permutations(outcomes)):
        run = f"r{number}"
        http.run(run, policy=UNTIL, group_size=6, audit_share=0)
        (ticket,) = http.draw(0, 1, run=run)["tickets"]
        for n in order:
            answer = http.report(part(ticket, {n: outcomes[n]}), run=run)
        found.add((answer["groups"][0]["scored"], answer["groups"][0]["passes"], answer["groups"][0]["next"]))
        (group,) = http.prompt("a", run=run)["groups"]
        assert [(w["right"], w["scored"], w["verdict"]) for w in group["waves"]] == [(0, 2, "continue"), (1, 4, "stop")]
    assert found == {(4, 1.0, "stop")}


def test_workers_at_the_same_time_are_told_once_who_completes_the_wave(url: str) -> None:
    with caller(url) as http:
        tickets = begin(http, SPEED, size=4)

        def work(job: tuple[int, int]) -> Json:
            place, n = job
            with caller(url) as worker:
                return worker.report(part(tickets[place], {n: float(n)}))

        jobs = [(place, n) for place in range(4) for n in range(2)]
        with ThreadPoolExecutor(8) as pool:
            answers = [told(answer)[0] for answer in pool.map(work, jobs)]
        assert sorted(answers) == [("open", "continue", 4)] * 4 + [("open", "wait", 0)] * 4
        # Whoever asks again hears it too.
        assert told(http.report(part(tickets[0], {0: 0.0}))) == [("open", "continue", 4)]


def test_audit_and_other_tickets_run_their_whole_group(http: Http) -> None:
    tickets = begin(http, SPEED, size=4, audit_share=0.5)
    assert {t["purpose"]: t["first_wave"] for t in tickets} == {"audit": 6, "train": 2}
    for purpose in ("probe", "control", "audit"):
        (ticket,) = http.draw(0, 1, purpose=purpose, allow_repeat=True)["tickets"]
        assert ticket["first_wave"] == 6


def test_a_restore_begins_a_group_anew(http: Http) -> None:
    (ticket,) = begin(http, SPEED)
    http.post("/v1/runs/r/checkpoints", {"step": 0})
    http.report(part(ticket, {0: 1.0, 1: 0.0}))
    http.post("/v1/runs/r/restore", {"step": 0})
    assert told(http.report(part(ticket, {0: 0.0, 1: 0.0}, attempt=2))) == [("reported", "stop", 0)]
    assert http.ticket(ticket["ticket"])["attempt"] == 2


@pytest.mark.parametrize(
    ("wave", "words"),
    [
        ({"rule": "screen", "first": 6}, "wave.first 6 must be below group_size 6"),
        ({"rule": "screen", "first": 2, "keep": 2}, "wave.keep 2 has no effect"),
        ({"rule": "balanced", "first": 2, "step": 2}, "wave.keep is needed"),
        ({"rule": "balanced", "first": 2, "step": 2, "keep": 3}, "wave.keep must be even"),
        ({"rule": "pilot", "first": 2, "low": 0.9, "high": 0.1}, "in order"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_at_the_door(http: Http, wave: Json, words: str) -> None:
    http.pool(letters("a"))
    body = {"name": "r", "pool": "p", "group_size": 6, "policy": {**FLAT_BETA, "wave": wave}}
    refused(http.send("POST", "/v1/runs", body), 422, "invalid_config", words)
    assert http.send("GET", "/v1/runs/r").status_code == 404


def test_a_preset_brings_the_group_size_of_its_method(http: Http) -> None:
    http.pool(letters("abcd"))
    made = http.run(policy={"preset": "speed"}, audit_share=0)
    assert made["config"]["group_size"] == 24
    assert [(t["first_wave"], t["group_size"]) for t in http.draw(0, 1)["tickets"]] == [(4, 24)]
    listed = {preset["preset"]: preset for preset in http.get("/v1/presets")["items"]}
    assert {name: listed[name]["group_size"] for name in ("midband", "speed", "pilot-commit")} == {
        "midband": 8,
        "speed": 24,
        "pilot-commit": 64,
    }
