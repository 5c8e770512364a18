"""The demo as a person runs it: what will happen, how far it is, then table, words, pictures, record, what to do next.

The `midband` module hands it a service and a folder. Progress goes to standard error, the rest to standard output.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from trainer.client import Client
from trainer.demo.arms import Watch, train_arms
from trainer.demo.pictures import belief_picture, quality_picture
from trainer.demo.plan import MIDBAND, POLICIES, POOL, UNIFORM, Sizes, arm_config, open_folder, train_keys
from trainer.demo.recording import Recording, record
from trainer.demo.result import ArmResult, Marks
from trainer.demo.table import table, verdict
from trainer.errors import MissingExtra
from trainer.training.checkpoints import Checkpoints
from trainer.training.command import fill_pool
from trainer.training.config import PoolSettings, TrainConfig
from trainer.training.metrics import Line
from trainer.training.progress import Progress as TrainProgress

DATABASE_FILE, RECORD_FILE = "midband.db", "outcomes.jsonl"  # in the demo's folder
INDENT = 4  # characters
ONE_SEED = "One seed is a demo, not evidence: another seed may say something else."


def run_demo(
    client: Client,
    server: str,
    out_dir: Path,
    *,
    sizes: Sizes | None = None,
    seed: int = 0,
    program: str = "midband",
    console: Console | None = None,
) -> list[ArmResult]:
    """Import the pool, train the arms, show what came of them; what `out_dir` has already is gone on with.

    `server`: the URL that `client` speaks to, as the arms' processes go there too. `program`: how the command is
    called, for the commands to try next. Raises MidbandError for what is in the way: another demo in the folder, no
    trainer extra, a service that refuses.
    """
    console, sizes = console or Console(), sizes or Sizes()
    file = open_folder(out_dir, sizes, seed=seed)
    configs = [arm_config(name, out_dir, sizes, server=server, seed=seed) for name in POLICIES]
    _say_what_happens(configs, sizes, server, out_dir, console)
    fill_pool(client, PoolSettings(name=POOL, file=file))
    with progress(configs) as watch:
        train_arms([config for config in configs if not _is_finished(config)], train_keys(file), watch)
    results = [ArmResult.read(client, config) for config in configs]
    uniform, other = (next(one for one in results if one.name == name) for name in (UNIFORM, MIDBAND))
    marks = Marks.of(uniform, results)
    console.print(table(results, marks, num_cores=os.cpu_count() or 1))
    _say(f"\n{verdict(uniform, other, marks)} {ONE_SEED}\n", console)
    _draw(results, marks, sizes, out_dir, console)
    _say_what_is_recorded(record(client, UNIFORM, out_dir / RECORD_FILE), console)
    _say_what_next(out_dir, sizes, seed, program, console)
    return results


def kept(out_dir: Path) -> str:
    """What is left in the folder of a demo that was interrupted, and how it goes on."""
    steps = {name: Checkpoints(out_dir / name).progress() or TrainProgress() for name in POLICIES}
    arms = ", ".join(f"{name} at step {at.step}" for name, at in steps.items())
    return (
        f"stopped; kept in {out_dir}: the log of all draws and reports, and the last checkpoints ({arms}). The same "
        "command goes on from them; to begin anew, delete that folder or name another with --out-dir"
    )


@contextmanager
def progress(configs: Sequence[TrainConfig]) -> Iterator[Watch]:
    """A bar for each arm on standard error; yields what `train_arms` calls."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[told]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        looked = {config.run.name: "" for config in configs}
        tasks = {}
        for config in configs:
            name, at = config.run.name, _at(config)
            told = "is at its end" if _is_finished(config) else "loads torch"
            tasks[name] = bars.add_task(name, total=config.stop.tokens, completed=at.tokens, told=told)

        def watch(arm: str, line: Line) -> None:
            if line["kind"] == "evaluation" and line["overall"]["estimate"] is not None:
                looked[arm] = f", held-out {line['overall']['estimate']:.1%}"
            bars.update(tasks[arm], completed=line["tokens"], told=f"step {line['step']}{looked[arm]}")

        yield watch


def _say_what_happens(
    configs: Sequence[TrainConfig], sizes: Sizes, server: str, out_dir: Path, console: Console
) -> None:
    _say(
        f"One small model is trained twice from the same start, on {sizes.num_train:,} puzzles: once on prompts drawn "
        f"uniformly, once on prompts that midband draws, each time until {sizes.tokens:,} tokens are generated. "
        f"{sizes.num_heldout:,} other puzzles are held out to measure by. Both trainings run at the same time, a "
        f"process of one thread each, against a service on {server}, which {server}/docs describes. Its database and "
        f"everything else goes to {out_dir}. Ctrl-C keeps what there is.\n",
        console,
    )
    if any(_at(config).step for config in configs):
        places = ", ".join(f"{config.run.name} from step {_at(config).step}" for config in configs)
        _say(f"{out_dir} has a demo already, which goes on: {places}. Delete the folder to begin anew.\n", console)


def _draw(results: Sequence[ArmResult], marks: Marks | None, sizes: Sizes, out_dir: Path, console: Console) -> None:
    what = f"{sizes.num_train:,} puzzles, {sizes.batch_size} groups of {sizes.group_size} a step"
    try:
        quality = quality_picture(results, marks, out_dir / "quality.png", title=f"{what}, one seed")
        beliefs = belief_picture(results, out_dir / "beliefs.png", title=f"{what}: what is believed of them")
    except MissingExtra as error:
        _say(f"No pictures: {error}", console)
    else:
        _show(quality, "held-out quality and informative groups against tokens; quality by difficulty", console)
        _show(beliefs, "the pass rates that the service believes the prompts to have, as training goes on", console)


def _say_what_is_recorded(made: Recording, console: Console) -> None:
    _show(
        made.file,
        f"{UNIFORM}'s outcomes, for `replay`: {made.num_prompts:,} prompts with {made.visits} groups each, "
        f"{made.num_groups:,} of the {made.num_reported:,} reported. It compares policies by the informative groups "
        "they find. What training on those would do it cannot say: its outcomes are the same whatever is drawn.",
        console,
    )


def _say_what_next(out_dir: Path, sizes: Sizes, seed: int, program: str, console: Console) -> None:
    again = out_dir.with_name(f"{out_dir.name}-seed-{seed + 1}")
    database = f"sqlite:///{out_dir.resolve() / DATABASE_FILE}"
    console.print("\nTo do next:")
    _show(f"{program} demo --seed {seed + 1} --out-dir {again}", "the same with another seed", console)
    _show(
        f"{program} replay {out_dir / RECORD_FILE} --batch-size {sizes.batch_size} --out-dir {out_dir / 'replay'}",
        "policies on the recorded outcomes, without a model; --policy midband:power=1 adds one",
        console,
    )
    _show(
        f"{program} serve --database-url {database}",
        f"ask the service: http://127.0.0.1:8765/v1/runs/{MIDBAND}/audit, /v1/runs/{MIDBAND}/costs, "
        f"/v1/pools/{POOL}/prompts?run={MIDBAND}&sort=drawn&order=desc, and /docs for everything else",
        console,
    )
    _show(f"{program} train FILE.toml", "a training of your own: docs/training.md, docs/examples/train.toml", console)


def _at(config: TrainConfig) -> TrainProgress:
    """How far an arm's last checkpoint is."""
    return Checkpoints(config.output).progress() or TrainProgress()


def _is_finished(config: TrainConfig) -> bool:
    return _at(config).tokens >= (config.stop.tokens or 0)


def _say(text: str, console: Console) -> None:
    console.print(text, markup=False, highlight=False)


def _show(what: Path | str, meaning: str, console: Console) -> None:
    """A file or a command in one piece, to be copied, and below it what it is."""
    console.print(str(what), markup=False, highlight=False, soft_wrap=True)
    console.print(Padding(Text(meaning), (0, 0, 0, INDENT), expand=False))
