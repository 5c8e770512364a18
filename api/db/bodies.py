"""Queries on what rollouts say: the one table that is neither the log nor made from it, and that only ever shrinks to
what the log holds.

Called by `api.store` and the service. A row is named by its serial in the run's store, which is never given twice; it
is gone for good once the store has let go of it.
"""

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, delete, insert, or_, select

from api.db.models import rollout_bodies

IDS_PER_QUERY = 500  # fewer than either database allows


def keep_bodies(connection: Connection, run_id: int, payloads: Mapping[int, bytes], held: tuple[int, int]) -> None:
    """Adds bodies by their serial, and deletes those that are not within the first and the last that are held."""
    first, last = held
    serial = rollout_bodies.c.serial
    gone = or_(serial < first, serial > last)
    connection.execute(delete(rollout_bodies).where(rollout_bodies.c.run_id == run_id, gone))
    rows = [
        {"run_id": run_id, "serial": number, "payload": payload}
        for number, payload in payloads.items()
        if first <= number <= last
    ]
    if rows:
        connection.execute(insert(rollout_bodies), rows)


def read_bodies(connection: Connection, run_id: int, serials: Iterable[int]) -> dict[int, bytes]:
    """Those of these that are there."""
    wanted, found = list(serials), dict[int, bytes]()
    for start in range(0, len(wanted), IDS_PER_QUERY):
        query = select(rollout_bodies.c.serial, rollout_bodies.c.payload).where(
            rollout_bodies.c.run_id == run_id, rollout_bodies.c.serial.in_(wanted[start : start + IDS_PER_QUERY])
        )
        found |= {int(row.serial): bytes(row.payload) for row in connection.execute(query)}
    return found
