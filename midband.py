"""The public door: what a user imports, and the `midband` command.

A training script imports this module, and the installed command calls `main`. It alone may see both sides, the service
(`api`) and the trainer's side (`trainer`). It knows no rule of selection and no HTTP: it hands on.

Our packages carry plain names, so another project's folder may hide them. That is refused here, at the first import,
instead of failing later as a puzzling missing attribute.
"""

import importlib.util
from importlib import metadata
from pathlib import Path

import typer

__all__ = ["main"]

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

app = typer.Typer(
    name="midband",
    help="Choose the prompts a reinforcement-learning trainer should roll out next.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _root() -> None:
    """Keeps `midband version` a subcommand while it is the only one."""


@app.command()
def version() -> None:
    """Print the installed version."""
    typer.echo(metadata.version("midband"))


def main() -> None:
    """Run the `midband` command with the process's own arguments."""
    app()
