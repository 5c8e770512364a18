"""Draws whose size or groups vary: what the answer says, and which requests cannot be met."""

import pytest

from tests.api.harness import Http, group, prompts, refused


def test_a_batch_says_how_many_rollouts_each_ticket_is_for_and_closes_on_them(http: Http) -> None:
    http.pool(prompts(30))
    run = http.run(policy={"preset": "knapsack"}, group_size=6, audit_share=0.2)
    assert run["claim"]["type"] == "modified"
    for index in range(3):
        batch = http.draw(index, 10, divisor=12)
        sizes = [ticket["group_size"] for ticket in batch["tickets"]]
        assert sum(sizes) == 60
        assert [ticket["first_wave"] for ticket in batch["tickets"]] == sizes
        audit = [ticket["group_size"] for ticket in batch["tickets"] if ticket["purpose"] == "audit"]
        assert audit == [6] * 2
        assert http.draw(index, 10, divisor=12) == batch
        outcomes = [[float(k % 4 > g % 4) for g in range(size)] for k, size in enumerate(sizes)]
        report = http.report(*(group(t, values) for t, values in zip(batch["tickets"], outcomes, strict=True)))
        assert report["applied"] == 60
        assert http.info()["tickets"] == {"open": 0, "reported": 10 * (index + 1), "void": 0}
    assert len(set(sizes)) > 1
    assert http.info()["rollouts"]["issued"] == 180


def test_a_group_size_outside_the_budget_is_refused(http: Http) -> None:
    http.pool(prompts(8))
    http.run(policy={"budget": {"rule": "neyman", "low": 2, "high": 16}})
    body = {"index": 0, "size": 4, "policy_version": 0, "group_size": 32}
    refused(http.send("POST", "/v1/runs/r/batches", body), 422, "invalid_request", "group_size 32", "2 to 16")
    assert len(http.draw(0, 4, group_size=32, purpose="probe")["tickets"]) == 4


@pytest.mark.parametrize("design", ["poisson", "bernoulli"])
def test_a_design_of_random_size_gives_at_most_what_was_asked_and_says_why(http: Http, design: str) -> None:
    http.pool(prompts(90))
    http.run(policy={"preset": "sec", "design": design}, audit_share=0.0, group_size=4)
    batches = [http.draw(index, 9, divisor=12) for index in range(6)]
    for batch in batches:
        assert batch["returned"] * 4 % 12 == 0
        assert batch["returned"] <= 9
        assert batch["reason"] == (None if batch["returned"] == 9 else "quota")
    assert http.draw(6, 9, divisor=12, short="fill")["returned"] == 9


def test_draws_with_replacement_refuse_a_divisor_that_their_size_cannot_meet(http: Http) -> None:
    http.pool(prompts(60))
    http.run(policy={"design": "categorical"}, group_size=4)
    body = {"index": 0, "size": 9, "policy_version": 0, "divisor": 8}
    refused(http.send("POST", "/v1/runs/r/batches", body), 422, "invalid_request", "multiple of 2", "divisor 1")
    assert http.draw(0, 9, divisor=4)["returned"] <= 9
