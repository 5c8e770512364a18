"""Alembic's entry: runs the migrations on a connection that `api.db.migrate` hands over, or on MIDBAND_DATABASE_URL.

The second way is for people: `alembic history`, `alembic revision --autogenerate -m "..."`, `alembic upgrade head`.
"""

from alembic import context
from sqlalchemy import Connection

from api.db.migrate import VERSION_TABLE
from api.db.models import metadata
from api.db.session import create_database, write
from api.settings import Settings


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        # SQLite cannot alter a table in place; Alembic then makes a new one and copies.
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


def main() -> None:
    handed_over = context.config.attributes.get("connection")
    if handed_over is not None:
        run(handed_over)
        return
    with write(create_database(Settings().database_url)) as connection:
        run(connection)


main()
