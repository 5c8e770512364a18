"""The trainer filters first and reports groups whose scores differ only, apart from those of the audit."""

from typing import Any

import numpy as np

from tests.api.harness import Http, group, prompts, refused

RATES = (0.9, 0.02)


def rates(key: str) -> float:
    return RATES[int(key[1:]) % 2]


def trained(http: Http, run: str, batches: int, *, censored: bool) -> None:
    for index in range(batches):
        groups: list[dict[str, Any]] = []
        for ticket in http.draw(index, 20, index, run=run)["tickets"]:
            rng = np.random.default_rng([index, int(ticket["prompt"][1:])])
            outcomes = (rng.random(8) < rates(ticket["prompt"])).astype(float).tolist()
            if not censored or ticket["purpose"] == "audit" or len(set(outcomes)) > 1:
                groups.append(group(ticket, outcomes))
            else:
                groups.append({"ticket": ticket["ticket"], "final": True, "rollouts": []})
        assert http.report(*groups, run=run)["rejected"] == []


def test_estimates_find_the_pass_rates_of_solved_and_hopeless_prompts_and_nothing_rests(http: Http) -> None:
    http.pool(prompts(40))
    http.run("all", group_size=8, audit_share=0.2)
    http.run("some", group_size=8, audit_share=0.2, feed="informative_only")
    trained(http, "all", 30, censored=False)
    trained(http, "some", 30, censored=True)

    for run in ("all", "some"):
        for rate in RATES:
            of_rate = [b for key, b in http.beliefs(run).items() if rates(key) == rate]
            covered = [abs(b["pass_rate"] - rate) <= 2 * b["pass_rate_sd"] + 0.02 for b in of_rate]
            assert np.mean(covered) >= 0.75, (run, rate)
    for rate in RATES:  # without what silence says, .05 nearer to the middle
        found = np.mean([b["pass_rate"] for key, b in http.beliefs("some").items() if rates(key) == rate])
        assert abs(found - rate) < 0.03, rate
    states = http.info("some")["states"]
    assert (states["mastered"], states["deferred"], states["quarantined"]) == (0, 0, 0)
    audit, whole = http.get("/v1/runs/some/audit"), http.get("/v1/runs/all/audit")
    assert any("censored" in warning for warning in audit["warnings"])
    assert "cannot be compared" in audit["verdict"]
    assert (audit["finding"], audit["contrasts"]) == (None, [])  # silence depends on outcomes: nothing to bet on
    assert whole["finding"] is not None
    assert not any(contrast["detected"] for contrast in whole["contrasts"])
    for found in (audit, whole):
        low, high = found["pass_rate"]["uniform"]["interval"]
        assert low <= np.mean(RATES) <= high
    silent = [t for t in http.tickets("some", state="void") if t["reason"] == "silent"]
    assert silent
    assert all(t["purpose"] == "train" for t in silent)


def test_prompts_known_by_silence_alone_may_be_either_and_stay_in_the_draw(http: Http) -> None:
    http.pool(prompts(40))
    http.run(group_size=8, audit_share=0.0, feed="informative_only")
    before = next(iter(http.beliefs().values()))
    for index in range(8):
        tickets = http.draw(index, 40, index)["tickets"]
        assert len(tickets) == 40
        silent = [{"ticket": ticket["ticket"], "final": True, "rollouts": []} for ticket in tickets]
        assert http.report(*silent)["rejected"] == []
        if index == 0:
            first = list(http.beliefs().values())

    last = list(http.beliefs().values())
    for beliefs in (first, last):
        assert all(0.2 < belief["pass_rate"] < 0.8 for belief in beliefs)
        assert all(belief["pass_rate_sd"] > before["pass_rate_sd"] for belief in beliefs)
        assert all(0.05 < belief["informative"] < 0.5 * before["informative"] for belief in beliefs)
    assert sum(http.info()["states"][state] for state in ("mastered", "deferred", "quarantined")) == 0
    assert {ticket["reason"] for ticket in http.tickets(state="void")} == {"silent"}


def test_rest_in_such_a_run_is_refused_and_silence_cannot_be_sent_as_a_reason(http: Http) -> None:
    http.pool(prompts(4))
    body = {"name": "r", "pool": "p", "feed": "informative_only", "policy": {"lifecycle": {}}}
    refused(http.send("POST", "/v1/runs", body), 422, "invalid_config", "lifecycle", "informative groups")
    http.run(group_size=8, feed="informative_only")
    ticket = http.draw(0, 1)["tickets"][0]["ticket"]
    sent = {"groups": [{"ticket": ticket, "void": "silent", "rollouts": []}]}
    assert http.send("POST", "/v1/runs/r/reports", sent).status_code == 422
