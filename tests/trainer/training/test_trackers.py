"""Lines of the metrics on dashboards: numbers by name, and a word about what is not installed."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer.errors import MissingExtra
from trainer.training.config import TrainConfig
from trainer.training.trackers import scalars, trackers

STEP = {"kind": "step", "step": 3, "loss": 0.5, "inverse_yield": None, "seconds": {"idle_s": 2}}
LOOK = {"kind": "evaluation", "step": 3, "overall": {"estimate": 0.25}, "strata": {"easy": {"estimate": 1.0}}}


def make_config(output: Path, *names: str) -> TrainConfig:
    return TrainConfig.model_validate(
        {"output": output, "pool": {"name": "p"}, "run": {"name": "first"}, "stop": {"steps": 1}, "log_to": names}
    )


class Dashboard:
    """What trackio and wandb have in common, and TensorBoard's writer; keeps what it was told."""

    def __init__(self) -> None:
        self.begun: dict[str, Any] = {}
        self.told: list[tuple[str, float, int]] = []

    def init(self, **options: Any) -> "Dashboard":
        self.begun = options
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.told += [(name, value, step) for name, value in values.items()]

    def SummaryWriter(self, folder: str) -> "Dashboard":
        self.begun = {"folder": folder}
        return self

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.told.append((name, value, step))

    def flush(self) -> None:
        pass


def test_numbers_go_by_name_and_what_is_none_is_left_out() -> None:
    assert dict(scalars(STEP)) == {"train/loss": 0.5, "train/seconds/idle_s": 2.0}
    assert dict(scalars(LOOK)) == {"heldout/overall/estimate": 0.25, "heldout/strata/easy/estimate": 1.0}


@pytest.mark.parametrize(
    ("name", "module"), [("wandb", "wandb"), ("trackio", "trackio"), ("tensorboard", "torch.utils.tensorboard")]
)
def test_each_dashboard_is_told_every_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str
) -> None:
    board = Dashboard()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(utils=SimpleNamespace()))
    monkeypatch.setitem(sys.modules, "torch.utils", SimpleNamespace())
    monkeypatch.setitem(sys.modules, module, board)
    (tracker,) = trackers(make_config(tmp_path, name))
    tracker(STEP)
    tracker(LOOK)
    assert board.told == [
        ("train/loss", 0.5, 3), ("train/seconds/idle_s", 2.0, 3), ("heldout/overall/estimate", 0.25, 3),
        ("heldout/strata/easy/estimate", 1.0, 3),
    ]  # fmt: skip
    if name == "tensorboard":
        assert board.begun == {"folder": str(tmp_path / "tensorboard")}
    else:
        assert (board.begun["project"], board.begun["name"]) == ("midband", "first")


def test_none_is_opened_unasked_and_one_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trackers(make_config(tmp_path)) == []
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(MissingExtra, match=r"log_to 'trackio' needs trackio: pip install trackio"):
        trackers(make_config(tmp_path, "trackio"))
    with pytest.raises(ValueError, match="log_to"):
        make_config(tmp_path, "mlflow")
