"""One rollout in several training samples: it counts once, and its cost is the sum of its parts."""

import itertools

import pytest

from tests.api.harness import FLAT_BETA, Http, Json, codes_of, letters

PARTS = [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (3, 0)]  # rollout, fragment
TOKENS = [100, 200, 300, 10, 20, 30]


def begin(http: Http) -> str:
    http.pool(letters("a"))
    http.run(group_size=4, policy=FLAT_BETA, audit_share=0.0)
    return str(http.draw(0, 1)["tickets"][0]["ticket"])


def part(place: int, **changes: object) -> Json:
    n, fragment = PARTS[place]
    return {"n": n, "fragment": fragment, "outcome": float(n == 0), "tokens": TOKENS[place], **changes}


@pytest.mark.parametrize("order", [range(6), [5, 2, 4, 0, 3, 1]], ids=["in order", "out of order"])
def test_fragments_of_a_rollout_count_once_and_their_tokens_add_up(http: Http, order: list[int]) -> None:
    ticket = begin(http)
    for place in order:
        answer = http.report({"ticket": ticket, "rollouts": [part(place)]})
        assert answer["applied"] == 1
    prompt, info = http.prompt("a"), http.info()
    assert [(g["scored"], g["passes"], g["tokens"]) for g in prompt["groups"]] == [(4, 1.0, sum(TOKENS))]
    assert prompt["belief"]["pass_rate"] == (1 + 1) / (2 + 4)
    assert info["rollouts"]["scored"] == 4
    assert info["tokens"]["train"] == sum(TOKENS)


def test_a_whole_group_of_fragments_may_come_at_once(http: Http) -> None:
    ticket = begin(http)
    answer = http.report({"ticket": ticket, "rollouts": [part(place) for place in range(6)]})
    assert (answer["applied"], answer["groups"][0]["scored"], answer["groups"][0]["passes"]) == (6, 4, 1.0)
    assert http.info()["tokens"]["train"] == sum(TOKENS)


def test_fragments_of_one_rollout_must_agree_on_its_outcome(http: Http) -> None:
    ticket = begin(http)
    answer = http.report({"ticket": ticket, "rollouts": [part(0), part(1, outcome=0.0), part(2)]})
    assert (answer["applied"], codes_of(answer)) == (2, ["report_conflict"])
    assert (answer["rejected"][0]["n"], "outcome" in answer["rejected"][0]["detail"]) == (0, True)
    assert http.info()["rollouts"]["reported"] == 1


def test_a_fragment_that_comes_after_its_ticket_closed_adds_cost_only(http: Http) -> None:
    ticket = begin(http)
    http.report({"ticket": ticket, "rollouts": [part(place) for place in (0, 3, 4, 5)]})
    before = http.beliefs()
    late = http.report({"ticket": ticket, "rollouts": [part(1), part(2, outcome=0.0)]})
    assert (late["applied"], codes_of(late), late["groups"][0]["state"]) == (1, ["report_conflict"], "reported")
    again = http.report({"ticket": ticket, "rollouts": [part(1)]})
    assert (again["applied"], again["duplicate"]) == (0, 1)
    assert http.beliefs() == before
    assert http.info()["tokens"]["train"] == 100 + 200 + 10 + 20 + 30


def test_fragments_known_by_id_share_their_rollout(http: Http) -> None:
    ticket = begin(http)
    for fragment, (name, outcome) in itertools.product(
        (0, 1), (("w1-a", 1.0), ("w2-b", 0.0), ("w1-c", 0.0), ("w9-d", 0.0))
    ):
        sent = {"id": name, "fragment": fragment, "outcome": outcome, "tokens": 7}
        http.report({"ticket": ticket, "rollouts": [sent]})
    prompt = http.prompt("a")
    assert [(g["scored"], g["passes"], g["tokens"]) for g in prompt["groups"]] == [(4, 1.0, 56)]
