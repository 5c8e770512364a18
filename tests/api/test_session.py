"""Opening and locking the database, and its transactions."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DatabaseError, InternalError

from api.db.session import ask, create_database, lock_database, read, sqlite_path, write
from api.errors import DatabaseLocked, DatabaseUnusable
from tests.architecture.fresh import ROOT

NOBODY = 65_534


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_database(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def make_numbers(engine: Engine) -> None:
    with write(engine) as connection:
        connection.execute(text("CREATE TABLE numbers (n INTEGER)"))


def numbers(engine: Engine) -> list[int]:
    with read(engine) as connection:
        return list(connection.execute(text("SELECT n FROM numbers ORDER BY n")).scalars())


def add_number(engine: Engine, n: int) -> None:
    with write(engine) as connection:
        connection.execute(text("INSERT INTO numbers VALUES (:n)"), {"n": n})


def fail_after(engine: Engine, statement: str) -> None:
    with write(engine) as connection:
        connection.execute(text(statement))
        raise RuntimeError("half way")


def test_a_write_is_kept_and_one_that_fails_leaves_nothing(engine: Engine) -> None:
    make_numbers(engine)
    add_number(engine, 1)
    with pytest.raises(RuntimeError, match="half way"):
        fail_after(engine, "INSERT INTO numbers VALUES (2)")
    assert numbers(engine) == [1]


def test_making_a_table_is_undone_with_the_transaction(engine: Engine) -> None:
    with pytest.raises(RuntimeError, match="half way"):
        fail_after(engine, "CREATE TABLE numbers (n INTEGER)")
    make_numbers(engine)


def test_a_read_sees_one_state_while_others_write(engine: Engine) -> None:
    make_numbers(engine)
    with read(engine) as connection:
        count = text("SELECT count(*) FROM numbers")
        before = connection.execute(count).scalar_one()
        thread = threading.Thread(target=add_number, args=(engine, 1))
        thread.start()
        thread.join()
        assert connection.execute(count).scalar_one() == before
    assert numbers(engine) == [1]


def test_a_single_query_sees_what_was_written_and_leaves_the_connection_as_it_was(engine: Engine) -> None:
    make_numbers(engine)
    for n in range(3):
        add_number(engine, n)
        with ask(engine) as connection:
            assert connection.execute(text("SELECT count(*) FROM numbers")).scalar_one() == n + 1
    with pytest.raises(RuntimeError, match="half way"):
        fail_after(engine, "DELETE FROM numbers")
    assert numbers(engine) == [0, 1, 2]


def test_a_single_query_begins_no_transaction_on_postgresql(postgres_url: str) -> None:
    engine = create_database(postgres_url)
    with ask(engine) as connection, read(engine) as reading:
        own = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        state = text("SELECT state FROM pg_stat_activity WHERE pid = :pid")
        assert reading.execute(state, {"pid": own}).scalar_one() == "idle"
    engine.dispose()


def test_many_threads_write_one_after_the_other(engine: Engine) -> None:
    make_numbers(engine)
    threads = [threading.Thread(target=add_number, args=(engine, n)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers(engine) == list(range(12))


def test_a_read_cannot_write_on_postgresql(postgres_url: str) -> None:
    engine = create_database(postgres_url)
    with pytest.raises(InternalError, match="read-only"), read(engine) as connection:
        connection.execute(text("CREATE TABLE numbers (n INTEGER)"))
    engine.dispose()


def test_a_sqlite_file_is_made_with_its_folder_and_set_up_to_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "midband.db"
    engine = create_database(f"sqlite:///{path}")
    make_numbers(engine)
    with read(engine) as connection:
        asked = [
            connection.execute(text(f"PRAGMA {p}")).scalar_one()
            for p in ("journal_mode", "synchronous", "foreign_keys")
        ]
    assert asked == ["wal", 2, 1]
    assert path.exists()
    engine.dispose()


def test_a_write_keeps_other_processes_out_from_its_begin(sqlite_url: str) -> None:
    engine = create_database(sqlite_url)
    other = sqlite3.connect(str(engine.url.database), timeout=0, isolation_level=None)
    with write(engine), pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("BEGIN IMMEDIATE")
    other.execute("BEGIN IMMEDIATE")
    other.close()
    engine.dispose()


def test_sqlite_in_memory_is_one_database_for_all_threads() -> None:
    engine = create_database("sqlite://")
    make_numbers(engine)
    thread = threading.Thread(target=add_number, args=(engine, 5))
    thread.start()
    thread.join()
    assert numbers(engine) == [5]
    engine.dispose()


def test_values_are_not_in_the_message_of_a_failed_statement(engine: Engine) -> None:
    with pytest.raises(DatabaseError) as failure, write(engine) as connection:
        connection.execute(text("INSERT INTO missing VALUES (:prompt)"), {"prompt": "a private prompt"})
    assert "a private prompt" not in str(failure.value)


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are notes, and more than a hundred bytes of them, so that no header fits in here by chance")
    with pytest.raises(DatabaseUnusable, match=r"notes\.txt is not a SQLite database.*MIDBAND_DATABASE_URL"):
        create_database(f"sqlite:///{path}")
    assert path.read_text().startswith("these are notes")


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "midband.db"
    engine = create_database(f"sqlite:///{path}")
    make_numbers(engine)
    engine.dispose()
    path.write_bytes(path.read_bytes()[:16] + b"\xff" * 200)
    with pytest.raises(DatabaseUnusable, match=r"cannot be used as a database.*restore a backup"):
        create_database(f"sqlite:///{path}")


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnusable, match=str(tmp_path)):
        create_database(f"sqlite:///{tmp_path}")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseUnusable, match=r"cannot make the folder .*/file/data.*MIDBAND_DATABASE_URL"):
        create_database(f"sqlite:///{tmp_path}/file/data/midband.db")
    with pytest.raises(DatabaseUnusable, match=r"cannot make the folder .*/file/data"):
        lock_database(f"sqlite:///{tmp_path}/file/data/midband.db")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user, and root may write everywhere")
def test_a_read_only_file_or_folder_is_named(open_folder: Path) -> None:
    path = open_folder / "midband.db"
    sqlite3.connect(path).execute("CREATE TABLE t (n INTEGER)").connection.close()
    path.chmod(0o444)
    refused: list[str] = []
    os.seteuid(NOBODY)
    try:
        with pytest.raises(DatabaseUnusable) as refusal:
            create_database(f"sqlite:///{path}")
        refused.append(str(refusal.value))
        os.seteuid(0)
        open_folder.chmod(0o555)
        os.seteuid(NOBODY)
        for attempt in (create_database, lock_database):
            with pytest.raises(DatabaseUnusable) as refusal:
                attempt(f"sqlite:///{path}")
            refused.append(str(refusal.value))
    finally:
        os.seteuid(0)
    assert f"{path} cannot be opened for writing (Permission denied)" in refused[0]
    assert f"the folder {open_folder} cannot be written (Permission denied)" in refused[1]
    assert f"cannot make the lock file {path}.lock: Permission denied" in refused[2]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://u:pw@h/d", "'mysql' is not a database that is known here"),
        ("nonsense", "cannot be read"),
        ("sqlite:///x.db?mode=ro", "takes no options"),
        ("postgresql://u:tops3cret@127.0.0.1:9/d", "u:\\*\\*\\*@127.0.0.1:9/d does not answer"),
    ],
)
def test_a_database_that_is_not_known_or_not_there_is_refused(url: str, words: str) -> None:
    with pytest.raises(DatabaseUnusable, match=words) as refusal:
        create_database(url)
    assert "tops3cret" not in str(refusal.value)


def test_short_names_of_postgresql_mean_its_one_driver(postgres_url: str) -> None:
    engine = create_database(postgres_url.replace("postgresql+psycopg", "postgres"))
    assert engine.url.drivername == "postgresql+psycopg"
    engine.dispose()


def test_a_postgresql_database_in_another_encoding_is_refused(postgres_url: str) -> None:
    engine = create_database(postgres_url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"))
        try:
            with pytest.raises(DatabaseUnusable, match="is in LATIN1: make one with ENCODING 'UTF8'"):
                create_database(postgres_url.replace(str(engine.url.database), "latin"))
        finally:
            connection.execute(text("DROP DATABASE latin WITH (FORCE)"))
    engine.dispose()


def test_a_second_server_is_refused_with_the_first_ones_process(sqlite_url: str) -> None:
    with lock_database(sqlite_url), pytest.raises(DatabaseLocked, match=f"process {os.getpid()}: stop it"):
        lock_database(sqlite_url)
    with lock_database(sqlite_url):
        pass


def test_two_names_of_one_file_are_one_lock(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with lock_database(f"sqlite:///{tmp_path}/real/x.db"), pytest.raises(DatabaseLocked):
        lock_database(f"sqlite:///{tmp_path}/link/x.db")


def test_a_killed_server_lets_go_of_its_lock(sqlite_url: str) -> None:
    code = (
        f"import sys, time; sys.path.insert(0, {str(ROOT)!r}); from api.db.session import lock_database\n"
        f"lock = lock_database({sqlite_url!r}); print('locked', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == b"locked\n"
        with pytest.raises(DatabaseLocked, match=f"process {process.pid}"):
            lock_database(sqlite_url)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with lock_database(sqlite_url):
        pass


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "postgresql://u@h/d"])
def test_memory_and_postgresql_have_no_file_to_lock(url: str) -> None:
    assert sqlite_path(url) is None
    with lock_database(url), lock_database(url):
        pass
