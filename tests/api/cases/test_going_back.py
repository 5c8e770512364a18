"""The trainer goes back to an earlier step: what came later is lost, what was in flight is issued again."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.api.harness import Http, Json, codes_of, group, ids_of, in_process, keys_of, prompts, refused

SIZE, SAVED, LATER, LAST = 4, 10, 16, 20
REWOUND = ("policy_version", "step", "revisit_draws", "states", "train_draws")


class Trainer:
    """Draws, reports and steps with outcomes that depend on prompt and index alone."""

    def __init__(self, http: Http) -> None:
        self.http = http
        http.pool(prompts(100))
        http.run(group_size=4)

    def groups(self, batch: Json, places: slice = slice(None)) -> list[Json]:
        groups = []
        for ticket in batch["tickets"][places]:
            rng = np.random.default_rng([batch["index"], int(ticket["prompt"][1:])])
            groups.append(group(ticket, (rng.random(4) < 0.5).astype(float).tolist()))
        return groups

    def draw(self, index: int) -> Json:
        return self.http.draw(index, SIZE, index)

    def train(self, index: int) -> Json:
        batch = self.draw(index)
        report = self.http.report(*self.groups(batch))
        assert report["rejected"] == []
        self.step(index, ids_of(batch))
        return batch

    def step(self, index: int, trained: list[str]) -> None:
        costs = {"generation_s": 2.0, "update_s": 1.0}
        body = {"step": index, "policy_version": index, "trained": trained, "costs": costs}
        self.http.post("/v1/runs/r/steps", body)

    def save(self, step: int) -> Json:
        return self.http.post("/v1/runs/r/checkpoints", {"step": step})

    def restore(self, step: int, **options: Any) -> Json:
        return self.http.post("/v1/runs/r/restore", {"step": step, **options})

    def rewindable(self) -> tuple[Any, ...]:
        info = self.http.info()
        return self.http.beliefs(), {name: info[name] for name in REWOUND}

    def lasting(self) -> tuple[Any, ...]:
        """Everything that can be read of a run."""
        info = self.http.info()
        return self.http.beliefs(), info, self.http.tickets(), self.http.get("/v1/runs/r/costs")


def test_after_going_back_the_run_is_where_it_was(http: Http) -> None:
    trainer = Trainer(http)
    for index in range(SAVED + 1):
        trainer.train(index)
    trainer.save(SAVED)
    saved, tokens = trainer.rewindable(), http.info()["tokens"]
    before = [http.draw(index, SIZE, index) for index in range(SAVED + 1)]
    later = [trainer.train(index) for index in range(SAVED + 1, LATER)]
    answer = trainer.restore(SAVED)
    lost = SIZE * len(later)
    expected = {"step": SAVED, "branch": 1, "next_index": SAVED + 1, "resume_from": SAVED + 1, "reissued": []}
    assert answer == {**expected, "lost": lost}
    assert trainer.rewindable() == saved
    info = http.info()
    assert info["branch"] == 1
    # The work stays paid for, under a source of its own; so do the seconds of its steps.
    spent = 40 * lost
    assert info["tokens"] == {**tokens, "lost": spent}
    assert http.get("/v1/runs/r/costs")["seconds"]["generation"] == 2.0 * LATER
    assert http.get("/v1/runs/r/costs")["rollouts"]["lost"] == 4 * lost
    assert [http.draw(index, SIZE, index) for index in range(SAVED + 1)] == before
    ended = {t["ticket"]: (t["state"], t["reason"]) for t in http.tickets()}
    assert {ended[name] for batch in later for name in ids_of(batch)} == {("void", "lost")}


def test_a_restored_run_goes_on_as_the_uninterrupted_one_would_have(http: Http) -> None:
    trainer = Trainer(http)
    for index in range(SAVED + 1):
        trainer.train(index)
    trainer.save(SAVED)
    first = [trainer.train(index) for index in range(SAVED + 1, LATER)]
    uninterrupted = trainer.rewindable()
    trainer.restore(SAVED)
    second = [trainer.train(index) for index in range(SAVED + 1, LATER)]
    assert [batch["digest"] for batch in second] == [batch["digest"] for batch in first]
    assert [keys_of(batch) for batch in second] == [keys_of(batch) for batch in first]
    assert not {n for b in second for n in ids_of(b)} & {n for b in first for n in ids_of(b)}
    assert trainer.rewindable() == uninterrupted


def test_groups_in_flight_at_the_save_are_issued_again_as_the_next_attempt(http: Http) -> None:
    trainer = Trainer(http)
    for index in range(SAVED):
        trainer.train(index)
    half, ahead = trainer.draw(SAVED), trainer.draw(SAVED + 1)
    http.report(*trainer.groups(half, slice(3)))
    partly = {"ticket": half["tickets"][3]["ticket"], "rollouts": [{"n": 1, "outcome": 1.0, "tokens": 10}]}
    http.report(partly)
    trainer.save(SAVED)
    saved = trainer.rewindable()
    open_at_save = [half["tickets"][3]["ticket"], *ids_of(ahead)]
    # Some of the five are reported after the save, and the run goes on.
    http.report(*trainer.groups(half, slice(3, 4)), *trainer.groups(ahead, slice(2)))
    for index in range(SAVED + 2, LATER):
        trainer.train(index)
    answer = trainer.restore(SAVED)
    assert sorted(answer["reissued"]) == sorted(open_at_save)
    assert (answer["next_index"], answer["resume_from"]) == (SAVED + 2, SAVED)
    assert trainer.rewindable() == saved
    attempts = {t["ticket"]: (t["state"], t["attempt"]) for t in http.tickets()}
    assert [attempts[name] for name in open_at_save] == [("open", 2)] * 5
    assert [attempts[name] for name in ids_of(half)[:3]] == [("reported", 1)] * 3
    # A report that names the first attempt is late; one that names none means the second.
    late = http.report({**partly, "attempt": 1, "rollouts": [{"n": 2, "outcome": 1.0, "tokens": 7}]})
    assert (late["late"], codes_of(late)) == (1, ["ticket_closed"])
    assert http.info()["tokens"]["rejected"] == 7
    for batch in (half, ahead):
        report = http.report(*trainer.groups(batch))
        assert report["rejected"] == []
        trainer.step(batch["index"], ids_of(batch))
    assert http.draw(SAVED, SIZE, SAVED) == half
    for index in range(SAVED + 2, LAST + 1):
        trainer.train(index)
    _nothing_twice_and_nothing_missing(http)


def _nothing_twice_and_nothing_missing(http: Http) -> None:
    events = [event["event"] | {"kind": event["kind"]} for event in http.events()]
    ends = Counter(
        (group["ticket"], group["attempt"])
        for event in events
        if event["kind"] == "rollouts_reported"
        for group in event["groups"]
        if group["closing"]
    )
    assert max(ends.values()) == 1
    info = http.info()
    states = Counter(ticket["state"] for ticket in http.tickets())
    assert {state: states[state] for state in info["tickets"]} == info["tickets"]
    surviving = {name for index in range(LAST + 1) for name in ids_of(http.get(f"/v1/runs/r/batches/{index}"))}
    reported = {ticket["ticket"] for ticket in http.tickets(state="reported")}
    assert reported == surviving
    assert len(surviving) == SIZE * (LAST + 1)
    # Tokens by source add up to the tokens that came: 10 a rollout, whatever became of it.
    sent = sum(
        sum(group["tokens"]) for event in events if event["kind"] == "rollouts_reported" for group in event["groups"]
    ) + sum(r["tokens"] for event in events if event["kind"] == "rollouts_reported" for r in event["refused"])
    assert sum(info["tokens"].values()) == sent


def test_the_same_restore_sent_again_changes_nothing(http: Http) -> None:
    trainer = Trainer(http)
    trainer.train(0)
    trainer.draw(1)
    trainer.save(1)
    trainer.train(2)
    first = trainer.restore(1, restore_id="crash-1")
    state = trainer.lasting()
    assert trainer.restore(1, restore_id="crash-1") == first
    assert trainer.lasting() == state
    # Also after the run went on: it is the answer that was lost, not the work since.
    trainer.train(2)
    state = trainer.lasting()
    assert trainer.restore(1, restore_id="crash-1") == first
    assert trainer.lasting() == state


def test_restoring_once_more_raises_attempts_and_nothing_else(http: Http) -> None:
    trainer = Trainer(http)
    trainer.train(0)
    trainer.draw(1)
    trainer.save(1)
    trainer.train(2)
    first = trainer.restore(1)
    beliefs, info, tickets, costs = trainer.lasting()
    second = trainer.restore(1)
    assert second == {**first, "lost": 0}
    again = trainer.lasting()
    raised = [{**ticket, "attempt": ticket["attempt"] + (ticket["state"] == "open")} for ticket in tickets]
    assert again == (beliefs, info, raised, costs)


def test_a_restore_that_discards_nothing_stays_on_its_branch(http: Http) -> None:
    trainer = Trainer(http)
    trainer.train(0)
    trainer.save(0)
    answer = trainer.restore(0)
    assert (answer["branch"], answer["lost"], answer["next_index"]) == (0, 0, 1)


def test_a_superseded_branch_can_neither_draw_nor_report(http: Http) -> None:
    trainer = Trainer(http)
    trainer.train(0)
    trainer.save(0)
    batch = trainer.draw(1)
    trainer.restore(0)
    state = trainer.lasting()
    draw = {"index": 2, "size": 4, "policy_version": 2, "branch": 0}
    report = {"groups": trainer.groups(batch), "branch": 0}
    for path, body in (("batches", draw), ("reports", report)):
        refused(http.send("POST", f"/v1/runs/r/{path}", body), 409, "branch_superseded", "branch 0", "branch 1")
        later = {**body, "branch": 2}
        refused(http.send("POST", f"/v1/runs/r/{path}", later), 422, "unknown_branch", "branch 2", "1")
    assert trainer.lasting() == state
    # The lost tickets themselves are known: what still comes for them is late evidence, and paid for.
    late = http.report(*trainer.groups(batch))
    assert (late["applied"], late["late"], set(codes_of(late))) == (0, 16, {"ticket_closed"})
    assert http.info()["tokens"]["rejected"] == 160
    assert http.get("/v1/runs/r/batches/1", branch=0) == batch
    assert http.draw(1, SIZE, 1, branch=1)["branch"] == 1


def test_beliefs_may_be_kept_and_tickets_in_flight_voided(http: Http) -> None:
    trainer = Trainer(http)
    trainer.train(0)
    trainer.draw(1)
    trainer.save(1)
    trainer.train(2)
    kept = http.beliefs()
    answer = trainer.restore(1, beliefs="keep", in_flight="void")
    assert (answer["reissued"], answer["next_index"], answer["resume_from"], answer["lost"]) == ([], 1, 1, 4)
    found = http.beliefs()
    assert {key: belief["pass_rate"] for key, belief in found.items()} == {k: b["pass_rate"] for k, b in kept.items()}
    assert http.info()["tickets"] == {"open": 0, "reported": 4, "void": 8}
    # Their index is free: it is drawn anew, on the new branch.
    again = trainer.draw(1)
    assert (again["branch"], again["returned"]) == (1, 4)


def test_quarantine_and_pool_edits_are_not_taken_back(http: Http) -> None:
    trainer = Trainer(http)
    trainer.train(0)
    trainer.save(0)
    http.quarantine(["p007"])
    http.put(prompts(103)[100:])
    trainer.train(1)
    trainer.restore(0)
    states = http.info()["states"]
    assert states["quarantined"] == 1
    assert states["new"] + states["active"] == 102
    assert http.draw(1, 110, 1)["returned"] == 102
    assert "p007" not in keys_of(http.draw(1, 110, 1))


def test_checkpoints_have_the_first_position_of_their_step(http: Http) -> None:
    trainer = Trainer(http)
    first = trainer.save(3)
    trainer.train(0)
    again = trainer.save(3)
    assert (first["created"], again["created"]) == (True, False)
    assert again["position"] == first["position"]
    items = http.get("/v1/runs/r/checkpoints")["items"]
    assert [(c["step"], c["branch"], c["position"]) for c in items] == [(3, 0, first["position"])]
    state = trainer.lasting()
    refused(http.send("POST", "/v1/runs/r/restore", {"step": 4}), 404, "unknown_checkpoint", "4", "3")
    assert trainer.lasting() == state


def test_later_means_later_in_the_log_and_steps_may_go_down(http: Http) -> None:
    trainer = Trainer(http)
    trainer.train(0)
    trainer.save(50)
    trainer.train(1)
    trainer.save(20)
    trainer.train(2)
    trainer.restore(50)
    # The checkpoint of step 20 came after that of step 50 and is gone with what it held.
    refused(http.send("POST", "/v1/runs/r/restore", {"step": 20}), 404, "unknown_checkpoint", "20")
    assert trainer.restore(50)["next_index"] == 1


def test_a_step_is_its_branchs_own(http: Http) -> None:
    trainer = Trainer(http)
    trainer.train(0)
    trainer.save(0)
    batch = trainer.train(1)
    body = {"step": 1, "policy_version": 1, "trained": ids_of(batch), "costs": {"generation_s": 2.0, "update_s": 1.0}}
    seconds = http.get("/v1/runs/r/costs")["seconds"]
    assert http.post("/v1/runs/r/steps", body)["state"] == "duplicate"
    other = {**body, "policy_version": 2}
    refused(http.send("POST", "/v1/runs/r/steps", other), 409, "step_conflict", "policy_version")
    assert http.get("/v1/runs/r/costs")["seconds"] == seconds
    assert http.info()["policy_version"] == 1
    trainer.restore(0)
    assert http.info()["step"] == 0
    answer = http.post("/v1/runs/r/steps", {**other, "trained": []})
    assert (answer["state"], answer["branch"]) == ("recorded", 1)


def test_a_completed_run_is_reopened_by_a_restore(http: Http) -> None:
    trainer = Trainer(http)
    trainer.train(0)
    batch = trainer.draw(1)
    trainer.save(1)
    http.post("/v1/runs/r/complete", {})
    assert http.draw(2, SIZE, 2)["reason"] == "run_complete"
    answer = trainer.restore(1)
    assert sorted(answer["reissued"]) == sorted(ids_of(batch))
    assert http.report(*trainer.groups(batch))["applied"] == 16
    assert trainer.draw(2)["returned"] == SIZE


def test_a_run_that_is_reopened_sees_what_happened_to_its_pool_meanwhile(http: Http) -> None:
    trainer = Trainer(http)
    trainer.train(0)
    trainer.save(0)
    http.post("/v1/runs/r/complete", {})
    http.quarantine(["p007"])
    http.put(prompts(103)[100:])
    trainer.restore(0)
    batch = http.draw(1, 110, 1)
    assert batch["returned"] == 102
    assert "p007" not in keys_of(batch)


@pytest.mark.parametrize("again", [False, True])
def test_a_restore_survives_a_restart(database_url: str, again: bool) -> None:
    with in_process(database_url) as http:
        trainer = Trainer(http)
        for index in range(3):
            trainer.train(index)
        trainer.draw(3)
        trainer.save(3)
        trainer.train(4)
        first = trainer.restore(3, restore_id="x")
        if again:
            trainer.train(4)
            trainer.restore(3, restore_id="y")
        state = trainer.lasting()
    with in_process(database_url) as http:
        trainer.http = http
        assert trainer.lasting() == state
        assert trainer.restore(3, restore_id="x") == first
        assert trainer.lasting() == state
