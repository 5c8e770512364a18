"""Rollouts from a pool of Ray actors, an engine in each, behind the interface of one engine.

`midband probe --ray` (`trainer.probing.spread`) and trainers use it. Tickets are handed out in small pieces, never
more at once than the workers have places for; what a dead worker had is made by another one, and a new worker takes its
place. What is made does not depend on who made it, as far as the engine's own rollouts do not depend on what shares
their batch.
"""

import os
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import ray
from ray.exceptions import RayActorError, RayTaskError

from api.schemas import Ticket
from trainer.errors import MidbandError
from trainer.rollout.base import Rollout, RolloutEngine, RolloutGroup

# Of one worker: the piece that it makes, and the next, so that it never waits for this process.
PLACES = 2
PIECES_EACH = 4  # of a call's tickets, to each worker, so that a slow one holds up the others for a quarter of the time
# Of workers at one piece: then its rollouts are errors, as it may be what kills them. Of workers that begin, in a row.
DEATHS = 3
PATIENCE_S = 600.0  # with workers that begin, while none makes anything
NAMESPACE = "midband"  # of named actors; `midband ray` looks for them there

T = TypeVar("T")
Place = dict[str, Any]  # name, node, pid, devices: of a worker


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weights:
    """A folder that workers take their weights from, and what version these are."""

    folder: Path
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Some tickets of a call, by their places in it."""

    places: Sequence[int]
    deaths: int = 0


class _Slot:
    """One worker's place: an actor, and what it was given, oldest first."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.begun = actor.begun.remote()  # is done when the engine is made
        self.is_ready = False
        self.pieces: dict[Any, _Piece] = {}  # by task; an actor does them in this order


class RayEngine(RolloutEngine):
    """`workers` engines, each made by `make_engine` in a process of its own; a Ray cluster is begun if there is none.

    `make_engine` takes nothing and is pickled; what is heavy it imports itself. Each worker has one CPU and
    `accelerators` of those that Ray knows; None: one, if the cluster has any. `midband ray` shows them under `name`.
    Use it as a context, or `close` it: its actors end then.
    """

    def __init__(
        self,
        make_engine: Callable[[], RolloutEngine],
        *,
        workers: int,
        accelerators: float | None = 0,
        name: str = "an engine",
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers must be >= 1, got {workers}")
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
        free = ray.cluster_resources()
        if accelerators is None:
            accelerators = 1 if free.get("GPU", 0) else 0
        for kind, needed in (("CPU", workers), ("GPU", workers * accelerators)):
            if free.get(kind, 0) < needed:
                raise MidbandError(
                    f"{workers} workers need {needed:g} {kind} of Ray, and its cluster has {free.get(kind, 0):g}: "
                    "ask for fewer workers, or add machines to the cluster"
                )
        actor = ray.remote(num_cpus=1, num_gpus=accelerators, max_restarts=0)(_Worker)
        self._begin: Callable[[], _Slot] = lambda: _Slot(actor.remote(make_engine))
        self._board = (
            ray.remote(num_cpus=0)(_Board)
            .options(name=f"workers {name} {secrets.token_hex(4)}", namespace=NAMESPACE)
            .remote(name)
        )
        self._slots = [self._begin() for _ in range(workers)]
        self._failed_starts = 0  # since the last that succeeded
        self._weights: _Weights | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers. The cluster stays."""
        for slot in self._slots:
            ray.kill(slot.actor)
        if self._slots:
            ray.kill(self._board)
        self._slots = []

    def load(self, folder: Path, *, policy_version: int) -> None:
        """From now on generate with the weights in this folder, which every worker must be able to read.

        Workers take them with their next piece, those that begin anew as well.
        """
        self._weights = _Weights(folder=folder.resolve(), version=policy_version)

    def each(self, function: Callable[[RolloutEngine], T]) -> list[T]:
        """What a function says of the engines that there are now, each asked once it has nothing else to do."""
        asked = [slot.actor.tell.remote(function) for slot in self._slots if slot.is_ready]
        told: list[T] = []
        for answer in asked:
            try:
                told.append(ray.get(answer))
            except RayActorError:  # it is gone, and what it knew with it
                continue
        return told

    def generate(self, tickets: Sequence[Ticket], *, policy_version: int) -> list[RolloutGroup]:
        """As the engines do it. Raises what an engine raises, MidbandError if a worker cannot make its engine."""
        spans = [range(ticket.group_size) for ticket in tickets]
        return self._spread(tickets, spans, policy_version, whole=True)

    def generate_part(
        self, tickets: Sequence[Ticket], spans: Sequence[range], *, policy_version: int
    ) -> list[RolloutGroup]:
        """The same for waves, if the engines make any; a later wave may be another worker's than the first."""
        return self._spread(tickets, spans, policy_version, whole=False)

    def _spread(
        self, tickets: Sequence[Ticket], spans: Sequence[range], policy_version: int, *, whole: bool
    ) -> list[RolloutGroup]:
        groups: dict[int, RolloutGroup] = {}
        waiting = deque(_pieces(len(tickets), len(self._slots)))

        def give(slot: _Slot, piece: _Piece) -> None:
            some = [tickets[place] for place in piece.places]
            parts = None if whole else [spans[place] for place in piece.places]
            slot.pieces[slot.actor.generate.remote(some, parts, policy_version, self._weights)] = piece

        try:
            while len(groups) < len(tickets):
                for _ in range(PLACES):  # the first to all before the second to any
                    for slot in self._slots:
                        if waiting and slot.is_ready and len(slot.pieces) < PLACES:
                            give(slot, waiting.popleft())
                slot, done = self._next_done()
                try:
                    made = ray.get(done)
                except RayTaskError as error:
                    if slot.is_ready or isinstance(error.cause, MidbandError):
                        raise error.cause from error
                    reason = f"{type(error.cause).__name__}: {error.cause}"
                    raise MidbandError(f"a worker could not make its engine: {reason}") from error
                except RayActorError as error:
                    if slot.is_ready:
                        at_fault, *others = slot.pieces.values()
                        waiting.extendleft(others)
                        if at_fault.deaths + 1 < DEATHS:
                            waiting.append(_Piece(places=at_fault.places, deaths=at_fault.deaths + 1))
                        else:
                            groups.update({place: _errors(tickets[place], spans[place]) for place in at_fault.places})
                    else:
                        self._failed_starts += 1
                        if self._failed_starts >= DEATHS:
                            raise MidbandError(f"workers die while they make their engines: {error}") from error
                    number = self._slots.index(slot)
                    self._slots[number] = self._begin()
                    self._board.note.remote(number, None)
                else:
                    if slot.is_ready:
                        groups.update(zip(slot.pieces.pop(done).places, made, strict=True))
                    else:
                        self._board.note.remote(self._slots.index(slot), made)
                    slot.is_ready, self._failed_starts = True, 0
        finally:
            for slot in self._slots:
                for task in slot.pieces:
                    ray.cancel(task)
                slot.pieces.clear()
        return [groups[place] for place in range(len(tickets))]

    def _next_done(self) -> tuple[_Slot, Any]:
        """A slot and its task that ended: the making of its engine, or a piece."""
        tasks = {task: slot for slot in self._slots for task in (slot.pieces if slot.is_ready else [slot.begun])}
        done, _ = ray.wait(
            list(tasks), num_returns=1, timeout=None if any(s.pieces for s in self._slots) else PATIENCE_S
        )
        if not done:
            raise MidbandError(f"no worker began within {PATIENCE_S:g} s: does Ray's cluster have room for one?")
        return tasks[done[0]], done[0]


class _Board:
    """Says where an engine's workers are; they themselves are at work and would answer late."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._places: dict[int, Place] = {}

    def note(self, number: int, place: Place | None) -> None:
        if place is None:
            self._places.pop(number, None)
        else:
            self._places[number] = {"name": f"{self._name}, worker {number}", **place}

    def where(self) -> list[Place]:
        return [self._places[number] for number in sorted(self._places)]


class _Worker:
    """What runs in an actor: one engine, and the weights it has."""

    def __init__(self, make_engine: Callable[[], RolloutEngine]) -> None:
        self._make_engine = make_engine
        self._engine: RolloutEngine
        self._weights: _Weights | None = None

    def begun(self) -> Place:
        """Makes the engine; answers where."""
        self._engine = self._make_engine()
        context = ray.get_runtime_context()
        ids = context.get_accelerator_ids()
        devices = [f"{kind} {number}" for kind, numbers in ids.items() for number in numbers]
        return {"node": context.get_node_id(), "pid": os.getpid(), "devices": devices}

    def tell(self, function: Callable[[RolloutEngine], T]) -> T:
        return function(self._engine)

    def generate(
        self, tickets: Sequence[Ticket], spans: Sequence[range] | None, policy_version: int, weights: _Weights | None
    ) -> list[RolloutGroup]:
        if weights is not None and weights != self._weights:
            self._engine.load(weights.folder, policy_version=weights.version)
            self._weights = weights
        if spans is None:
            return self._engine.generate(tickets, policy_version=policy_version)
        return self._engine.generate_part(tickets, spans, policy_version=policy_version)


def _pieces(num_tickets: int, num_workers: int) -> Iterator[_Piece]:
    size = max(1, -(-num_tickets // (num_workers * PIECES_EACH)))
    for start in range(0, num_tickets, size):
        yield _Piece(places=range(start, min(start + size, num_tickets)))


def _errors(ticket: Ticket, span: range) -> RolloutGroup:
    rollouts = tuple(Rollout(outcome=None, status="error") for _ in span)
    return RolloutGroup(ticket=ticket, rollouts=rollouts, start=span.start)
