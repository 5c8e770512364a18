"""Prior rollouts over HTTP: what a run keeps of its probes, which tickets begin with it, and what it refuses."""

from typing import Any

import orjson
import pytest
from sqlalchemy.exc import OperationalError

from api.db.models import rollout_bodies
from api.db.session import create_database, read
from tests.api.harness import Http, Json, everything, group, ids_of, in_process, prompts, refused, unchanged

SECRET = "the answer is forty-two"


def said(n: int, text: str = SECRET) -> Json:
    return {"text": f"{text} {n}", "token_ids": [n, 7, 11], "logprobs": [-0.1, -1.2345678901234567, -0.3]}


def rollouts(*outcomes: float | None, start: int = 0, **fields: Any) -> list[Json]:
    return [
        {"n": n, "outcome": outcome, "tokens": 3, "completion": said(n), **fields}
        for n, outcome in enumerate(outcomes, start)
    ]


def begin(http: Http, run: str = "r", count: int = 4, **options: Any) -> None:
    http.pool(prompts(count))
    defaults: Json = {"group_size": 8, "audit_share": 0, "rollout_store": {}}
    http.run(run, **(defaults | options))


def probed(http: Http, key: str, *outcomes: float | None, index: int = 0, version: int = 0, **fields: Any) -> Json:
    """The answer to a report of a probe of one prompt; other probes are handed back."""
    batch = http.draw(index, 4, purpose="probe", allow_repeat=True)
    (mine,) = (ticket for ticket in batch["tickets"] if ticket["prompt"] == key)
    others = [{"ticket": t["ticket"], "void": "never_started"} for t in batch["tickets"] if t is not mine]
    sent = {"ticket": mine["ticket"], "final": True, "rollouts": rollouts(*outcomes, **fields)}
    return http.report(*others, sent, policy_version=version)


def of(batch: Json, key: str) -> Json:
    (ticket,) = (ticket for ticket in batch["tickets"] if ticket["prompt"] == key)
    return dict(ticket)


def prior_ids(ticket: Json) -> list[str]:
    return [prior["id"] for prior in ticket["prior_rollouts"]]


def fetch(http: Http, *ids: str, run: str = "r") -> Any:
    return http.send("POST", f"/v1/runs/{run}/rollouts/fetch", {"ids": list(ids)})


def test_a_ticket_names_what_it_begins_with_and_the_run_gives_it_out(http: Http) -> None:
    begin(http, signal="outcome")
    answer = probed(http, "p002", 1.0, 0.0, reward=0.5)
    assert (answer["applied"], answer["kept"], answer["not_kept"]) == (2, 2, [])
    batch = http.draw(0, 4, version=0)
    ticket = of(batch, "p002")
    assert [prior["policy_version"] for prior in ticket["prior_rollouts"]] == [0, 0]
    assert [t for t in batch["tickets"] if t["prompt"] != "p002" and "prior_rollouts" in t] == []
    assert (ticket["group_size"], ticket["first_wave"], ticket["predicted"]["informative"]) == (8, 8, 1.0)
    first, second = http.post("/v1/runs/r/rollouts/fetch", {"ids": prior_ids(ticket)[::-1]})["rollouts"]
    assert second == {
        "id": prior_ids(ticket)[0],
        "prompt": "p002",
        "policy_version": 0,
        "outcome": 1.0,
        "reward": 0.5,
        "status": "ok",
        "tokens": 3,
        "completion": said(0),
    }
    assert (first["outcome"], first["completion"]) == (0.0, said(1))
    assert http.draw(0, 4) == batch == http.get("/v1/runs/r/batches/0")


def test_what_is_new_is_counted_and_nothing_twice(http: Http) -> None:
    begin(http)
    probed(http, "p002", 1.0, 0.0)
    ticket = of(http.draw(0, 4), "p002")
    before = http.info()
    answer = http.report(group(ticket, [0.0] * 6))
    (said_of,) = answer["groups"]
    assert (answer["applied"], answer["rejected"], answer["kept"]) == (6, [], 0)
    assert (said_of["state"], said_of["scored"], said_of["passes"]) == ("reported", 6, 0.0)
    assert said_of["informative"] is True
    info, costs = http.info(), http.get("/v1/runs/r/costs")
    assert info["tokens"]["probe"] == before["tokens"]["probe"] == 6
    assert info["tokens"]["train"] == 60
    assert (costs["rollouts"]["probe"], costs["rollouts"]["train"]) == (2, 6)
    assert costs["spent"]["rollouts"] == sum(costs["rollouts"].values()) == info["rollouts"]["reported"] == 8
    # Four probes and four train tickets of eight, less the two that nobody has to make.
    assert info["rollouts"]["issued"] == 64 - 2
    assert info["rollout_store"] == {"rollouts": 2, "bytes": 2 * len(orjson.dumps(said(0))), "unused": 0}
    assert http.beliefs()["p002"]["n_eff"] == pytest.approx(8, abs=0.5)
    (train, probe) = (g for g in http.prompt("p002")["groups"] if g["state"] == "reported")
    assert [(g["scored"], g["prior"]) for g in (train, probe)] == [(6, 2), (2, 0)]


def test_a_whole_group_made_afresh_counts_whole(http: Http) -> None:
    begin(http)
    probed(http, "p002", 1.0, 0.0)
    ticket = of(http.draw(0, 4), "p002")
    (said_of,) = http.report(group(ticket, [1.0] * 8))["groups"]
    assert (said_of["scored"], said_of["informative"]) == (8, False)
    assert http.info()["rollouts"]["issued"] == 64


def test_the_claim_says_that_groups_are_conditioned(http: Http) -> None:
    begin(http, policy={"preset": "uniform"})
    claim = http.draw(0, 2)["claim"]
    assert claim["type"] == "modified"
    assert "begin with a probe's rollouts" in claim["objective"]
    http.run("plain", policy={"preset": "uniform"})
    assert http.draw(0, 2, run="plain")["claim"]["type"] == "exact"


def test_a_draw_event_has_what_it_was_conditioned_on(http: Http) -> None:
    begin(http)
    probed(http, "p002", 1.0, 0.0)
    http.draw(0, 4)
    drawn = [event["event"] for event in http.events() if event["kind"] == "batch_drawn"][-1]
    (prior,) = drawn["priors"]
    assert (prior["passes"], prior["scored"], prior["versions"], prior["informative"]) == (1.0, 2, [0, 0], 1.0)


# At the door


def test_a_run_without_a_store_keeps_nothing_and_says_so(http: Http) -> None:
    begin(http, rollout_store=None)
    assert probed(http, "p002", 1.0, 0.0)["kept"] == 0
    assert all("prior_rollouts" not in ticket for ticket in http.draw(0, 4)["tickets"])
    assert http.info()["rollout_store"] is None
    with unchanged(http):
        refused(fetch(http, "r:0:probe:0:0:0/1/0"), 409, "store_off", "'r'", "rollout_store")


@pytest.mark.parametrize(
    "name", ["x", "r:0:probe:0:0:0", "r:0:probe:9:0:0/1/0", "r:0:probe:0:0:0/1/7", "r:0:probe:0:0:0/2/0"]
)
def test_an_id_that_the_run_never_gave_is_unknown(http: Http, name: str) -> None:
    begin(http)
    probed(http, "p002", 1.0, 0.0)
    (known,) = {prior_ids(of(http.draw(0, 4), "p002"))[0]}
    with unchanged(http):
        refused(fetch(http, known, name), 404, "unknown_rollout", name)


def test_an_id_of_another_run_is_unknown_and_says_whose_it_is(http: Http) -> None:
    begin(http)
    begin(http, "s")
    probed(http, "p002", 1.0, 0.0)
    (known, _) = prior_ids(of(http.draw(0, 4), "p002"))
    refused(fetch(http, known, run="s"), 404, "unknown_rollout", "'r'", "'s'")


def test_what_the_weights_have_left_behind_has_expired(http: Http) -> None:
    begin(http)
    probed(http, "p002", 1.0, 0.0)
    ids = prior_ids(of(http.draw(0, 4), "p002"))
    assert fetch(http, *ids).is_success
    http.post("/v1/runs/r/steps", {"step": 0, "policy_version": 1})
    refused(fetch(http, *ids), 410, "expired", ids[0], "afresh")
    assert http.info()["rollout_store"] == {"rollouts": 0, "bytes": 0, "unused": 0}


def test_what_is_too_old_but_not_let_go_of_yet_has_expired_too(http: Http) -> None:
    begin(http, rollout_store={"max_lag": 1})
    probed(http, "p001", 1.0, 0.0, version=1)
    probed(http, "p002", 1.0, 0.0, index=1, version=0)
    batch = http.draw(0, 4, version=1)
    young, old = prior_ids(of(batch, "p001")), prior_ids(of(batch, "p002"))
    http.post("/v1/runs/r/steps", {"step": 0, "policy_version": 2})
    assert http.info()["rollout_store"]["rollouts"] == 4
    assert fetch(http, *young).is_success
    refused(fetch(http, *young, *old), 410, "expired", old[0], "version 0", "max_lag is 1")


def test_what_comes_of_older_weights_counts_and_is_not_kept(http: Http) -> None:
    begin(http)
    http.post("/v1/runs/r/steps", {"step": 0, "policy_version": 3})
    answer = probed(http, "p002", 1.0, 0.0, version=2)
    assert (answer["applied"], answer["kept"]) == (2, 0)
    assert [(no["n"], no["code"]) for no in answer["not_kept"]] == [(0, "stale"), (1, "stale")]
    assert "max_lag is 0" in answer["not_kept"][0]["detail"]


def test_what_is_too_large_counts_and_is_not_kept(http: Http) -> None:
    begin(http)
    answer = probed(http, "p002", 1.0, completion={"text": "x" * 2**20}, start=0)
    assert (answer["applied"], answer["kept"]) == (1, 0)
    assert answer["not_kept"][0]["code"] == "completion_too_large"
    assert "x" * 100 not in str(answer)


def test_more_than_an_answer_may_hold_is_refused(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.fetching.MAX_ANSWER_BYTES", 150)
    begin(http)
    probed(http, "p002", 1.0, 0.0)
    first, second = prior_ids(of(http.draw(0, 4), "p002"))
    assert fetch(http, first).is_success
    refused(fetch(http, first, second), 413, "body_too_large", "fewer")


@pytest.mark.parametrize("ids", [[], [1], ["x" * 401], ["x"] * 10_001, None])
def test_ids_that_cannot_be_are_refused(http: Http, ids: Any) -> None:
    begin(http)
    refused(http.send("POST", "/v1/runs/r/rollouts/fetch", {"ids": ids}), 422, "invalid_request", "ids")


@pytest.mark.parametrize("store", [{"max_rollouts": 0}, {"max_bytes": -1}, {"max_lag": 1.5}, {"keep": 3}, True])
def test_bounds_that_cannot_be_are_refused(http: Http, store: Any) -> None:
    http.pool(prompts(3))
    body = {"name": "r", "pool": "p", "rollout_store": store}
    word = next(iter(store)) if isinstance(store, dict) else "rollout_store"
    refused(http.send("POST", "/v1/runs", body), 422, "invalid_request", word)


@pytest.mark.parametrize("part", [{"policy": {"preset": "speed"}}, {"feed": "informative_only"}])
def test_parts_that_do_not_go_with_a_store_are_refused(http: Http, part: Json) -> None:
    http.pool(prompts(3))
    body = {"name": "r", "pool": "p", "group_size": 24, "rollout_store": {}, **part}
    refused(http.send("POST", "/v1/runs", body), 422, "invalid_config", "rollout_store")


def test_a_probability_for_another_number_of_tokens_is_refused_with_the_report(http: Http) -> None:
    begin(http)
    ticket = http.draw(0, 1, purpose="probe")["tickets"][0]
    wrong = {"n": 0, "outcome": 1.0, "completion": {"text": SECRET, "token_ids": [1, 2], "logprobs": [-0.5]}}
    body = {"groups": [{"ticket": ticket["ticket"], "rollouts": [wrong]}]}
    with unchanged(http):
        detail = refused(http.send("POST", "/v1/runs/r/reports", body), 422, "invalid_request", "logprobs")
    assert SECRET not in detail


# What is stored


def test_nothing_that_was_generated_is_logged_or_in_the_log_of_the_run(
    http: Http, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    begin(http)
    probed(http, "p002", 1.0, 0.0)
    ids = prior_ids(of(http.draw(0, 4), "p002"))
    assert SECRET in fetch(http, *ids).text
    http.post("/v1/runs/r/steps", {"step": 0, "policy_version": 1})
    refused(fetch(http, *ids), 410, "expired")
    assert SECRET not in caplog.text
    assert SECRET not in orjson.dumps([http.events(), http.info(), http.prompt("p002")]).decode()


def test_a_service_that_comes_back_has_the_same_and_hands_over_the_same(database_url: str) -> None:
    with in_process(database_url) as http:
        begin(http, rollout_store={"max_rollouts": 5, "max_lag": 1})
        for index, key in enumerate(("p000", "p001", "p002")):
            probed(http, key, 1.0, 0.0, index=index)
        first = http.draw(0, 2)
        ids = [one for ticket in first["tickets"] for one in ticket.get("prior_rollouts", [])]
        bodies = [fetch(http, one["id"]).content for one in ids]
        before = everything(http)
    with in_process(database_url) as http:
        assert everything(http) == before
        assert http.draw(0, 2) == first
        assert [fetch(http, one["id"]).content for one in ids] == bodies
        second = http.draw(1, 2)
        taken = [prior for batch in (first, second) for t in batch["tickets"] for prior in t.get("prior_rollouts", [])]
        assert len({prior["id"] for prior in taken}) == len(taken) > 2
        assert len(ids_of(second)) == 2


def test_a_commit_that_fails_leaves_neither_a_report_nor_its_bodies(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(http)
    ticket = of(http.draw(0, 4, purpose="probe", allow_repeat=True), "p002")
    sent = {"ticket": ticket["ticket"], "final": True, "rollouts": rollouts(1.0, 0.0)}

    def fails(*_: Any) -> None:
        raise OperationalError("statement", {}, Exception("the disk is full"))

    with monkeypatch.context() as patched:
        patched.setattr("api.db.bodies.keep_bodies", fails)
        refused(http.send("POST", "/v1/runs/r/reports", {"groups": [sent]}), 503, "busy")
    assert http.info()["rollout_store"] == {"rollouts": 0, "bytes": 0, "unused": 0}
    assert http.report(sent)["kept"] == 2
    (again,) = http.report(sent)["groups"]
    assert (again["scored"], http.info()["rollout_store"]["rollouts"]) == (2, 2)
    for other in http.draw(0, 4, purpose="probe", allow_repeat=True)["tickets"]:
        http.report({"ticket": other["ticket"], "void": "never_started"})
    assert fetch(http, *prior_ids(of(http.draw(0, 4), "p002"))).is_success


def test_what_is_let_go_of_is_deleted(database_url: str) -> None:
    def stored() -> list[int]:
        engine = create_database(database_url)
        with read(engine) as connection:
            rows = connection.execute(rollout_bodies.select().order_by(rollout_bodies.c.serial)).all()
        engine.dispose()
        return [int(row.serial) for row in rows]

    with in_process(database_url) as http:
        begin(http, rollout_store={"max_rollouts": 3, "max_lag": 1})
        probed(http, "p000", 1.0, 0.0)
        assert stored() == [1, 2]
        probed(http, "p001", 1.0, 0.0, index=1)
        assert stored() == [2, 3, 4]
        http.post("/v1/runs/r/checkpoints", {"step": 0})
        probed(http, "p002", 1.0, 0.0, index=2)
        assert stored() == [4, 5, 6]
        http.post("/v1/runs/r/restore", {"step": 0})
        assert stored() == [4]  # what the restore went back to and the store had let go of is gone for good
        ids = [f"r:0:probe:1:0:{place}/1/{n}" for place in range(4) for n in range(2)]
        answers = {fetch(http, one).status_code for one in ids}
        assert answers == {200, 404, 410}
        probed(http, "p003", 1.0, 0.0, index=2)
        assert stored() == [4, 7, 8]
        http.post("/v1/runs/r/steps", {"step": 0, "policy_version": 2})
        assert stored() == []
        probed(http, "p003", 1.0, 0.0, index=3, version=2)
        assert stored() == [9, 10]
        http.post("/v1/runs/r/complete", {})
        assert stored() == []
