"""The data set changed between two runs: prompts are known by their content, and histories stay where they belong."""

import random

from tests.api.harness import FLAT_BETA, Http, group, prompts


def test_a_shuffled_edited_and_shortened_data_set_is_matched_and_histories_stay(http: Http) -> None:
    rows = prompts(100)
    http.pool(rows)
    http.run(policy=FLAT_BETA)
    batch = http.draw(0, 100)
    passes = {ticket["prompt"]: int(ticket["prompt"][1:]) % 9 for ticket in batch["tickets"]}
    http.report(*(group(t, [1.0] * passes[t["prompt"]] + [0.0] * (8 - passes[t["prompt"]])) for t in batch["tickets"]))
    before = http.beliefs()

    edited = [{**row, "content": f"{row['content']}, edited"} for row in rows[10:20]]
    added = [{"key": f"n{i}", "content": f"a new question {i}"} for i in range(10)]
    changed = [*rows[5:10], *edited, *rows[30:], *added]
    random.Random(1).shuffle(changed)
    report = http.put(changed, mode="replace")
    http.run("second", policy=FLAT_BETA)

    # p000-p004 fell to the length limit and p020-p029 were taken out.
    expected = {"matched": 75, "linked": 10, "absent": 15, "created": 10, "updated": 10, "unchanged": 75, "rejected": 0}
    assert {name: report[name] for name in expected} == expected
    after = http.beliefs()
    for key in ("p050", "p007", "p099"):
        assert after[key]["pass_rate"] == before[key]["pass_rate"] == (1 + passes[key]) / 10
        assert [g["scored"] for g in http.prompt(key)["groups"]] == [8]
    assert http.prompt("p015")["groups"] == []
    assert [old["content"] for old in http.prompt("p015")["versions"]] == ["question 15"]
    for run in ("r", "second"):
        drawn = {t["prompt"] for t in http.draw(1, 95, run=run)["tickets"]}
        assert drawn == {row["key"] for row in changed}
    http.report(group(http.get("/v1/runs/second/batches/1")["tickets"][0], [1.0] * 8), run="second")
    assert http.info("second")["tickets"]["reported"] == 1
