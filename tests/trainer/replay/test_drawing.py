import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.architecture.fresh import packages_loaded_by
from tests.trainer.replay.factories import make_result, make_rounds
from trainer.errors import MissingExtra
from trainer.replay.drawing import picture, smoothed


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


def test_smoothing_is_a_mean_over_what_is_there() -> None:
    values = np.array([3.0, 1.0, 5.0, 7.0, 9.0])
    assert smoothed(values, 1).tolist() == values.tolist()
    assert smoothed(values, 3).tolist() == [2.0, 3.0, 13 / 3, 7.0, 8.0]
    slow = [values[max(0, n - 2) : n + 3].mean() for n in range(5)]
    assert smoothed(values, 5) == pytest.approx(slow)
    assert smoothed(np.array([]), 3).tolist() == []


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install 'midband\[page\]'"):
        picture([make_result()], tmp_path / "a.png")


def test_matplotlib_is_loaded_by_a_picture_alone() -> None:
    loaded = packages_loaded_by("import trainer.demo, trainer.replay")
    assert not loaded & {"matplotlib", "fastapi", "sqlalchemy", "torch"}
