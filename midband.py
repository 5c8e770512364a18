"""The public door: what a user imports, and the `midband` command.

A training script imports this module, and the installed command calls `main`. It alone may see both sides, the service
(`api`) and the trainer's side (`trainer`): commands of one side are in `api.operator_commands` and
`trainer.asking_commands`, those that need both are here. It knows no rule of selection and no HTTP: it hands on.

Our packages carry plain names, so another project's folder may hide them. That is refused here, at the first import,
instead of failing later as a puzzling missing attribute.
"""

import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from trainer.async_client import AsyncClient
    from trainer.client import Client
    from trainer.reports import group

__all__ = ["AsyncClient", "Client", "group", "in_process", "main"]

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

# After the check: they are ours.
from api import operator_commands  # noqa: E402
from trainer import asking_commands  # noqa: E402
from trainer.probing import flags  # noqa: E402

OutDir = Annotated[Path, typer.Option(help="Folder for the pictures and figures; made if missing.")]


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


def version() -> None:
    """Print the installed version."""
    typer.echo(metadata.version("midband"))


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
        asking_commands.fail(str(error))


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
        asking_commands.fail("stopped; the same command goes on from the last checkpoint")
    except MidbandError as error:
        asking_commands.fail(str(error))


def profile(
    pool: Annotated[str, typer.Argument(help="Name of the pool.")],
    engine: flags.EngineName = "torch",
    model: flags.ModelName = None,
    url: flags.EngineUrl = None,
    grader: flags.GraderName = "exact",
    file: Annotated[Path | None, typer.Option(help="Prompts to import first.")] = None,
    run: Annotated[
        str | None, typer.Option(help="Run that remembers; by default the pool's name and -profile.")
    ] = None,
    group_size: Annotated[int, typer.Option(min=2, help="Rollouts of each prompt.")] = 8,
    prompts: Annotated[int | None, typer.Option(min=1, help="So many, drawn evenly; by default all.")] = None,
    max_new_tokens: flags.MaxNewTokens = 256,
    temperature: flags.Temperature = 1.0,
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
        asking_commands.fail("stopped; the same command goes on with the prompts that are left")
    except MidbandError as error:
        asking_commands.fail(str(error))


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
        asking_commands.fail(kept(out_dir))
    except (MidbandError, StartRefused) as error:
        asking_commands.fail(str(error))


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


app = typer.Typer(
    name="midband",
    help="Choose the prompts a reinforcement-learning trainer should roll out next.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
keys = typer.Typer(help="Keys of the service: without any, it listens on its own machine only.", no_args_is_help=True)
app.add_typer(keys, name="key")

# In the order in which help lists them.
app.command()(version)
app.command()(operator_commands.serve)
app.command("ray")(operator_commands.show_ray)
app.command()(operator_commands.doctor)
app.command()(operator_commands.backup)
app.command("import")(asking_commands.import_prompts)
app.command()(asking_commands.export)
app.command()(asking_commands.audit)
app.command()(asking_commands.report)
app.command()(asking_commands.compare)
app.command()(replay)
app.command()(train)
app.command()(asking_commands.probe)
app.command()(profile)
app.command()(demo)
keys.command("create")(operator_commands.create_key)
keys.command("list")(operator_commands.list_keys)
keys.command("revoke")(operator_commands.revoke_key)


def main() -> None:
    """Run the `midband` command with the process's own arguments."""
    app()


if __name__ == "__main__":
    main()
