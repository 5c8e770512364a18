"""The configuration: what a file may say, what is refused and how, and that the example and the page are up to date."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from api.schemas import RunRequest
from selector.policies import PRESETS
from tests.architecture.fresh import ROOT, packages_loaded_by
from trainer.errors import InvalidRequest
from trainer.training.config import TrainConfig

SMALLEST = """
output = "out"
[pool]
name = "p"
[run]
name = "r"
[stop]
steps = 5
"""


def load(folder: Path, text: str) -> TrainConfig:
    file = folder / "train.toml"
    file.write_text(text, encoding="utf-8")
    return TrainConfig.load(file)


def test_the_smallest_file_says_pool_run_output_and_end(tmp_path: Path) -> None:
    config = load(tmp_path, SMALLEST)
    assert config.output == tmp_path / "out"
    assert (config.pool.name, config.run.name, config.stop.steps) == ("p", "r", 5)
    assert (config.loss.advantage, config.loss.aggregation, config.optimizer.max_grad_norm) == ("grpo", "per_prompt", 1)


def test_paths_are_taken_from_the_folder_of_the_file(tmp_path: Path) -> None:
    text = SMALLEST.replace('name = "p"', 'name = "p"\nfile = "pool.jsonl"') + '[model]\npath = "/models/a"\n'
    config = load(tmp_path, text)
    assert config.pool.file == tmp_path / "pool.jsonl"
    assert config.model.path == Path("/models/a")


def test_a_policy_is_a_preset_by_name_or_a_table(tmp_path: Path) -> None:
    assert load(tmp_path, SMALLEST).run.policy.preset == "midband"
    by_name = SMALLEST.replace('name = "r"', 'name = "r"\npolicy = "uniform"')
    assert load(tmp_path, by_name).run.policy.preset == "uniform"
    table = SMALLEST.replace('name = "r"', 'name = "r"\npolicy = {preset = "midband", power = 2}')
    assert load(tmp_path, table).run.policy.power == 2


def test_settings_that_the_service_has_too_have_its_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, SMALLEST)
    for name in ("audit_share", "weights", "max_weight", "review_share"):
        assert getattr(config.run, name) == RunRequest.model_fields[name].default
    # A run that names no group size takes its preset's.
    assert config.batch.group_size == PRESETS[config.run.policy.preset].group_size
    assert config.loss.advantage == RunRequest.model_fields["advantage"].default
    assert config.loss.aggregation == RunRequest.model_fields["loss_aggregation"].default


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("steps = 5", ""), "stop: Value error, give `steps`, `tokens` or both"),
        (("steps = 5", "steps = 0"), "stop.steps: Input should be greater than or equal to 1, got 0"),
        (("steps = 5", "step = 5"), "stop.step: Extra inputs are not permitted, got 5"),
        (('name = "p"', 'name = "P p"'), "pool.name"),
        (('name = "p"', 'name = "p"\nfile = "a"\nlearner = "mild"'), "either `file` or `learner`"),
        (("steps = 5", "steps = 5\n[batch]\ngroup_size = 1"), "batch.group_size"),
        (("steps = 5", "steps = 5\n[optimizer]\nlearning_rate = nan"), "optimizer.learning_rate"),
        (("steps = 5", "steps = 5\n[loss]\nadvantage = 'ppo'"), "loss.advantage: .*'grpo', 'dr_grpo' or 'rloo'"),
        (("steps = 5", "steps = 5\n[evaluation]\ngroup_size = 1"), "evaluation.group_size"),
        (('output = "out"', ""), "output: Field required"),
        (("[stop]", "[stop"), "cannot be read as TOML"),
    ],
)
def test_what_cannot_be_is_refused_with_file_and_key(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"train\.toml.*{words}"):
        load(tmp_path, SMALLEST.replace(*change))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"nowhere\.toml cannot be read"):
        TrainConfig.load(tmp_path / "nowhere.toml")


def test_the_example_is_a_configuration() -> None:
    config = TrainConfig.load(ROOT / "docs" / "examples" / "train.toml")
    assert config.pool.learner == "mild"


def settings(model: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    """Dotted names and defaults of all settings."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind.__module__ == TrainConfig.__module__:
            found |= settings(kind, f"{prefix}{name}.")
        else:
            found[prefix + name] = field.get_default(call_default_factory=True)
    return found


def test_every_setting_is_on_its_page_with_its_default() -> None:
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    table = page.partition("## Settings")[2]
    rows = dict(re.findall(r"^\| `([a-z_.]+)` \| ([^|]*) \|", table, re.MULTILINE))
    known = settings(TrainConfig)
    assert set(rows) == set(known)
    for name, default in known.items():
        written = rows[name].strip()
        if isinstance(default, bool | int | float | str | tuple):
            value = tomllib.loads(f"x = {written.strip('`')}")["x"]
            assert (tuple(value) if isinstance(value, list) else value) == default, name
        else:
            assert not written.startswith("`") or name == "run.policy", name


def test_reading_a_configuration_loads_no_heavy_library() -> None:
    assert not packages_loaded_by("import trainer.training.command") & {"torch", "transformers"}


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"lora": {}}, r"model\.lora needs model\.engine 'torch'"),
        ({"device": "cpu"}, r"model\.device needs"),
    ],
)
def test_what_vllm_cannot_follow_is_refused(tmp_path: Path, model: dict[str, object], words: str) -> None:
    values = {
        "output": str(tmp_path),
        "pool": {"name": "p"},
        "run": {"name": "r"},
        "model": {"engine": "vllm", **model},
        "stop": {"steps": 1},
    }
    with pytest.raises(ValidationError, match=words):
        TrainConfig.model_validate(values)
