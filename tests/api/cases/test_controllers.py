"""Numbers that move while a run goes on: shown, recorded with each draw, and refused where they cannot be."""

from math import tanh

import pytest

from tests.api.harness import Http, Json, group, prompts

ADVISED = {"preset": "uniform", "controller": {"name": "batch_size", "options": {"wanted": 4}}}


def answer(http: Http, batch: Json, informative: int) -> None:
    http.report(
        *(
            group(ticket, [1.0, 0.0] * 4 if place < informative else [0.0] * 8)
            for place, ticket in enumerate(batch["tickets"])
        )
    )


def test_a_batch_says_how_many_tickets_the_next_should_have_and_has_those_asked_for(http: Http) -> None:
    http.pool(prompts(40))
    http.run(policy=ADVISED)
    first = http.draw(0, 8)
    answer(http, first, informative=2)
    second = http.draw(1, 8)

    assert (first["suggested_size"], second["suggested_size"]) == (5, 20)
    assert (first["returned"], second["returned"]) == (8, 8)
    assert http.draw(1, 8) == second
    assert http.info()["controlled"] == {"yield": 0.25, "suggested_size": 20}
    drawn = [event for event in http.events() if event["kind"] == "batch_drawn"]
    assert [event["event"]["controlled"]["suggested_size"] for event in drawn] == [5, 20]


def test_a_run_shows_what_its_controller_has_come_to(http: Http) -> None:
    http.pool(prompts(20))
    created = http.run(policy={"preset": "vcrl", "controller": {"name": "vcrl", "options": {"steps": 1}}})
    assert created["config"]["policy"]["controller"] == {"name": "vcrl", "options": {"steps": 1}}
    assert http.info()["controlled"] == {}
    thresholds = []
    for index in range(3):
        assert http.draw(index, 4)["suggested_size"] is None
        thresholds.append(http.info()["controlled"]["threshold"])

    assert thresholds == [0.3, 0.8, 0.8]


def test_numbers_go_back_with_a_restore_and_survive_a_change_of_the_pool(http: Http) -> None:
    http.pool(prompts(20))
    http.run(policy={"preset": "vcrl", "controller": {"name": "vcrl", "options": {"steps": 2}}})
    http.draw(0, 4)
    http.post("/v1/runs/r/checkpoints", {"step": 1})
    http.pool(prompts(24))
    later = [http.draw(index, 4) for index in (1, 2)]
    assert http.info()["controlled"]["threshold"] == 0.8
    http.post("/v1/runs/r/restore", {"step": 1})

    assert http.info()["controlled"]["draws"] == 0
    again = [http.draw(index, 4) for index in (1, 2)]
    assert http.info()["controlled"]["threshold"] == 0.8
    assert [len(batch["tickets"]) for batch in (*later, *again)] == [4] * 4


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"preset": "midband", "controller": {"name": "oracle"}}, "unknown controller 'oracle'"),
        ({"preset": "midband", "controller": {"name": "vcrl"}}, "controller 'vcrl' moves high, which utility"),
        ({"preset": "vcrl", "controller": {"name": "vcrl", "options": {"patience": 3}}}, "has no option 'patience'"),
        ({"preset": "uniform", "controller": {"name": "batch_size"}}, "controller 'batch_size' needs wanted"),
        ({"preset": "adarft"}, "the prompts of pool 'p' have no number 'difficulty'"),
    ],
)
def test_a_controller_or_feature_that_cannot_be_is_refused_and_no_run_begins(
    http: Http, policy: Json, words: str
) -> None:
    http.pool(prompts(4))
    refused = http.send("POST", "/v1/runs", {"name": "r", "pool": "p", "policy": policy})

    assert refused.status_code == 422
    assert refused.json()["code"] == "invalid_config"
    assert words in refused.json()["detail"]
    assert http.send("GET", "/v1/runs/r").status_code == 404


def test_adarft_draws_around_a_target_that_follows_the_pass_rate(http: Http) -> None:
    """Difficulties are those of an import, on a scale of its own; easy prompts pass, so harder ones come next."""
    http.pool([{**row, "features": {"difficulty": 10.0 * place}} for place, row in enumerate(prompts(40))])
    created = http.run(policy={"preset": "adarft"}, audit_share=0.0, revisit_draws=1000)
    assert created["config"]["policy"]["feature"] == "difficulty"
    drawn = []
    for index in range(3):
        batch = http.draw(index, 4)
        drawn.append([int(ticket["prompt"][1:]) for ticket in batch["tickets"]])
        http.report(*(group(ticket, [1.0] * 8) for ticket in batch["tickets"]))

    # 0, then 0.5·tanh(1) = 0.381 of 390, then 0.762 of them; one place of each batch is for a revisit.
    assert http.info()["controlled"] == {"target": pytest.approx(tanh(1.0))}
    for rows, nearest in zip(drawn, ({0, 1, 2, 3}, {13, 14, 15, 16}, {28, 29, 30, 31}), strict=True):
        assert len(nearest & set(rows)) >= 3
