"""Queries on the leases of runs: who owns one, until when, and whether a token is still the newest.

Called by `api.leases`. PostgreSQL only: of a SQLite file there is one server, by the lock on the file. Every time here
is the database's own, so that no two servers' clocks are ever compared.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, Double, Select, cast, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from api.db.models import run_leases

PAUSED_TOO_LONG = "25P03"  # SQLSTATE idle_in_transaction_session_timeout
NOW = cast(func.extract("epoch", func.clock_timestamp()), Double)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who has the lease of a run."""

    token: int
    address: str


def hold_presence(connection: Connection, server: int) -> None:
    """Takes the advisory lock that says that a server is alive. It ends with the connection, so with the process."""
    connection.execute(select(func.pg_advisory_lock(server)))


def claim(connection: Connection, run_id: int, *, server: int, address: str, lease_s: float) -> int | None:
    """The token of a new lease; None while another server's is in force.

    A lease is free once it has run out, or at once when the server that had it is gone.
    """
    values = {"server": server, "address": address, "expires_at": NOW + lease_s}
    first = insert(run_leases).values(run_id=run_id, token=1, **values)
    free = or_(
        run_leases.c.server == server,
        run_leases.c.expires_at <= NOW,
        func.pg_try_advisory_xact_lock(run_leases.c.server),
    )
    taken = first.on_conflict_do_update(
        index_elements=["run_id"], set_={"token": run_leases.c.token + 1, **values}, where=free
    )
    token = connection.execute(taken.returning(run_leases.c.token)).scalar_one_or_none()
    return None if token is None else int(token)


def fence(connection: Connection, run_id: int, token: int, *, lease_s: float) -> bool:
    """Begins a transaction that writes a run: whether the token is the newest, which it then stays until the commit.

    Renews the lease too. A process that stops in the middle holds the row no longer than a lease: the database then
    ends the transaction.
    """
    limit = func.set_config("idle_in_transaction_session_timeout", str(round(1_000 * lease_s)), True)
    renewed = (
        update(run_leases)
        .where(run_leases.c.run_id == run_id, run_leases.c.token == token)
        .values(expires_at=NOW + lease_s)
        .returning(limit)
    )
    return connection.execute(renewed).one_or_none() is not None


def holder(connection: Connection, run_id: int) -> Holder | None:
    """Who has, or had last, the lease of a run."""
    query: Select[tuple[int, str]] = select(run_leases.c.token, run_leases.c.address)
    row = connection.execute(query.where(run_leases.c.run_id == run_id)).one_or_none()
    return None if row is None else Holder(token=int(row.token), address=str(row.address))


def renew(connection: Connection, server: int, *, lease_s: float) -> None:
    """Prolongs every lease of a server."""
    connection.execute(update(run_leases).where(run_leases.c.server == server).values(expires_at=NOW + lease_s))


def give_back(connection: Connection, server: int) -> None:
    """Ends every lease of a server: any other may have its runs at once."""
    connection.execute(update(run_leases).where(run_leases.c.server == server).values(expires_at=0.0))
