"""Opens the database and gives out transactions: `write` for one that changes something, `read` for one that reads
what belongs together, `ask` for a single query.

Called by `create_app`, the service and the queries, always from worker threads: everything here blocks. It knows the
two databases' ways of locking and failing, and no table.
"""

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import StaticPool

from api.errors import DatabaseLocked, DatabaseUnusable
from api.settings import shown_url

BUSY_TIMEOUT_MS = 10_000  # how long SQLite waits for a lock that another process holds
POOL_SIZE, POOL_OVERFLOW = 10, 30  # together as many as anyio has worker threads
SQLITE_MAGIC = b"SQLite format 3\x00"
DRIVERS = {"postgresql", "postgresql+psycopg", "postgres", "sqlite", "sqlite+pysqlite"}
REMEDY = "set MIDBAND_DATABASE_URL to another place"

# Names of execution options: an engine's lock, and the mark of a connection that will write.
_WRITER_LOCK, _SHARED, _WRITES = "midband_writer_lock", "midband_shared", "midband_writes"


def create_database(url: str) -> Engine:
    """An engine for a SQLite file (made with its folder if need be), for SQLite in memory, or for PostgreSQL.

    Raises DatabaseUnusable, naming the file or server and the remedy, if it cannot be opened and written.
    """
    parsed = _parse(url)
    path = sqlite_path(parsed)
    try:
        if parsed.get_backend_name() == "postgresql":
            engine = _postgres_engine(parsed)
        else:
            if path is not None:
                _check_file(path)
            engine = _sqlite_engine(parsed, in_memory=path is None)
        try:
            _check_answers(engine)
        except BaseException:
            engine.dispose()
            raise
    except DBAPIError as error:
        raise DatabaseUnusable(_reason(error, parsed, path)) from error
    except ModuleNotFoundError as error:
        raise DatabaseUnusable("PostgreSQL needs psycopg: pip install 'midband[postgres]'") from error
    return engine


@contextmanager
def write(engine: Engine, *, durable: bool = True) -> Iterator[Connection]:
    """One transaction that changes something: committed when the block ends, rolled back when it raises.

    On SQLite one thread at a time is inside; it waits here and not in the database, which would give up after a while.
    Never nested. What is not `durable` by itself reaches the disk at the latest with the next transaction that is.
    """
    with _lock_of(engine), engine.connect() as connection, nullcontext() if durable else _unhurried(connection):
        connection = connection.execution_options(**{_WRITES: True})
        with connection.begin():
            yield connection


@contextmanager
def _unhurried(connection: Connection) -> Iterator[None]:
    """Does not wait for the disk at the end of a transaction. In WAL mode the order of writes stays as it is."""
    if connection.dialect.name != "sqlite":
        yield
        return
    driver: Any = connection.connection.driver_connection  # past SQLAlchemy, which would begin a transaction
    driver.execute("PRAGMA synchronous=NORMAL")
    try:
        yield
    finally:
        driver.execute("PRAGMA synchronous=FULL")


@contextmanager
def read(engine: Engine) -> Iterator[Connection]:
    """One transaction that only looks; all its queries see the same state. Never inside `write`."""
    shared = engine.get_execution_options().get(_SHARED, False)
    with _lock_of(engine) if shared else nullcontext(), engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with connection.begin():
            yield connection


@contextmanager
def ask(engine: Engine) -> Iterator[Connection]:
    """For a single query. On PostgreSQL there is no transaction around it, which would be two more round trips."""
    if engine.dialect.name != "postgresql":
        with read(engine) as connection:
            yield connection
        return
    with engine.connect() as connection:
        yield connection.execution_options(isolation_level="AUTOCOMMIT")


def sqlite_path(url: URL | str) -> Path | None:
    """The file of a SQLite URL; None for SQLite in memory and for other databases."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return None
    return Path(os.path.realpath(Path(str(parsed.database)).expanduser()))


class DatabaseLock:
    """Held by the one server of a SQLite file. The kernel lets go of it when the process ends, however it ends."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Lets another server in. The lock file stays: removing it could take it from under a waiting one."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def lock_database(url: str) -> DatabaseLock:
    """Claims a SQLite file for this process; does nothing for SQLite in memory and for PostgreSQL.

    Raises DatabaseLocked, naming the process that has it, or DatabaseUnusable if the lock file cannot be made.
    """
    path = sqlite_path(_parse(url))
    if path is None:
        return DatabaseLock(None)
    lock_path = path.with_name(path.name + ".lock")
    _make_folder(path.parent)
    try:
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise DatabaseUnusable(f"cannot make the lock file {lock_path}: {error.strerror}; {REMEDY}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise DatabaseLocked(
            f"{path} is in use by another midband server, process {holder}: stop it, talk to it instead, "
            "or set MIDBAND_DATABASE_URL to another file"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return DatabaseLock(descriptor)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise DatabaseUnusable("the database URL cannot be read; it starts with sqlite:/// or postgresql://") from None
    if parsed.drivername not in DRIVERS:
        raise DatabaseUnusable(f"{parsed.drivername!r} is not a database that is known here: use SQLite or PostgreSQL")
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite" and parsed.query:
        raise DatabaseUnusable(f"a SQLite URL takes no options, got {sorted(parsed.query)}")
    return parsed


def _sqlite_engine(url: URL, *, in_memory: bool) -> Engine:
    options: dict[str, Any] = {"execution_options": {_WRITER_LOCK: threading.RLock(), _SHARED: in_memory}}
    if in_memory:
        # One connection for all threads, as each connection would have a database of its own.
        options |= {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
    else:
        options |= {"pool_size": POOL_SIZE, "max_overflow": POOL_OVERFLOW}
        url = url.set(database=str(sqlite_path(url)))
    engine = create_engine(url, hide_parameters=True, **options)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        # Transactions are begun by us, below: the driver's own way begins them late and never IMMEDIATE.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={BUSY_TIMEOUT_MS}", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # IMMEDIATE takes the write lock at once: a transaction that reads first could otherwise fail half way.
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgres_engine(url: URL) -> Engine:
    return create_engine(url, hide_parameters=True, pool_pre_ping=True, pool_size=POOL_SIZE, max_overflow=POOL_OVERFLOW)


def _lock_of(engine: Engine) -> Any:
    return engine.get_execution_options().get(_WRITER_LOCK) or nullcontext()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnusable(f"cannot make the folder {folder}: {error.strerror}; make it, or {REMEDY}") from error


def _check_file(path: Path) -> None:
    """Asks the file system what SQLite would report badly, late, or not at all."""
    _make_folder(path.parent)
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise DatabaseUnusable(
            f"the folder {path.parent} cannot be written ({error.strerror}), and SQLite keeps its log beside the file: "
            f"change its permissions, or {REMEDY}"
        ) from error
    if not path.exists():
        return
    try:
        with path.open("r+b") as file:
            start = file.read(len(SQLITE_MAGIC))
    except OSError as error:
        raise DatabaseUnusable(
            f"{path} cannot be opened for writing ({error.strerror}): change its permissions, or {REMEDY}"
        ) from error
    if start not in (b"", SQLITE_MAGIC):
        raise DatabaseUnusable(f"{path} is not a SQLite database, and was left as it is: {REMEDY}")


def _check_answers(engine: Engine) -> None:
    with read(engine) as connection:
        if engine.dialect.name == "sqlite":
            connection.execute(text("SELECT count(*) FROM sqlite_master"))
            return
        encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
        if encoding != "UTF8":
            raise DatabaseUnusable(f"the PostgreSQL database is in {encoding}: make one with ENCODING 'UTF8'")


def _reason(error: DBAPIError, url: URL, path: Path | None) -> str:
    cause = (str(error.orig).strip().splitlines() or ["no reason given"])[0]
    if path is not None:
        return f"{path} cannot be used as a database ({cause}): restore a backup, or {REMEDY}"
    return f"{shown_url(url.render_as_string(hide_password=False))} does not answer ({cause}): is the server running?"
