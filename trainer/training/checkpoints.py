"""What is kept of a training run, and how it goes on from there, in step with the service.

`trainer.grpo` calls `begin` once and `Checkpoints.write` every so many steps. A checkpoint is a folder that any library
reading transformers' format can load, beside it the optimizer's tensors and the counters; there is no generator's state
to keep, as all randomness is keyed by seed and step. Nothing is ever pickled.

The order of things makes every crash harmless. The service names its place in the log before the files are written,
and a checkpoint folder appears whole or not at all: at worst the service knows a checkpoint that no file belongs to.
Which restore comes next is counted in the output folder, and counted up before the next draw: a restore that is cut off
is made again under the same id, and one that was followed by draws never is.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from trainer.client import Client
from trainer.errors import InvalidRequest, UnknownCheckpoint
from trainer.options import RunOptions
from trainer.training.config import AsynchronySettings, KeepSettings, TrainConfig
from trainer.training.metrics import Metrics
from trainer.training.progress import Progress

KEPT = 2  # of the latest checkpoints: the one to go on from, and the one before it should a disk have failed it
PARTIAL = ".partial"
WHILE_AWAY = "weights-while-away"  # no checkpoint, as the service knows nothing of its place
# What may differ between a run and its continuation: where things are, how long it goes on, how often it is saved.
FREE_TO_CHANGE: Mapping[str, Any] = {
    "output": True, "server": True, "stop": True, "checkpoints": True, "log_to": True, "when_away": True,
    "pool": {"file"},
    "model": {"path", "device"},
}  # fmt: skip


LATER = (
    ("run", "rollout_store"),
    ("loss", "importance_cap"),
    ("model", "precision"),
    ("model", "gradient_checkpointing"),
    ("model", "lora"),
)


class Trained(Protocol):
    """Whatever is trained, as far as keeping it goes."""

    def save(self, folder: Path) -> None:
        """Write everything that the next update depends on."""

    def load(self, folder: Path) -> None:
        """Read it again, to the bit."""


class Checkpoints:
    """The checkpoints of one output folder."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folder = output / "checkpoints"

    def latest(self) -> Path | None:
        """The folder of the latest checkpoint."""
        return max(self._whole(), default=None)

    def progress(self) -> Progress | None:
        """How far the latest checkpoint is; None: the run has not begun."""
        latest = self.latest()
        return None if latest is None else Progress(**_read(latest / "progress.json"))

    def write(self, client: Client, run: str, trained: Trained, at: Progress, metrics: Metrics) -> Path:
        """Name this place on the service, then write the files. Nothing of this step may still be in flight.

        Raises ServiceUnavailable before anything is written if the service does not answer.
        """
        progress = replace(at, metrics_bytes=metrics.num_bytes)
        client.checkpoint(run, progress.step)
        target = self.folder / f"step-{progress.step:08d}"
        partial = target.with_suffix(PARTIAL)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        trained.save(partial)
        _write(partial / "progress.json", asdict(progress))
        shutil.rmtree(target, ignore_errors=True)
        partial.replace(target)
        for old in sorted(self._whole())[:-KEPT]:
            shutil.rmtree(old)
        shutil.rmtree(self.output / WHILE_AWAY, ignore_errors=True)
        return target

    def write_weights(self, trained: Trained) -> Path:
        """The weights alone, so that no crash loses them; a run goes on only from what the service has a name for."""
        target = self.output / WHILE_AWAY
        partial = target.with_suffix(PARTIAL)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        trained.save(partial)
        shutil.rmtree(target, ignore_errors=True)
        partial.replace(target)
        return target

    def _whole(self) -> list[Path]:
        return [path for path in self.folder.glob("step-*") if path.suffix != PARTIAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreLog:
    """The restores that this output folder has made, one JSON line each."""

    file: Path

    @classmethod
    def of(cls, output: Path) -> Self:
        return cls(file=output / "restores.jsonl")

    def next_id(self, step: int) -> str:
        done = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        return f"restore-{len(done) + 1}-to-step-{step}"

    def add(self, line: Mapping[str, Any]) -> None:
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def begin(config: TrainConfig, client: Client, trained: Trained, metrics: Metrics) -> Progress:
    """Make the run and its first checkpoint; or, in an output folder that has one, go back to the latest.

    Raises InvalidRequest if the configuration is not the one the run began with, if the run on the service is another
    trainer's, or if its draws are not where this folder's checkpoint says they are.
    """
    saved, run = Checkpoints(config.output), config.run.name
    latest, progress = saved.latest(), saved.progress()
    if latest is None or progress is None:
        return _begin_anew(config, client, trained, metrics, saved)
    _refuse_changes(config)
    log = RestoreLog.of(config.output)
    restore_id = log.next_id(progress.step)
    try:
        answer = client.restore(run, progress.step, restore_id=restore_id)
    except UnknownCheckpoint as error:
        raise InvalidRequest(
            f"{latest} is a checkpoint of step {progress.step}, and the service has none there of run {run!r}: go on "
            f"with the database that this run began with, or begin anew in another output folder ({error.detail})"
        ) from error
    # Of batches that were drawn here the service knows nothing, so it may stand further back, or at one that ran ahead.
    ahead = progress.away and answer.resume_from <= progress.step + config.asynchrony.depth
    if answer.resume_from != progress.step and not ahead:
        raise InvalidRequest(
            f"run {run!r} goes on from index {answer.resume_from}, but {latest} from {progress.step}: something else "
            "draws from this run; give each trainer a run of its own"
        )
    trained.load(latest)
    metrics.cut(progress.metrics_bytes)
    log.add({"restore_id": restore_id, "step": progress.step, "branch": answer.branch, "lost": answer.lost})
    return replace(progress, branch=answer.branch)


def _begin_anew(
    config: TrainConfig, client: Client, trained: Trained, metrics: Metrics, saved: Checkpoints
) -> Progress:
    run = config.run
    options: RunOptions = {
        "group_size": config.batch.group_size,
        "audit_share": run.audit_share,
        "weights": run.weights,
        "max_weight": run.max_weight,
        "review_share": run.review_share,
        "seed": config.seed,
        "loss_aggregation": config.loss.aggregation,
        "advantage": config.loss.advantage,
        "max_lag": config.asynchrony.bound if config.asynchrony.depth else None,
    }
    if run.rollout_store is not None:  # left out where there is none: a request that is asked again must be equal
        options["rollout_store"] = run.rollout_store.model_dump(exclude_none=True)
    client.create_run(run.name, pool=config.pool.name, policy=run.policy, **options)
    info = client.run(run.name)
    if sum((info.tickets.open, info.tickets.reported, info.tickets.void)) or info.branch:
        raise InvalidRequest(
            f"run {run.name!r} has drawn prompts already, and {config.output} holds no checkpoint to go on from: "
            "name another run, or the output folder of that one"
        )
    config.output.mkdir(parents=True, exist_ok=True)
    metrics.cut(0)
    _write(config.output / "config.json", _comparable(config))
    progress = Progress()
    saved.write(client, run.name, trained, progress, metrics)
    return progress


def _refuse_changes(config: TrainConfig) -> None:
    began = _flat(_read(config.output / "config.json"))
    now = _flat(_comparable(config))
    changed = [
        f"{key}: {began.get(key)!r} then, {now.get(key)!r} now" for key in began | now if began.get(key) != now.get(key)
    ]
    if changed:
        raise InvalidRequest(
            f"{config.output} holds a run of another configuration ({'; '.join(changed)}): only its end, its "
            "checkpoints and where things are may change; another run needs an output folder and a name of its own"
        )


def _comparable(config: TrainConfig) -> dict[str, Any]:
    values = config.model_dump(mode="json", exclude=dict(FREE_TO_CHANGE))
    # A run that began before there were these parts goes on.
    if config.loss.keep == KeepSettings():
        del values["loss"]["keep"]
    if config.model.engine == "torch":  # likewise
        del values["model"]["engine"]
    if config.asynchrony == AsynchronySettings():
        del values["asynchrony"]
    for table, name in LATER:
        if values[table][name] == type(getattr(config, table)).model_fields[name].default:
            del values[table][name]
    return values


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def _read(file: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return values


def _write(file: Path, values: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
