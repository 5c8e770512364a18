"""The run ends, a prompt is taken out, the data change, while tickets are open: what was drawn stands."""

import pytest

from tests.api.harness import (
    FLAT_BETA,
    Http,
    Json,
    codes_of,
    group,
    ids_of,
    in_process,
    keys_of,
    letters,
    prompts,
    unchanged,
)

RUN = "/v1/runs/r"


def test_what_comes_for_a_completed_run_is_late_and_what_it_drew_stands(http: Http) -> None:
    http.pool(prompts(10))
    http.run(group_size=4)
    batch = http.draw(0, 2)
    half = {"ticket": ids_of(batch)[0], "rollouts": [{"n": 0, "outcome": 1.0, "tokens": 5}]}
    http.report(half)
    first = http.post(f"{RUN}/complete", {})
    assert first["completed"] is True
    assert http.post(f"{RUN}/complete", {}) == first
    late = http.report(*(group(ticket, [1.0] * 4) for ticket in batch["tickets"]))
    # Rollout 0 of the first ticket came before, with other tokens.
    assert (late["applied"], late["late"]) == (0, 7)
    assert codes_of(late) == ["report_conflict", *["ticket_closed"] * 7]
    assert http.report(half)["duplicate"] == 1
    assert http.draw(0, 2) == batch
    with unchanged(http):
        for purpose in ("train", "probe", "heldout"):
            nothing = http.draw(1, 2, purpose=purpose)
            assert (nothing["requested"], nothing["returned"], nothing["reason"]) == (2, 0, "run_complete")
    assert http.info()["tokens"]["rejected"] == 5 + 70


def test_a_prompt_quarantined_in_mid_run_is_never_drawn_and_its_open_ticket_still_counts(http: Http) -> None:
    http.pool(letters())
    http.run(policy=FLAT_BETA)
    ticket = next(t for t in http.draw(0, 4)["tickets"] if t["prompt"] == "b")
    assert http.quarantine(["b", "nobody"]) == {"changed": 1, "unchanged": 0, "unknown": ["nobody"]}
    assert http.quarantine(["b"])["unchanged"] == 1
    assert http.report(group(ticket, [1.0] * 8))["applied"] == 8
    assert http.prompt("b")["state"] == "quarantined"
    assert http.info()["states"]["quarantined"] == 1
    for other in http.tickets(state="open"):
        http.report(group(other["ticket"], [0.0] * 8))
    for purpose in ("train", "probe", "audit", "control"):
        batch = http.draw(1, 4, purpose=purpose, short="fill")
        assert (batch["frame"], sorted(keys_of(batch))) == (3, ["a", "c", "d"])
        http.report(*({"ticket": t["ticket"], "void": "surplus"} for t in batch["tickets"]))
    http.quarantine(["a", "c", "d"])
    assert http.draw(2, 4)["reason"] == "pool_empty"
    http.quarantine(["b"], lift=True)
    assert keys_of(http.draw(3, 4)) == ["b"]
    assert http.prompt("b")["belief"]["pass_rate"] == 9 / 10
    kinds = [event["event"]["revision"] for event in http.events() if event["kind"] == "pool_revised"]
    assert kinds == sorted(set(kinds))
    assert len(kinds) == 4  # at its beginning and at three of the four changes: one changed nothing


def test_prompts_absent_from_a_new_upload_are_kept_and_never_drawn(database_url: str) -> None:
    with in_process(database_url) as http:
        http.pool(letters())
        http.run(policy=FLAT_BETA)
        batch = http.draw(0, 4)
        answer = http.put(letters("cde"), mode="replace")
        assert (answer["matched"], answer["absent"], answer["created"]) == (2, 2, 1)
        assert http.report(*(group(ticket, [1.0] * 8) for ticket in batch["tickets"]))["applied"] == 32
        assert http.info()["states"] == {
            "new": 1, "active": 2, "mastered": 0, "deferred": 0, "quarantined": 0, "absent": 2
        }  # fmt: skip
        assert sorted(keys_of(http.draw(1, 5))) == ["c", "d", "e"]
        assert http.prompt("a")["belief"]["pass_rate"] == 9 / 10
    with in_process(database_url) as http:
        assert http.prompt("a")["state"] == "absent"
        assert http.draw(0, 4) == batch
        http.put(letters("ab"))
        assert sorted(keys_of(http.draw(2, 5))) == ["a", "b"]
        assert http.prompt("a")["belief"]["pass_rate"] == 9 / 10


def test_an_edited_prompt_is_a_new_one_and_its_open_ticket_means_the_old(database_url: str) -> None:
    with in_process(database_url) as http:
        http.pool(letters("ab"))
        http.run(policy=FLAT_BETA)
        batch = http.draw(0, 2, include=["content"])
        old = next(ticket for ticket in batch["tickets"] if ticket["prompt"] == "a")
        http.put([{"key": "a", "content": "a better question", "answer": "a"}])
        assert http.draw(0, 2, include=["content"]) == batch
        fresh = http.draw(1, 2, include=["content"])
        assert [(t["prompt"], t["content"]) for t in fresh["tickets"]] == [("a", "a better question")]
        assert http.report(group(old, [1.0] * 8))["applied"] == 8
        assert http.prompt("a")["belief"]["n_eff"] == 0.0
        assert http.prompt("a")["in_flight"] == 1


def test_a_change_of_configuration_begins_a_segment_and_leaves_what_was_drawn(database_url: str) -> None:
    with in_process(database_url) as http:
        http.pool(prompts(60))
        created = http.run(audit_share=0.25)
        before = [_drawn_and_reported(http, index) for index in range(3)]
        changed = http.post(f"{RUN}/config", {"policy": {"preset": "uniform"}, "audit_share": 0.5, "max_lag": 9})
        assert changed["config_hash"] != created["config_hash"]
        assert (created["claim"]["type"], changed["claim"]["type"]) == ("modified", "exact")
        assert (changed["config"]["audit_share"], changed["config"]["max_lag"]) == (0.5, 9)
        assert changed["config"]["group_size"] == 8
        # The same change again is none, and no event either.
        with unchanged(http):
            again = http.post(f"{RUN}/config", {"policy": {"preset": "uniform"}, "audit_share": 0.5, "max_lag": 9})
            assert again == changed
        after = [_drawn_and_reported(http, index) for index in range(3, 6)]
        assert [batch["claim"]["type"] for batch in before + after] == ["modified"] * 3 + ["exact"] * 3
        assert [ticket["inclusion_probability"] for ticket in after[0]["tickets"]] == pytest.approx([8 / 60] * 8)
        assert [http.draw(index, 8, index) for index in range(3)] == before
        audit = http.get(f"{RUN}/audit")
        assert (audit["draws"], audit["claim"]["type"]) == ([3, 5], "exact")
        assert http.post(f"{RUN}/config", {"max_lag": None})["config"]["max_lag"] is None
        assert http.get(f"{RUN}/audit")["draws"] is None
        state = http.info(), http.get(f"{RUN}/audit")
    with in_process(database_url) as http:
        assert (http.info(), http.get(f"{RUN}/audit")) == state


def _drawn_and_reported(http: Http, index: int) -> Json:
    batch = http.draw(index, 8, index)
    http.report(*(group(ticket, [1.0, 0.0] * 4) for ticket in batch["tickets"]))
    return batch
