"""Our packages have plain names: another project's folder that hides one of them is refused, with both paths named."""

from pathlib import Path

import pytest

from tests.architecture.fresh import OUR_PACKAGES, ROOT, run


@pytest.mark.parametrize("name", OUR_PACKAGES)
def test_a_foreign_package_in_front_of_ours_is_refused(name: str, tmp_path: Path) -> None:
    foreign = tmp_path / name
    foreign.mkdir()
    (foreign / "__init__.py").write_text("", encoding="utf-8")
    done = run("import midband", path=(tmp_path, ROOT))
    assert done.returncode != 0
    assert "ImportError" in done.stderr
    assert str(foreign) in done.stderr
    assert str(ROOT / name) in done.stderr


def test_a_foreign_module_in_front_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text("", encoding="utf-8")
    done = run("import midband", path=(tmp_path, ROOT))
    assert "ImportError" in done.stderr
    assert str(tmp_path) in done.stderr


def test_a_foreign_package_that_is_already_loaded_is_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "trainer"
    foreign.mkdir()
    (foreign / "__init__.py").write_text("", encoding="utf-8")
    code = f"sys.path.insert(0, {str(tmp_path)!r}); import trainer; sys.path.pop(0); import midband"
    done = run(code)
    assert "ImportError" in done.stderr
    assert str(foreign) in done.stderr


def test_a_plain_folder_of_the_same_name_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    done = run("import midband", path=(tmp_path, ROOT))
    assert done.returncode == 0, done.stderr


def test_the_script_that_imports_midband_may_live_anywhere(tmp_path: Path) -> None:
    done = run("import midband; print(midband.__file__)", cwd=tmp_path)
    assert Path(done.stdout.strip()) == ROOT / "midband.py"
