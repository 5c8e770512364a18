"""Commands of whoever operates the service: start it, show where it runs, keys, examine and copy its database.

The `midband` module gives them their names on the command line. Heavy imports wait until a command is carried out, so
that `midband --help` stays quick. They ask no running service; commands that do are the trainer's.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from api.settings import Settings

DatabaseUrl = Annotated[str | None, typer.Option(help="SQLite or PostgreSQL; MIDBAND_DATABASE_URL.")]


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


def show_ray() -> None:
    """Show where things run on a Ray cluster: nodes, edge, runs, workers of probers with their devices."""
    from api.cluster.command import where_things_run
    from api.errors import StartRefused

    try:
        lines = where_things_run()
    except StartRefused as error:
        _fail(str(error))
    typer.echo("\n".join(lines))


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


def list_keys(database_url: DatabaseUrl = None) -> None:
    """Show every key by its prefix: what it may do, until when, whether it was revoked."""
    from api.errors import ServiceError
    from api.key_commands import table

    try:
        lines = table(_settings(database_url=database_url))
    except ServiceError as error:
        _fail(str(error))
    typer.echo("\n".join(lines))


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
