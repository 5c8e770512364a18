"""The engine of a probing command spread over a Ray cluster: in each worker what the command would open in its process.

`open_engine` comes here where workers are asked for. Every worker grades what it makes, and all have the same weights:
this process looks for new ones, and each worker takes them before its next piece.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from api.schemas import Ticket
from trainer.errors import MissingExtra
from trainer.probing.engines import EngineSettings, Opened, newest_checkpoint, open_engine
from trainer.rollout.base import RolloutEngine, RolloutGroup


class WorkerEngine(RolloutEngine):
    """What `open_engine` gives, for as long as this process lives."""

    def __init__(self, settings: EngineSettings) -> None:
        folder = _folder(settings)
        newest = None if folder is None else newest_checkpoint(folder)
        if newest is not None:
            settings = replace(settings, model=str(newest[1]))
        self._stack = ExitStack()  # is never closed: it keeps what was opened
        self._opened = self._stack.enter_context(open_engine(settings))

    def generate(self, tickets: Sequence[Ticket], *, policy_version: int) -> list[RolloutGroup]:
        return self._opened.engine.generate(tickets, policy_version=policy_version)

    def generate_part(
        self, tickets: Sequence[Ticket], spans: Sequence[range], *, policy_version: int
    ) -> list[RolloutGroup]:
        return self._opened.engine.generate_part(tickets, spans, policy_version=policy_version)

    def load(self, folder: Path, *, policy_version: int) -> None:
        self._opened.engine.load(folder, policy_version=policy_version)

    def problems(self) -> Counter[str]:
        return self._opened.problems()


@contextmanager
def open_spread(settings: EngineSettings) -> Iterator[Opened]:
    """The engine, with its workers; they end with the block. Raises MissingExtra without Ray, MidbandError where the
    cluster has no room.
    """
    try:
        from trainer.rollout.ray import RayEngine
    except ModuleNotFoundError as error:
        raise MissingExtra(f"probing on a Ray cluster needs {error.name}: pip install 'midband[ray]'") from error
    workers, folder = settings.workers or 1, _folder(settings)
    alone = replace(
        settings,
        workers=None,
        model=settings.model if folder is None else str(folder),
        graders=max(1, (os.cpu_count() or 1) // workers),
    )
    held: int | None = None
    with RayEngine(
        partial(WorkerEngine, alone),
        workers=workers,
        accelerators=0 if settings.engine == "openai" else None,
        name=f"probing with {settings.engine}",
    ) as engine:

        def version() -> int:
            """Of the newest weights, which every worker has from its next piece on."""
            nonlocal held
            found = None if folder is None else newest_checkpoint(folder)
            if found is not None and (held is None or found[0] > held):
                engine.load(found[1], policy_version=found[0])
                held = found[0]
            return (settings.policy_version or 0) if held is None else held

        yield Opened(engine=engine, problems=lambda: sum(engine.each(_problems), Counter()), version=version)


def _problems(engine: RolloutEngine) -> Counter[str]:
    return engine.problems() if isinstance(engine, WorkerEngine) else Counter()


def _folder(settings: EngineSettings) -> Path | None:
    """Of weights, as every machine of the cluster sees it; None where a server has them, or they are shipped ones."""
    if settings.engine == "openai" or settings.model is None:
        return None
    return Path(settings.model).resolve()
