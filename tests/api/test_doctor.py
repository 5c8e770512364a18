"""`midband doctor` finds what is wrong in a database and mends what the logs allow; `midband backup` copies one."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from api.db.migrate import VERSION_TABLE
from api.doctor import BackupRefused, backup, examine, rebuild
from api.errors import DatabaseLocked, DatabaseUnusable, NotOwner
from api.settings import Settings
from selector.run.snapshot import pack, unpack
from tests.api.harness import Http, ended, everything, group, ids_of, in_process, prompts, stored

RUN = "/v1/runs/r"


def train(http: Http, indices: range, run: str = "r") -> None:
    for index in indices:
        batch = http.draw(index, 4, index, run=run)
        http.report(*(group(name, [1.0, 0.0]) for name in ids_of(batch)), run=run)


@pytest.fixture
def settings(sqlite_url: str) -> Settings:
    return prepared(sqlite_url)


@pytest.fixture
def either(database_url: str) -> Settings:
    """The same on both databases."""
    return prepared(database_url)


def prepared(url: str) -> Settings:
    """Of a database with a run that went back once, and one that has ended."""
    with in_process(url) as http:
        http.pool(prompts(30))
        http.run(group_size=2)
        train(http, range(3))
        http.post(f"{RUN}/checkpoints", {"step": 2})
        train(http, range(3, 5))
        http.post(f"{RUN}/restore", {"step": 2})
        http.quarantine(["p003"])
        train(http, range(3, 4))
        http.post(f"{RUN}/checkpoints", {"step": 3})
        http.run("ended", group_size=2)
        http.post("/v1/runs/ended/complete", {})
    return Settings(database_url=url)


def damage(settings: Settings, statement: str, **values: object) -> None:
    with stored(settings.database_url) as connection:
        connection.execute(text(statement), values)


def complaints(settings: Settings) -> list[str]:
    findings = examine(settings)
    wrong = [line for line in findings.lines if line.startswith("WRONG")]
    assert findings.healthy is (not wrong)
    return wrong


def one(settings: Settings, *words: str) -> str:
    """Asserts that there is one complaint, with these words; returns it."""
    (line,) = complaints(settings)
    assert not [word for word in words if word not in line], line
    return line


def test_a_sound_database_is_said_to_be_one_and_is_not_changed(either: Settings) -> None:
    with in_process(either.database_url) as http:
        before = everything(http)
        lines = examine(either).lines  # beside a server
        assert everything(http) == before
    assert all(line.startswith("ok ") for line in lines)
    assert any("run 'r'" in line and "events, replayed" in line for line in lines)
    assert any("pool 'p': revision 2, 30 rows" in line for line in lines)
    assert complaints(either) == []
    assert rebuild(either, examine(either)) == []


@pytest.mark.parametrize("kind", ["full", "rewind"])
@pytest.mark.parametrize("how", ["cut off", "checksum", "another state", "of no event"])
def test_a_snapshot_that_is_not_what_the_log_says_is_found_and_made_anew(
    settings: Settings, kind: str, how: str
) -> None:
    with in_process(settings.database_url) as http:
        before = everything(http)
    with stored(settings.database_url) as connection:
        query = "SELECT seq, payload FROM snapshots WHERE run_id = 1 AND kind = :kind ORDER BY seq LIMIT 1"
        seq, payload = connection.execute(text(query), {"kind": kind}).one()
        where = "WHERE run_id = 1 AND kind = :kind AND seq = :seq"
        if how == "of no event":
            statement, new = f"UPDATE snapshots SET seq = 10000 {where} AND payload <> :payload", b""
        elif how == "checksum":
            statement, new = f"UPDATE snapshots SET payload = :payload {where}", bytes(payload)[:-1] + b"\xff"
        else:
            statement = f"UPDATE snapshots SET payload = :payload, sha256 = :sha {where}"
            new = bytes(payload)[:100] if how == "cut off" else changed(bytes(payload))
        values = {"kind": kind, "seq": seq, "payload": new, "sha": hashlib.sha256(new).hexdigest()}
        names = {name: value for name, value in values.items() if f":{name}" in statement}
        connection.execute(text(statement), names)
    line = one(settings, "run 'r'", f"the {kind} snapshot", "doctor --rebuild")
    assert line.count("snapshot at event") == 1  # what is wrong in one is not taken over when the log is replayed
    (said,) = rebuild(settings, examine(settings))
    assert "'r'" in said
    assert complaints(settings) == []
    with in_process(settings.database_url) as http:
        assert everything(http) == before
        assert http.post(f"{RUN}/restore", {"step": 2})["next_index"] == 3
    assert complaints(settings) == []


def changed(payload: bytes) -> bytes:
    """A sound snapshot of another state."""
    arrays, document = unpack(payload)
    name = next(name for name, array in arrays.items() if array.dtype == np.float64 and array.size)
    arrays[name] = arrays[name] + 1.0
    return pack(arrays, document)


def test_a_table_that_disagrees_with_the_log_is_put_right(either: Settings) -> None:
    damage(either, "UPDATE runs SET completed = :no WHERE name = 'ended'", no=False)
    one(either, "run 'ended'", "completed")
    rebuild(either, examine(either))
    assert complaints(either) == []


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM events WHERE run_id = 1 AND seq = 5",
        "DELETE FROM events WHERE run_id = 1 AND seq > 6",
        "UPDATE events SET kind = 'dreamt' WHERE run_id = 1 AND seq = 5",
        "UPDATE events SET payload = substr(payload, 1, 9) WHERE run_id = 1 AND kind = 'restored'",
    ],
)
def test_a_damaged_log_is_found_and_left_alone(settings: Settings, statement: str) -> None:
    damage(settings, statement)
    one(settings, "run 'r'", "log cannot be read", "restore a backup")
    findings = examine(settings)
    assert findings.rebuildable == []
    assert rebuild(settings, findings) == []


def test_a_damaged_pool_is_found(settings: Settings) -> None:
    damage(settings, "UPDATE pool_deltas SET sha256 = 'x' WHERE revision = 1")
    assert any("pool 'p'" in line and "restore a backup" in line for line in complaints(settings))


def test_another_schema_says_what_to_do(settings: Settings) -> None:
    damage(settings, f"UPDATE {VERSION_TABLE} SET version_num = '0001'")
    one(settings, "0001", "back it up", "midband serve")
    damage(settings, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    one(settings, "9999", "newer")


def test_an_empty_database_and_none_at_all(database_url: str, tmp_path: Path) -> None:
    with stored(database_url):
        pass
    one(Settings(database_url=database_url), "no tables of midband")
    missing = f"sqlite:///{tmp_path}/not-there.db"
    with pytest.raises(DatabaseUnusable, match=r"there is no database at .*not-there"):
        examine(Settings(database_url=missing))
    assert not (tmp_path / "not-there.db").exists()


def test_nothing_is_rebuilt_under_a_running_server(either: Settings) -> None:
    damage(either, "UPDATE snapshots SET sha256 = 'x' WHERE run_id = 1")
    with in_process(either.database_url) as http:
        train(http, range(9, 10))
        with pytest.raises((DatabaseLocked, NotOwner)):
            rebuild(either, examine(either))
    rebuild(either, examine(either))
    assert complaints(either) == []


@pytest.mark.slow
def test_the_commands_say_it_and_end_with_a_status(sqlite_url: str, tmp_path: Path) -> None:
    with in_process(sqlite_url) as http:
        http.pool(prompts(5))
        http.run(group_size=2)
        train(http, range(2))
    settings = Settings(database_url=sqlite_url)
    assert ended("doctor", "--database-url", sqlite_url).returncode == 0
    assert "nothing to rebuild" in ended("doctor", "--rebuild", "--database-url", sqlite_url).stdout
    damage(settings, "UPDATE snapshots SET sha256 = 'x'")
    assert ended("doctor", "--database-url", sqlite_url).returncode == 1
    assert ended("doctor", "--rebuild", "--database-url", sqlite_url).returncode == 0
    copy = tmp_path / "copy.db"
    assert ended("backup", str(copy), "--database-url", sqlite_url).returncode == 0
    done = ended("backup", str(copy), "--database-url", sqlite_url)
    assert (done.returncode, "exists" in done.stderr) == (1, True)


def test_a_backup_made_while_a_server_writes_is_a_database_of_that_moment(sqlite_url: str, tmp_path: Path) -> None:
    settings, target = Settings(database_url=sqlite_url), tmp_path / "copy.db"
    with in_process(sqlite_url) as http:
        http.pool(prompts(30))
        http.run(group_size=2)
        train(http, range(3))
        before = everything(http)
        said = backup(settings, target)
        train(http, range(3, 6))
    assert str(target) in said
    assert sorted(path.name for path in tmp_path.glob("copy*")) == ["copy.db"]
    copied = Settings(database_url=f"sqlite:///{target}")
    assert complaints(copied) == []
    with in_process(copied.database_url) as http:
        assert everything(http) == before
        train(http, range(3, 6))


def test_a_backup_takes_the_place_of_no_file(sqlite_url: str, tmp_path: Path) -> None:
    settings, taken = Settings(database_url=sqlite_url), tmp_path / "taken"
    with pytest.raises(DatabaseUnusable, match="there is no database"):
        backup(settings, taken)
    with in_process(sqlite_url):
        pass
    taken.write_text("mine")
    with pytest.raises(BackupRefused, match="exists and was left as it is"):
        backup(settings, taken)
    assert taken.read_text() == "mine"
    with pytest.raises(BackupRefused, match="could not be copied"):
        backup(settings, tmp_path / "no" / "folder.db")


@pytest.mark.postgres
def test_postgresql_has_its_own_backups(postgres_url: str, tmp_path: Path) -> None:
    with pytest.raises(BackupRefused, match="pg_dump"):
        backup(Settings(database_url=postgres_url), tmp_path / "copy.db")


def test_a_damaged_file_is_no_backup(sqlite_url: str, tmp_path: Path) -> None:
    path = tmp_path / "midband.db"
    with in_process(sqlite_url) as http:
        http.pool(prompts(300))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[4096 * 20 : 4096 * 24] = b"\x55" * (4096 * 4)
    path.write_bytes(content)
    with pytest.raises(BackupRefused, match=r"damaged|could not be copied"):
        backup(Settings(database_url=sqlite_url), tmp_path / "copy.db")
    assert not list(tmp_path.glob("copy*"))
