"""Prints `name==version` for each lower bound of [project.dependencies], as a constraints file for pip.

`make test-lowest` runs it. Arguments name extras whose bounds are wanted too. Standard library only: it runs before
anything is installed. A requirement that has no lower bound is refused, since then nothing says what was tested.
"""

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?(?P<bounds>.*)$")
LOWER_BOUND = re.compile(r">=\s*(?P<version>[0-9][0-9A-Za-z.]*)")


def lower_bound(requirement: str) -> str:
    """`name==version` for one requirement with a `>=`. Raises ValueError, naming it, if it has none.

    >>> lower_bound("psycopg[binary]>=3.2.4,<4")
    'psycopg==3.2.4'
    """
    parts = REQUIREMENT.match(requirement.strip())
    bound = LOWER_BOUND.search(parts["bounds"]) if parts else None
    if parts is None or bound is None:
        raise ValueError(f"{requirement!r} in {PYPROJECT.name} has no lower bound: write one, as in 'numpy>=2.1'")
    return f"{parts['name']}=={bound['version']}"


def constraints(extras: list[str]) -> list[str]:
    """One constraint a requirement, of the base first and then of each named extra."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return [lower_bound(requirement) for requirement in wanted]


if __name__ == "__main__":
    sys.stdout.write("\n".join(constraints(sys.argv[1:])) + "\n")
