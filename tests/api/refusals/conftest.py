"""Services for the refusals: one that tests share, as a refused request leaves it as it was, and one of each test."""

from collections.abc import Iterator

import pytest

from tests.api.harness import Http, group, held_out, in_process, prompts
from tests.api.refusals.cases import RUN


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    """A service with a run that has an open and a reported ticket. A refused request leaves it as it was."""
    with in_process(f"sqlite:///{tmp_path_factory.mktemp('shared')}/midband.db") as http:
        http.pool([*prompts(20), *held_out(5)])
        http.run(group_size=4)
        tickets = http.draw(0, 2, 1)["tickets"]
        http.report(group(tickets[0], [1.0, 0.0, 1.0, 0.0]))
        http.post(f"{RUN}/checkpoints", {"step": 0})
        yield http


@pytest.fixture
def http(sqlite_url: str) -> Iterator[Http]:
    """A service of the test's own."""
    with in_process(sqlite_url) as http:
        yield http
