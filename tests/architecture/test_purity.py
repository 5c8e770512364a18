"""The core reads no clock, draws from no generator but those handed to it, and does no I/O.

The import contracts stop whole libraries; these look for single calls. A past draw can be redrawn by an auditor only
because of them.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.fresh import ROOT

PURE_PACKAGES = ("predictors", "selector")
FORBIDDEN_MODULES = {
    "asyncio", "logging", "os", "pathlib", "pickle", "random", "secrets", "shutil", "socket", "subprocess",
    "sys", "tempfile", "threading", "time", "uuid",
}  # fmt: skip
FORBIDDEN_BUILTINS = {"eval", "exec", "input", "open", "print"}
CLOCKS = {"now", "today", "utcnow"}
# All of numpy.random that does not touch the hidden global generator.
GENERATORS = {"BitGenerator", "Generator", "PCG64", "PCG64DXSM", "Philox", "SFC64", "SeedSequence", "default_rng"}


def impurities(source: str) -> Iterator[str]:
    """One line for each thing in `source` that the core must not do."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                for name in names:
                    if name.name.partition(".")[0] in FORBIDDEN_MODULES:
                        yield f"line {node.lineno}: import {name.name}"
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in FORBIDDEN_MODULES:
                yield f"line {node.lineno}: from {module} import"
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_BUILTINS:
                yield f"line {node.lineno}: {name}()"
            case ast.Call(func=ast.Attribute(attr=name)) if name in CLOCKS:
                yield f"line {node.lineno}: .{name}() reads a clock"
            case ast.Call(func=ast.Attribute(attr="default_rng") | ast.Name(id="default_rng"), args=[], keywords=[]):
                yield f"line {node.lineno}: default_rng() without a seed"
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"), attr=name):
                if name not in GENERATORS:
                    yield f"line {node.lineno}: np.random.{name} uses the global generator"


def core_files() -> list[Path]:
    return sorted(path for package in PURE_PACKAGES for path in (ROOT / package).rglob("*.py"))


def test_there_is_a_core_to_look_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in core_files()} == set(PURE_PACKAGES)


@pytest.mark.parametrize("path", core_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_core_file_is_pure(path: Path) -> None:
    assert list(impurities(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "from os import environ",
        "import os.path",
        "x = open('f')",
        "print(1)",
        "t = datetime.now(UTC)",
        "rng = np.random.default_rng()",
        "x = np.random.rand(3)",
        "np.random.seed(1)",
    ],
)
def test_the_check_sees_an_impure_line(line: str) -> None:
    assert len(list(impurities(line))) == 1


@pytest.mark.parametrize(
    "line",
    ["rng = np.random.Generator(np.random.Philox(key=1))", "def open_tickets(): ...", "from datetime import datetime"],
)
def test_the_check_lets_a_pure_line_pass(line: str) -> None:
    assert list(impurities(line)) == []
