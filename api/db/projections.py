"""Writes and reads the tables that people query, a table at a time and in columns. Called by `api.projections`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, select, text, update

from api.db.models import drawn_batches, ended_groups, run_costs, runs

Values = Mapping[str, Sequence[Any]]  # column -> its values
GROUPS, BATCHES, COSTS = ended_groups, drawn_batches, run_costs
KEYS: Mapping[Table, str] = {GROUPS: "ticket", BATCHES: "batch", COSTS: "source"}


def add(connection: Connection, table: Table, run_id: int, values: Values) -> None:
    """Adds rows of a run, all in one statement: PostgreSQL takes arrays, SQLite's driver loops by itself."""
    names = list(values)
    if not values[KEYS[table]]:
        return
    into = f"INSERT INTO {table.name} (run_id, {', '.join(names)})"
    if connection.dialect.name == "postgresql":
        arrays = [f"CAST(:{name} AS {table.c[name].type.compile(connection.dialect)}[])" for name in names]
        statement = text(f"{into} SELECT :run_id, * FROM unnest({', '.join(arrays)})")
        connection.execute(statement, {"run_id": run_id, **{name: list(values[name]) for name in names}})
        return
    places = ", ".join("?" * len(names))
    rows = list(zip(*values.values(), strict=True))
    connection.exec_driver_sql(f"{into} VALUES ({run_id}, {places})", rows)


def remove(connection: Connection, table: Table, run_id: int, keys: Iterable[Any] | None = None) -> None:
    """Removes rows of a run, those of these keys or all."""
    statement = delete(table).where(table.c.run_id == run_id)
    if keys is None:
        connection.execute(statement)
    elif found := [{"at_key": key} for key in keys]:
        connection.execute(statement.where(table.c[KEYS[table]] == bindparam("at_key")), found)


def read_rows(connection: Connection, table: Table, run_id: int) -> list[tuple[Any, ...]]:
    """All rows of a run without its id, by their key."""
    columns = [column for column in table.c if column.name != "run_id"]
    query = select(*columns).where(table.c.run_id == run_id).order_by(table.c[KEYS[table]])
    return [tuple(row) for row in connection.execute(query)]


def projected_seq(connection: Connection, run_id: int) -> int:
    """The event that the tables of a run agree with; 0 for a run of a version that had none."""
    return int(connection.execute(select(runs.c.projected_seq).where(runs.c.id == run_id)).scalar_one())


def set_projected_seq(connection: Connection, run_id: int, seq: int) -> None:
    connection.execute(update(runs).where(runs.c.id == run_id).values(projected_seq=seq))
