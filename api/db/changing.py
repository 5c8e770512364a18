"""One change of a pool at a time, in as many transactions as it takes, seen by nobody before its last one.

Uploads and quarantine hold a pool while they change it; archiving does not, and draws, reports and reads never wait for
either. What a change writes before its last transaction is hidden: rows from `pools.num_rows` on and parts of revisions
that are not yet there. Where a change was cut off, by an error or with its process, what it left is removed, at the
latest before the next change. On PostgreSQL a pool is held by a lock of one connection, over which the change is
written: a process that lost the one can no longer do the other. A SQLite file has one server, which knows its threads.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, bindparam, delete, func, select
from sqlalchemy.exc import SQLAlchemyError

from api.db.models import pool_deltas, prompt_questions, prompts
from api.db.session import read, write
from api.errors import Busy

WAIT_S = 30.0  # how long a change waits for the one before it; then its caller is told to come back
POLL_S = 0.05  # how often PostgreSQL is asked
REMOVED_AT_ONCE = 1_024  # hidden rows, in a transaction of their own
ADVISORY_CLASS = 0x6D69_6470  # of the locks on pools; those of servers and migrations have one number, not two


class Transaction(Protocol):
    """Opens a transaction of a change. `hidden`: nobody sees it before a later one, which makes it durable."""

    def __call__(self, *, hidden: bool = False) -> AbstractContextManager[Connection]: ...


_LOCKS: WeakKeyDictionary[Engine, dict[int, threading.Lock]] = WeakKeyDictionary()
_LOCKS_LOCK = threading.Lock()


@contextmanager
def held(engine: Engine, pool_id: int, name: str) -> Iterator[Transaction]:
    """Keeps every other change off a pool; yields what opens the transactions of this one.

    Raises Busy if the change before it takes longer than WAIT_S.
    """
    busy = Busy(f"an upload into the pool {name!r}, or another change of it, is under way: send this again later")
    if engine.dialect.name != "postgresql":
        with _LOCKS_LOCK:
            lock = _LOCKS.setdefault(engine, {}).setdefault(pool_id, threading.Lock())
        if not lock.acquire(timeout=WAIT_S):
            raise busy

        def written(*, hidden: bool = False) -> AbstractContextManager[Connection]:
            return write(engine, durable=not hidden)

        try:
            yield written
        finally:
            lock.release()
        return
    with engine.connect() as connection:

        @contextmanager
        def transaction(*, hidden: bool = False) -> Iterator[Connection]:
            with connection.begin():
                yield connection

        limit_s = time.monotonic() + WAIT_S
        while not _ask(transaction, func.pg_try_advisory_lock(ADVISORY_CLASS, pool_id)):
            if time.monotonic() >= limit_s:
                raise busy
            time.sleep(POLL_S)
        try:
            yield transaction
        finally:
            try:
                _ask(transaction, func.pg_advisory_unlock(ADVISORY_CLASS, pool_id))
            except SQLAlchemyError:
                connection.invalidate()  # closed instead of kept for others: the lock ends with it


def _ask(transaction: Transaction, question: object) -> bool:
    with transaction() as connection:
        return bool(connection.execute(select(question)).scalar_one())  # type: ignore[call-overload]


def remove_hidden(engine: Engine, transaction: Transaction, pool_id: int, *, num_rows: int, revision: int) -> None:
    """Removes what a change left that was cut off, in small transactions: all beyond the pool's rows and revision."""
    rows = (
        select(prompts.c.row, prompts.c.question_hash)
        .where(prompts.c.pool_id == pool_id, prompts.c.row >= num_rows)
        .order_by(prompts.c.row)
        .limit(REMOVED_AT_ONCE)
    )
    parts = select(pool_deltas.c.revision, pool_deltas.c.part).where(
        pool_deltas.c.pool_id == pool_id, pool_deltas.c.revision > revision
    )
    with read(engine) as connection:
        found, left = connection.execute(rows).all(), connection.execute(parts).all()
    while found:
        at = [{"at_row": row.row} for row in found]
        asked = [{"hash": row.question_hash, "at_row": row.row} for row in found if row.question_hash is not None]
        with transaction(hidden=True) as connection:
            if asked:
                connection.execute(
                    delete(prompt_questions).where(
                        prompt_questions.c.pool_id == pool_id,
                        prompt_questions.c.question_hash == bindparam("hash"),
                        prompt_questions.c.row == bindparam("at_row"),
                    ),
                    asked,
                )
            connection.execute(
                delete(prompts).where(prompts.c.pool_id == pool_id, prompts.c.row == bindparam("at_row")), at
            )
        with read(engine) as connection:
            found = connection.execute(rows).all()
    for one in left:
        this = (
            pool_deltas.c.pool_id == pool_id,
            pool_deltas.c.revision == one.revision,
            pool_deltas.c.part == one.part,
        )
        with transaction(hidden=True) as connection:
            connection.execute(delete(pool_deltas).where(*this))
