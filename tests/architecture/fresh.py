"""Runs a snippet in a Python process of its own, for questions that only a fresh process can answer."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUR_PACKAGES = ("api", "predictors", "selector", "trainer")


def run(code: str, *, cwd: Path = ROOT, path: tuple[Path, ...] = (ROOT,)) -> subprocess.CompletedProcess[str]:
    """Runs `code` with `path` at the front of sys.path; neither the folder nor the environment adds anything to it."""
    front = [str(folder) for folder in path]
    return subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {front!r}\n{code}"],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def packages_loaded_by(statement: str) -> set[str]:
    """Top-level names of all modules in memory after `statement` ran in a fresh process."""
    done = run(
        f"{statement}\nimport json\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))
