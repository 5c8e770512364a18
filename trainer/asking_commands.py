"""Commands that ask a running service: pools in and out, what became of a run, probes for it.

The `midband` module gives them their names on the command line; commands that may bring a service of their own stand
there. Heavy imports wait until a command is carried out, so that `midband --help` stays quick. What the service refuses
ends a command with its words.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from trainer.probing.flags import EngineName, EngineUrl, GraderName, MaxNewTokens, ModelName, Temperature

if TYPE_CHECKING:
    from trainer.client import Client

PATIENCE_S = 5.0  # of a person who asks a service that may not be there

RunName = Annotated[str, typer.Argument(help="Name of the run.")]
ServerUrl = Annotated[str | None, typer.Option(help="URL of the service; by default this machine's.")]


class ReportFormat(StrEnum):
    """Forms that a report comes in."""

    MD = "md"
    JSON = "json"
    HTML = "html"


class SplitName(StrEnum):
    """Splits of a pool."""

    TRAIN = "train"
    HELDOUT = "heldout"


def import_prompts(
    pool: Annotated[str, typer.Argument(help="Name of the pool; made if there is none.")],
    path: Annotated[Path, typer.Argument(help="A data set's folder, or a Parquet, Arrow, JSONL, JSON or CSV file.")],
    layout: Annotated[
        str | None, typer.Option(help="What the columns mean; by default their names say it. See docs/pools.md.")
    ] = None,
    split: Annotated[
        SplitName | None, typer.Option(help="train or heldout, for all rows; by default the names say it.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Mark absent what this data set does not have.")] = False,
    server: ServerUrl = None,
) -> None:
    """Import a data set's prompts into a pool; say what was merged, linked and rejected."""
    from trainer.importing.command import import_command
    from trainer.importing.layouts import Layout

    if layout is not None and layout not in list(Layout):
        fail(f"--layout {layout}: known are {', '.join(Layout)}")
    chosen = None if layout is None else Layout(layout)
    with _asking(server) as client:
        done = import_command(
            client, pool, path, layout=chosen, split=None if split is None else split.value, replace=replace
        )
    if done.received and done.rejected == done.received:
        fail("every row was rejected")


def export(
    pool: Annotated[str, typer.Argument(help="Name of the pool.")],
    file: Annotated[Path, typer.Argument(help="Ends in .parquet, .csv or .jsonl.")],
    run: Annotated[str | None, typer.Option(help="Add what this run knows of each prompt.")] = None,
    server: ServerUrl = None,
) -> None:
    """Write all prompts of a pool to a file, which can be imported again."""
    with _asking(server) as client:
        typer.echo(f"export  {client.export_prompts(pool, file, run=run)}")


def audit(run: RunName, server: ServerUrl = None) -> None:
    """Show what selection did to a run's data: three streams, the claim, the verdict."""
    from trainer.reading import audit_command

    with _asking(server) as client:
        audit_command(client, run)


def report(
    run: RunName,
    format: Annotated[ReportFormat, typer.Option(help="Markdown, JSON, or a page with pictures.")] = ReportFormat.MD,
    out: Annotated[Path | None, typer.Option(help="File to write; by default standard output.")] = None,
    server: ServerUrl = None,
) -> None:
    """Write the report on a run: what was selected, what it cost, whether to believe it."""
    from trainer.reading import report_command

    with _asking(server) as client:
        report_command(client, run, format=format.value, out=out)


def compare(
    arms: Annotated[
        list[str], typer.Argument(help="run,run,... or name=run,run,...: one configuration, all its seeds.")
    ],
    target: Annotated[float, typer.Option(min=0, max=1, help="Held-out pass rate that has to be reached.")],
    control: Annotated[list[str] | None, typer.Option(help="name=run,run,...: equal-work runs beside one.")] = None,
    unit: Annotated[str, typer.Option(help="tokens, rollouts, accelerator_s or energy_j.")] = "tokens",
    server: ServerUrl = None,
) -> None:
    """Compare configurations over seeds: what a quality cost, what the same cost bought. The first is the baseline."""
    from trainer.reading import compare_command

    with _asking(server) as client:
        compare_command(client, arms, target=target, controls=control or (), unit=unit)


def probe(
    run: Annotated[str, typer.Option(help="Name of the run whose prompts are probed.")],
    engine: EngineName = "torch",
    model: ModelName = None,
    url: EngineUrl = None,
    grader: GraderName = "exact",
    budget_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens to generate; by default no bound.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Prompts at a time.")] = 64,
    group_size: Annotated[int | None, typer.Option(min=2, help="Most rollouts of a prompt; the run's.")] = None,
    max_new_tokens: MaxNewTokens = 256,
    temperature: Temperature = 1.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    policy_version: Annotated[int | None, typer.Option(min=0, help="Of weights that do not change.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests to a server at a time.")] = 16,
    on_ray: Annotated[bool, typer.Option("--ray", help="With workers on a Ray cluster, an engine in each.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="How many of them; 1.")] = None,
    server: ServerUrl = None,
) -> None:
    """Spend a few rollouts on prompts that a run knows too little about; several may work at once."""
    from trainer.probing.command import probe_command
    from trainer.probing.engines import EngineSettings

    settings = EngineSettings(
        engine=engine,
        model=model,
        url=url,
        grader=grader,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        policy_version=policy_version,
        concurrency=concurrency,
        workers=(workers or 1) if on_ray else None,
    )
    if workers is not None and not on_ray:
        fail("--workers is for --ray: without it there is one engine, in this process")
    try:
        with _asking(server) as client:
            probe_command(
                client, run, settings, budget_tokens=budget_tokens, batch_size=batch_size, group_size=group_size
            )
    except KeyboardInterrupt:
        fail("stopped; prompts that were under way are free again, and all that was reported counts")


@contextmanager
def _asking(server: str | None) -> Iterator["Client"]:
    """A running service, to be asked about runs that it has; what it refuses ends the command."""
    from trainer.client import DEFAULT_URL, Client
    from trainer.errors import MidbandError

    try:
        with Client(server or DEFAULT_URL, patience_s=PATIENCE_S) as client:
            yield client
    except MidbandError as error:
        fail(str(error))


def fail(message: str) -> NoReturn:
    """Says what is wrong and ends with status 1."""
    print(f"midband: {message}", file=sys.stderr)  # noqa: T201
    raise typer.Exit(1)
