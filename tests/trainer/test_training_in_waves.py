"""The reference loop on runs that stop groups or fill batches up: what is trained on, reported and gone on with."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="training needs the trainer extra")

from tests.trainer.tiny import Killed, killed_in, make_config, run, same_state, service, told
from trainer.training.config import TrainConfig
from trainer.training.metrics import Metrics

SCREEN = {"preset": "uniform", "wave": {"rule": "screen", "first": 2}}
DAPO = {"preset": "dapo", "refill": {"rounds": 3}}


def config_of(folder: Path, policy: dict[str, Any], **tables: dict[str, Any]) -> TrainConfig:
    values: dict[str, dict[str, Any]] = {"run": {"policy": policy}, "batch": {"size": 8, "group_size": 6}}
    return make_config(folder, **(values | tables))


def test_training_goes_on_with_screened_groups_only(tmp_path: Path) -> None:
    config = config_of(tmp_path, SCREEN, stop={"steps": 4})
    result, _ = run(config)
    with service(tmp_path) as client:
        info = client.run("tiny")
        events = [event["event"] for event in client.events("tiny") if event["kind"] == "rollouts_reported"]
    verdicts = [d["more"] for event in events for g in event["groups"] for d in g["decisions"]]
    assert set(verdicts) == {0, 4}
    assert info.tickets.open == 0
    assert info.rollouts.reported < info.rollouts.issued
    assert result.progress.rollouts < 4 * 8 * 6


def test_training_fills_its_batches_with_informative_groups(tmp_path: Path) -> None:
    config = config_of(tmp_path, DAPO, stop={"steps": 4})
    run(config)
    steps = Metrics(tmp_path / "metrics.jsonl").lines("step")
    with service(tmp_path) as client:
        asked = [{"ticket": f"tiny:0:train:{index}:0:0", "final": True} for index in range(4)]
        standings = client.report("tiny", asked).refills
        events = [event["event"] for event in client.events("tiny") if event["kind"] == "step_recorded"]
        names = {t.ticket: n for n, t in enumerate(client.tickets("tiny", limit=10_000).items)}
    assert any(standing.waves > 1 for standing in standings)
    for line, standing, event in zip(steps, standings, events, strict=True):
        assert line["judged"] == standing.judged == line["tickets"]
        assert line["informative"] == standing.informative
        assert line["inverse_yield"] == pytest.approx(standing.inverse_yield)
        assert len(standing.kept) == 8 or standing.waves == 3
        assert event["trained"] == [names[ticket] for ticket in standing.kept]


def test_cancelling_the_yield_makes_the_step_smaller_by_it(tmp_path: Path) -> None:
    losses = []
    for name, cancel in (("plain", False), ("cancelled", True)):
        policy = {"preset": "dapo", "refill": {"rounds": 3, "cancel_yield": cancel}}
        config = config_of(tmp_path / name, policy, stop={"steps": 1})
        run(config)
        (line,) = Metrics(tmp_path / name / "metrics.jsonl").lines("step")
        losses.append((line["gradient_norm"], line["informative"] / line["judged"]))
    (plain, share), (cancelled, same) = losses
    assert share == same
    assert 0 < share < 1
    assert cancelled == pytest.approx(plain * share, rel=1e-4)


@pytest.mark.parametrize("policy", [SCREEN, DAPO], ids=["waves", "refill"])
def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path: Path, policy: dict[str, Any]) -> None:
    config = config_of(tmp_path / "whole", policy, stop={"steps": 5})
    _, whole = run(config)
    killed = config.model_copy(update={"output": tmp_path / "killed"})
    with pytest.raises(Killed):
        run(killed, watch=killed_in(5))
    _, resumed = run(killed)
    assert told(killed) == told(config)
    assert same_state(whole, resumed)
