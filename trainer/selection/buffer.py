"""Single rollouts collected into reports, for trainers whose rollouts come back one by one from many workers.

A call a rollout costs more than the rollout's own bookkeeping; a few hundred share one here. Nothing is lost: what
waits is sent when it is old or large enough, on `flush`, on `close`, and at the end of the process.
"""

import atexit
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from api.schemas import Ticket
from trainer.client import Client
from trainer.errors import InvalidRequest, ReportsRefused
from trainer.reports import as_group

MOST_ROLLOUTS = 256
LONGEST_WAIT_S = 0.5


class ReportBuffer:
    """Rollouts of one run on their way to the service. Threads may share it; use it as a context manager, or close it.

    A rollout that the service refuses for another reason than its age, or a service that stays away, is an error of
    the next call here, in whichever thread makes it: a background thread has nobody to tell.
    Rollouts that could not be sent stay and are tried again.
    """

    def __init__(
        self, client: Client, run: str, *, most_rollouts: int = MOST_ROLLOUTS, longest_wait_s: float = LONGEST_WAIT_S
    ) -> None:
        if most_rollouts < 1 or not longest_wait_s > 0:
            raise InvalidRequest(
                f"most_rollouts must be >= 1 and longest_wait_s > 0, got {most_rollouts} and {longest_wait_s}"
            )
        self._client = client
        self._run = run
        self._most = most_rollouts
        self._wait_s = longest_wait_s
        self._waiting: dict[tuple[str, int | None], list[dict[str, object]]] = {}
        self._count = 0
        self._failure: Exception | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._sending = threading.Lock()  # one report at a time, so that a rollout cannot overtake an earlier one
        self._thread = threading.Thread(target=self._flush_old, name="midband-reports", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.close()

    def add(self, ticket: Ticket | str, rollout: Mapping[str, object], *, policy_version: int | None = None) -> None:
        """One rollout with the contract's field names; it needs `n` or `id`, as its place says nothing here.

        Raises InvalidRequest for what the contract does not allow, before it waits with the others.
        """
        if rollout.get("n") is None and rollout.get("id") is None:
            raise InvalidRequest("a rollout reported by itself needs its number n or an id of the caller's")
        name = ticket.ticket if isinstance(ticket, Ticket) else ticket
        checked = as_group({"ticket": name, "rollouts": [rollout]}).rollouts[0]
        with self._changed:
            self._refuse_closed()
            self._waiting.setdefault((name, policy_version), []).append(checked.model_dump(exclude_unset=True))
            self._count += 1
            full = self._count >= self._most
            self._changed.notify()
        if full:
            self.flush()

    def flush(self) -> None:
        """Sends what waits, now. Raises what sending raised, or ReportsRefused."""
        with self._changed:
            self._raise_failure()
        self._send()

    def close(self) -> None:
        """Sends the rest and ends the thread. Calling it again does nothing."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify()
        atexit.unregister(self.close)
        self._thread.join()
        self._send()
        with self._changed:
            self._raise_failure()

    def _send(self) -> None:
        with self._sending:
            with self._changed:
                waiting, self._waiting, self._count = self._waiting, {}, 0
            if not waiting:
                return
            groups = [
                {"ticket": ticket, "rollouts": rollouts} | ({} if version is None else {"policy_version": version})
                for (ticket, version), rollouts in waiting.items()
            ]
            try:
                answer = self._client.report(self._run, groups)
            except BaseException:
                with self._changed:  # they go first when it is tried again
                    for key, rollouts in self._waiting.items():
                        waiting.setdefault(key, []).extend(rollouts)
                    self._waiting = waiting
                    self._count = sum(map(len, waiting.values()))
                raise
            refused = [rejection for rejection in answer.rejected if rejection.code != "stale"]
            if refused:
                raise ReportsRefused(
                    f"run {self._run!r} refused {len(refused)} rollouts, first of ticket {refused[0].ticket}: "
                    f"{refused[0].detail} ({refused[0].code})"
                )

    def _flush_old(self) -> None:
        while True:
            with self._changed:
                while (not self._waiting or self._failure is not None) and not self._closed:
                    self._changed.wait()
                if not self._closed:
                    self._changed.wait_for(lambda: self._closed, timeout=self._wait_s)
                if self._closed:
                    return
            try:
                self._send()
            except Exception as error:
                with self._changed:
                    self._failure = error  # raised by the next call of the trainer's own threads

    def _refuse_closed(self) -> None:
        if self._closed:
            raise InvalidRequest("this buffer is closed: make a new one")
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            self._changed.notify()
            raise failure
