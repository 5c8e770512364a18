"""The migrations make what the models describe, on both databases, and leave alone what is not theirs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from api.db.migrate import VERSION_TABLE, alembic_config, migrations_folder, upgrade
from api.db.models import metadata
from api.db.session import create_database, read, write
from api.errors import DatabaseUnusable
from tests.architecture.fresh import ROOT


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_database(database_url)
    yield engine
    engine.dispose()


def drift(engine: Engine) -> list[object]:
    with read(engine) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        return list(compare_metadata(context, metadata))


def indexes(engine: Engine) -> dict[str, str]:
    """Name -> SQL of every index, as the database has it."""
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    if engine.dialect.name == "postgresql":
        query = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
    with read(engine) as connection:
        found = connection.execute(text(query)).all()
    return {str(row[0]): str(row[1]) for row in found if str(row[0]).startswith("ix_")}


def test_migrated_tables_are_those_of_the_models(engine: Engine) -> None:
    upgrade(engine)
    assert drift(engine) == []


def test_the_comparison_sees_a_difference(engine: Engine) -> None:
    upgrade(engine)
    with write(engine) as connection:
        connection.execute(text("ALTER TABLE pools ADD COLUMN extra INTEGER"))
        connection.execute(text("DROP INDEX ix_prompts_superseded_key"))
    assert len(drift(engine)) == 2


def test_partial_indexes_are_those_of_the_models(engine: Engine) -> None:
    # The comparison above does not look at their conditions.
    upgrade(engine)
    migrated = indexes(engine)
    with write(engine) as connection:
        connection.execute(text(f"DROP TABLE {VERSION_TABLE}"))
        metadata.drop_all(connection)
        metadata.create_all(connection)
    assert {name: "".join(sql.split()).lower() for name, sql in indexes(engine).items()} == {
        name: "".join(sql.split()).lower() for name, sql in migrated.items()
    }
    assert "where" in migrated["ix_prompts_current_key"].lower()


def test_an_upgrade_of_what_is_up_to_date_changes_nothing(engine: Engine) -> None:
    upgrade(engine)
    with write(engine) as connection:
        connection.execute(
            text(
                "INSERT INTO pools (name, created_at, archived, revision, num_rows, tallies, feature_lengths) "
                "VALUES ('p', 1, :no, 0, 0, '[]', '{}')"
            ),
            {"no": False},
        )
    upgrade(engine)
    with read(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM pools")).scalar_one() == 1


def test_a_migration_can_be_taken_back(engine: Engine) -> None:
    upgrade(engine)
    config = alembic_config()
    with write(engine) as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    with read(engine) as connection:
        assert inspect(connection).get_table_names() == [VERSION_TABLE]
    upgrade(engine)
    assert drift(engine) == []


def test_a_database_of_the_first_version_is_brought_up_to_date_with_what_it_holds(engine: Engine) -> None:
    config = alembic_config()
    with write(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.execute(
            text(
                "INSERT INTO pools (name, created_at, archived, revision, num_rows, tallies, feature_lengths) "
                "VALUES ('p', 1, :no, 0, 0, '[]', '{}')"
            ),
            {"no": False},
        )
    assert len(drift(engine)) > 0
    upgrade(engine)
    assert drift(engine) == []
    with read(engine) as connection:
        assert connection.execute(text("SELECT name FROM pools")).scalars().all() == ["p"]
        assert connection.execute(text("SELECT count(*) FROM keys")).scalar_one() == 0


def test_runs_of_an_earlier_version_learn_how_far_their_logs_reach(engine: Engine) -> None:
    config = alembic_config()
    with write(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        for statement in (
            "INSERT INTO pools (id, name, created_at, archived, revision, num_rows, tallies, feature_lengths) "
            "VALUES (1, 'p', 1, :no, 0, 0, '[]', '{}')",
            "INSERT INTO runs (id, name, pool_id, request, config, config_hash, created_at, completed) "
            "VALUES (1, 'full', 1, '{}', '{}', '', 1, :no), (2, 'empty', 1, '{}', '{}', '', 1, :no)",
            "INSERT INTO events (run_id, seq, kind, at, payload) VALUES (1, 1, 'a', 1, ''), (1, 2, 'b', 1, '')",
        ):
            connection.execute(text(statement), {"no": False} if ":no" in statement else {})
    upgrade(engine)
    with read(engine) as connection:
        found = connection.execute(text("SELECT name, last_seq FROM runs ORDER BY id")).all()
    assert [tuple(row) for row in found] == [("full", 2), ("empty", 0)]


def test_prompts_of_an_earlier_version_are_found_by_their_questions(engine: Engine) -> None:
    config = alembic_config()
    with write(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0003")
        for statement in (
            "INSERT INTO pools (id, name, created_at, archived, revision, num_rows, tallies, feature_lengths) "
            "VALUES (1, 'p', 1, :no, 1, 3, '[]', '{}')",
            'INSERT INTO prompts (pool_id, "row", key, content_hash, question_hash, split, absent, superseded, '
            "quarantined, created_revision, revision) VALUES (1, 0, 'a', 'x', 'q', 'train', :no, :no, :no, 1, 1), "
            "(1, 1, 'b', 'y', 'q', 'train', :no, :no, :no, 1, 1), (1, 2, 'c', 'z', NULL, 'train', :no, :no, :no, 1, 1)",
        ):
            connection.execute(text(statement), {"no": False})
    upgrade(engine)
    with read(engine) as connection:
        found = connection.execute(text('SELECT pool_id, question_hash, "row" FROM prompt_questions ORDER BY "row"'))
        assert [tuple(row) for row in found] == [(1, "q", 0), (1, "q", 1)]


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(engine: Engine) -> None:
    upgrade(engine)
    with write(engine) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(DatabaseUnusable, match=r"schema 9999.*knows up to \d{4}.*newer midband.*restore a backup"):
        upgrade(engine)
    with read(engine) as connection:
        assert connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one() == "9999"


def test_a_database_with_other_tables_of_our_names_is_refused(engine: Engine) -> None:
    with write(engine) as connection:
        connection.execute(text("CREATE TABLE events (n INTEGER)"))
    with pytest.raises(DatabaseUnusable, match=r"tables of the same names \(events\) that midband did not make"):
        upgrade(engine)
    with read(engine) as connection:
        assert inspect(connection).get_table_names() == ["events"]


def test_tables_of_other_names_are_no_hindrance(engine: Engine) -> None:
    with write(engine) as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('abcdef')"))
    upgrade(engine)
    with read(engine) as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == "abcdef"


def test_a_migration_that_fails_leaves_no_half_of_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    class _Stop(Exception):
        pass

    def fail(*_: object, **__: object) -> None:
        raise _Stop

    monkeypatch.setattr("alembic.op.create_index", fail)
    with pytest.raises(_Stop):
        upgrade(engine)
    monkeypatch.undo()
    with read(engine) as connection:
        assert inspect(connection).get_table_names() == []
    upgrade(engine)


def test_the_scripts_are_found_in_the_checkout() -> None:
    assert migrations_folder() == ROOT / "migrations"


def test_an_installation_without_scripts_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("api.__file__", str(tmp_path / "api" / "__init__.py"))
    with pytest.raises(DatabaseUnusable, match=r"migration scripts are missing.*reinstall midband"):
        migrations_folder()
    folder = tmp_path / "api" / "migrations"
    folder.mkdir(parents=True)
    (folder / "env.py").touch()
    assert migrations_folder() == folder
