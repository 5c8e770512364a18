"""What the documents say is so: examples run, links lead somewhere, targets and settings exist."""

import ast
import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

from api.settings import Settings
from tests.architecture.fresh import OUR_PACKAGES, ROOT, run

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s#]+)(?:#[^)]*)?\)")
MAKE = re.compile(r"(?:`|^\$ |^)make (?P<target>[a-z][a-z-]*)", re.MULTILINE)
SETTING = re.compile(r"\bMIDBAND_[A-Z][A-Z_]*[A-Z]\b")
HEAVY = {"accelerate", "ray", "torch", "transformers", "trl", "verl", "vllm"}


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def modules() -> list[str]:
    """Every module of ours by dotted name, the `midband` module among them."""
    names = ["midband"]
    for package in OUR_PACKAGES:
        names.append(package)
        names += [found.name for found in pkgutil.walk_packages([str(ROOT / package)], prefix=f"{package}.")]
    return names


def service_settings() -> set[str]:
    """The service's settings as environment variables."""
    prefix = Settings.model_config.get("env_prefix", "")
    return {f"{prefix}{name}".upper() for name in Settings.model_fields}


def variables_in_code() -> set[str]:
    """Variables that the other parts, or the tests, read by their full name."""
    folders = (*OUR_PACKAGES, "tests")
    files = [ROOT / "midband.py", *(path for folder in folders for path in (ROOT / folder).rglob("*.py"))]
    return {name for path in files for name in SETTING.findall(path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_relative_links_lead_to_files(path: Path) -> None:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    targets = [found["target"] for found in LINK.finditer(text)]
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    assert [target for target in local if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_every_make_target_named_in_a_page_exists(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    exist = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    named = {found["target"] for found in MAKE.finditer(path.read_text(encoding="utf-8"))}
    assert named <= exist


def test_the_readme_names_the_targets_a_newcomer_needs() -> None:
    named = {found["target"] for found in MAKE.finditer((ROOT / "README.md").read_text(encoding="utf-8"))}
    assert {"demo", "test"} <= named


def test_every_setting_of_the_service_is_documented() -> None:
    documented = set(SETTING.findall((ROOT / "docs" / "settings.md").read_text(encoding="utf-8")))
    assert service_settings() - documented == set()


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_every_variable_named_in_a_page_exists(path: Path) -> None:
    named = set(SETTING.findall(path.read_text(encoding="utf-8")))
    assert named - service_settings() - variables_in_code() == set()


@pytest.mark.parametrize("path", [path for path in PAGES if ">>>" in path.read_text(encoding="utf-8")], ids=page_id)
def test_the_examples_in_a_page_run(path: Path, tmp_path: Path) -> None:
    code = (
        "import doctest\n"
        f"done = doctest.testfile({str(path)!r}, module_relative=False, optionflags=doctest.ELLIPSIS)\n"
        "sys.exit(done.failed)"
    )
    done = run(code, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_has_an_example_that_runs() -> None:
    assert ">>>" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", modules())
def test_the_examples_in_a_module_run(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name in HEAVY:
            pytest.skip(f"{name} needs {error.name}, which is not installed")
        raise
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


@pytest.mark.parametrize("name", modules())
def test_every_module_says_what_it_is(name: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    assert ast.get_docstring(tree) or not tree.body
