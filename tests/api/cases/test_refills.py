"""Dynamic sampling: every group that was paid for is judged, and a batch is filled up within its rounds."""

from typing import Any

from tests.api.harness import Http, Json, prompts, refused

DAPO = {"preset": "dapo", "refill": {"rounds": 4}}


def begin(http: Http, **options: Any) -> Json:
    http.pool(prompts(60))
    return http.run(policy=DAPO, **{"group_size": 4, "audit_share": 0, **options})


def answer(http: Http, batch: Json, num_mixed: int) -> Json:
    """Where the batch stands once so many of its groups came back mixed and the others all wrong."""
    groups = [
        {"ticket": t["ticket"], "rollouts": [{"outcome": float(n == 0 and place < num_mixed)} for n in range(4)]}
        for place, t in enumerate(batch["tickets"])
    ]
    (standing,) = http.report(*groups)["refills"]
    assert isinstance(standing, dict)
    return standing


def test_three_three_one_eight_keep_eight_and_count_the_rest_as_surplus(http: Http) -> None:
    made = begin(http)
    assert made["claim"]["type"] == "unbiased"
    assert "1/yield" in made["claim"]["objective"]
    paid = 0
    for number, num_mixed in enumerate((3, 3, 1, 8)):
        batch = http.draw(0, 8, refill=number)
        standing = answer(http, batch, num_mixed)
        paid += batch["returned"]
        assert standing["judged"] == paid
        assert (standing["refill"], standing["size"] is None) == ((number + 1, False) if number < 3 else (None, True))
    assert len(standing["kept"]) == 8
    assert len(standing["surplus"]) == 7
    assert standing["informative"] == 15
    assert standing["inverse_yield"] == paid / 15
    summary = http.info()["refill"]
    assert (summary["kept"], summary["surplus"], summary["inverse_yield"]) == (8, 7, paid / 15)
    audit = http.get("/v1/runs/r/audit")
    assert audit["inverse_yield"] == paid / 15
    [mix] = audit["mix"]["category"]
    assert (mix["issued"], mix["reported"], mix["open"], mix["void"]) == (paid, paid, 0, {})  # what is paid is judged
    refused(
        http.send("POST", "/v1/runs/r/batches", {"index": 0, "size": 8, "policy_version": 0, "refill": 4}),
        422,
        "invalid_request",
        "beyond the 4 rounds",
    )


def test_rounds_that_are_spent_leave_what_was_found(http: Http) -> None:
    begin(http)
    for number, num_mixed in enumerate((3, 3, 1, 0)):
        standing = answer(http, http.draw(0, 8, refill=number), num_mixed)
    assert (len(standing["kept"]), standing["surplus"], standing["size"]) == (7, [], None)


def test_while_tickets_are_open_there_is_nothing_to_draw(http: Http) -> None:
    begin(http)
    batch = http.draw(0, 8)
    sent = {"ticket": batch["tickets"][0]["ticket"], "rollouts": [{"outcome": float(n)} for n in (0, 1, 0, 1)]}
    (standing,) = http.report(sent)["refills"]
    assert (standing["open"], standing["size"], standing["judged"], standing["kept"]) == (7, None, 0, [])
    # Asked again by a report that says nothing new.
    assert http.report({"ticket": sent["ticket"], "final": True})["refills"] == [standing]


def test_surplus_is_offered_to_the_next_batch(http: Http) -> None:
    begin(http)
    answer(http, http.draw(0, 8), 7)
    first = answer(http, http.draw(0, 2, refill=1), 2)
    assert len(first["surplus"]) == 1
    http.post("/v1/runs/r/steps", {"step": 0, "policy_version": 1, "trained": first["kept"]})
    assert answer(http, http.draw(1, 8, 1), 0)["offered"] == first["surplus"]


def test_the_yield_is_cancelled_by_a_factor_if_the_run_asks_for_it(http: Http) -> None:
    http.pool(prompts(60))
    http.run(policy={"preset": "dapo", "refill": {"cancel_yield": True}}, group_size=4, audit_share=0)
    assert answer(http, http.draw(0, 8), 2)["factor"] == 0.25


def test_a_restore_takes_its_refills_back(http: Http) -> None:
    begin(http)
    before = answer(http, http.draw(0, 8), 2)
    http.post("/v1/runs/r/checkpoints", {"step": 0})
    answer(http, http.draw(0, 20, refill=1), 6)
    http.post("/v1/runs/r/restore", {"step": 0})
    asked = http.report({"ticket": before["kept"][0], "final": True})
    assert asked["refills"] == [before]


def test_a_run_without_refill_says_nothing_of_it(http: Http) -> None:
    http.pool(prompts(60))
    http.run(group_size=4)
    assert http.info()["refill"] is None
    (ticket,) = http.draw(0, 1)["tickets"]
    assert http.report({"ticket": ticket["ticket"], "void": "lost"})["refills"] == []
