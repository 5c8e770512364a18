"""`midband probe` and `midband profile` as a person meets them: a bar while they work, then figures in words.

The `midband` module hands them a client and settings. Progress goes to standard error, the rest to standard output.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from trainer.client import Client
from trainer.probing.engines import EngineSettings, open_engine
from trainer.probing.picture import profile_picture
from trainer.probing.prober import BATCH_SIZE, Probed, probe
from trainer.probing.profile import Profile, profile_pool
from trainer.training.command import in_words

MOST_CATEGORIES = 20  # in the table; all of them are in the file
ENDS = {
    "budget": "the budget is spent",
    "nothing_to_learn": "no other prompt is worth a probe now",
    "probe_budget": "the run's own bounds on probes are reached",
    "all_in_flight": "all that is left is with other workers",
    "run_complete": "the run has ended",
}


def probe_command(
    client: Client,
    run: str,
    settings: EngineSettings,
    *,
    budget_tokens: int | None,
    batch_size: int = BATCH_SIZE,
    group_size: int | None = None,
    console: Console | None = None,
) -> Probed:
    """Probe until the budget or the plan is spent, and say what came of it."""
    console = console or Console()
    with open_engine(settings) as opened, _bar(run, budget_tokens, "tokens") as (move, say):

        def watch(so_far: Probed) -> None:
            move(so_far.tokens)
            say(f"{so_far.prompts:,} prompts, {so_far.rollouts:,} rollouts")

        made = probe(
            client,
            run,
            opened.engine,
            version=opened.version,
            budget_tokens=budget_tokens,
            batch_size=batch_size,
            group_size=group_size,
            watch=watch,
        )
        problems = _problems(opened.problems())
    lines = [f"{made.prompts:,} prompts probed with {made.rollouts:,} rollouts, {made.tokens:,} generated tokens."]
    if made.judged:
        lines.append(
            f"{made.informative / made.judged:.0%} of the groups were informative; {made.stopped / made.prompts:.0%} "
            "were stopped early, as they had settled the question."
        )
    if made.errors or made.unscored:
        lines.append(f"{made.errors:,} rollouts were errors, {made.unscored:,} have no score.")
    lines += problems
    lines.append(f"Ended: {ENDS.get(made.ended, made.ended)}.")
    console.print("\n".join(lines), markup=False, soft_wrap=True, highlight=False)
    return made


def profile_command(
    client: Client,
    pool: str,
    settings: EngineSettings,
    out_dir: Path,
    *,
    run: str | None = None,
    file: Path | None = None,
    group_size: int = 8,
    prompts: int | None = None,
    console: Console | None = None,
) -> Profile:
    """Profile a pool, imported from `file` first if there is one; a table, figures and a picture in `out_dir`."""
    from trainer.training.command import fill_pool
    from trainer.training.config import PoolSettings

    console, run = console or Console(), run or f"{pool}-profile"
    if file is not None:
        fill_pool(client, PoolSettings(name=pool, file=file))
    with open_engine(settings) as opened, _bar(run, None, "prompts") as (move, say):

        def watch(done: int, of: int) -> None:
            move(done, of)
            say(f"{done:,} of {of:,} prompts")

        found = profile_pool(
            client,
            pool,
            run,
            opened.engine,
            policy_version=opened.version(),
            group_size=group_size,
            prompts=prompts,
            watch=watch,
        )
        problems = _problems(opened.problems())
    show(found, console)
    for line in problems:
        console.print(line, markup=False, soft_wrap=True, highlight=False)
    out_dir.mkdir(parents=True, exist_ok=True)
    figures = out_dir / "profile.json"
    figures.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
    picture = profile_picture(found, out_dir / "profile.png")
    console.print(f"picture  {picture}\nfigures  {figures}", markup=False, soft_wrap=True, highlight=False)
    return found


def show(found: Profile, console: Console) -> None:
    """The profile in tables, and what they say to somebody who sees them for the first time."""
    whole = f"all {found.prompts:,}" if found.probed == found.prompts else f"{found.probed:,} of {found.prompts:,}"
    drawn = "" if found.probed == found.prompts else ", drawn evenly"
    table = Table(
        title=f"Pool {found.pool}: {whole} prompts{drawn}, {found.group_size} rollouts each", title_justify="left"
    )
    table.add_column("what")
    table.add_column("value", justify="right")
    size = found.group_size
    smaller = [(f"informative groups, if of {g}", f"{share:.1%}") for g, share in found.yields.items() if g != size]
    rows = [
        ("pass rate, 95 % interval", in_words(found.pass_rate)),
        ("prompts without a score", f"{found.probed - found.scored:,}"),
        (f"never right in {size} rollouts", f"{found.all_wrong:.1%}"),
        (f"always right in {size} rollouts", f"{found.all_right:.1%}"),
        (f"informative groups of {size}, 95 % interval", in_words(found.informative_rate)),
        *smaller,
        ("tokens a rollout", f"{found.tokens_per_rollout:,.1f}"),
        ("tokens for an informative group, drawn evenly", _tokens(found.tokens_per_informative)),
        (f"an epoch, {found.prompts:,} groups: rollouts", f"{found.epoch_rollouts:,}"),
        ("an epoch: tokens", _tokens(found.epoch_tokens)),
        ("an epoch: time of rollouts, as here", _duration(found.epoch_rollouts * found.seconds_per_rollout)),
    ]
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print("\n".join(reading(found)), markup=False, soft_wrap=True, highlight=False)
    if not found.categories:
        return
    # By the lower end of the interval, so that a category of three prompts does not lead by chance.
    ranked = sorted(found.categories, key=lambda one: (-one.informative_rate.low, one.name))
    table = Table(title="By category, most informative first", title_justify="left")
    for name in ("category", "prompts", "pass rate", "informative, 95 % interval"):
        table.add_column(name, justify="left" if name == "category" else "right")
    for one in ranked[:MOST_CATEGORIES]:
        table.add_row(one.name, f"{one.prompts:,}", f"{one.pass_rate:.1%}", in_words(one.informative_rate))
    if len(ranked) > MOST_CATEGORIES:
        table.add_row(f"and {len(ranked) - MOST_CATEGORIES} more", "", "", "")
    console.print(table)


def _problems(counted: Counter[str]) -> list[str]:
    return [f"{count:,} answers have no score: {problem}." for problem, count in counted.most_common()]


def reading(found: Profile) -> list[str]:
    """The figures in words: how much of an even draw teaches, why the rest does not, and what could be gained."""
    share, size = found.informative, found.group_size
    lines = [
        "A group is informative if its rollouts differ in what they are worth; nothing is learned from the others. "
        f"Drawn evenly, {share:.0%} of the groups of {size} are."
    ]
    if found.all_wrong >= max(found.all_right, 0.5):
        lines.append(
            f"Most prompts are too hard: never right in {size} rollouts. That is rarely right, not impossible; larger "
            "groups, a stronger model or easier prompts find more to learn from."
        )
    elif found.all_right >= 0.5:
        lines.append(f"Most prompts are mastered: always right in {size} rollouts. Harder prompts would teach more.")
    if share:
        lines.append(
            f"If every group were informative, the same rollouts would bring {1 / share:.1f} times as many of them: "
            "what selection can gain at most, before any training."
        )
    return lines


def _tokens(number: float) -> str:
    return f"{number:,.0f}" if math.isfinite(number) else "–"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7_200 else f"{seconds / 3_600:,.1f} h"


Move = Callable[..., None]


@contextmanager
def _bar(name: str, total: int | None, unit: str) -> Iterator[tuple[Move, Callable[[str], None]]]:
    """A progress bar; yields what moves it, to a number and of how many, and what says something beside it."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f} " + unit),
        TextColumn("{task.fields[told]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(name, total=total, told="")

        def move(done: int, of: int | None = None) -> None:
            if of is None:
                bars.update(task, completed=done)
            else:
                bars.update(task, completed=done, total=of)

        yield move, lambda text: bars.update(task, told=text)
