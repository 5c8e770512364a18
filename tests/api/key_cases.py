"""Keys as the tests make them."""

from collections.abc import Iterable

from sqlalchemy import text

from api.db.session import create_database, read
from api.key_commands import create
from api.settings import Settings

Call = tuple[str | None, str, str]  # prefix of the key, action, target


def made_key(
    database_url: str, *scopes: str, pools: Iterable[str] = (), runs: Iterable[str] = (), days: float | None = None
) -> str:
    """A new key, with all scopes unless some are named."""
    settings = Settings(database_url=database_url)
    return create(settings, name=None, scopes=scopes, pools=pools, runs=runs, days=days)[0]


def trail(database_url: str) -> list[Call]:
    """The management calls, oldest first, as a person reads them: with SQL."""
    engine = create_database(database_url)
    try:
        with read(engine) as connection:
            rows = connection.execute(text("SELECT key, action, target FROM management_calls ORDER BY id")).all()
    finally:
        engine.dispose()
    return [(row[0], row[1], row[2]) for row in rows]
