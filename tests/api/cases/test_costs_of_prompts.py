"""What rollouts cost is learned: tickets name the tokens to expect, beliefs both costs, and a policy may count them."""

import csv
import io

import pyarrow.parquet as pq

from tests.api.harness import Http, group, prompts, refused


def feed(http: Http, batches: int = 12) -> None:
    """Prompts of the second half are ten times as long."""
    for index in range(batches):
        groups = []
        for ticket in http.draw(index, 20, index)["tickets"]:
            long = int(ticket["prompt"][1:]) >= 10
            one = group(ticket, [1.0, 0.0, 1.0, 0.0])
            for n, rollout in enumerate(one["rollouts"]):
                rollout |= {"tokens": (1000 if long else 100) + n, "seconds": (20.0 if long else 2.0) + n / 10}
            groups.append(one)
        http.report(*groups)


def test_tickets_and_beliefs_name_what_to_expect(http: Http) -> None:
    http.pool(prompts(20))
    http.run(group_size=4)
    assert {ticket["predicted"]["tokens"] for ticket in http.draw(100, 5)["tickets"]} == {None}
    assert {(b["tokens"], b["seconds"]) for b in http.beliefs().values()} == {(None, None)}
    table = http.send("GET", "/v1/runs/r/beliefs?format=parquet").content
    assert pq.read_table(io.BytesIO(table)).column("tokens").null_count == 20
    rows = csv.DictReader(io.StringIO(http.send("GET", "/v1/runs/r/beliefs?format=csv").text))
    assert {row["seconds"] for row in rows} == {""}
    for ticket in http.draw(100, 5)["tickets"]:
        http.report(group(ticket, [1.0, 0.0, 1.0, 0.0]))

    feed(http)

    for key, belief in http.beliefs().items():
        long = int(key[1:]) >= 10
        assert 0.5 < belief["tokens"] / (1000 if long else 100) < 2.0
        assert 0.5 < belief["seconds"] / (20.0 if long else 2.0) < 2.0
    batch = http.draw(12, 20, 12)
    assert all(ticket["predicted"]["tokens"] > 0 for ticket in batch["tickets"])
    assert http.get("/v1/runs/r/batches/12") == batch


def test_a_policy_per_token_draws_short_prompts_more_often(http: Http) -> None:
    http.pool(prompts(20))
    created = http.run(group_size=4, audit_share=0.0, policy={"preset": "midband", "per": "token"})
    assert created["config"]["policy"]["per"] == "token"
    assert created["claim"] == http.run("plain", group_size=4, audit_share=0.0)["claim"]
    feed(http)

    chance = {t["prompt"]: t["inclusion_probability"] for t in http.draw(12, 4, 12)["tickets"]}
    assert min(p for key, p in chance.items() if int(key[1:]) < 10) > 0.2


def test_costs_in_a_uniform_run_are_refused_by_name(http: Http) -> None:
    http.pool(prompts(4))
    body = {"name": "u", "pool": "p", "policy": {"preset": "uniform", "per": "second"}}
    refused(http.send("POST", "/v1/runs", body), 422, "invalid_config", "per second", "uniform")
