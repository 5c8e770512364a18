"""`midband key`: makes, lists and revokes keys, beside a running server too, and shows a key once."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

import midband
from api.db.session import create_database, lock_database, read, write
from api.errors import DatabaseUnusable
from api.key_commands import KeyRefused, create, revoke, table
from api.keyring import KEYS_LIVE_S
from api.settings import Settings
from tests.api.harness import caller, ended, letters, listening, process, prompts, refused
from tests.api.key_cases import made_key
from trainer.errors import NotAllowed

KEY = re.compile(r"mb_[0-9a-f]{10}_[0-9a-f]{48}")


def listed(database_url: str) -> list[list[str]]:
    """The cells of each key's line."""
    head, *lines = table(Settings(database_url=database_url))
    places = [found.start() for found in re.finditer(r"(?:^|(?<=  ))\S", head)]
    ends = [*places[1:], None]
    return [[line[a:b].strip() for a, b in zip(places, ends, strict=True)] for line in lines]


def test_a_key_is_listed_by_its_prefix_with_all_that_it_may(database_url: str) -> None:
    settings = Settings(database_url=database_url)
    assert table(settings) == ["no keys: the service listens on its own machine only and asks for none"]
    key, said = create(settings, name="the trainer", scopes=["draw,report"], pools=["p", "o"], runs=["r"], days=30)
    assert KEY.fullmatch(key)
    prefix = key.rpartition("_")[0]
    assert prefix in said
    assert "draw,report; pool o, pool p, run r; expires 20" in said
    assert "It is the first" in said
    key2, said2 = create(settings, name=None, scopes=["manage", "read"], pools=[], runs=[], days=None)
    assert "It is the first" not in said2
    prefix2 = key2.rpartition("_")[0]
    expired = made_key(database_url, days=0.0).rpartition("_")[0]
    assert revoke(settings, key2) == f"key {prefix2} is revoked; a running service knows within 2 s"
    assert revoke(settings, prefix2).startswith(f"key {prefix2} was revoked before, 20")
    cells = {row[0]: row[1:4] + row[5:] for row in listed(database_url)}
    assert list(cells) == [prefix, prefix2, expired]
    (state, scopes, bound, expires, name) = cells[prefix]
    assert (state, scopes, bound, name) == ("in force", "draw,report", "pool o, pool p, run r", "the trainer")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\dZ", expires)
    assert cells[prefix2] == ["revoked", "read,manage", "everything", "never", ""]
    assert cells[expired][:3] == ["expired", "read,draw,report,manage", "everything"]
    assert not [line for line in table(settings) if key.rpartition("_")[2] in line or key2 in line]


def test_what_is_stored_does_not_hold_the_key(database_url: str) -> None:
    key = made_key(database_url)
    engine = create_database(database_url)
    with read(engine) as connection:
        rows = [connection.execute(text(f"SELECT * FROM {name}")).all() for name in ("keys", "management_calls")]
    engine.dispose()
    assert key.rpartition("_")[0] in str(rows)
    assert key.rpartition("_")[2] not in str(rows)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scopes": ["admin"]}, "no scope is called 'admin': there are read, draw, report, manage"),
        ({"scopes": ["read,"]}, "no scope is called ''"),
        ({"pools": ["Not A Pool"]}, "no pool can be called that, got 'Not A Pool'"),
        ({"runs": ["r/1"]}, "no run can be called that, got 'r/1'"),
        ({"days": float("nan")}, "expires after 0 to 36500 days, got nan"),
        ({"days": float("inf")}, "expires after 0 to 36500 days"),
        ({"days": -1.0}, "expires after 0 to 36500 days"),
        ({"name": ""}, "1 to 200 printable characters"),
        ({"name": "x\nmb_forged  in force"}, "1 to 200 printable characters"),
    ],
)
def test_what_no_key_can_have_is_refused_and_makes_none(
    sqlite_url: str, options: dict[str, object], words: str
) -> None:
    settings = Settings(database_url=sqlite_url)
    values: dict[str, Any] = {"name": None, "scopes": [], "pools": [], "runs": [], "days": None, **options}
    with pytest.raises(KeyRefused, match=re.escape(words)):
        create(settings, **values)
    assert table(settings)[0].startswith("no keys")


@pytest.mark.parametrize("given", ["mb_0123456789", "trainer", "", "mb_0123456789_" + "s3cret" * 8])
def test_a_key_that_is_not_there_cannot_be_revoked_and_is_not_repeated(sqlite_url: str, given: str) -> None:
    with pytest.raises(KeyRefused, match="midband key list") as refusal:
        revoke(Settings(database_url=sqlite_url), given)
    assert "s3cret" not in str(refusal.value)


def test_a_database_that_somebody_writes_to_for_long_is_said_to_be_busy(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_key(sqlite_url)
    monkeypatch.setattr("api.db.session.BUSY_TIMEOUT_MS", 50)
    engine = create_database(sqlite_url)
    with write(engine), pytest.raises(KeyRefused, match=r"did not answer \(database is locked\).*try again"):
        made_key(sqlite_url)
    engine.dispose()
    assert len(listed(sqlite_url)) == 1


def test_beside_a_server_the_tables_must_be_of_this_version(sqlite_url: str) -> None:
    made_key(sqlite_url)
    engine = create_database(sqlite_url)
    with lock_database(sqlite_url):
        made_key(sqlite_url)
        with write(engine) as connection:
            connection.execute(text("UPDATE midband_schema SET version_num = '0001'"))
        with pytest.raises(DatabaseUnusable, match="of an earlier version: stop it first"):
            made_key(sqlite_url)
        with write(engine) as connection:
            connection.execute(text("UPDATE midband_schema SET version_num = '9999'"))
        with pytest.raises(DatabaseUnusable, match="newer midband"):
            made_key(sqlite_url)
    engine.dispose()


def test_a_key_is_made_and_revoked_beside_a_server_that_never_stops(database_url: str, tmp_path: Path) -> None:
    with process(database_url, tmp_path) as server, caller(server.url) as http:
        http.pool(letters())
        http.run()
        made = ended("key", "create", "--scope", "draw", "--run", "r", "--database-url", database_url)
        assert made.returncode == 0, made.stderr
        key = made.stdout.strip()
        assert KEY.fullmatch(key)  # nothing else stands on standard output
        assert KEY.search(made.stderr) is None
        until(lambda: http.send("GET", "/v1/runs").status_code == 401)
        assert http.holding(key).draw(0, 1)["returned"] == 1
        refused(http.holding(key).send("GET", "/v1/runs/r"), 403, "missing_scope")
        gone = ended("key", "revoke", key.rpartition("_")[0], MIDBAND_DATABASE_URL=database_url)
        assert (gone.returncode, gone.stderr.count("midband:")) == (0, 0)
        until(lambda: http.holding(key).send("GET", "/version").status_code == 401)
        shown = ended("key", "list", "--database-url", database_url)
        assert (key.rpartition("_")[0] in shown.stdout, "revoked" in shown.stdout) == (True, True)
        assert key.rpartition("_")[2] not in shown.stdout + server.log.read_text()


def test_a_refusal_of_the_command_is_one_sentence(sqlite_url: str) -> None:
    for arguments in (("revoke", "x"), ("list", "--database-url", "nonsense")):
        done = ended("key", *arguments, MIDBAND_DATABASE_URL=sqlite_url)
        assert done.returncode == 1
        assert done.stderr.startswith("midband: ")
        assert "Traceback" not in done.stderr


def test_our_client_and_the_commands_that_use_it_take_the_key_of_the_environment(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = made_key(sqlite_url)
    with listening(sqlite_url) as url:
        monkeypatch.delenv("MIDBAND_KEY", raising=False)
        with midband.Client(url) as client, pytest.raises(NotAllowed) as refusal:
            client.pools()
        assert (refusal.value.status, refusal.value.code) == (401, "unauthenticated")
        with midband.Client(url, key=key) as client:
            assert client.pools() == []
        monkeypatch.setenv("MIDBAND_KEY", key)
        with midband._client(url) as client:  # what `midband train` and `midband replay --server` talk to
            assert client.create_pool("p").name == "p"


@pytest.mark.slow
def test_a_replay_on_a_server_takes_the_key_of_the_environment(sqlite_url: str, tmp_path: Path) -> None:
    key = made_key(sqlite_url)
    record = tmp_path / "record.jsonl"
    record.write_text("".join(json.dumps({"key": row["key"], "p": [0.2, 0.5, 0.9]}) + "\n" for row in prompts(32)))
    with process(sqlite_url, tmp_path) as server:
        flags = ("replay", str(record), "--server", server.url, "--out-dir", str(tmp_path / "out"), "--batch-size", "8")
        without = ended(*flags, MIDBAND_KEY="")
        assert (without.returncode, "unauthenticated" in without.stderr) == (1, True)
        done = ended(*flags, "--group-size", "4", MIDBAND_KEY=key)
        assert done.returncode == 0, done.stderr
        assert key not in done.stdout + done.stderr


def test_keys_and_prompts_are_in_no_log(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDBAND_LOG_LEVEL", "debug")
    key, expired = made_key(sqlite_url), made_key(sqlite_url, days=0.0)
    reader = made_key(sqlite_url, "read")
    with process(sqlite_url, tmp_path) as server, caller(server.url) as anybody:
        http = anybody.holding(key)
        http.pool([{"key": "k", "content": "tops3cret prompt", "answer": "tops3cret answer"}])
        http.run(group_size=2)
        batch = http.draw(0, 1)
        rollouts = [{"outcome": 1.0, "completion": {"text": "tops3cret text"}}, {"outcome": 0.0}]
        http.send(
            "POST", "/v1/runs/r/reports", {"groups": [{"ticket": batch["tickets"][0]["ticket"], "rollouts": rollouts}]}
        )
        http.send("PUT", "/v1/pools/p/prompts", b"tops3cret, not JSON")
        http.send("PUT", "/v1/pools/p/prompts", b'{"content": {"tops3cret": 1}}')
        http.send("GET", "/v1/pools/p/prompts", params={"search": "tops3cret"})
        refused(anybody.holding(expired).send("GET", "/v1/pools"), 401, "unauthenticated")
        refused(anybody.holding(f"{key}tops3cret").send("GET", "/v1/pools"), 401, "unauthenticated")
        refused(anybody.holding(reader).send("POST", "/v1/pools", {"name": "tops3cret"}), 403, "missing_scope")
        assert server.stop() in (0, 130)
        log = server.log.read_text()
    assert "tops3cret" not in log
    assert KEY.search(log) is None
    assert not [each for each in (key, expired, reader) if each.rpartition("_")[2] in log]
    # Who was refused is there, by prefix.
    assert f"{expired.rpartition('_')[0]}, which has expired" in log
    assert f"refused POST /v1/pools: the key {reader.rpartition('_')[0]}" in log
    assert "every call needs a key, 2 of 3 are in force" in log


def until(true: Callable[[], bool]) -> None:
    """Waits for what has to come within the bound on how old keys in memory may be."""
    limit_s = time.monotonic() + KEYS_LIVE_S + 1.0  # a second for a loaded machine
    while not true():
        assert time.monotonic() < limit_s
        time.sleep(0.05)
