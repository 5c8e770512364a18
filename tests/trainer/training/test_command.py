"""`midband train` as a person runs it: from a file to a table, with a tiny model of its own."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs the trainer extra")

from rich.console import Console  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

import midband  # noqa: E402
from tests.trainer.tiny import make_model, make_tokenizer  # noqa: E402
from trainer.errors import InvalidRequest, MissingExtra  # noqa: E402
from trainer.training.command import begin_with, fill_pool, in_words, run_command  # noqa: E402
from trainer.training.config import PoolSettings, TrainConfig  # noqa: E402
from trainer.training.evaluate import PassRate  # noqa: E402

FILE = """
output = "out"
[pool]
name = "letters"
file = "pool.jsonl"
[run]
name = "first"
[model]
path = "model"
max_new_tokens = 2
[batch]
size = 4
group_size = 4
[evaluation]
size = 4
every = 2
[stop]
steps = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration, with a pool and a model beside it."""
    rows = [
        {
            "key": f"p{n}",
            "content": f"{n}",
            "answer": "a",
            "category": "ab"[n % 2],
            "split": "train" if n < 8 else "heldout",
        }
        for n in range(12)
    ]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    make_model().save_pretrained(tmp_path / "model")
    make_tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "train.toml").write_text(FILE, encoding="utf-8")
    return tmp_path / "train.toml"


def command(*arguments: str) -> Any:
    return CliRunner().invoke(midband.app, ["train", *arguments], catch_exceptions=False)


def test_the_command_trains_and_goes_on_when_the_end_is_moved(file: Path) -> None:
    done = command(str(file))
    assert done.exit_code == 0
    assert "Held-out pass rate of first, 95 % intervals" in done.output
    assert "3 steps, 48 rollouts" in done.output
    model = file.parent / "out" / "checkpoints" / "step-00000003"
    assert str(model) in done.output
    assert (model / "model.safetensors").exists()
    assert "Going on" not in done.output

    file.write_text(FILE.replace("steps = 3", "steps = 5"), encoding="utf-8")
    (file.parent / "pool.jsonl").unlink()  # it is on the service
    done = command(str(file))
    assert "Going on from step 3" in done.output
    assert "5 steps, 80 rollouts" in done.output
    lines = [json.loads(line) for line in (file.parent / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "step"] == [1, 2, 3, 4, 5]


def test_what_is_wrong_is_one_line_on_standard_error(file: Path) -> None:
    file.write_text(FILE.replace("steps = 3", "stops = 3"), encoding="utf-8")
    done = command(str(file))
    assert done.exit_code == 1
    assert done.stderr.startswith(f"midband: {file}: stop")
    assert "Traceback" not in done.stderr


def test_an_interrupt_says_how_to_go_on(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trainer.training.command.run_command", interrupted)
    done = command(str(file))
    assert done.exit_code == 1
    assert "the same command goes on from the last checkpoint" in done.stderr


def test_without_torch_the_extra_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for module in [name for name in sys.modules if name.startswith("trainer.") and hasattr(sys.modules[name], "torch")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, "trainer.grpo", raising=False)
    with (
        midband.in_process() as client,
        pytest.raises(MissingExtra, match=r"needs torch: pip install 'midband\[trainer\]'"),
    ):
        run_command(TrainConfig.load(file), client, console=Console(file=io.StringIO()))


def test_without_vllm_its_extras_are_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.delitem(sys.modules, "trainer.rollout.vllm", raising=False)
    file.write_text(FILE.replace("max_new_tokens = 2", 'max_new_tokens = 2\nengine = "vllm"'), encoding="utf-8")
    done = command(str(file))
    assert done.exit_code == 1
    assert "model.engine is vllm, which is not installed: pip install 'midband[vllm]'" in done.stderr


def test_a_run_goes_on_with_the_engine_it_began_with(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(str(file)).exit_code == 0
    began = json.loads((file.parent / "out" / "config.json").read_text())
    assert "engine" not in began["model"]  # as in runs that began before there was a choice
    changed = FILE.replace("max_new_tokens = 2", 'max_new_tokens = 2\nengine = "vllm"').replace(
        "steps = 3", "steps = 4"
    )
    config = TrainConfig.load(file)
    monkeypatch.setattr("trainer.training.command._vllm_engine", lambda *_: begin_with(config)[1])
    file.write_text(changed, encoding="utf-8")
    done = command(str(file))
    assert done.exit_code == 1
    assert "model.engine: None then, 'vllm' now" in done.stderr


def test_a_pool_whose_rows_are_rejected_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pool.jsonl").write_text('{"key": "a"}\n{"key": "b", "oops": 1}\n', encoding="utf-8")
    with midband.in_process() as client, pytest.raises(InvalidRequest, match="1 of 2 prompts were rejected; row 1"):
        fill_pool(client, PoolSettings(name="p", file=tmp_path / "pool.jsonl"))


def test_a_pool_without_a_source_is_the_services_own() -> None:
    with midband.in_process() as client:
        fill_pool(client, PoolSettings(name="p"))
        assert client.pools() == []


def test_puzzles_fill_a_pool() -> None:
    with midband.in_process() as client:
        fill_pool(client, PoolSettings(name="p", learner="mild", num_train=60, num_heldout=60))
        assert client.pool("p").splits == {"train": 60, "heldout": 60}


def test_rates_in_words() -> None:
    assert (
        in_words(PassRate(estimate=0.314, low=0.28, high=0.35, num_prompts=9, num_rollouts=9)) == "31.4 % (28.0 – 35.0)"
    )
    assert in_words(PassRate.of([])) == in_words(None) == "–"
