"""The engine that a probing command names, with its weights and their version, and the graders beside it.

Heavy libraries are imported only for the engine that needs them.
"""

import importlib
import importlib.util
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from trainer.errors import InvalidRequest, MissingExtra
from trainer.graders.pool import LIMIT_S, GraderPool
from trainer.rollout.base import RolloutEngine

ENGINES = ("torch", "openai") + (("vllm",) if importlib.util.find_spec("trainer.rollout.vllm") else ())
OURS = frozenset({"torch", "transformers", "safetensors", "tokenizers", "vllm"})  # libraries that extras bring
CHECKPOINT = re.compile(r"step-(\d+)")
KEY_VARIABLE = "OPENAI_API_KEY"

Version = Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What a probing command is told of its engine."""

    engine: str
    model: str | None = None  # a folder, or a name that a server knows; None: the small learner
    url: str | None = None  # of a server
    grader: str = "exact"
    max_new_tokens: int = 256
    temperature: float = 1.0
    seed: int = 0
    policy_version: int | None = None  # of weights that do not change; None: the checkpoint's number, or 0
    concurrency: int = 16  # requests to a server at a time
    grader_limit_s: float = LIMIT_S
    graders: int | None = None  # processes; None: one for each CPU
    workers: int | None = None  # on a Ray cluster, an engine in each; None: one engine, in this process


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An engine at work."""

    engine: RolloutEngine
    problems: Callable[[], Counter[str]]  # why answers have no score, by name
    version: Version  # of the weights that will generate next; follows the trainer where there is something to follow


@contextmanager
def open_engine(settings: EngineSettings) -> Iterator[Opened]:
    """The engine with its graders, closed at the end. Raises InvalidRequest and MissingExtra for what is in the way.

    `model` may be a folder of checkpoints, as `midband train` writes it: then its newest is used, under the number of
    its step, and a newer one is read as soon as it is there.
    """
    if settings.engine not in ENGINES:
        raise InvalidRequest(f"no engine is called {settings.engine!r}: there are {', '.join(ENGINES)}")
    if settings.engine == "openai" and None in (settings.url, settings.model):
        raise InvalidRequest("engine 'openai' needs --url and --model, a name that the server knows")
    if settings.workers is not None:
        from trainer.probing.spread import open_spread

        with open_spread(settings) as opened:
            yield opened
        return
    processes = settings.graders or os.cpu_count() or 1
    with GraderPool(settings.grader, workers=processes, limit_s=settings.grader_limit_s) as graders:
        fixed = settings.policy_version or 0
        if settings.engine == "openai":
            from trainer.rollout.openai import OpenAIEngine

            with OpenAIEngine(
                str(settings.url),
                str(settings.model),
                graders,
                max_new_tokens=settings.max_new_tokens,
                temperature=settings.temperature,
                seed=settings.seed,
                key=os.environ.get(KEY_VARIABLE),
                concurrency=settings.concurrency,
            ) as engine:
                yield Opened(engine=engine, problems=lambda: graders.problems, version=lambda: fixed)
            return
        try:
            opened = _torch(settings, graders) if settings.engine == "torch" else _vllm(settings, graders)
        except ModuleNotFoundError as error:
            if error.name not in OURS:
                raise
            extra = "trainer" if settings.engine == "torch" else "vllm"
            raise MissingExtra(f"probing needs {error.name}: pip install 'midband[{extra}]'") from error
        yield opened


def newest_checkpoint(folder: Path) -> tuple[int, Path] | None:
    """Step and folder of the newest complete checkpoint in a folder of them; None where there is none."""
    found = [(int(match[1]), path) for path in folder.glob("step-*") if (match := CHECKPOINT.fullmatch(path.name))]
    return max(found, default=None)


def _torch(settings: EngineSettings, graders: GraderPool) -> Opened:
    from trainer.rollout.torch import TorchEngine, read_model

    folder = None if settings.model is None else Path(settings.model)
    newest = None if folder is None else newest_checkpoint(folder)
    model, tokenizer = read_model(folder if newest is None else newest[1])
    engine = TorchEngine(
        model,
        tokenizer,
        graders,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        seed=settings.seed,
    )
    if folder is None or newest is None:
        fixed = settings.policy_version or 0
        return Opened(engine=engine, problems=lambda: graders.problems, version=lambda: fixed)
    held = newest[0]

    def follow() -> int:
        nonlocal held
        found = newest_checkpoint(folder)
        if found is not None and found[0] > held:
            model.load_state_dict(read_model(found[1])[0].state_dict())
            held = found[0]
        return held

    return Opened(engine=engine, problems=lambda: graders.problems, version=follow)


def _vllm(settings: EngineSettings, graders: GraderPool) -> Opened:
    if settings.model is None:
        raise InvalidRequest("engine 'vllm' needs --model, a folder in transformers' format")
    made = importlib.import_module("trainer.rollout.vllm").VllmEngine(
        Path(settings.model),
        graders,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        seed=settings.seed,
    )
    fixed = settings.policy_version or 0
    return Opened(engine=cast(RolloutEngine, made), problems=lambda: graders.problems, version=lambda: fixed)
