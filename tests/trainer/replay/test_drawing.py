from pathlib import Path

from tests.architecture.fresh import packages_loaded_by
from tests.trainer.replay.factories import make_result, make_rounds
from trainer.replay.drawing import picture


def test_a_picture_is_drawn_of_any_number_of_policies(tmp_path: Path) -> None:
    names = ["uniform", *(f"midband:power={power}" for power in range(1, 9))]
    for results in (names[:1], names):
        path = picture([make_result(name) for name in results], tmp_path / "new" / f"{len(results)}.png")
        assert path.read_bytes().startswith(b"\x89PNG")


def test_policies_that_stopped_early_are_drawn_as_far_as_they_came(tmp_path: Path) -> None:
    results = [
        make_result("uniform"),
        make_result("midband", rounds=make_rounds(1)),
        make_result("m", rounds=make_rounds(0)),
    ]
    assert picture(results, tmp_path / "a.svg").stat().st_size > 0


def test_matplotlib_is_loaded_by_a_picture_alone() -> None:
    loaded = packages_loaded_by("import trainer.demo.command, trainer.replay")
    assert not loaded & {"matplotlib", "fastapi", "sqlalchemy", "torch"}
