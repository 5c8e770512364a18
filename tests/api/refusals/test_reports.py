"""Reports with something wrong in them: refused whole, or the wrong ticket alone where the others can count."""

import pytest

from tests.api.harness import FLAT_BETA, Http, Json, answered, codes_of, group, letters, prompts, refused, unchanged
from tests.api.refusals.cases import RUN, open_ticket

GROUPS: list[tuple[Json, str]] = [
    ({}, "groups.1"),
    ({"rollouts": []}, "groups.1"),
    ({"rollouts": [{}]}, "rollouts.0.outcome"),
    ({"rollouts": [{"outcome": 1.5}]}, "rollouts.0.outcome"),
    ({"rollouts": [{"outcome": -0.1}]}, "rollouts.0.outcome"),
    ({"rollouts": [{"outcome": "right"}]}, "rollouts.0.outcome"),
    ({"rollouts": [{"outcome": "NaN"}]}, "rollouts.0.outcome"),
    ({"rollouts": [{"outcome": 1, "reward": "Infinity"}]}, "rollouts.0.reward"),
    ({"rollouts": [{"outcome": 1, "tokens": -1}]}, "rollouts.0.tokens"),
    ({"rollouts": [{"outcome": 1, "tokens": 2.5}]}, "rollouts.0.tokens"),
    ({"rollouts": [{"outcome": 1, "seconds": -1}]}, "rollouts.0.seconds"),
    ({"rollouts": [{"outcome": 1, "n": -1}]}, "rollouts.0.n"),
    ({"rollouts": [{"outcome": 1, "n": 10**6}]}, "rollouts.0.n"),
    ({"rollouts": [{"outcome": 1, "id": ""}]}, "rollouts.0.id"),
    ({"rollouts": [{"outcome": 1, "id": "x" * 201}]}, "rollouts.0.id"),
    ({"rollouts": [{"outcome": 1, "status": "fine"}]}, "rollouts.0.status"),
    ({"rollouts": [{"outcome": 1, "fragment": -1}]}, "rollouts.0.fragment"),
    ({"rollouts": [{"outcome": 1, "score": 1}]}, "rollouts.0.score"),
    ({"rollouts": [{"outcome": 1, "rewards": [1]}]}, "rollouts.0.rewards"),
    ({"rollouts": [{"outcome": 1, "policy_version": "new"}]}, "rollouts.0.policy_version"),
    ({"rollouts": [{"outcome": 1, "completion": {"text": 7}}]}, "rollouts.0.completion.text"),
    ({"rollouts": {"outcome": 1}}, "rollouts"),
    ({"attempt": 0, "final": True}, "attempt"),
    ({"void": "boring"}, "void"),
    ({"final": "perhaps"}, "final"),
    ({"final": True, "reason": "none"}, "reason"),
]


@pytest.mark.parametrize(("values", "place"), GROUPS)
def test_a_report_with_one_bad_group_is_refused_whole_and_names_the_place(
    shared: Http, values: Json, place: str
) -> None:
    ticket = open_ticket(shared)
    good = group(ticket, [1.0, 0.0, 1.0, 0.0])
    with unchanged(shared):
        response = shared.send("POST", f"{RUN}/reports", {"groups": [good, {"ticket": ticket, **values}]})
        refused(response, 422, "invalid_request", place if place == "groups.1" else f"groups.1.{place}")


def test_a_report_needs_groups_and_a_ticket(shared: Http) -> None:
    with unchanged(shared):
        refused(shared.send("POST", f"{RUN}/reports", {"groups": []}), 422, "invalid_request", "groups")
        refused(shared.send("POST", f"{RUN}/reports", {}), 422, "invalid_request", "groups: Field required")
        refused(shared.send("POST", f"{RUN}/reports", {"groups": [{"final": True}]}), 422, "invalid_request", "ticket")


@pytest.mark.parametrize("version", [[1], [1, 2, 3], []])
def test_a_span_of_versions_has_two_ends(shared: Http, version: list[int]) -> None:
    ticket = open_ticket(shared)
    body = {"groups": [{**group(ticket, [1.0] * 4), "policy_version": version}]}
    with unchanged(shared):
        refused(shared.send("POST", f"{RUN}/reports", body), 422, "invalid_report", "[first, last]", str(version))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("r:0:train:99:0:0", "unknown_ticket"),
        ("r:0:train:0:0:2", "unknown_ticket"),
        ("r:0:train:0:1:0", "unknown_ticket"),
        ("r:1:train:0:0:0", "unknown_ticket"),
        ("r:0:heldout:0:0:0", "unknown_ticket"),
        ("r:0:train:0:0:99999999999999999999999", "unknown_ticket"),
        ("made up", "unknown_ticket"),
        ("\x00", "unknown_ticket"),
        ("s:0:train:0:0:0", "wrong_run"),
    ],
)
def test_a_ticket_that_was_never_issued_is_refused_and_the_others_count(http: Http, name: str, code: str) -> None:
    http.pool(prompts(8))
    http.run(group_size=4)
    good = http.draw(0, 2)["tickets"][0]["ticket"]
    answer = http.report(group(name, [1.0] * 4), group(good, [1.0] * 4))
    assert (answer["applied"], [(r["ticket"], r["code"]) for r in answer["rejected"]]) == (4, [(name, code)])
    assert answer["rejected"][0]["detail"]
    assert [(g["ticket"], g["state"]) for g in answer["groups"]] == [(name, None), (good, "reported")]


def test_nine_rewards_for_a_group_of_eight_leave_eight(http: Http) -> None:
    http.pool(letters("a"))
    http.run(policy=FLAT_BETA)
    ticket = http.draw(0, 1)["tickets"][0]["ticket"]
    unnumbered = {"groups": [group(ticket, [1.0] * 9)]}
    with unchanged(http):
        refused(http.send("POST", f"{RUN}/reports", unnumbered), 422, "invalid_report", ticket, "8")
    nine = [{"n": n, "outcome": 1.0} for n in range(9)]
    answer = http.report({"ticket": ticket, "rollouts": nine})
    assert (answer["applied"], answer["late"]) == (8, 0)
    assert [(r["n"], r["code"]) for r in answer["rejected"]] == [(8, "too_many_rollouts")]
    assert http.prompt("a")["belief"]["pass_rate"] == 9 / 10
    again = http.report({"ticket": ticket, "rollouts": [{"n": 8, "outcome": 1.0}]})
    assert (again["late"], codes_of(again)) == (1, ["ticket_closed"])


@pytest.mark.parametrize("version", [-1, 3, 10**30, [0, 9], [2, 1]])
def test_a_policy_version_that_cannot_be_is_refused(http: Http, version: object) -> None:
    http.pool(letters("a"))
    http.run(group_size=4)
    ticket = http.draw(0, 1, 1)["tickets"][0]["ticket"]
    body = (
        f'{{"groups": [{{"ticket": "{ticket}", "policy_version": {version}, "rollouts": [{{"n": 0, "outcome": 1}}]}}]}}'
    )
    answer = answered(http.send("POST", f"{RUN}/reports", body.encode()))
    assert (answer["applied"], codes_of(answer), answer["groups"][0]["state"]) == (0, ["bad_policy_version"], "open")
    # One above the run's is what a trainer has between its update and its next draw.
    assert http.report({**group(ticket, [1.0] * 4), "policy_version": [0, 2]})["applied"] == 4
