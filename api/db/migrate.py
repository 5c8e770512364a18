"""Brings the tables of a database up to this version, and refuses a database that is not ours or is newer.

Called by `create_app` at the start and by tests. It drives Alembic from inside, so no alembic.ini is needed at run
time; the scripts lie in api/migrations in an installed package and in migrations/ in a checkout.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text

import api
from api.db.models import metadata
from api.db.session import read, write
from api.errors import DatabaseUnusable
from api.settings import shown_url

# Not Alembic's own name for it: other programs may keep theirs in the same PostgreSQL database.
VERSION_TABLE = "midband_schema"
# Two servers that start at once on one PostgreSQL database take turns; any number does that nobody else uses.
ADVISORY_LOCK = 0x6D69_6462_616E_64


def upgrade(engine: Engine) -> None:
    """Runs the migrations that are missing, all or none. Raises DatabaseUnusable for a database we must not touch."""
    with write(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
        config = alembic_config()
        _refuse_foreign(connection)
        _refuse_newer(connection, ScriptDirectory.from_config(config))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def refuse_outdated(engine: Engine) -> None:
    """Raises DatabaseUnusable unless the tables are this version's: for one who comes beside a running server."""
    with read(engine) as connection:
        scripts = ScriptDirectory.from_config(alembic_config())
        _refuse_newer(connection, scripts)
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        if context.get_current_heads() != tuple(scripts.get_heads()):
            raise DatabaseUnusable(
                f"the server that has {_place(connection)} open is of an earlier version: stop it first, or use the "
                "command of that version"
            )


def alembic_config() -> Config:
    """Alembic's configuration with the place of the scripts in it."""
    config = Config()
    # Alembic reads `%` in options as the start of a substitution.
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def migrations_folder() -> Path:
    """Where the migration scripts lie. Raises DatabaseUnusable if the installation lacks them."""
    home = Path(str(api.__file__)).resolve().parent
    for folder in (home / "migrations", home.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise DatabaseUnusable(f"the migration scripts are missing beside {home}: reinstall midband")


def _refuse_foreign(connection: Connection) -> None:
    present = set(inspect(connection).get_table_names())
    if VERSION_TABLE in present:
        return
    taken = sorted(present & set(metadata.tables))
    if taken:
        raise DatabaseUnusable(
            f"{_place(connection)} has tables of the same names ({', '.join(taken)}) that midband did not make; "
            "it was left as it is: set MIDBAND_DATABASE_URL to another place"
        )


def _refuse_newer(connection: Connection, scripts: ScriptDirectory) -> None:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    known = {script.revision for script in scripts.walk_revisions()}
    unknown = sorted(set(context.get_current_heads()) - known)
    if unknown:
        raise DatabaseUnusable(
            f"{_place(connection)} has schema {', '.join(unknown)}, which this version does not know (it knows up to "
            f"{scripts.get_current_head()}): a newer midband has upgraded it. Install that version, or restore a backup"
        )


def _place(connection: Connection) -> str:
    return shown_url(connection.engine.url.render_as_string(hide_password=False))
