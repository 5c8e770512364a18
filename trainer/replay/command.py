"""The replay as a person runs it: a file and policies in, a progress line each, then table, picture and JSON lines."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from trainer.client import Client
from trainer.errors import MissingExtra
from trainer.replay.arms import PolicyArm
from trainer.replay.drawing import picture
from trainer.replay.figures import table, write_json_lines
from trainer.replay.loop import AUDIT_SHARE, BATCH_SIZE, Watch, replay
from trainer.replay.result import ReplayResult
from trainer.rollout.recorded import RecordedOutcomes


def run_command(
    client: Client,
    file: Path,
    policies: Sequence[str],
    out_dir: Path,
    *,
    batch_size: int = BATCH_SIZE,
    group_size: int | None = None,
    seed: int = 0,
    audit_share: float = AUDIT_SHARE,
    rounds: int | None = None,
    console: Console | None = None,
) -> list[ReplayResult]:
    """Replay a record under each policy and write `replay.png` and `replay.jsonl` into `out_dir`.

    The table goes to `console`, standard output if none is given; progress goes to standard error. Raises
    InvalidRecord and InvalidRequest for what the caller got wrong, before any run is made.
    """
    console = console or Console()
    record = RecordedOutcomes.load(file)
    arms = [PolicyArm.parse(text) for text in policies]
    with progress(arms) as watch:
        results = replay(
            client,
            record,
            arms,
            batch_size=batch_size,
            group_size=group_size,
            seed=seed,
            audit_share=audit_share,
            rounds=rounds,
            watch=watch,
        )
    show(results, console)
    write_files(results, out_dir, console)
    return results


def show(results: Sequence[ReplayResult], console: Console) -> None:
    """The table, and in words what is not in it: early ends, and what the audit says."""
    console.print(table(results))
    for result in results:
        if result.stopped:
            console.print(
                f"{result.arm.name} stopped after {len(result.rounds.groups_R)} rounds: the service had nothing to "
                f"draw ({result.stopped}).",
                markup=False,
            )
        if result.audit.verdict:
            console.print(f"{result.arm.name}: {result.audit.verdict}", markup=False)


def write_files(results: Sequence[ReplayResult], out_dir: Path, console: Console) -> None:
    """`replay.jsonl` and, where matplotlib is installed, `replay.png`; says where they are."""
    lines = write_json_lines(results, out_dir / "replay.jsonl")
    try:
        drawn = picture(results, out_dir / "replay.png")
    except MissingExtra as error:
        console.print(f"No picture: {error}", markup=False)
    else:
        console.print(f"picture  {drawn}", markup=False, soft_wrap=True)
    console.print(f"figures  {lines}", markup=False, soft_wrap=True)


@contextmanager
def progress(arms: Sequence[PolicyArm]) -> Iterator[Watch]:
    """A progress line for each policy on standard error; yields what `replay` calls after each round."""
    width = max(len(arm.name) for arm in arms) if arms else 0
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} groups"),
        TextColumn("{task.fields[share]} informative"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def watch(arm: PolicyArm, num_done: int, num_all: int, num_informative: int) -> None:
            if arm.name not in tasks:
                tasks[arm.name] = bars.add_task(arm.name.ljust(width), total=num_all, share="")
            bars.update(tasks[arm.name], completed=num_done, share=f"{num_informative / num_done:.1%}")

        yield watch
