import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.charts import COLOURS, GREY, colours_of, new_figure, save, smoothed, smoothing_window
from trainer.errors import MissingExtra


def test_smoothing_is_a_mean_over_what_is_there() -> None:
    values = np.array([3.0, 1.0, 5.0, 7.0, 9.0])
    assert smoothed(values, 1).tolist() == values.tolist()
    assert smoothed(values, 3).tolist() == [2.0, 3.0, 13 / 3, 7.0, 8.0]
    slow = [values[max(0, n - 2) : n + 3].mean() for n in range(5)]
    assert smoothed(values, 5) == pytest.approx(slow)
    assert smoothed(np.array([]), 3).tolist() == []


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install 'midband\[page\]'"):
        new_figure((1.0, 1.0), "any")


def test_the_window_is_odd_and_at_least_one() -> None:
    assert [smoothing_window(num_rounds, 0.1) for num_rounds in (0, 1, 19, 20, 29, 30, 40)] == [1, 1, 1, 3, 3, 3, 5]


def test_uniform_is_grey_and_other_policies_take_colours_in_turn() -> None:
    assert colours_of(["uniform", "midband", "midband"]) == [GREY, *COLOURS[:2]]
    many = colours_of(["midband"] * (len(COLOURS) + 1))
    assert many == [*COLOURS, COLOURS[0]]


def test_a_picture_makes_its_folder_and_has_the_format_that_its_name_says(tmp_path: Path) -> None:
    figure = new_figure((1.0, 1.0), "any")
    assert save(figure, tmp_path / "new" / "a.png").read_bytes().startswith(b"\x89PNG")
    assert save(figure, tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
