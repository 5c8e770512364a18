"""A server that is there within a fraction of a second, for tests that kill hundreds: a fork of a process that has
imported everything already. It is a process like any other, on a port of its own, and dies like one.
"""

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from api.serve import serve
from api.settings import Settings
from tests.api.harness import wait_until_ready

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])


class Forked:
    """`midband serve` on a port."""

    def __init__(self, database_url: str, port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._process = FORKS.Process(target=_serve, args=(database_url, port, str(log)))
        self._process.start()
        wait_until_ready(self.url, self._process.is_alive, log)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


@contextmanager
def forked(database_url: str, folder: Path, port: int) -> Iterator[Forked]:
    """A server that is killed with the block, if it still runs."""
    server = Forked(database_url, port, folder / "serve.log")
    try:
        yield server
    finally:
        server.kill()


def _serve(database_url: str, port: int, log: str) -> None:
    stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    serve(Settings(database_url=database_url, port=port))
