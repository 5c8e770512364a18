"""`midband audit`, `compare` and `report` as a person runs them, and the client's calls behind them."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import midband
from tests.api.cost_cases import make_pool, play
from tests.api.harness import caller, listening
from trainer.client import Client
from trainer.errors import InvalidRequest, NotFound
from trainer.reading import audit_command, compare_command, report_command


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with two runs a configuration."""
    with listening(f"sqlite:///{tmp_path_factory.mktemp('reading')}/midband.db") as url:
        with caller(url) as http:
            make_pool(http)
            for seed in range(2):
                play(http, f"u{seed}", [1, 2, 3, 4], seed=seed, policy={"preset": "uniform"})
                play(http, f"m{seed}", [1, 4, 5, 6], seed=seed)
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=140)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def command(*arguments: str) -> Result:
    return CliRunner().invoke(midband.app, arguments, catch_exceptions=False)


def test_a_comparison_has_a_line_for_each_arm_and_says_what_its_numbers_are_worth(
    client: Client, console: Console
) -> None:
    found = compare_command(client, ["plain=u0,u1", "midband=m0,m1"], target=0.5, console=console)

    assert [arm["name"] for arm in found.configurations] == ["plain", "midband"]
    text = said(console)
    assert "2 of 2" in text
    assert "midband against plain" in text
    assert "too few pairs for an interval" in text
    assert "Never reached: a run that never has the target counts as having cost more" in text
    assert "Note: 2 seeds: no interval over seeds means anything" in text


def test_controls_are_named_by_their_configuration(client: Client, console: Console) -> None:
    compare_command(client, ["a=m0", "b=m1"], target=0.5, controls=["a=u0"], console=console)
    assert "control of a against a" in said(console)
    with pytest.raises(InvalidRequest, match="controls c: no configuration"):
        compare_command(client, ["a=m0"], target=0.5, controls=["c=u0"], console=console)


def test_runs_without_a_name_are_called_as_they_are_written(client: Client, console: Console) -> None:
    found = compare_command(client, ["u0,u1", "m0"], target=0.5, console=console)
    assert [arm["name"] for arm in found.configurations] == ["u0,u1", "m0"]
    with pytest.raises(InvalidRequest, match="names no run"):
        compare_command(client, ["empty="], target=0.5, console=console)


def test_a_target_that_half_never_reach_has_no_median(client: Client, console: Console) -> None:
    compare_command(client, ["u=u0,u1"], target=0.9, console=console)
    assert "half never" in said(console)
    assert "0 of 2" in said(console)


def test_an_audit_as_text(client: Client, console: Console) -> None:
    audit_command(client, "m0", console=console)
    for word in ("uniform", "reweighted", "claim when drawn: modified", "verdict:"):
        assert word in said(console)


def test_a_report_goes_to_a_file_or_to_the_screen(client: Client, console: Console, tmp_path: Path) -> None:
    text = report_command(client, "m0", format="md", out=None, console=console)
    assert said(console) == text
    assert text.startswith("# What selection did and cost in run m0\n")
    out = tmp_path / "new" / "report.html"
    page = report_command(client, "m0", format="html", out=out, console=console)
    assert out.read_text(encoding="utf-8") == page
    assert page.startswith("<!doctype html>")


def test_the_client_reads_curve_and_diagnosis(client: Client) -> None:
    found = client.curve("m0", q=0.5)
    assert found.passage is not None
    assert found.passage["by_index"] == 1
    assert client.curve("m0").passage is None
    assert client.diagnosis("m0").binding == "low_signal"
    with pytest.raises(NotFound, match="none"):
        client.compare([["none"]], target=0.5)
    with pytest.raises(InvalidRequest, match="target"):
        client.compare([["m0"]], target=2)


def test_the_client_says_what_it_runs_on_and_the_trainer_what_it_trains(client: Client) -> None:
    client.create_run("told", pool="p")
    costs = {"update_s": 1.0, "environment": {"model": "m", "python": "mine"}}
    assert client.step("told", 0, policy_version=1, costs=costs).state == "recorded"
    assert client.step("told", 0, policy_version=1, costs=costs).state == "duplicate"
    client.step("told", 1, policy_version=2)

    told = client.costs("told").environment
    assert told["model"] == ["m"]
    assert told["python"] == ["mine"], "what the caller says counts where both speak"
    assert told["system"]
    assert costs == {"update_s": 1.0, "environment": {"model": "m", "python": "mine"}}


def test_the_commands_ask_a_running_service(url: str, tmp_path: Path) -> None:
    arms = ("uniform=u0,u1", "midband=m0,m1")
    assert "midband against" in command("compare", *arms, "--target", "0.5", "--server", url).stdout
    assert "verdict" in command("audit", "m0", "--server", url).stdout
    assert "## What it cost" in command("report", "m0", "--server", url).stdout
    out = tmp_path / "r.json"
    done = command("report", "m0", "--format", "json", "--out", str(out), "--server", url)
    assert done.exit_code == 0
    assert json.loads(out.read_text())["run"] == "m0"


@pytest.mark.parametrize("arguments", [["audit", "none"], ["report", "none"], ["compare", "none", "--target", "0.5"]])
def test_a_run_that_is_not_there_ends_the_command_with_its_name(url: str, arguments: list[str]) -> None:
    done = command(*arguments, "--server", url)
    assert done.exit_code == 1
    assert "midband: " in done.stderr
    assert "none" in done.stderr


def test_without_a_service_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.asking_commands.PATIENCE_S", 0.0)
    done = command("audit", "r", "--server", "http://127.0.0.1:9")
    assert done.exit_code == 1
    assert "127.0.0.1:9" in done.stderr
