"""The runs that this server owns, where several servers share a PostgreSQL database.

`RunStore` asks it for a run's token before it loads the run, and has every transaction that writes the run check that
token. A thread with a connection of its own renews the leases, and holds an advisory lock by which others see at once
that this process is gone. Who owns a run is decided by the database and its clock alone; being wrong about it costs a
refused transaction, never a wrong one.
"""

import logging
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import InternalError, SQLAlchemyError

from api.db import leases as lease_queries
from api.db.session import ask, write
from api.errors import Busy, NotOwner

LEASE_S = 5.0  # a server that is silent for so long has lost its runs
RENEWAL_S = 1.0  # several tries fit into a lease

logger = logging.getLogger("midband.api")


class Leases:
    """The leases of one server process. Thread safe. `address` is where the other servers send callers."""

    def __init__(self, database: Engine, address: str) -> None:
        self.address = address
        self._database = database
        self._server = secrets.randbits(62) + 1
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="leases", daemon=True)
        self._connection: Connection | None = None

    @classmethod
    def started(cls, database: Engine, address: str) -> Self:
        """With its lock held and its thread running."""
        leases = cls(database, address)
        leases._renew()
        leases._thread.start()
        return leases

    def stop(self) -> None:
        """Gives all leases back. Call it once nothing writes any more."""
        self._stopping.set()
        self._thread.join()
        try:
            with write(self._database) as connection:
                lease_queries.give_back(connection, self._server)
        except SQLAlchemyError as error:
            logger.error("leases were not given back, and run out in %.0f s: %s", LEASE_S, _reason(error))
        finally:
            self._disconnect()

    def claim(self, run_id: int, run: str) -> int:
        """The token of a run that is this server's from now on. Raises NotOwner while another server has it."""
        with write(self._database) as connection:
            values = {"server": self._server, "address": self.address, "lease_s": LEASE_S}
            token = lease_queries.claim(connection, run_id, **values)  # type: ignore[arg-type]
            if token is None:
                raise self._not_owner(run, lease_queries.holder(connection, run_id))
        return token

    @contextmanager
    def fenced(self, connection: Connection, run_id: int, run: str, token: int) -> Iterator[None]:
        """Around all that a transaction writes of a run. Raises NotOwner if the run has another owner by now, and Busy
        if the process was paused inside for as long as a lease: the database has then taken everything back.
        """
        if not lease_queries.fence(connection, run_id, token, lease_s=LEASE_S):
            raise self._not_owner(run, lease_queries.holder(connection, run_id))
        try:
            yield
        except InternalError as error:
            if getattr(error.orig, "sqlstate", None) != lease_queries.PAUSED_TOO_LONG:
                raise
            raise Busy(f"the server was paused while it wrote run {run!r}, and nothing of it stands") from error

    def confirm(self, run_id: int, run: str, token: int) -> None:
        """Before an answer that no transaction of its own stands behind. Raises NotOwner like `fenced`."""
        with ask(self._database) as connection:
            held = lease_queries.holder(connection, run_id)
        if held is None or held.token != token:
            raise self._not_owner(run, held)

    def _not_owner(self, run: str, held: lease_queries.Holder | None) -> NotOwner:
        if held is None or held.address == self.address:
            return NotOwner(f"run {run!r} is between two owners; send it again")
        return NotOwner(f"run {run!r} belongs to the server at {held.address}; send it there", owner=held.address)

    def _keep(self) -> None:
        silent = False
        while not self._stopping.wait(RENEWAL_S):
            try:
                self._renew()
            except SQLAlchemyError as error:
                self._disconnect()
                if not silent:
                    logger.warning("leases could not be renewed, trying again: %s", _reason(error))
                silent = True
            else:
                if silent:
                    logger.warning("leases are renewed again")
                silent = False

    def _renew(self) -> None:
        if self._connection is None:
            self._connection = self._database.connect().execution_options(isolation_level="AUTOCOMMIT")
            lease_queries.hold_presence(self._connection, self._server)
        lease_queries.renew(self._connection, self._server, lease_s=LEASE_S)

    def _disconnect(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            # Not back into the pool: the lock goes with the connection.
            connection.invalidate()
            connection.close()


def _reason(error: SQLAlchemyError) -> str:
    """The first line of a message: what follows may quote the statement."""
    return (str(getattr(error, "orig", None) or error).splitlines() or [""])[0]
