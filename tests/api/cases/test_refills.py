"""Dynamic sampling: every group that was paid for is judged, and a batch is filled up within its rounds."""

from typing import Any

from tests.api.harness import Http, Json, prompts, refused

DAPO = {"preset": "dapo", "refill": {"rounds": 4}}


def begin(http: Http, **options: Any) -> Json:
    http.pool(prompts(60))
    return http.run(policy=DAPO, **{"group_size": 4, "audit_share": 0, **options})


def answer(http: Http, batch: Json, num_mixed: int) -> None:
    groups = [
        {"ticket": t["ticket"], "rollouts": [{"outcome": float(n == 0 and place < num_mixed)} for n in range(4)]}
        for place, t in enumerate(batch["tickets"])
    ]
    http.report(*groups)


def refill(http: Http, index: int = 0, **query: Any) -> Json:
    return http.get(f"/v1/runs/r/batches/{index}/refill", **query)


def test_three_three_one_eight_keep_eight_and_count_the_rest_as_surplus(http: Http) -> None:
    made = begin(http)
    assert made["claim"]["type"] == "unbiased"
    assert "1/yield" in made["claim"]["objective"]
    paid = 0
    for number, num_mixed in enumerate((3, 3, 1, 8)):
        batch = http.draw(0, 8, refill=number)
        answer(http, batch, num_mixed)
        paid += batch["returned"]
        standing = refill(http)
        assert standing["judged"] == paid
        assert (standing["refill"], standing["size"] is None) == ((number + 1, False) if number < 3 else (None, True))
    assert len(standing["kept"]) == 8
    assert len(standing["surplus"]) == 7
    assert standing["informative"] == 15
    assert standing["inverse_yield"] == paid / 15
    summary = http.info()["refill"]
    assert (summary["kept"], summary["surplus"], summary["inverse_yield"]) == (8, 7, paid / 15)
    refused(
        http.send("POST", "/v1/runs/r/batches", {"index": 0, "size": 8, "policy_version": 0, "refill": 4}),
        422,
        "invalid_request",
        "beyond the 4 rounds",
    )


def test_rounds_that_are_spent_leave_what_was_found(http: Http) -> None:
    begin(http)
    for number, num_mixed in enumerate((3, 3, 1, 0)):
        answer(http, http.draw(0, 8, refill=number), num_mixed)
    standing = refill(http)
    assert (len(standing["kept"]), standing["surplus"], standing["size"]) == (7, [], None)


def test_asking_while_tickets_are_open_says_to_wait(http: Http) -> None:
    begin(http)
    http.draw(0, 8)
    standing = refill(http)
    assert (standing["open"], standing["size"], standing["judged"], standing["inverse_yield"]) == (8, None, 0, None)


def test_surplus_is_offered_to_the_next_batch(http: Http) -> None:
    begin(http)
    answer(http, http.draw(0, 8), 7)
    answer(http, http.draw(0, 2, refill=1), 2)
    first = refill(http)
    assert len(first["surplus"]) == 1
    http.post("/v1/runs/r/steps", {"step": 0, "policy_version": 1, "trained": first["kept"]})
    http.draw(1, 8, 1)
    assert refill(http, 1)["offered"] == first["surplus"]


def test_the_yield_is_cancelled_by_a_factor_if_the_run_asks_for_it(http: Http) -> None:
    http.pool(prompts(60))
    http.run(policy={"preset": "dapo", "refill": {"cancel_yield": True}}, group_size=4, audit_share=0)
    answer(http, http.draw(0, 8), 2)
    assert refill(http)["factor"] == 0.25


def test_a_batch_that_was_never_drawn_and_a_branch_that_is_gone_are_named(http: Http) -> None:
    begin(http)
    refused(http.send("GET", "/v1/runs/r/batches/5/refill"), 404, "unknown_batch", "no train batch 5")
    http.post("/v1/runs/r/checkpoints", {"step": 0})
    http.draw(0, 8)
    http.post("/v1/runs/r/restore", {"step": 0})
    refused(http.send("GET", "/v1/runs/r/batches/0/refill?branch=0"), 409, "branch_superseded")


def test_a_run_without_refill_says_nothing_of_it(http: Http) -> None:
    http.pool(prompts(60))
    http.run(group_size=4)
    assert http.info()["refill"] is None
    answer(http, http.draw(0, 8), 2)
    assert refill(http)["size"] is None
