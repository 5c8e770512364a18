"""The same group reported twice counts once, also at the same moment; other values are a conflict, kept and listed."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tests.api.harness import FLAT_BETA, Http, Json, caller, codes_of, group, letters

FIRST, OTHER = [1.0, 0, 0, 0, 1.0, 0, 0, 0], [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]


def begin(http: Http) -> Json:
    http.pool(letters())
    http.run(policy=FLAT_BETA)
    ticket: Json = http.draw(0, 1)["tickets"][0]
    return ticket


def test_a_report_sent_again_has_the_same_answer_and_counts_nothing(http: Http) -> None:
    ticket = begin(http)
    first = http.report(group(ticket, FIRST))
    state = http.info(), http.beliefs()
    second = http.report(group(ticket, FIRST))
    assert (first["applied"], first["duplicate"], second["applied"], second["duplicate"]) == (8, 0, 0, 8)
    assert second["groups"] == first["groups"]
    assert second["rejected"] == []
    assert (http.info(), http.beliefs()) == state


def test_other_values_are_a_conflict_and_the_first_stand(http: Http) -> None:
    ticket = begin(http)
    first = http.report(group(ticket, FIRST))
    state = http.info(), http.beliefs()
    third = http.report(group(ticket, OTHER))
    differing = sum(a != b for a, b in zip(FIRST, OTHER, strict=True))
    assert (third["applied"], third["duplicate"], third["late"]) == (0, 8 - differing, 0)
    assert codes_of(third) == ["report_conflict"] * differing
    assert third["groups"] == first["groups"]
    assert (http.info(), http.beliefs()) == state
    # Both are kept: the conflict stands under its ticket, once however often it is sent.
    http.report(group(ticket, OTHER))
    kept = http.prompt(ticket["prompt"])["groups"][0]
    assert kept["ticket"] == ticket["ticket"]
    assert kept["passes"] == 2.0
    assert [(r["n"], r["code"], r["outcome"]) for r in kept["refused"]] == [
        (n, "report_conflict", b) for n, (a, b) in enumerate(zip(FIRST, OTHER, strict=True)) if a != b
    ]


@pytest.mark.parametrize("change", ["reward", "tokens", "status"])
def test_a_change_of_anything_but_time_is_a_conflict(http: Http, change: str) -> None:
    ticket = begin(http)
    sent = group(ticket, FIRST)
    http.report(sent)
    sent["rollouts"][3] |= {"reward": {"reward": 5.0}, "tokens": {"tokens": 11}, "status": {"status": "truncated"}}[
        change
    ]
    answer = http.report(sent)
    assert (answer["applied"], answer["duplicate"]) == (0, 7)
    assert [(r["n"], r["code"]) for r in answer["rejected"]] == [(3, "report_conflict")]


def test_the_same_group_twice_in_one_report_counts_once(http: Http) -> None:
    ticket = begin(http)
    answer = http.report(group(ticket, FIRST), group(ticket, FIRST), group(ticket, OTHER))
    assert (answer["applied"], answer["duplicate"]) == (8, 8 + 1)
    assert [g["ticket"] for g in answer["groups"]] == [ticket["ticket"]] * 3
    assert http.info()["rollouts"]["reported"] == 8


@pytest.mark.parametrize("second", [FIRST, OTHER], ids=["equal", "different"])
def test_of_two_reports_at_the_same_moment_exactly_one_counts(url: str, second: list[float]) -> None:
    with caller(url) as http:
        http.pool([*letters("abcdefghijkl")])
        http.run(policy=FLAT_BETA)
        for index in range(12):
            ticket = http.draw(index, 1)["tickets"][0]
            barrier = Barrier(2)

            def send(outcomes: list[float], ticket: Json = ticket, barrier: Barrier = barrier) -> Json:
                with caller(url) as other:
                    barrier.wait()
                    return other.report(group(ticket, outcomes))

            with ThreadPoolExecutor(2) as executor:
                answers = list(executor.map(send, [FIRST, second]))
            assert sorted(answer["applied"] for answer in answers) == [0, 8]
            assert answers[0]["groups"] == answers[1]["groups"]
            loser = min(answers, key=lambda answer: answer["applied"])
            assert loser["duplicate"] + len(loser["rejected"]) == 8
        info = http.info()
        assert info["rollouts"]["reported"] == 12 * 8
        assert sum(info["tokens"].values()) == 12 * 80
