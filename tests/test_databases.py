"""The database fixtures themselves: a database that is not fresh would make every other test lie."""

import pytest
from sqlalchemy import create_engine, inspect, text


def table_names(url: str) -> list[str]:
    engine = create_engine(url)
    try:
        return inspect(engine).get_table_names()
    finally:
        engine.dispose()


def create_table(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE leftover (n INTEGER)"))
    engine.dispose()


@pytest.mark.parametrize("attempt", [1, 2])
def test_each_test_gets_an_empty_database(database_url: str, attempt: int) -> None:
    assert table_names(database_url) == []
    create_table(database_url)
    assert table_names(database_url) == ["leftover"]
