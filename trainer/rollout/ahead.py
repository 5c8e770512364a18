"""Rollouts that run ahead of the updates: batches generated on a thread, with weights of their own, in order.

The reference trainer uses it where `asynchrony.depth` is above 0. The schedule does not depend on the clock: batch i is
begun before update i − depth, with the weights of that moment, whatever has been finished. So a group is behind by the
updates made since, `depth` of them once the pipeline is full, and a run tells the same story every time. The trainer
takes whole batches in their order and waits for the slowest of each: nothing that is slow is overtaken, voided and paid
for again, as where the first groups to finish make up a batch.

An engine with weights of its own, such as vLLM's, follows the worker's model by `sync` before each batch.

It knows no tensors. The calls of the service stay on the trainer's thread; only the engine is called on the other one.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from api.schemas import Batch, Ticket
from trainer.errors import InvalidRequest
from trainer.rollout.base import RolloutEngine, RolloutGroup

# Called on the trainer's thread, it keeps the weights of now and returns what gives them to the worker's own model,
# to be called on the worker's thread.
Snapshot = Callable[[], Callable[[], None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A batch under way."""

    batch: Batch
    version: int  # of the weights it is generated with
    groups: "Future[list[RolloutGroup]]"


class Ahead:
    """One worker and the batches it was given. Use it as a context manager: leaving waits for what is under way."""

    def __init__(self, engine: RolloutEngine, snapshot: Snapshot) -> None:
        self.engine, self._snapshot = engine, snapshot
        self._begun: deque[Begun] = deque()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="midband-rollouts")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._worker.shutdown(cancel_futures=True)

    def __len__(self) -> int:
        return len(self._begun)

    def begin(self, batch: Batch, *, version: int) -> None:
        """Give a batch to the worker, with the weights of now. Raises InvalidRequest for one that comes in waves."""
        if any(ticket.first_wave != ticket.group_size for ticket in batch.tickets):
            raise InvalidRequest(
                f"run {batch.run!r} stops groups in waves, and rollouts that run ahead are whole groups: set "
                "asynchrony.depth to 0, or choose a policy without `wave`"
            )
        self._begun.append(Begun(batch=batch, version=version, groups=self._submit(batch.tickets, version)))

    def next(self) -> Begun:
        """The oldest batch, done. Raises what the engine raised."""
        begun = self._begun.popleft()
        begun.groups.result()
        return begun

    def generate(self, tickets: Sequence[Ticket], *, version: int) -> list[RolloutGroup]:
        """Groups with the weights of now, behind what is under way; waits for them. For looks at the held-out split."""
        return self._submit(tickets, version).result()

    def _submit(self, tickets: Sequence[Ticket], version: int) -> "Future[list[RolloutGroup]]":
        return self._worker.submit(self._roll_out, self._snapshot(), tickets, version)

    def _roll_out(self, load: Callable[[], None], tickets: Sequence[Ticket], version: int) -> list[RolloutGroup]:
        load()
        self.engine.sync(policy_version=version)  # of an engine that has a copy of the worker's model
        groups = self.engine.generate(tickets, policy_version=version) if tickets else []
        return [group if group.version is not None else replace(group, version=version) for group in groups]


class OnWorker(RolloutEngine):
    """The worker's engine for a loop that waits for it: so that one sampler does for training and for evaluation."""

    def __init__(self, ahead: Ahead) -> None:
        self._ahead = ahead

    def generate(self, tickets: Sequence[Ticket], *, policy_version: int) -> list[RolloutGroup]:
        return self._ahead.generate(tickets, version=policy_version)


def by_age(groups: Sequence[RolloutGroup], *, now: int, bound: int) -> tuple[list[RolloutGroup], list[RolloutGroup]]:
    """Those behind by at most `bound` versions, and those that are too old to be trained on."""
    young = [group for group in groups if group.version is None or now - group.version <= bound]
    old = [group for group in groups if group.version is not None and now - group.version > bound]
    return young, old
