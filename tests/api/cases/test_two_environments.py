"""Two environments, one of them fast: shares are kept when prompts are drawn, and what is trained on drifts away."""

from tests.api.harness import Http, group, prompts

STEPS, SIZE, CODE_STEPS = 40, 16, 10


def test_issued_and_trained_shares_are_shown_and_a_drift_is_named_with_its_reason(http: Http) -> None:
    """Code takes ten times as long; nine math groups in ten teach nothing and are not trained on."""
    http.pool([{**row, "category": "code" if i % 2 else "math"} for i, row in enumerate(prompts(200))])
    http.run(policy={"preset": "midband", "quotas": {"math": 0.5, "code": 0.5}})
    waiting, number = dict[int, list[str]](), 0
    for step in range(STEPS):
        trained, groups = [], [group(name, [1.0, 0.0] * 4) for name in waiting.pop(step, [])]
        trained += [g["ticket"] for g in groups]
        for ticket in http.draw(step, SIZE, step)["tickets"]:
            if ticket["category"] == "code":
                waiting.setdefault(step + CODE_STEPS, []).append(ticket["ticket"])
                continue
            number += 1
            is_mixed = number % 10 == 0
            groups.append(group(ticket, [1.0, 0.0] * 4 if is_mixed else [1.0] * 8))
            trained += [ticket["ticket"]] * is_mixed
        http.report(*groups)
        http.post("/v1/runs/r/steps", {"step": step, "policy_version": step, "trained": trained})
    audit = http.get("/v1/runs/r/audit")
    mix = {kind["kind"]: kind for kind in audit["mix"]["category"]}
    assert abs(mix["math"]["issued_share"] - 0.5) < 0.06
    assert mix["math"]["trained_share"] < 0.2
    assert mix["code"]["open"] > 0
    math, code = (next(w for w in audit["warnings"] if w.startswith(f"category {name}")) for name in ("math", "code"))
    assert f"{mix['math']['reported'] - mix['math']['trained']} came back and were not trained on" in math
    assert f"{mix['code']['open']} open" in code
    page = http.send("GET", "/v1/runs/r/report").text
    assert "trained on" in page
    assert "What became of it" in page
