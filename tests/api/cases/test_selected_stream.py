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
    assert audit["finding"] == "bias"
    assert audit["verdict"].startswith("bias found: the selected stream differs from the pool by +")
    low, high = audit["shift"]["pass_rate"]["against_uniform"]["interval"]
    assert 0 < low <= curves["selected"]["estimate"] - TRUE_MEAN <= high
    assert audit["selection_ratio"]["difficulty"]
    # The draws kept to their chances, and nothing else is claimed of them.
    assert {c["quantity"] for c in audit["contrasts"] if c["where"] == "overall"} == {"pass_rate", "degenerate"}
    assert not any(c["detected"] for c in audit["contrasts"])
    assert [block["draws"] for block in audit["blocks"]] == [[0, 99], [100, 199]]
    for block in audit["blocks"]:
        low, high = block["pass_rate"]["uniform"]["interval"]
        assert low <= TRUE_MEAN <= high
    assert audit["coverage"]["never_drawn"] == 0
    assert audit["inverse_yield"] < 2  # uniform draws: 1 / (½ · (1 − 2·½^8)) = 2.02
    predicted = {bin["low"]: bin for bin in audit["calibration"]["pass_rate"]}
    assert predicted[0.0]["observed"] < 0.1
    weight_of = {point["low"]: point["chance"] for point in audit["induced_weight"]}
    assert weight_of[0.5] > 1 > weight_of[0.0]


def test_a_grader_that_loses_failures_of_selected_groups_is_found_out(http: Http) -> None:
    """Of what was chosen, only groups that passed come back; those of the audit are reported in full."""
    http.pool(prompts(60))
    http.run(audit_share=0.25)
    rng = np.random.default_rng(9)
    for index in range(120):
        groups = []
        for ticket in http.draw(index, 16)["tickets"]:
            passed = bool(rng.random() < 0.5)
            if passed or ticket["purpose"] == "audit":
                groups.append({"ticket": ticket["ticket"], "rollouts": [{"outcome": float(passed)}] * 8})
            else:
                groups.append({"ticket": ticket["ticket"], "void": "lost", "rollouts": []})
        http.report(*groups)
    audit = http.get("/v1/runs/r/audit")
    found = {c["where"]: c for c in audit["contrasts"] if c["quantity"] == "pass_rate"}["overall"]
    assert found["detected"]
    assert found["estimate"] > 0.2
    assert audit["finding"] == "bias"
    assert audit["verdict"].startswith("bias found: the re-weighted draws contradict the uniform ones, overall by +0.")
    assert "groups go missing by their outcomes" in audit["verdict"]
    bounds = {one["kind"]: one for one in audit["response"]["purpose"]}
    assert bounds["audit"]["share"] == 1.0
    assert bounds["train"]["share"] < 0.7
    assert bounds["train"]["too_high"] > 0.1


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
