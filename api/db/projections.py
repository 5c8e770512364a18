"""Writes and reads the tables that people query, a table at a time and in columns. Called by `api.projections`."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any

from sqlalchemy import Connection, Dialect, Table, bindparam, delete, select, update

from api.db.models import drawn_batches, ended_groups, run_costs, runs

Values = Mapping[str, Sequence[Any]]  # column -> its values
GROUPS, BATCHES, COSTS = ended_groups, drawn_batches, run_costs
KEYS: Mapping[Table, str] = {GROUPS: "ticket", BATCHES: "batch", COSTS: "source"}
_STEP_ON = (
    update(runs)
    .where(runs.c.id == bindparam("at_run"), runs.c.projected_seq == bindparam("before"))
    .values(projected_seq=bindparam("after"))
)


def put(connection: Connection, table: Table, run_id: int, values: Values) -> None:
    """Adds rows of a run, or puts them in the place of those of the same key, all in one statement: PostgreSQL takes
    arrays, SQLite's driver loops by itself.
    """
    if not values[KEYS[table]]:
        return
    names = list(values)
    statement = _put_statement(table, tuple(names), connection.dialect)
    if connection.dialect.name == "postgresql":
        arrays = {name: _literal(values[name]) for name in names}
        connection.exec_driver_sql(statement, {"run_id": run_id, **arrays})
    else:
        rows = list(zip(repeat(run_id), *values.values(), strict=False))
        connection.exec_driver_sql(statement, rows)


def _literal(values: Sequence[Any]) -> str:
    """PostgreSQL's way to write an array, in half the time that the driver takes. Every text here is a word of ours."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


@lru_cache(maxsize=16)
def _put_statement(table: Table, names: tuple[str, ...], dialect: Dialect) -> str:
    """With `run_id` before these columns."""
    if dialect.name == "postgresql":
        types = {name: table.c[name].type.compile(dialect) for name in names}
        rows = f"SELECT %(run_id)s, * FROM unnest({', '.join(f'%({name})s::{types[name]}[]' for name in names)})"
    else:
        rows = f"VALUES (?, {', '.join('?' * len(names))})"
    key = KEYS[table]
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name != key)
    return (
        f"INSERT INTO {table.name} (run_id, {', '.join(names)}) {rows} "
        f"ON CONFLICT (run_id, {key}) DO UPDATE SET {changed}"
    )


def remove(connection: Connection, table: Table, run_id: int, keys: Sequence[Any] | None = None) -> None:
    """Removes rows of a run, those of these keys or all."""
    statement = delete(table).where(table.c.run_id == run_id)
    if keys is None:
        connection.execute(statement)
    elif keys:
        found = [{"at_key": key} for key in keys]
        connection.execute(statement.where(table.c[KEYS[table]] == bindparam("at_key")), found)


def read_rows(connection: Connection, table: Table, run_id: int) -> list[tuple[Any, ...]]:
    """All rows of a run without its id, by their key."""
    columns = [column for column in table.c if column.name != "run_id"]
    query = select(*columns).where(table.c.run_id == run_id).order_by(table.c[KEYS[table]])
    return [tuple(row) for row in connection.execute(query)]


def projected_seq(connection: Connection, run_id: int) -> int:
    """The event that the tables of a run agree with; 0 for a run of a version that had none."""
    return int(connection.execute(select(runs.c.projected_seq).where(runs.c.id == run_id)).scalar_one())


def step_on(connection: Connection, run_id: int, before: int, after: int) -> bool:
    """Notes that the tables of a run agree with the event `after`; False, and nothing, if they were not at `before`."""
    values = {"at_run": run_id, "before": before, "after": after}
    return connection.execute(_STEP_ON, values).rowcount == 1


def set_projected_seq(connection: Connection, run_id: int, seq: int) -> None:
    connection.execute(update(runs).where(runs.c.id == run_id).values(projected_seq=seq))
