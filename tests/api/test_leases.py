"""Two servers on one PostgreSQL database: one writes a run, the other sends callers there and reads along."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from sqlalchemy import Engine, text

from api.db import leases as lease_queries
from api.db.migrate import upgrade
from api.db.session import create_database, read, write
from api.errors import Busy, NotOwner
from api.leases import LEASE_S, Leases
from api.serve import serving
from api.settings import Settings
from tests.api.harness import Http, Json, caller, group, ids_of, in_process, keys_of, prompts, refused

pytestmark = pytest.mark.postgres
A, B = "http://a.example:1", "https://b.example/midband"
RUN = "/v1/runs/r"
AGE = "midband-state-age"


@pytest.fixture
def database(postgres_url: str) -> Iterator[Engine]:
    engine = create_database(postgres_url)
    upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def servers(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Http, Http]]:
    """A, which owns run r, and B. A lease ends when the test says so."""
    monkeypatch.setattr("api.leases.LEASE_S", 600.0)
    monkeypatch.setattr("api.leases.RENEWAL_S", 600.0)
    with in_process(postgres_url, advertise=A) as a, in_process(postgres_url, advertise=B) as b:
        a.pool(prompts(20))
        a.run(group_size=2)
        a.draw(0, 4)
        yield a, b


def execute(engine: Engine, statement: str) -> None:
    with write(engine) as connection:
        connection.execute(text(statement))


def lease(engine: Engine) -> tuple[int, str, float]:
    """(token, address, seconds left by the database's clock) of the only run."""
    query = "SELECT token, address, expires_at - extract(epoch FROM clock_timestamp()) FROM run_leases"
    with read(engine) as connection:
        token, address, left_s = connection.execute(text(query)).one()
    return int(token), str(address), float(left_s)


def make_run(engine: Engine) -> None:
    execute(
        engine,
        "INSERT INTO pools (id, name, created_at, archived, revision, num_rows, tallies, feature_lengths) "
        "VALUES (1, 'p', 1, false, 0, 0, '[]', '{}')",
    )
    execute(
        engine,
        "INSERT INTO runs (id, name, pool_id, request, config, config_hash, created_at, completed) "
        "VALUES (1, 'r', 1, '{}', '{}', '', 1, false)",
    )


def sent_on(http: Http, path: str, body: Json) -> str:
    """The owner that an answer names."""
    response = http.send("POST", f"{RUN}/{path}", body)
    refused(response, 409, "not_owner", "'r'")
    return str(response.json()["owner"])


def test_every_write_of_a_run_is_sent_to_its_owner(servers: tuple[Http, Http], database: Engine) -> None:
    a, b = servers
    before = a.events()
    for path, body in (
        ("batches", {"index": 0, "size": 4, "policy_version": 0}),
        ("batches", {"index": 1, "size": 4, "policy_version": 0}),
        ("reports", {"groups": [group("t", [1.0, 0.0])]}),
        ("steps", {"step": 0, "policy_version": 0}),
        ("checkpoints", {"step": 0}),
        ("restore", {"step": 0}),
        ("config", {"audit_share": 0.5}),
        ("complete", {}),
    ):
        assert sent_on(b, path, body) == A
    assert a.events() == before
    assert lease(database)[:2] == (1, A)


def test_what_is_read_elsewhere_follows_the_log_and_says_its_age(
    servers: tuple[Http, Http], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = servers
    reads = [RUN, *(f"{RUN}/{name}" for name in ("audit", "costs", "beliefs", "tickets", "batches/0", "checkpoints"))]
    reads += ["/v1/pools/p/prompts/p003?run=r", "/v1/pools/p/prompts?run=r&sort=pass_rate"]
    for path in reads:
        own, copy = a.send("GET", path), b.send("GET", path)
        assert (copy.status_code, copy.content) == (own.status_code, own.content)
        assert 0 <= float(copy.headers[AGE]) < 60
        assert AGE not in own.headers
    assert AGE not in b.send("GET", "/v1/pools/p").headers
    monkeypatch.setattr("api.hosting.FOLLOWED_EVERY_S", 1e9)
    b.info()
    a.report(*(group(ticket, [1.0, 0.0]) for ticket in ids_of(a.draw(0, 4))))
    old = b.send("GET", RUN)
    assert old.json()["tickets"] == {"open": 4, "reported": 0, "void": 0}
    monkeypatch.setattr("api.hosting.FOLLOWED_EVERY_S", 0.0)
    assert b.info() == a.info()
    assert b.info()["tickets"] == {"open": 0, "reported": 4, "void": 0}
    assert b.events() == a.events()


def test_a_refusal_while_reading_a_copy_is_that_of_the_owner(servers: tuple[Http, Http]) -> None:
    _, b = servers
    refused(b.send("GET", f"{RUN}/batches/7"), 404, "unknown_batch")
    assert b.info()["step"] is None or b.info()["tickets"]["open"] == 4


def test_a_server_that_stops_gives_its_runs_back_at_once(postgres_url: str, database: Engine) -> None:
    with in_process(postgres_url, advertise=B) as b:
        with in_process(postgres_url, advertise=A) as a:
            a.pool(prompts(20))
            a.run(group_size=2)
            drawn = a.draw(0, 4)
            assert sent_on(b, "steps", {"step": 0, "policy_version": 0}) == A
        assert lease(database)[0] == 1
        assert lease(database)[2] < -1e6
        assert b.draw(0, 4) == drawn
        assert b.draw(1, 4)["returned"] == 4
        assert lease(database)[:2] == (2, B)


def test_a_server_on_any_free_port_is_found_at_the_one_that_it_got(postgres_url: str) -> None:
    settings = Settings(database_url=postgres_url, port=0, log_level="warning")
    with serving(settings) as url, caller(url) as a, in_process(postgres_url, advertise=B) as b:
        a.pool(prompts(20))
        a.run(group_size=2)
        drawn = a.draw(0, 4)
        assert sent_on(b, "batches", {"index": 1, "size": 4, "policy_version": 0}) == url
        assert a.draw(0, 4) == drawn


def test_a_run_is_written_by_the_server_that_first_needs_it(servers: tuple[Http, Http]) -> None:
    a, b = servers
    a.run("other", group_size=2)
    assert b.draw(0, 4, run="other")["returned"] == 4
    response = a.send("POST", "/v1/runs/other/batches", {"index": 1, "size": 4, "policy_version": 0})
    refused(response, 409, "not_owner", B)
    assert {run["run"] for run in a.get("/v1/runs")["items"]} == {"r", "other"}


def test_the_owner_sees_a_change_of_the_pool_made_elsewhere_before_its_next_draw(servers: tuple[Http, Http]) -> None:
    a, b = servers
    b.put(prompts(25)[20:])
    everything = keys_of(a.draw(1, 99))
    assert {f"p{i:03}" for i in range(20, 25)} <= set(everything)
    b.put([{"key": f"p{i:03}", "content": f"question {i}", "answer": str(i)} for i in range(10)], mode="replace")
    b.quarantine(["p004"])
    a.post(f"{RUN}/checkpoints", {"step": 0})
    a.report(*({"ticket": name, "void": "surplus"} for name in ids_of(a.draw(1, 99)) + ids_of(a.draw(0, 4))))
    assert sorted(keys_of(a.draw(2, 99))) == [f"p{i:03}" for i in range(10) if i != 4]
    assert [event["event"]["revision"] for event in a.events() if event["kind"] == "pool_revised"][-1] == 4


def test_an_owner_that_lost_its_run_without_knowing_writes_nothing(
    servers: tuple[Http, Http], database: Engine
) -> None:
    a, b = servers
    a.draw(1, 4)
    before = a.events()
    # As after a pause: the lease ran out, and B took the run while A knew nothing of it.
    execute(database, "UPDATE run_leases SET expires_at = 0")
    late = b.draw(2, 4)
    b.report(group(late["tickets"][0], [1.0, 1.0]))
    for path, body in (
        ("batches", {"index": 3, "size": 4, "policy_version": 0}),
        ("reports", {"groups": [group(late["tickets"][0], [1.0, 1.0])]}),
    ):
        assert sent_on(a, path, body) == B
    events = b.events()
    assert events[: len(before)] == before
    assert [event["kind"] for event in events[len(before) :]] == ["batch_drawn", "rollouts_reported"]
    # It is A's again: what it has in memory is what B left.
    execute(database, "UPDATE run_leases SET expires_at = 0")
    assert a.draw(2, 4) == late
    assert a.report(group(late["tickets"][0], [1.0, 1.0]))["duplicate"] == 2
    assert a.info()["tickets"]["open"] == 11
    assert lease(database)[:2] == (3, A)


def test_an_owner_that_lost_its_run_does_not_answer_from_memory_either(
    servers: tuple[Http, Http], database: Engine
) -> None:
    a, b = servers
    execute(database, "UPDATE run_leases SET expires_at = 0")
    b.draw(1, 4)
    response = a.send("GET", RUN)
    assert response.json()["tickets"]["open"] == 8
    assert AGE in response.headers
    assert sent_on(a, "batches", {"index": 0, "size": 4, "policy_version": 0}) == B  # which it has drawn itself


def test_a_snapshot_is_fenced_too(servers: tuple[Http, Http], postgres_url: str, database: Engine) -> None:
    with ExitStack() as stack:
        c = stack.enter_context(in_process(postgres_url, advertise="http://c:1"))
        execute(database, "UPDATE run_leases SET expires_at = 0")
        c.draw(1, 4)
        execute(database, "UPDATE run_leases SET token = token + 1, expires_at = 0")
        with read(database) as connection:
            before = connection.execute(text("SELECT count(*) FROM snapshots")).scalar_one()
    with read(database) as connection:  # c stopped, and stored none of a run that was no longer its own
        assert connection.execute(text("SELECT count(*) FROM snapshots")).scalar_one() == before


def test_a_lease_is_another_servers_until_it_runs_out_or_that_server_is_gone(database: Engine) -> None:
    make_run(database)
    first, second = Leases.started(database, A), Leases.started(database, B)
    assert first.claim(1, "r") == 1
    assert first.claim(1, "r") == 2  # its own it may take anew
    with pytest.raises(NotOwner, match=A) as caught:
        second.claim(1, "r")
    assert caught.value.owner == A
    execute(database, "UPDATE run_leases SET expires_at = extract(epoch FROM clock_timestamp()) - 0.001")
    assert second.claim(1, "r") == 3
    with pytest.raises(NotOwner):
        first.confirm(1, "r", 2)
    second.confirm(1, "r", 3)
    # The connection ends as it does with the process: nobody waits for the lease to run out.
    second._stopping.set()
    second._thread.join()
    second._disconnect()
    execute(database, "UPDATE run_leases SET expires_at = expires_at + 1000")
    limit_s = time.monotonic() + 30
    while not _claims(first):  # the database takes a moment to notice
        assert time.monotonic() < limit_s
    assert lease(database)[:2] == (4, A)
    first.stop()


def test_a_lease_is_renewed_by_the_databases_clock_and_by_each_write(
    database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.leases.RENEWAL_S", 0.05)
    make_run(database)
    leases = Leases.started(database, A)
    token = leases.claim(1, "r")
    execute(database, "UPDATE run_leases SET expires_at = 1")
    limit_s = time.monotonic() + 30
    while lease(database)[2] < LEASE_S - 1:
        assert time.monotonic() < limit_s
    leases._stopping.set()
    leases._thread.join()
    execute(database, "UPDATE run_leases SET expires_at = 1")
    with write(database) as connection, leases.fenced(connection, 1, "r", token):
        pass
    assert LEASE_S - 2 < lease(database)[2] <= LEASE_S
    leases.stop()


def test_leases_are_renewed_again_after_the_database_cut_the_connection(
    database: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("api.leases.RENEWAL_S", 0.05)
    make_run(database)
    leases = Leases.started(database, A)
    leases.claim(1, "r")
    execute(
        database,
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted",
    )
    execute(database, "UPDATE run_leases SET expires_at = 1")
    limit_s = time.monotonic() + 30
    while lease(database)[2] < 0 or "renewed again" not in caplog.text:
        assert time.monotonic() < limit_s
    other = Leases.started(database, B)
    with pytest.raises(NotOwner):
        other.claim(1, "r")
    leases.stop()
    assert other.claim(1, "r") == 2
    other.stop()


def test_an_owner_paused_inside_a_transaction_does_not_hold_the_run_for_ever(
    database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.leases.LEASE_S", 0.2)
    make_run(database)
    first, second = Leases.started(database, A), Leases.started(database, B)
    token = first.claim(1, "r")
    first._stopping.set()
    first._thread.join()

    def write_with_a_pause() -> None:
        with write(database) as connection, first.fenced(connection, 1, "r", token):
            connection.execute(text("UPDATE runs SET completed = true"))
            limit_s = time.monotonic() + 30
            while not _claims(second):
                assert time.monotonic() < limit_s
            connection.execute(text("UPDATE runs SET completed = true"))

    with pytest.raises(Busy, match="paused"):
        write_with_a_pause()
    with read(database) as connection:
        assert connection.execute(text("SELECT completed FROM runs")).scalar_one() is False
        assert lease_queries.holder(connection, 1) == lease_queries.Holder(token=2, address=B)
    first.stop()
    second.stop()


def _claims(leases: Leases) -> bool:
    try:
        leases.claim(1, "r")
    except NotOwner:
        time.sleep(0.02)
        return False
    return True
