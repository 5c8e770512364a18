"""A rollout without a valid score: unscored is a third state and never a 0, and no number that is none gets in."""

import math
from typing import Any

import pytest

from midband import Client
from midband import group as client_group
from tests.api.harness import FLAT_BETA, Http, group, letters, refused

NAN, MISSING = math.nan, None


def begin(http: Http, **options: Any) -> None:
    http.pool(letters())
    http.run(group_size=4, policy=FLAT_BETA, **options)


def test_a_missing_score_leaves_the_others_to_count(http: Http) -> None:
    begin(http)
    first, second = http.draw(0, 2)["tickets"]
    answer = http.report(group(first, [1.0, MISSING, 0.0, 1.0]), group(second, [MISSING, 1.0, 1.0, 1.0]))
    assert [(g["scored"], g["passes"], g["informative"]) for g in answer["groups"]] == [(3, 2.0, True), (3, 3.0, False)]
    assert http.prompt(first["prompt"])["belief"]["pass_rate"] == (1 + 2) / (2 + 3)
    assert http.prompt(second["prompt"])["belief"]["pass_rate"] == (1 + 3) / (2 + 3)
    rollouts = http.info()["rollouts"]
    assert (rollouts["reported"], rollouts["scored"], rollouts["unscored"]) == (8, 6, 2)


def test_a_group_without_any_score_is_void_and_changes_no_belief(http: Http) -> None:
    begin(http)
    first, second = http.draw(0, 2)["tickets"]
    http.report(group(first, [1.0, 0.0, 0.0, 1.0]))
    before = http.beliefs()
    answer = http.report(group(second, [MISSING] * 4))
    assert [(g["state"], g["scored"], g["informative"]) for g in answer["groups"]] == [("void", 0, None)]
    assert http.beliefs() == before
    info = http.info()
    assert info["tickets"] == {"open": 2 - 2, "reported": 1, "void": 1}
    assert info["rollouts"]["unscored"] == 4
    assert second["prompt"] in [t["prompt"] for t in http.draw(1, 4)["tickets"]]


def test_a_status_of_unscored_outweighs_a_number(http: Http) -> None:
    begin(http)
    ticket = http.draw(0, 1)["tickets"][0]
    rollouts = [{"outcome": 1.0}, {"outcome": 0.0, "status": "unscored"}, {"outcome": 1.0}, {"outcome": 1.0}]
    answer = http.report({"ticket": ticket["ticket"], "rollouts": rollouts})
    assert [(g["scored"], g["passes"], g["informative"]) for g in answer["groups"]] == [(3, 3.0, False)]


def test_an_outcome_with_a_missing_reward_counts_for_the_pass_rate_only(http: Http) -> None:
    begin(http)
    ticket = http.draw(0, 1)["tickets"][0]
    rollouts = [{"outcome": 1.0, "reward": 1.0}, {"outcome": 0.0, "reward": None}, {"outcome": 1.0}, {"outcome": 1.0}]
    answer = http.report({"ticket": ticket["ticket"], "rollouts": rollouts})
    assert [(g["scored"], g["passes"], g["informative"]) for g in answer["groups"]] == [(4, 3.0, False)]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"])
@pytest.mark.parametrize(
    "field",
    [
        '"outcome": @',
        '"outcome": 1, "reward": @',
        '"outcome": 1, "seconds": @',
        '"outcome": 1, "rewards": {"format": @}',
    ],
)
def test_a_number_that_is_none_is_refused_by_place_and_nothing_of_the_report_counts(
    sqlite_url: str, number: str, field: str
) -> None:
    from tests.api.harness import in_process

    with in_process(sqlite_url) as http:
        begin(http)
        first, second = http.draw(0, 2)["tickets"]
        before = http.info(), http.beliefs()
        good = '{"ticket": "%s", "rollouts": [{"outcome": 1}, {"outcome": 0}, {"outcome": 1}, {"outcome": 0}]}'
        bad = '{"ticket": "%s", "rollouts": [{"outcome": 1}, {"outcome": 0}, {%s}, {"outcome": 0}]}'
        groups = f"{good % first['ticket']}, {bad % (second['ticket'], field.replace('@', number))}"
        response = http.send("POST", "/v1/runs/r/reports", f'{{"groups": [{groups}]}}'.encode())
        name = "rewards.format" if "format" in field else field.split('"')[-2]
        refused(response, 422, "invalid_request", f"groups.1.rollouts.2.{name}")
        assert (http.info(), http.beliefs()) == before


def test_the_client_sends_a_missing_score_as_missing(url: str) -> None:
    with Client(url) as client:
        client.create_pool("p")
        client.put_prompts("p", letters())
        client.create_run("r", pool="p", group_size=4)
        ticket = client.draw("r", 0, 1, 0).tickets[0]
        answer = client.report("r", [client_group(ticket, [1.0, NAN, 0.0, 1.0])])
        assert [(g.scored, g.passes, g.informative) for g in answer.groups] == [(3, 2.0, True)]
        assert client.run("r").rollouts.unscored == 1
