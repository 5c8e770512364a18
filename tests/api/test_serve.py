"""`midband serve` starts when everything it needs is there, and says in one sentence why it does not."""

import asyncio
import os
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from api.errors import StartRefused
from api.serve import listen, serving
from api.settings import Settings
from tests.api.harness import LIMIT_S, ROOT, caller, ended, in_process, letters, process, refused
from tests.api.key_cases import made_key

NOBODY = 65_534


def test_it_serves_and_stops_in_good_order(database_url: str, tmp_path: Path) -> None:
    with process(database_url, tmp_path) as server:
        with caller(server.url) as http:
            http.pool(letters())
            http.run()
            assert http.draw(0, 2)["returned"] == 2
            assert http.get("/version")["contract"] == 1
        assert server.stop() in (0, 130)
        log = server.log.read_text()
    assert server.url in log
    assert "on this machine only" in log
    assert "Traceback" not in log


def test_it_serves_beside_a_commands_own_work_and_lets_go_of_the_database(sqlite_url: str) -> None:
    settings = Settings(database_url=sqlite_url, port=0, log_level="warning")
    for seen in ([], [{"run": "r", "pool": "p", "completed": False}]):
        with serving(settings) as url, caller(url) as http:
            assert http.get("/v1/runs")["items"] == seen
            http.pool(letters())
            http.run()
            with pytest.raises(StartRefused, match=rf"in use.*{os.getpid()}|{os.getpid()}.*in use"), serving(settings):
                pass
        with pytest.raises(httpx.ConnectError):
            httpx.get(url)


def test_work_that_fails_beside_the_service_ends_it_too(sqlite_url: str) -> None:
    settings = Settings(database_url=sqlite_url, port=0, log_level="warning")
    with pytest.raises(KeyError), serving(settings):
        raise KeyError
    with serving(settings):
        pass


@pytest.mark.slow
def test_it_listens_on_this_machine_only(sqlite_url: str, tmp_path: Path) -> None:
    done = ended("serve", "--database-url", sqlite_url, "--host", "0.0.0.0")
    _refused(done, "host", "0.0.0.0", "loopback")
    with process(sqlite_url, tmp_path) as server, pytest.raises(httpx.ConnectError):
        httpx.get(server.url.replace("127.0.0.1", _own_address()))


def test_what_is_answered_is_sent_at_once(sqlite_url: str) -> None:
    """Else the end of each answer waits for the delayed acknowledgement of its beginning, some 40 ms."""

    async def undelayed() -> int:
        accepted: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
        with listen(Settings(database_url=sqlite_url, port=0)) as listener:
            async with await asyncio.start_server(lambda _, writer: accepted.set_result(writer), sock=listener):
                _, caller = await asyncio.open_connection(*listener.getsockname())
                answering = await accepted
                option: int = answering.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                for writer in (caller, answering):
                    writer.close()
                    await writer.wait_closed()
        return option

    assert asyncio.run(undelayed()) != 0


def test_another_address_is_refused_until_there_is_a_key(database_url: str) -> None:
    settings = Settings(database_url=database_url, host="0.0.0.0", port=0, log_level="warning")
    with pytest.raises(StartRefused, match=r"'0\.0\.0\.0'.*no key exists.*`midband key create`"), serving(settings):
        pass
    key = made_key(database_url)
    with serving(settings) as url, caller(url.replace("0.0.0.0", "127.0.0.1")) as http:
        assert url.startswith("http://0.0.0.0:")
        refused(http.send("GET", "/v1/runs"), 401, "unauthenticated")
        assert http.holding(key).get("/v1/runs") == {"items": []}
        assert http.get("/readyz") == {"ready": True}
        assert "server" not in http.send("GET", "/readyz").headers


@pytest.mark.slow
def test_with_a_key_others_reach_it_and_are_asked_for_one(sqlite_url: str, tmp_path: Path) -> None:
    key = made_key(sqlite_url)
    with process(sqlite_url, tmp_path, "--host", "0.0.0.0") as server:
        with caller(server.url.replace("127.0.0.1", _own_address())) as http:
            refused(http.send("GET", "/v1/runs"), 401, "unauthenticated")
            assert http.holding(key).get("/v1/runs") == {"items": []}
        server.stop()
        assert "every call needs a key, 1 of 1 are in force; listening on http://0.0.0.0:" in server.log.read_text()


def test_a_host_that_is_none_is_refused(sqlite_url: str) -> None:
    made_key(sqlite_url)
    settings = Settings(database_url=sqlite_url, host="no such host", port=0, log_level="warning")
    with pytest.raises(StartRefused, match="cannot listen on no such host"), serving(settings):
        pass


@pytest.mark.slow
def test_a_database_that_another_server_has_open_is_refused_by_process_id(sqlite_url: str, tmp_path: Path) -> None:
    with process(sqlite_url, tmp_path) as server:
        done = ended("serve", "--database-url", sqlite_url, "--port", "0")
        _refused(done, str(server.pid), "in use", "MIDBAND_DATABASE_URL")
        with caller(server.url) as http:
            assert http.get("/readyz") == {"ready": True}
    # The lock goes with the process, however it ended.
    with process(sqlite_url, tmp_path):
        pass


def test_a_port_in_use_is_named_with_the_remedy(sqlite_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = str(taken.getsockname()[1])
        _refused(ended("serve", "--database-url", sqlite_url, "--port", port), port, "in use", "--port", "MIDBAND_PORT")


@pytest.mark.slow
def test_a_missing_file_is_made_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "not" / "there" / "yet.db"
    with process(f"sqlite:///{path}", tmp_path):
        assert path.is_file()


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    blocking = tmp_path / "file"
    blocking.write_text("not a folder")
    done = ended("serve", "--database-url", f"sqlite:///{blocking}/midband.db", "--port", "0")
    _refused(done, str(blocking), "MIDBAND_DATABASE_URL")


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "midband.db"
    path.write_text("dear diary, " * 1_000)
    _refused(ended("serve", "--database-url", f"sqlite:///{path}", "--port", "0"), str(path), "not a SQLite database")
    assert path.read_text() == "dear diary, " * 1_000


@pytest.mark.slow
def test_a_database_of_another_program_keeps_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "midband.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO runs VALUES (7)")
        connection.commit()
    _refused(ended("serve", "--database-url", f"sqlite:///{path}", "--port", "0"), str(path), "runs", "another place")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("runs",)]
        assert connection.execute("SELECT id FROM runs").fetchall() == [(7,)]


@pytest.mark.slow
def test_a_database_file_that_was_cut_off_is_refused(sqlite_url: str, tmp_path: Path) -> None:
    path = tmp_path / "midband.db"
    with in_process(sqlite_url) as http:
        http.pool(letters())
    assert not path.with_name("midband.db-wal").exists()
    path.write_bytes(path.read_bytes()[:6_000])
    _refused(ended("serve", "--database-url", sqlite_url, "--port", "0"), str(path), "backup")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write any file")
def test_a_database_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "midband.db"
    path.touch()
    path.chmod(stat.S_IRUSR)
    _refused(ended("serve", "--database-url", f"sqlite:///{path}", "--port", "0"), str(path), "permissions")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody who may not write")
def test_a_database_of_somebody_else_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / "midband.db"
        path.touch()
        start = f"import os, midband, api.serve; os.setuid({NOBODY}); midband.main()"
        arguments = [sys.executable, "-c", start, "serve", "--database-url", f"sqlite:///{path}", "--port", "0"]
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        _refused(done, folder, "Permission denied")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", ("not a database URL",)),
        ("mysql://root@localhost/x", ("mysql", "SQLite or PostgreSQL")),
        ("postgresql://midband:s3cret@127.0.0.1:1/none", ("does not answer",)),
        ("sqlite:///x.db?mode=ro", ("options",)),
    ],
)
def test_a_database_url_that_leads_nowhere_is_refused_without_its_password(url: str, words: tuple[str, ...]) -> None:
    done = ended("serve", "--port", "0", MIDBAND_DATABASE_URL=url)
    _refused(done, *words)
    assert "s3cret" not in done.stderr


@pytest.mark.slow
def test_an_unknown_value_in_the_environment_is_refused_by_name(sqlite_url: str) -> None:
    done = ended("serve", "--database-url", sqlite_url, MIDBAND_PORT="http")
    _refused(done, "port")


@pytest.mark.slow
def test_a_stop_in_the_middle_of_a_stream_of_draws_loses_none_that_were_answered(
    database_url: str, tmp_path: Path
) -> None:
    with process(database_url, tmp_path) as server:
        with caller(server.url) as http:
            http.pool(letters("abcdefghijklmnop"))
            http.run()
            drawn = [http.draw(index, 1) for index in range(10)]
        server.stop()
    with process(database_url, tmp_path) as server, caller(server.url) as http:
        assert [http.draw(index, 1) for index in range(10)] == drawn
        assert http.info()["tickets"]["open"] == 10


def _refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Status 1, one sentence on standard error, no traceback."""
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    sentence = next(line for line in done.stderr.splitlines() if line.startswith("midband: "))
    missing = [word for word in words if word not in sentence]
    assert not missing, f"{missing} not in {done.stderr!r}"


def _own_address() -> str:
    """An address of this machine that others could reach, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no other address than its own loopback")
        return str(probe.getsockname()[0])
