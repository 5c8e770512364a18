"""The service dies, or what it stored is damaged: nothing acknowledged is lost, and nothing is made up."""

import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
from sqlalchemy import text

from tests.api.harness import (
    FLAT_BETA,
    POLL_S,
    Http,
    Json,
    caller,
    codes_of,
    everything,
    free_port,
    group,
    ids_of,
    in_process,
    keys_of,
    letters,
    process,
    prompts,
    refused,
    stored,
)

RUN = "/v1/runs/r"


def outcomes(ticket: str, group_size: int) -> list[float]:
    """The same outcomes for a ticket whenever they are asked for."""
    seed = int.from_bytes(hashlib.sha256(ticket.encode()).digest()[:8], "little")
    return [float(x) for x in np.random.default_rng(seed).random(group_size) < 0.4]


def train(http: Http, indices: range, size: int = 4) -> None:
    for index in indices:
        batch = http.draw(index, size, index)
        http.report(*(group(t, outcomes(t["ticket"], t["group_size"])) for t in batch["tickets"]))
        http.post(f"{RUN}/steps", {"step": index, "policy_version": index, "trained": ids_of(batch)})


@pytest.mark.slow
def test_a_killed_server_comes_back_as_it_was(database_url: str, tmp_path: Path) -> None:
    with process(database_url, tmp_path) as server, caller(server.url) as http:
        http.pool(prompts(100))
        http.run(group_size=4, ticket_ttl_s=3_600.0)
        train(http, range(5))
        server.stop()  # with a snapshot, so that the next start has one and a tail of the log
    with process(database_url, tmp_path) as server, caller(server.url) as http:
        train(http, range(5, 8))
        http.post(f"{RUN}/checkpoints", {"step": 7})
        half = http.draw(8, 40, 8)
        http.report(*(group(t, outcomes(t["ticket"], 4)) for t in half["tickets"][:10]))
        partly = {"ticket": ids_of(half)[10], "rollouts": [{"n": 2, "outcome": 1.0, "tokens": 7}]}
        http.report(partly)
        http.quarantine(["p050"])
        before = everything(http)
        server.kill()
    with process(database_url, tmp_path) as server, caller(server.url) as http:
        assert everything(http) == before
        assert http.info()["tickets"]["open"] == 30
        # What was sent before is known, what was drawn before is the same, and open tickets can be reported.
        again = http.report(*(group(t, outcomes(t["ticket"], 4)) for t in half["tickets"][:10]), partly)
        assert (again["applied"], again["duplicate"]) == (0, 41)
        other = http.report(group(half["tickets"][0], [1.0 - o for o in outcomes(ids_of(half)[0], 4)]))
        assert set(codes_of(other)) == {"report_conflict"}
        assert http.draw(8, 40, 8) == half
        rest = [group(t, outcomes(t["ticket"], 4)) for t in half["tickets"][11:]]
        assert http.report(*rest)["applied"] == 4 * 29
        answer = http.post(f"{RUN}/restore", {"step": 7})
        assert answer["next_index"] == 8
        server.kill()
    with process(database_url, tmp_path) as server, caller(server.url) as http:
        assert http.info()["branch"] == 1
        assert "p050" not in keys_of(http.draw(8, 99, 8))


@pytest.mark.slow
def test_a_server_killed_while_it_restores_has_restored_once_or_not_at_all(database_url: str, tmp_path: Path) -> None:
    rng, port = np.random.default_rng(3), free_port()
    with process(database_url, tmp_path, port=port) as server, caller(server.url) as http:
        http.pool(prompts(60))
        http.run(group_size=4)
        train(http, range(2))
        http.post(f"{RUN}/checkpoints", {"step": 1})
    for number in range(5):
        body = {"step": 1, "restore_id": f"restore {number}"}
        with process(database_url, tmp_path, port=port) as server, caller(server.url) as http:
            train(http, range(2, 4))
            thread = threading.Thread(target=_sent_unless_it_dies, args=(server.url, body))
            thread.start()
            time.sleep(float(rng.random()) * 0.03)
            server.kill()
            thread.join()
        with process(database_url, tmp_path, port=port) as server, caller(server.url) as http:
            answer = http.post(f"{RUN}/restore", body)
            assert (answer["branch"], answer["next_index"], answer["lost"]) == (number + 1, 2, 8)
            assert http.post(f"{RUN}/restore", body) == answer
            assert [event["kind"] for event in http.events()].count("restored") == number + 1
            before = everything(http)
            server.kill()
        with in_process(database_url) as http:
            assert everything(http) == before


def _sent_unless_it_dies(url: str, body: Json) -> None:
    with caller(url) as http, suppress(httpx.TransportError):
        http.post(f"{RUN}/restore", body)


SNAPSHOT_DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda payload: payload[: len(payload) // 2],
    "empty": lambda payload: b"",
    "one bit": lambda payload: payload[:-100] + bytes([payload[-100] ^ 1]) + payload[-99:],
}


@pytest.mark.parametrize("damage", SNAPSHOT_DAMAGE)
@pytest.mark.parametrize("noticed", [True, False], ids=["by the row's checksum", "by its own checksum"])
def test_a_damaged_snapshot_is_passed_over_and_the_log_gives_the_same_state(
    database_url: str, damage: str, noticed: bool
) -> None:
    with in_process(database_url) as http:
        http.pool(prompts(30))
        http.run(group_size=4)
        train(http, range(3))
        http.post(f"{RUN}/checkpoints", {"step": 2})
        train(http, range(3, 6))
        http.draw(6, 4, 6)
        before = everything(http)
    with stored(database_url) as connection:
        rows = connection.execute(text("SELECT seq, kind, payload FROM snapshots")).all()
        assert {row.kind for row in rows} == {"full", "rewind"}
        for row in rows:
            payload = SNAPSHOT_DAMAGE[damage](bytes(row.payload))
            values = {"payload": payload, "seq": row.seq, "kind": row.kind, "sha": hashlib.sha256(payload).hexdigest()}
            sha256 = "" if noticed else ", sha256 = :sha"
            query = f"UPDATE snapshots SET payload = :payload{sha256} WHERE seq = :seq AND kind = :kind"
            connection.execute(text(query), values if sha256 else {k: v for k, v in values.items() if k != "sha"})
    with in_process(database_url) as http:
        assert everything(http) == before
        answer = http.post(f"{RUN}/restore", {"step": 2})
        assert (answer["next_index"], answer["lost"]) == (3, 16)
        train(http, range(3, 5))


def test_without_any_snapshot_the_log_is_enough(database_url: str) -> None:
    with in_process(database_url) as http:
        http.pool(prompts(30))
        http.run(group_size=4)
        train(http, range(4))
        http.quarantine(["p003"])
        http.put(prompts(35)[30:])
        http.post(f"{RUN}/config", {"audit_share": 0.5, "weights": "clipped"})
        http.post(f"{RUN}/checkpoints", {"step": 3})
        train(http, range(4, 6))
        http.post(f"{RUN}/restore", {"step": 3, "restore_id": "a"})
        train(http, range(4, 5))
        http.post(f"{RUN}/complete", {})
        before = everything(http)
    with stored(database_url) as connection:
        connection.execute(text("DELETE FROM snapshots"))
    with in_process(database_url) as http:
        assert everything(http) == before
        assert http.get("/v1/runs")["items"] == [{"run": "r", "pool": "p", "completed": True}]


LOG_DAMAGE = {
    "an event is gone": "DELETE FROM events WHERE run_id = 1 AND seq = 5",
    "the end is gone": "DELETE FROM events WHERE run_id = 1 AND seq > 6",
    "cut off": "UPDATE events SET payload = substr(payload, 1, 20) WHERE run_id = 1 AND seq = 5",
    "not json": "UPDATE events SET payload = :junk WHERE run_id = 1 AND seq = 5",
    "of no kind we know": "UPDATE events SET kind = 'dreamt' WHERE run_id = 1 AND seq = 5",
    "of another kind": "UPDATE events SET kind = 'checkpoint_made' WHERE run_id = 1 AND seq = 5",
    "of an unknown ticket": "UPDATE events SET payload = :strange WHERE run_id = 1 AND kind = 'rollouts_reported'",
}
STRANGE = b"""{"groups": [{"ticket": 999, "attempt": 1, "n": [0], "fragment": [0], "outcome": [1.0], "reward": [1.0],
"status": [0], "tokens": [1], "seconds": [0.0], "version": [0], "ids": [null], "rewards": [null], "closing": null,
"reopens": false}], "refused": []}"""


@pytest.mark.parametrize("damage", LOG_DAMAGE)
@pytest.mark.parametrize("with_snapshot", [True, False])
def test_a_damaged_log_stops_its_run_with_a_message_and_no_other(
    database_url: str, damage: str, with_snapshot: bool
) -> None:
    with in_process(database_url) as http:
        http.pool(prompts(30))
        http.run("r", group_size=4)
        http.run("other", group_size=4)
        train(http, range(3))
        http.draw(0, 4, run="other")
        before = everything(http)
    with stored(database_url) as connection:
        values = {"junk": b"\x00\xff", "strange": STRANGE}
        query = LOG_DAMAGE[damage]
        connection.execute(text(query), {name: value for name, value in values.items() if f":{name}" in query})
        if not with_snapshot:
            connection.execute(text("DELETE FROM snapshots"))
    with in_process(database_url) as http:
        assert http.draw(0, 4, run="other")["returned"] == 4
        if with_snapshot and damage != "the end is gone":  # the snapshot stands behind the damage
            assert http.info() == before[0]
            return
        detail = refused(http.send("GET", RUN), 500, "snapshot_damaged", "log", "backup")
        assert refused(http.send("POST", f"{RUN}/batches", {"index": 9, "size": 1, "policy_version": 9}), 500,
                       "snapshot_damaged") == detail  # fmt: skip
        assert http.info("other")["tickets"]["open"] == 4
    with stored(database_url) as connection:  # nothing was written onto the damage
        kept = connection.execute(text("SELECT max(seq) FROM events WHERE run_id = 1")).scalar_one()
        assert kept <= len(before[3])


def test_a_commit_that_fails_leaves_memory_as_the_log_has_it(sqlite_url: str, tmp_path: Path) -> None:
    with in_process(sqlite_url) as http:
        http.pool(prompts(30))
        http.run(group_size=4)
        train(http, range(3))
        ticket = http.draw(3, 2, 3)["tickets"][0]
        http.post(f"{RUN}/checkpoints", {"step": 2})
        late = http.draw(5, 2, 5)["tickets"][0]
        before = everything(http)
        with closing(sqlite3.connect(tmp_path / "midband.db")) as connection:
            full = "CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no space left'); END"
            connection.execute(full)
            report = {"groups": [group(ticket, [1.0] * 4)]}
            for path, body in (
                ("batches", {"index": 4, "size": 2, "policy_version": 4}),
                ("reports", report),
                ("steps", {"step": 9, "policy_version": 9}),
                ("checkpoints", {"step": 9}),
                ("restore", {"step": 2, "restore_id": "a"}),
                ("complete", {}),
            ):
                assert http.send("POST", f"{RUN}/{path}", body).status_code == 500
                assert everything(http) == before
            connection.execute("DROP TRIGGER full")
        assert http.report(*report["groups"])["applied"] == 4
        assert http.draw(4, 2, 4)["returned"] == 2
        assert http.post(f"{RUN}/restore", {"step": 2, "restore_id": "a"})["branch"] == 1
        assert http.ticket(late["ticket"])["state"] == "void"


def test_a_snapshot_that_cannot_be_stored_holds_nothing_up(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("api.hosting.SNAPSHOT_EVENTS", 4)
    with in_process(sqlite_url) as http:
        http.pool(prompts(30))
        http.run(group_size=4)
        with closing(sqlite3.connect(tmp_path / "midband.db")) as connection:
            connection.execute(
                "CREATE TRIGGER full BEFORE INSERT ON snapshots BEGIN SELECT RAISE(ABORT, 'no space'); END"
            )
            train(http, range(4))
            connection.execute("DROP TRIGGER full")
        assert "no space" in caplog.text
        train(http, range(4, 6))
        before = everything(http)
    with in_process(sqlite_url) as http:
        assert everything(http) == before


def test_deadlines_that_passed_while_the_service_was_down_have_passed(sqlite_url: str) -> None:
    with in_process(sqlite_url) as http:
        http.pool(letters("ab"))
        http.run(policy=FLAT_BETA, ticket_ttl_s=0.5)
        first, second = http.draw(0, 2)["tickets"]
        http.report({"ticket": first["ticket"], "rollouts": [{"n": n, "outcome": 1.0} for n in range(4)]})
        deadline = http.tickets()[0]["deadline"]
    while time.time() <= deadline:
        time.sleep(POLL_S)
    with in_process(sqlite_url) as http:
        late = http.report(group(second, [1.0] * 8))
        assert (late["applied"], late["late"]) == (0, 8)
        assert {t["ticket"]: t["state"] for t in http.tickets()} == {
            first["ticket"]: "reported", second["ticket"]: "void"
        }  # fmt: skip


def test_new_limits_apply_after_a_restart(database_url: str) -> None:
    with in_process(database_url) as http:
        http.pool(letters("ab"))
        http.run()
    body = b'{"index": 0, "size": 1, "policy_version": 0}' + b" " * 2_000
    with in_process(database_url, max_body_bytes=1_024) as http:
        refused(http.send("POST", f"{RUN}/batches", body), 413, "body_too_large", "1024")
    with in_process(database_url, max_body_bytes=4_096) as http:
        assert http.send("POST", f"{RUN}/batches", body).status_code == 200
