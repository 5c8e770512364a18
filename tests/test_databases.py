"""The database fixtures themselves: a database that is not fresh would make every other test lie."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from tests.postgres import find_programs

ROOT = Path(__file__).resolve().parents[1]


def table_names(url: str) -> list[str]:
    engine = create_engine(url)
    try:
        return inspect(engine).get_table_names()
    finally:
        engine.dispose()


def create_table(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE leftover (n INTEGER)"))
    engine.dispose()


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    try:
        return "State:\tZ" not in status.read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("attempt", [1, 2])
def test_each_test_gets_an_empty_database(database_url: str, attempt: int) -> None:
    assert table_names(database_url) == []
    create_table(database_url)
    assert table_names(database_url) == ["leftover"]


@pytest.mark.postgres
def test_a_killed_test_process_leaves_no_server_and_no_folder() -> None:
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not tested: its server's programs are not installed")
    code = (
        "import pathlib, sys\n"
        "from tests.postgres import PostgresServer\n"
        f"with PostgresServer.started(pathlib.Path({str(programs)!r})) as server:\n"
        "    print(server.folder, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        server = int((folder / "data" / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
        process.kill()
    for _ in range(200):
        if not folder.exists():
            break
        time.sleep(0.1)
    assert not folder.exists()
    assert not is_running(server)
