"""The selected stream lies: its curve climbs while the policy stands still. The uniform and re-weighted ones do not."""

import numpy as np
import pytest

from tests.api.harness import Http, held_out, in_process, prompts

TRUE_MEAN = 0.25


@pytest.mark.slow
def test_the_selected_curve_climbs_and_the_uniform_and_the_reweighted_one_tell_the_truth(database_url: str) -> None:
    with in_process(database_url) as http:
        http.pool([*prompts(100), *held_out(20)])
        http.run(audit_share=0.25)
        rng, smallest = np.random.default_rng(5), 1.0
        for index in range(200):
            batch = http.draw(index, 16)
            smallest = min(smallest, *(ticket["inclusion_probability"] for ticket in batch["tickets"]))
            assert all(ticket["prompt"].startswith("p") for ticket in batch["tickets"])
            groups = []
            for ticket in batch["tickets"]:
                rate = 0.5 if int(ticket["prompt"][1:]) >= 50 else 0.0
                outcomes = (rng.random(8) < rate).astype(float).tolist()
                groups.append({"ticket": ticket["ticket"], "rollouts": [{"outcome": o} for o in outcomes]})
            http.report(*groups)
        audit = http.get("/v1/runs/r/audit")
    curves = audit["pass_rate"]
    assert smallest > 0
    assert audit["draws"] == [0, 199]
    for name in ("uniform", "reweighted"):
        low, high = curves[name]["interval"]
        assert low <= TRUE_MEAN <= high
        assert high - low < 0.25
    # Difference estimates over 3200 tickets: a standard error is well below 0.01.
    assert curves["reweighted"]["estimate"] == pytest.approx(TRUE_MEAN, abs=0.03)
    assert curves["uniform"]["estimate"] == pytest.approx(TRUE_MEAN, abs=0.06)
    assert curves["selected"]["estimate"] > 0.32
    assert audit["verdict"]
    assert audit["selection_ratio"]["difficulty"]


def test_the_held_out_stream_is_never_trained_on(http: Http) -> None:
    http.pool([*prompts(10), *held_out(10)])
    http.run()
    evaluation = http.draw(0, 10, purpose="heldout")
    assert {ticket["prompt"][0] for ticket in evaluation["tickets"]} == {"h"}
    before, state = http.beliefs(), http.info()["states"]
    http.report(
        *({"ticket": t["ticket"], "rollouts": [{"outcome": 1.0, "tokens": 3}] * 8} for t in evaluation["tickets"])
    )
    assert http.beliefs() == before
    assert http.info()["states"] == state
    assert http.info()["tokens"]["heldout"] == 240
    for purpose in ("train", "probe", "audit", "control"):
        batch = http.draw(0, 20, purpose=purpose, short="fill", allow_repeat=True)
        assert {ticket["prompt"][0] for ticket in batch["tickets"]} == {"p"}
    trained = [evaluation["tickets"][0]["ticket"], batch["tickets"][0]["ticket"]]
    step = http.post("/v1/runs/r/steps", {"step": 1, "policy_version": 1, "trained": trained})
    assert [(r["ticket"], r["code"]) for r in step["rejected"]] == [(trained[0], "heldout_leak")]
