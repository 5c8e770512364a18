"""A private PostgreSQL server for tests, from programs that are already installed.

The fixtures in tests/conftest.py start it. It lives in a temporary folder, listens on a Unix socket there and nowhere
else, keeps nothing, and knows nothing of our tables. PostgreSQL refuses to run as root, so root hands it to `postgres`,
or to `nobody` where there is no such user.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg

SUPERUSER = "midband"
PROGRAMS = ("initdb", "postgres")
START_LIMIT_S = 60.0
STOP_LIMIT_S = 20.0
POLL_S = 0.05

# Becomes the server ("$@"), and leaves behind a watcher that holds the other end of our pipe: when that closes, because
# we closed it or because we were killed, it ends the server at once (SIGQUIT) and removes the folder ($0).
LAUNCH = """
exec 3<&0 </dev/null
( (
  cat <&3 >/dev/null
  kill -QUIT $$
  for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 $$ || break; sleep 0.2; done
  rm -rf "$0"
) 2>/dev/null & )
exec 3<&-
exec "$@"
"""

# Tests throw the data away, so nothing need reach the disk.
SERVER_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "autovacuum": "off",
}
# What a benchmark measures is as durable, and has as much room, as a small server in production.
DURABLE_SETTINGS = {"listen_addresses": "", "shared_buffers": "256MB", "max_connections": "60"}


def find_programs() -> Path | None:
    """The folder with PostgreSQL's server programs: that of the newest version under /usr/lib, else one on the PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: _version(folder.parent.name))
    on_path = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    for folder in [*reversed(debian), *on_path]:
        if all(os.access(folder / program, os.X_OK) for program in PROGRAMS):
            return folder
    return None


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server. `folder` holds its socket."""

    folder: Path
    _numbers: Iterator[int]

    @classmethod
    @contextmanager
    def started(cls, programs: Path, *, durable: bool = False) -> Iterator["PostgresServer"]:
        """Runs a server until the block ends, then removes all it kept. `durable`: it waits for the disk meanwhile.

        Raises RuntimeError, with the server's log, if it does not start.
        """
        user = _server_user()
        # Not under pytest's tmp_path: that is closed to other users, and too long for a socket's path (107 characters).
        folder = Path(tempfile.mkdtemp(prefix="midband-pg-"))
        try:
            if user is not None:
                shutil.chown(folder, user)
            _initialise(programs, folder, user)
            process = _launch(programs, folder, user, DURABLE_SETTINGS if durable else SERVER_SETTINGS)
            try:
                server = cls(folder, count())
                server._wait_until_ready(process)
                yield server
            finally:
                _stop(process)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def url(self, database: str) -> str:
        """SQLAlchemy's URL for one database of this server."""
        return f"postgresql+psycopg://{SUPERUSER}@/{database}?host={self.folder}"

    @contextmanager
    def fresh_database(self) -> Iterator[str]:
        """URL of a new, empty database, dropped at the end with whatever is still connected to it."""
        name = f"test_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name}")
        try:
            yield self.url(name)
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(host=str(self.folder), user=SUPERUSER, dbname="postgres", autocommit=True) as connection:
            connection.execute(statement.encode())

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline_s = time.monotonic() + START_LIMIT_S
        while True:
            try:
                self._execute("SELECT 1")
            except psycopg.OperationalError as error:
                if process.poll() is not None or time.monotonic() > deadline_s:
                    log = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
                    raise RuntimeError(
                        f"the tests' PostgreSQL server did not start ({error}); its log:\n{log}"
                    ) from error
                time.sleep(POLL_S)
            else:
                return


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split(".") if part.isdigit())


def _server_user() -> str | None:
    """Whom the server runs as: None for the user we are, unless that is root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in known:
            return name
    raise RuntimeError("PostgreSQL refuses to run as root, and there is neither a user `postgres` nor `nobody`")


def _initialise(programs: Path, folder: Path, user: str | None) -> None:
    command = [str(programs / "initdb"), "--no-sync", "--auth=trust", f"--username={SUPERUSER}"]
    command += ["--encoding=UTF8", "--locale=C", f"--pgdata={folder / 'data'}"]
    done = subprocess.run(
        command, user=user, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"initdb failed for the tests' PostgreSQL server:\n{done.stdout}{done.stderr}")


def _launch(programs: Path, folder: Path, user: str | None, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
    command = ["sh", "-c", LAUNCH, str(folder), str(programs / "postgres")]
    command += ["-D", str(folder / "data"), "-k", str(folder)]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    with (folder / "log").open("wb") as log:
        # A session of its own: what is sent to the tests' process group, as by Ctrl-C, must not reach the watcher.
        return subprocess.Popen(
            command, user=user, cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(timeout=STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
