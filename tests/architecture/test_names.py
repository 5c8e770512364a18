"""What pages, docstrings and comments name is there: files by their paths, modules and what they hold by their names.

A module's docstring may call modules of its own folder, and those at the top of its package, by their bare names; one
of another folder is named with it, as in `batches.drawing`.
"""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

from tests.architecture.fresh import OUR_PACKAGES, ROOT

FOLDERS = (*OUR_PACKAGES, "migrations", "tests")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
# Not the changelog: it tells of what was.
PAGES = [path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")) if path.name != "CHANGELOG.md"]
SUFFIXES = "json|md|png|py|safetensors|sh|toml"
PATH = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)}|docs)/[\w./-]*\w\.(?:{SUFFIXES})\b")
FULL_NAME = re.compile(rf"`(?:python -m )?((?:{'|'.join((*OUR_PACKAGES, 'tests'))})(?:\.\w+)+)")
IN_TICKS = re.compile(r"`([a-z_]+(?:\.[a-z_]+)*)`")
DOCSTRING = re.compile(r'\A""".*?"""', re.DOTALL)
NO_NAMES = {"tests.benchmarks.NAME", "trainer.train"}  # stands for one; a call on TRL's own object


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted(path): path for path in FILES}
FOLDERS_OF_MODULES = {name for name, path in MODULES.items() if path.name == "__init__.py"}


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def docstring_of(path: Path) -> str:
    found = DOCSTRING.search(text_of(path))
    return "" if found is None else found[0]


@cache
def names_in(module: str) -> set[str]:
    """What a module defines or imports at its top."""
    found = set[str]()
    for node in ast.parse(text_of(MODULES[module])).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        else:
            found |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    return found


def is_there(name: str) -> bool:
    """Whether a module, or what is at the top of one, has this full name."""
    parts = name.split(".")
    known = max(count for count in range(1, len(parts) + 1) if ".".join(parts[:count]) in MODULES)
    return known == len(parts) or parts[known] in names_in(".".join(parts[:known]))


def named(pattern: re.Pattern[str]) -> set[tuple[str, str]]:
    """Where, and what."""
    texts = ((str(path.relative_to(ROOT)), text_of(path)) for path in (*PAGES, *FILES))
    return {(where, name) for where, text in texts for name in pattern.findall(text)}


def test_every_file_that_is_named_exists() -> None:
    found = named(PATH)
    assert len(found) > 20
    assert sorted((where, name) for where, name in found if not (ROOT / name).exists()) == []


def test_the_folders_of_the_selector_are_listed_as_they_may_import_each_other() -> None:
    listed = re.findall(r"^\| `(\w+)/` \|", text_of(ROOT / "CONTRIBUTING.md"), re.MULTILINE)
    contracts = tomllib.loads(text_of(ROOT / "pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["selector"])
    folders = [name for layer in layers for name in layer.split(" : ") if f"selector.{name}" in FOLDERS_OF_MODULES]
    assert listed == folders
    assert {f"selector.{name}" for name in folders} == {n for n in FOLDERS_OF_MODULES if n.startswith("selector.")}


def test_every_full_name_is_of_something() -> None:
    found = named(FULL_NAME)
    assert len(found) > 100
    assert sorted((where, name) for where, name in found if not (name in NO_NAMES or is_there(name))) == []


def test_a_module_of_another_folder_is_named_with_its_folder() -> None:
    unclear = []
    for module, path in MODULES.items():
        package, folder = module.split(".")[0], dotted(path.parent / "__init__.py")
        for name in IN_TICKS.findall(docstring_of(path)) if package in OUR_PACKAGES else ():
            first = name.split(".")[0]
            if first in (*FOLDERS, "midband") or any(f"{base}.{name}" in MODULES for base in (folder, package)):
                continue
            elsewhere = [other for other in MODULES if other.startswith(f"{package}.") and other.endswith(f".{name}")]
            in_a_folder = name != first and (ROOT / package / first).is_dir() and not is_there(f"{package}.{name}")
            if (elsewhere and name not in names_in(module)) or in_a_folder:
                unclear.append((module, name, elsewhere))
    assert unclear == []
