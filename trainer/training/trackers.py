"""Lines of the metrics for people who watch a dashboard: TensorBoard, trackio, Weights & Biases, where asked for.

`midband train` opens one for each name in `log_to` and hands it every line. metrics.jsonl has the same and more; what
goes wrong with a dashboard is its own affair, so none is opened by itself.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from trainer.errors import MissingExtra
from trainer.training.config import TrainConfig
from trainer.training.metrics import Line

INSTALL = {"tensorboard": "tensorboard", "trackio": "trackio", "wandb": "wandb"}

Tracker = Callable[[Line], None]


def trackers(config: TrainConfig) -> list[Tracker]:
    """What to call with each line. Raises MissingExtra, naming the package, for one that is not installed."""
    return [_open(name, config) for name in config.log_to]


def _open(name: str, config: TrainConfig) -> Tracker:
    try:
        if name == "tensorboard":
            writer = import_module("torch.utils.tensorboard").SummaryWriter(str(config.output / "tensorboard"))

            def write(line: Line) -> None:
                for figure, value in scalars(line):
                    writer.add_scalar(figure, value, line["step"])
                writer.flush()

            return write
        module = import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"log_to {name!r} needs {error.name}: pip install {INSTALL[name]}") from error
    run = module.init(project="midband", name=config.run.name, config=config.model_dump(mode="json"))

    def log(line: Line) -> None:
        run.log(dict(scalars(line)), step=line["step"])

    return log


def scalars(line: Line) -> Iterator[tuple[str, float]]:
    """The numbers of a line by name, those of tables within it behind a slash; a step's under `train/`."""
    prefix = "heldout" if line["kind"] == "evaluation" else "train"
    for name, value in _flat(line, prefix):
        if not isinstance(value, bool) and isinstance(value, int | float) and not name.endswith("/step"):
            yield name, float(value)


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}/{name}")
        else:
            yield f"{prefix}/{name}", value
