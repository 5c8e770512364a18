"""The public door: what a user imports, and the `midband` command.

A training script imports this module, and the installed command calls `main`. It alone may see both sides, the service
(`api`) and the trainer's side (`trainer`). It knows no rule of selection and no HTTP: it hands on.

Our packages carry plain names, so another project's folder may hide them. That is refused here, at the first import,
instead of failing later as a puzzling missing attribute.
"""

import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from api.settings import Settings
    from trainer.async_client import AsyncClient
    from trainer.client import Client
    from trainer.reports import group

__all__ = ["AsyncClient", "Client", "group", "in_process", "main"]

ASKING_PATIENCE_S = 5.0  # of a person who asks a service that may not be there
OUR_PACKAGES = ("api", "predictors", "selector", "trainer")


def _refuse_shadowed_packages() -> None:
    """Raises ImportError, naming both paths, if one of our packages would come from anywhere but beside this module."""
    home = Path(__file__).resolve().parent
    for name in OUR_PACKAGES:
        ours = home / name
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ImportError(f"midband needs its package {name!r} at {ours}, and Python finds none: reinstall midband")
        # A folder without __init__.py has no origin, only the places it was found in.
        found = Path(spec.origin).parent if spec.origin else Path(next(iter(spec.submodule_search_locations or ["?"])))
        if found.resolve() != ours:
            raise ImportError(
                f"midband needs its package {name!r} from {ours}, but Python finds another one at {found}: "
                f"rename that package, or take {found.parent} off sys.path (PYTHONPATH and the folder of the script "
                "that was started stand first on it)"
            )


_refuse_shadowed_packages()


def __getattr__(name: str) -> object:
    """Imports the public names when they are first asked for, so that `midband version` stays quick."""
    if name == "Client":
        from trainer.client import Client

        return Client
    if name == "AsyncClient":
        from trainer.async_client import AsyncClient

        return AsyncClient
    if name == "group":
        from trainer.reports import group

        return group
    raise AttributeError(f"module 'midband' has no attribute {name!r}; it has {', '.join(__all__)}")


@contextmanager
def in_process(database_url: str | None = None) -> Iterator["Client"]:
    """A client of a service inside this process: the real one, without a port.

    By default its database is a file in a temporary folder, gone when the block ends; give a `database_url` to keep it.
    """
    from api.app import create_app
    from api.settings import Settings
    from trainer.client import Client
    from trainer.transport import InProcessTransport

    with tempfile.TemporaryDirectory(prefix="midband-") as folder:
        settings = Settings(database_url=database_url or f"sqlite:///{folder}/midband.db")
        with Client("http://in-process", transport=InProcessTransport(create_app(settings))) as client:
            yield client


app = typer.Typer(
    name="midband",
    help="Choose the prompts a reinforcement-learning trainer should roll out next.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

keys = typer.Typer(help="Keys of the service: without any, it listens on its own machine only.", no_args_is_help=True)
app.add_typer(keys, name="key")

DatabaseUrl = Annotated[str | None, typer.Option(help="SQLite or PostgreSQL; MIDBAND_DATABASE_URL.")]
RunName = Annotated[str, typer.Argument(help="Name of the run.")]
ServerUrl = Annotated[str | None, typer.Option(help="URL of the service; by default this machine's.")]
OutDir = Annotated[Path, typer.Option(help="Folder for the pictures and figures; made if missing.")]
EngineName = Annotated[str, typer.Option(help="torch in this process, or openai: any server of that interface.")]
ModelName = Annotated[
    str | None, typer.Option(help="Folder of a model or of checkpoints, or a server's name for it; the small learner.")
]
EngineUrl = Annotated[str | None, typer.Option(help="Of the engine's server, as http://127.0.0.1:8000/v1.")]
GraderName = Annotated[
    str, typer.Option(help="exact, numeric, choice, math, reasoning-gym, module:function or trl:module:function.")
]
MaxNewTokens = Annotated[int, typer.Option(min=1, help="Longest answer.")]
Temperature = Annotated[float, typer.Option(min=0.01, help="Of sampling.")]


class ReportFormat(StrEnum):
    """Forms that a report comes in."""

    MD = "md"
    JSON = "json"
    HTML = "html"


class SplitName(StrEnum):
    """Splits of a pool."""

    TRAIN = "train"
    HELDOUT = "heldout"


@app.command()
def version() -> None:
    """Print the installed version."""
    typer.echo(metadata.version("midband"))


@app.command()
def serve(
    database_url: DatabaseUrl = None,
    host: Annotated[str | None, typer.Option(help="Without keys a loopback address only; MIDBAND_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="0 for any free one; MIDBAND_PORT.")] = None,
    advertise: Annotated[
        str | None, typer.Option(help="URL by which callers reach it, for others on its database; MIDBAND_ADVERTISE.")
    ] = None,
    on_ray: Annotated[
        bool, typer.Option("--ray", help="On a Ray cluster, with PostgreSQL: a process for each run.")
    ] = False,
    replicas: Annotated[int | None, typer.Option(min=1, help="Of the edge that speaks HTTP, with --ray; 1.")] = None,
) -> None:
    """Start the service: one process and one database on this machine, or a Ray cluster on PostgreSQL."""
    from api.cluster.command import serve_on_ray
    from api.errors import StartRefused
    from api.serve import serve as run_server

    settings = _settings(database_url=database_url, host=host, port=port, advertise=advertise)
    if replicas is not None and not on_ray:
        _fail("--replicas is for --ray: without it the service is one process")
    try:
        if on_ray:
            serve_on_ray(settings, replicas=replicas or 1)
        else:
            run_server(settings)
    except StartRefused as error:
        _fail(str(error))


@app.command("ray")
def show_ray() -> None:
    """Show where things run on a Ray cluster: nodes, edge, runs, workers of probers with their devices."""
    from api.cluster.command import where_things_run
    from api.errors import StartRefused

    try:
        lines = where_things_run()
    except StartRefused as error:
        _fail(str(error))
    typer.echo("\n".join(lines))


@keys.command("create")
def create_key(
    name: Annotated[str | None, typer.Option(help="What it is for, shown in the list.")] = None,
    scope: Annotated[
        list[str] | None, typer.Option(help="Of read, draw, report, manage; by default all of them.")
    ] = None,
    pool: Annotated[list[str] | None, typer.Option(help="Bind it to this pool; repeat it.")] = None,
    run: Annotated[list[str] | None, typer.Option(help="Bind it to this run; repeat it.")] = None,
    days: Annotated[float | None, typer.Option(help="When it expires; by default never.")] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a key and print it, this once. A server may be running."""
    from api.errors import ServiceError
    from api.key_commands import create

    try:
        key, said = create(
            _settings(database_url=database_url),
            name=name,
            scopes=scope or (),
            pools=pool or (),
            runs=run or (),
            days=days,
        )
    except ServiceError as error:
        _fail(str(error))
    typer.echo(said, err=True)
    typer.echo(key)


@keys.command("list")
def list_keys(database_url: DatabaseUrl = None) -> None:
    """Show every key by its prefix: what it may do, until when, whether it was revoked."""
    from api.errors import ServiceError
    from api.key_commands import table

    try:
        lines = table(_settings(database_url=database_url))
    except ServiceError as error:
        _fail(str(error))
    typer.echo("\n".join(lines))


@keys.command("revoke")
def revoke_key(
    prefix: Annotated[str, typer.Argument(help="As the list shows it: mb_ and ten more characters.")],
    database_url: DatabaseUrl = None,
) -> None:
    """End a key for good, also for a running server."""
    from api.errors import ServiceError
    from api.key_commands import revoke

    try:
        said = revoke(_settings(database_url=database_url), prefix)
    except ServiceError as error:
        _fail(str(error))
    typer.echo(said)


@app.command()
def doctor(
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make anew what the logs allow, if anything.")] = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Check the database: tables, pools, each run's log against its snapshots; say what to do. Status 1 if anything is
    wrong."""
    from api import doctor as doctors
    from api.errors import ServiceError

    settings = _settings(database_url=database_url)
    try:
        findings = doctors.examine(settings)
        typer.echo("\n".join(findings.lines))
        if rebuild and findings.rebuildable:
            typer.echo("\n".join(doctors.rebuild(settings, findings)))
            findings = doctors.examine(settings)
            typer.echo("\n".join(findings.lines))
        elif rebuild:
            typer.echo("nothing to rebuild")
    except ServiceError as error:
        _fail(str(error))
    if not findings.healthy:
        raise typer.Exit(1)


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="Where the copy goes; it must not exist.")],
    database_url: DatabaseUrl = None,
) -> None:
    """Copy a SQLite database to a file, also while a server has it open."""
    from api.doctor import backup as copy_database
    from api.errors import ServiceError

    try:
        typer.echo(copy_database(_settings(database_url=database_url), file))
    except ServiceError as error:
        _fail(str(error))


@app.command("import")
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
        _fail(f"--layout {layout}: known are {', '.join(Layout)}")
    chosen = None if layout is None else Layout(layout)
    with _asking(server) as client:
        done = import_command(
            client, pool, path, layout=chosen, split=None if split is None else split.value, replace=replace
        )
    if done.received and done.rejected == done.received:
        _fail("every row was rejected")


@app.command()
def export(
    pool: Annotated[str, typer.Argument(help="Name of the pool.")],
    file: Annotated[Path, typer.Argument(help="Ends in .parquet, .csv or .jsonl.")],
    run: Annotated[str | None, typer.Option(help="Add what this run knows of each prompt.")] = None,
    server: ServerUrl = None,
) -> None:
    """Write all prompts of a pool to a file, which can be imported again."""
    with _asking(server) as client:
        typer.echo(f"export  {client.export_prompts(pool, file, run=run)}")


@app.command()
def audit(run: RunName, server: ServerUrl = None) -> None:
    """Show what selection did to a run's data: three streams, the claim, the verdict."""
    from trainer.reading import audit_command

    with _asking(server) as client:
        audit_command(client, run)


@app.command()
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


@app.command()
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


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="Recorded outcomes, JSONL: successes per visit, or p per time point.")],
    policy: Annotated[list[str] | None, typer.Option(help="A preset, or preset:power=2,floor=0.2. Repeat it.")] = None,
    out_dir: OutDir = Path("midband-replay"),
    batch_size: Annotated[int, typer.Option(min=1, help="Groups in a round.")] = 256,
    group_size: Annotated[int | None, typer.Option(min=1, help="Rollouts in a group; by default the record's.")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    server: Annotated[str | None, typer.Option(help="URL of a service; by default one inside this process.")] = None,
) -> None:
    """Compare policies on recorded outcomes: table, picture, figures."""
    from trainer.errors import MidbandError
    from trainer.replay.command import run_command

    try:
        with _client(server) as client:
            run_command(
                client,
                file,
                policy or ["uniform", "midband"],
                out_dir,
                batch_size=batch_size,
                group_size=group_size,
                seed=seed,
            )
    except MidbandError as error:
        _fail(str(error))


@app.command()
def train(
    file: Annotated[Path, typer.Argument(help="TOML: pool, run, model, loss, optimizer, stop. See docs/training.md.")],
) -> None:
    """Train a model with GRPO on selected prompts; the same command again goes on where it stopped."""
    from trainer.errors import MidbandError
    from trainer.training.command import run_command
    from trainer.training.config import TrainConfig

    try:
        config = TrainConfig.load(file)
        config.output.mkdir(parents=True, exist_ok=True)
        with _client(config.server, database_url=f"sqlite:///{config.output.resolve() / 'midband.db'}") as client:
            run_command(config, client)
    except KeyboardInterrupt:
        _fail("stopped; the same command goes on from the last checkpoint")
    except MidbandError as error:
        _fail(str(error))


@app.command()
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
        _fail("--workers is for --ray: without it there is one engine, in this process")
    try:
        with _asking(server) as client:
            probe_command(
                client, run, settings, budget_tokens=budget_tokens, batch_size=batch_size, group_size=group_size
            )
    except KeyboardInterrupt:
        _fail("stopped; prompts that were under way are free again, and all that was reported counts")


@app.command()
def profile(
    pool: Annotated[str, typer.Argument(help="Name of the pool.")],
    engine: EngineName = "torch",
    model: ModelName = None,
    url: EngineUrl = None,
    grader: GraderName = "exact",
    file: Annotated[Path | None, typer.Option(help="Prompts to import first.")] = None,
    run: Annotated[
        str | None, typer.Option(help="Run that remembers; by default the pool's name and -profile.")
    ] = None,
    group_size: Annotated[int, typer.Option(min=2, help="Rollouts of each prompt.")] = 8,
    prompts: Annotated[int | None, typer.Option(min=1, help="So many, drawn evenly; by default all.")] = None,
    max_new_tokens: MaxNewTokens = 256,
    temperature: Temperature = 1.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests to a server at a time.")] = 16,
    out_dir: OutDir = Path("midband-profile"),
    server: Annotated[str | None, typer.Option(help="URL of a service; by default one in this process.")] = None,
) -> None:
    """Probe a whole pool once before training: how hard it is, what groups would teach, what an epoch would cost."""
    from trainer.errors import MidbandError
    from trainer.probing.command import profile_command
    from trainer.probing.engines import EngineSettings

    settings = EngineSettings(
        engine=engine,
        model=model,
        url=url,
        grader=grader,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        concurrency=concurrency,
    )
    out_dir.mkdir(parents=True, exist_ok=True)
    try:
        with _client(server, database_url=f"sqlite:///{out_dir.resolve() / 'midband.db'}") as client:
            profile_command(client, pool, settings, out_dir, run=run, file=file, group_size=group_size, prompts=prompts)
    except KeyboardInterrupt:
        _fail("stopped; the same command goes on with the prompts that are left")
    except MidbandError as error:
        _fail(str(error))


@app.command()
def demo(
    out_dir: OutDir = Path("midband-demo"),
    seed: Annotated[int, typer.Option(min=0, help="Of draws, rollouts and updates; the puzzles stay the same.")] = 0,
) -> None:
    """Train a small model on uniform draws and on midband's, side by side; the same command again goes on."""
    from api.errors import StartRefused
    from api.serve import serving
    from api.settings import Settings
    from trainer.client import Client
    from trainer.demo.command import DATABASE_FILE, kept, run_demo
    from trainer.errors import MidbandError

    settings = Settings(database_url=f"sqlite:///{out_dir.resolve() / DATABASE_FILE}", port=0, log_level="warning")
    called = sys.argv[0] if Path(sys.argv[0]).name == "midband" else "midband"
    try:
        with serving(settings) as url, Client(url) as client:
            run_demo(client, url, out_dir, seed=seed, program=called)
    except KeyboardInterrupt:
        _fail(kept(out_dir))
    except (MidbandError, StartRefused) as error:
        _fail(str(error))


@contextmanager
def _asking(server: str | None) -> Iterator["Client"]:
    """A running service, to be asked about runs that it has; what it refuses ends the command."""
    from trainer.client import DEFAULT_URL, Client
    from trainer.errors import MidbandError

    try:
        with Client(server or DEFAULT_URL, patience_s=ASKING_PATIENCE_S) as client:
            yield client
    except MidbandError as error:
        _fail(str(error))


@contextmanager
def _client(server: str | None, *, database_url: str | None = None) -> Iterator["Client"]:
    """The service at this URL, with the key in MIDBAND_KEY if there is one; without one, a service in this process."""
    if server is None:
        with in_process(database_url) as client:
            yield client
        return
    from trainer.client import Client

    with Client(server) as client:
        yield client


def _settings(**flags: object) -> "Settings":
    """The service's settings; a flag that was given overrides the environment."""
    from pydantic import ValidationError

    from api.settings import Settings

    try:
        return Settings.model_validate({name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        _fail("; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)))


def _fail(message: str) -> NoReturn:
    """Says what is wrong and ends with status 1."""
    print(f"midband: {message}", file=sys.stderr)  # noqa: T201
    raise typer.Exit(1)


def main() -> None:
    """Run the `midband` command with the process's own arguments."""
    app()
