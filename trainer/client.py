"""The service as a Python object: one method for each call of the contract, blocking, typed.

A trainer, the `midband` command and the replay all use it; `trainer.async_client` has the same calls to be awaited. It
checks requests with the contract's own models before it sends them, and answers with the contract's models. Nothing of
a run is kept here: the service remembers, so any process may go on where another stopped, and any call may be made
again. The calls themselves are in `trainer.calls`, by what they are about.
"""

import copy
from types import TracebackType
from typing import Self

import httpx

from api.schemas import VersionInfo
from trainer.calls.base import Columns, Policy
from trainer.calls.pools import PoolCalls
from trainer.calls.progress import ProgressCalls
from trainer.calls.reading import ReadingCalls
from trainer.calls.runs import RunCalls
from trainer.connection import Connection
from trainer.retry import PATIENCE_S, Backoff

__all__ = ["DEFAULT_URL", "TIMEOUT_S", "Client", "Columns", "Policy"]

DEFAULT_URL = "http://127.0.0.1:8765"
TIMEOUT_S = 60.0  # one try of one call; a draw or report takes milliseconds


class Client(PoolCalls, RunCalls, ProgressCalls, ReadingCalls):
    """A connection to one midband service. Threads may share it; close it, or use it as a context manager.

    `patience_s`: how long a call is tried again while the service is away or busy, before ServiceUnavailable. The
    first failure is logged as a warning. `timeout_s` is for one try. `key`: what `midband key create` printed, for a
    service that asks for one; by default the environment's MIDBAND_KEY. It is never shown.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        key: str | None = None,
        transport: httpx.BaseTransport | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        backoff: Backoff | None = None,
    ) -> None:
        self._connection = Connection(
            base_url,
            key=key,
            transport=transport,
            timeout_s=timeout_s,
            backoff=backoff or Backoff(patience_s=patience_s),
        )

    def __repr__(self) -> str:
        return f"Client({self._connection.where!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection; an in-process service is shut down. Calling it again does nothing."""
        self._connection.close()

    def waiting(self, patience_s: float) -> "Client":
        """A client on the same connection with another patience; closing either closes both."""
        twin = copy.copy(self)
        twin._connection = self._connection.waiting(patience_s)
        return twin

    def version(self) -> VersionInfo:
        return self._get(VersionInfo, "/version")
