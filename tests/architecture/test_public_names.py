"""What each package and the `midband` module offer by name, compared with what they hold."""

import importlib
import types

import pytest

import midband
from tests.architecture.fresh import OUR_PACKAGES


def ours(value: object) -> bool:
    """Whether a class or function was defined in one of our packages."""
    return str(getattr(value, "__module__", "")).partition(".")[0] in OUR_PACKAGES


def test_every_name_that_midband_re_exports_is_in_its_list() -> None:
    held = {name for name, value in vars(midband).items() if not name.startswith("_") and ours(value)}
    assert held <= set(midband.__all__)
    assert "main" in midband.__all__


@pytest.mark.parametrize("name", ["midband", *OUR_PACKAGES])
def test_every_listed_name_exists_and_is_listed_once(name: str) -> None:
    module = importlib.import_module(name)
    listed = list(getattr(module, "__all__", []))
    assert [entry for entry in listed if not hasattr(module, entry)] == []
    assert len(set(listed)) == len(listed)


@pytest.mark.parametrize("name", OUR_PACKAGES)
def test_a_package_lists_what_it_imports_for_others(name: str) -> None:
    package = importlib.import_module(name)
    held = {
        entry
        for entry, value in vars(package).items()
        if not entry.startswith("_") and not isinstance(value, types.ModuleType) and ours(value)
    }
    assert held <= set(getattr(package, "__all__", []))
