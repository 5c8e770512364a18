"""Services for the cases: one inside this process for most, one behind a port where callers come at the same time."""

from collections.abc import Iterator

import pytest

from tests.api.harness import Http, in_process, listening


@pytest.fixture
def http(database_url: str) -> Iterator[Http]:
    """A caller of a fresh service, once on each database."""
    with in_process(database_url) as http:
        yield http


@pytest.fixture
def url(database_url: str) -> Iterator[str]:
    """The address of a fresh service, once on each database."""
    with listening(database_url) as url:
        yield url
