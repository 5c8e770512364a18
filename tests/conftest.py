"""Fixtures that every test folder may use: databases, each fresh, and the profile that hypothesis runs under.

`database_url` runs a test once on SQLite and once on PostgreSQL; `sqlite_url` and `postgres_url` ask for one of them.
The PostgreSQL server is a private one: tests/postgres.py starts it on first use, once in each worker process.
"""

import os

# Before anything imports numpy. Two threads that spin beside other load are many times slower than one.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import PostgresServer, find_programs

# No deadline: a loaded machine is no bug. Derandomised: the same examples in every run, so that a failure is of the
# change at hand. `explore` looks for new ones: pytest --hypothesis-profile=explore.
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=1_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")

# The driver's control device: there is no accelerator without it.
ACCELERATOR = Path("/dev/nvidiactl")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what is marked `gpu` where there is no accelerator, and says so."""
    if ACCELERATOR.exists():
        return
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.skip(reason=f"needs an accelerator: no {ACCELERATOR} on this machine"))


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """URL of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'midband.db'}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A private PostgreSQL server, this worker's own; the test is skipped where its programs are not installed."""
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not tested: no initdb and postgres on the PATH or in /usr/lib/postgresql/*/bin")
    with PostgresServer.started(programs) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """URL of an empty PostgreSQL database that is dropped after the test."""
    with postgres_server.fresh_database() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of an empty database: the test runs once on SQLite and once on PostgreSQL."""
    url = request.getfixturevalue(f"{request.param}_url")
    assert isinstance(url, str)
    return url
