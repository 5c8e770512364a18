"""`midband probe` and `midband profile` as a person runs them, with a small model and with a server's engine."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="probing in this process needs the trainer extra")
pytest.importorskip("matplotlib", reason="the picture needs the extra page")

from typer.testing import CliRunner

import midband
from api.serve import serving
from api.settings import Settings
from tests.trainer.tiny import make_model, make_tokenizer
from trainer.client import Client
from trainer.errors import InvalidRequest, MissingExtra
from trainer.probing.engines import ENGINES, EngineSettings, newest_checkpoint, open_engine

NUM_PROMPTS = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model and a file of prompts."""
    make_model().save_pretrained(tmp_path / "model")
    make_tokenizer().save_pretrained(tmp_path / "model")
    rows = [{"key": f"p{n}", "content": f"{n}", "answer": "a", "category": "ab"[n % 2]} for n in range(NUM_PROMPTS)]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return tmp_path


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    settings = Settings(database_url=f"sqlite:///{folder / 'service.db'}", port=0, log_level="warning")
    with serving(settings) as url, Client(url) as client:
        client.create_pool("letters")
        client.put_prompts("letters", folder / "pool.jsonl")
        client.create_run("r", pool="letters", group_size=4)
        yield url


def command(*arguments: str) -> Any:
    return CliRunner().invoke(midband.app, [*arguments], catch_exceptions=False)


def test_a_profile_is_a_table_a_picture_and_figures_and_is_not_made_twice(folder: Path) -> None:
    arguments = ["profile", "letters", "--file", str(folder / "pool.jsonl"), "--model", str(folder / "model")]
    arguments += ["--max-new-tokens", "2", "--group-size", "4", "--out-dir", str(folder / "out")]
    done = command(*arguments)
    assert done.exit_code == 0
    assert "Pool letters: all 12 prompts, 4 rollouts each" in done.output
    assert "an epoch, 12 groups: rollouts" in done.output
    assert (folder / "out" / "profile.png").exists()
    figures = json.loads((folder / "out" / "profile.json").read_text())
    assert (figures["prompts"], figures["probed"], figures["run"]) == (12, 12, "letters-profile")

    again = command(*arguments)
    assert again.exit_code == 0
    assert json.loads((folder / "out" / "profile.json").read_text()) == figures


def test_a_run_is_probed_until_the_budget_is_spent(folder: Path, url: str) -> None:
    arguments = ["probe", "--run", "r", "--model", str(folder / "model"), "--max-new-tokens", "2", "--server", url]
    done = command(*arguments, "--budget-tokens", "8", "--batch-size", "2")
    assert done.exit_code == 0
    assert "prompts probed with" in done.output
    assert "Ended: the budget is spent." in done.output
    with Client(url) as client:
        assert client.costs("r").tokens["probe"] >= 8
        assert client.run("r").tickets.open == 0


def test_what_is_wrong_is_one_line_on_standard_error(folder: Path, url: str) -> None:
    for arguments, words in (
        (["--engine", "nonsense"], "no engine is called 'nonsense': there are torch, openai"),
        (["--engine", "openai"], "engine 'openai' needs --url and --model"),
        (["--grader", "nonsense"], "no grader is called 'nonsense'"),
        (["--model", str(folder)], "holds no model in transformers' format"),
    ):
        done = command("probe", "--run", "r", "--server", url, *arguments)
        assert done.exit_code == 1
        assert done.stderr.startswith("midband: ")
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_weights_follow_the_newest_checkpoint(folder: Path) -> None:
    (folder / "checkpoints").mkdir()
    (folder / "model").rename(folder / "checkpoints" / "step-00000003")
    assert newest_checkpoint(folder / "checkpoints") == (3, folder / "checkpoints" / "step-00000003")
    settings = EngineSettings(engine="torch", model=str(folder / "checkpoints"), max_new_tokens=1)
    with open_engine(settings) as opened:
        assert opened.version() == 3
        model = opened.engine._model  # type: ignore[attr-defined]
        before = next(model.parameters()).clone()
        newer = make_model()
        for parameter in newer.parameters():
            parameter.data += 1.0
        newer.save_pretrained(folder / "checkpoints" / "step-00000010.partial")
        assert opened.version() == 3
        (folder / "checkpoints" / "step-00000010.partial").rename(folder / "checkpoints" / "step-00000010")
        make_tokenizer().save_pretrained(folder / "checkpoints" / "step-00000010")
        assert opened.version() == 10
        assert float((next(model.parameters()) - before).detach().min()) == pytest.approx(1.0)


def test_engines_are_named_and_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ENGINES[:2] == ("torch", "openai")

    def missing(*_: object) -> None:
        raise ModuleNotFoundError("no torch", name="torch")

    monkeypatch.setattr("trainer.probing.engines._torch", missing)
    with (
        pytest.raises(MissingExtra, match=r"probing needs torch: pip install 'midband\[trainer\]'"),
        open_engine(EngineSettings(engine="torch")),
    ):
        pass
    with pytest.raises(InvalidRequest, match="no engine is called"), open_engine(EngineSettings(engine="x")):
        pass


def test_workers_are_those_of_a_ray_cluster(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command("probe", "--run", "r", "--server", url, "--workers", "2")
    assert done.exit_code == 1
    assert done.stderr.startswith("midband: --workers is for --ray")
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "trainer.rollout.ray", raising=False)
    done = command("probe", "--run", "r", "--server", url, "--ray", "--workers", "2")
    assert done.exit_code == 1
    assert done.stderr == "midband: probing on a Ray cluster needs ray: pip install 'midband[ray]'\n"
