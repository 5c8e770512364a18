"""The whole loop on the real service, in process, with a tiny model: what it does, tells and reports."""

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs the trainer extra")

import midband  # noqa: E402
from tests.trainer.tiny import (  # noqa: E402
    HORVITZ_THOMPSON,
    fill,
    make_config,
    make_policy,
    run,
    same_state,
    service,
    told,
)
from trainer.errors import MidbandError  # noqa: E402
from trainer.grpo import Result, train  # noqa: E402
from trainer.policy import Policy  # noqa: E402
from trainer.training.config import TrainConfig  # noqa: E402
from trainer.training.metrics import Metrics  # noqa: E402


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainConfig, Policy, Result]:
    config = make_config(tmp_path_factory.mktemp("whole"), **HORVITZ_THOMPSON)
    result, policy = run(config)
    return config, policy, result


def test_the_service_learns_all_that_was_done(uninterrupted: tuple[TrainConfig, Policy, Result]) -> None:
    config, _, result = uninterrupted
    with service(config.output) as client:
        info, costs = client.run("tiny"), client.costs("tiny")
        steps = [line["event"] for line in client.events("tiny") if line["kind"] == "step_recorded"]
        claim = client.audit("tiny").claim_realised
        assert client.draw("tiny", 11, 8, policy_version=11).reason == "run_complete"
    heldout = 4 * 6 * 2  # looks at steps 0, 5, 10 and 11
    assert (info.tickets.open, info.tickets.void) == (0, 0)
    assert info.rollouts.scored == 11 * 8 * 4 + heldout
    assert costs.rollouts["heldout"] == heldout
    assert costs.tokens["train"] + costs.tokens["audit"] == result.progress.tokens
    assert result.progress.rollouts == 11 * 8 * 4
    assert len(steps) == 11
    assert all(len(step["trained"]) == 8 and step["weights_applied"] for step in steps)
    assert (info.policy_version, info.step) == (11, 10)
    assert claim.type == "unbiased"
    lines = Metrics(config.output / "metrics.jsonl").lines("step")
    for phase in ("generation", "scoring", "update", "idle"):
        assert costs.seconds[phase] == pytest.approx(sum(line["seconds"][f"{phase}_s"] for line in lines))
        assert costs.seconds[phase] > 0


def test_metrics_say_how_each_step_went(uninterrupted: tuple[TrainConfig, Policy, Result]) -> None:
    config, _, result = uninterrupted
    lines = told(config)
    assert [(line["kind"][0], line["step"]) for line in lines] == [
        ("e", 0), ("s", 1), ("s", 2), ("s", 3), ("s", 4), ("s", 5), ("e", 5), ("s", 6), ("s", 7), ("s", 8), ("s", 9),
        ("s", 10), ("e", 10), ("s", 11), ("e", 11),
    ]  # fmt: skip
    steps = [line for line in lines if line["kind"] == "step"]
    for line in steps:
        assert line["judged"] == line["tickets"] == 8
        assert line["inverse_yield"] == (pytest.approx(8 / line["informative"]) if line["informative"] else None)
        assert 0 <= line["pass_rate"] <= 1
        assert 1 <= line["answer_tokens"] <= 3
        assert line["log_ratio"] < 1e-5
        assert all(math.isfinite(line[name]) for name in ("loss", "gradient_norm", "clipped", "kl", "learning_rate"))
    assert [line["tokens"] for line in steps] == sorted(line["tokens"] for line in steps)
    assert steps[-1]["tokens"] == result.progress.tokens
    assert [one.step for one in result.evaluations] == [0, 5, 10, 11]


def test_held_out_prompts_move_no_belief_and_no_weight(
    tmp_path: Path, uninterrupted: tuple[TrainConfig, Policy, Result]
) -> None:
    _, whole_policy, _ = uninterrupted
    seldom = make_config(tmp_path, **HORVITZ_THOMPSON, evaluation={"every": 1_000, "size": 1})
    _, policy = run(seldom)
    assert same_state(policy, whole_policy)
    with service(tmp_path) as client:
        columns = client.beliefs("tiny")
    seen = {key for key, n_eff in zip(columns["key"], columns["n_eff"], strict=True) if n_eff > 0}
    assert seen
    assert max(seen) < "p040"


def test_it_learns_what_can_be_learnt(tmp_path: Path) -> None:
    config = make_config(
        tmp_path,
        run={"policy": "uniform"},
        batch={"size": 16, "group_size": 8},
        optimizer={"learning_rate": 0.02, "microbatch": 256},
        evaluation={"every": 100, "size": 12, "group_size": 8, "stratum": "stratum"},
        checkpoints={"every": 100},
        stop={"steps": 40},
    )
    result, _ = run(config)
    first, last = result.evaluations[0].strata, result.evaluations[-1].strata
    assert first["possible"].high < last["possible"].low
    assert last["hopeless"].estimate == 0
    with service(tmp_path) as client:
        assert client.audit("tiny").claim_realised.type == "exact"


def test_it_stops_with_the_step_that_passes_the_token_budget(tmp_path: Path) -> None:
    config = make_config(tmp_path, stop={"steps": None, "tokens": 250})
    result, _ = run(config)
    steps = Metrics(tmp_path / "metrics.jsonl").lines("step")
    assert result.stopped == "tokens"
    assert steps[-2]["tokens"] < 250 <= steps[-1]["tokens"] == result.progress.tokens


def test_it_stops_when_the_service_has_nothing_to_draw(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    with service(tmp_path) as client:
        fill(client, num_train=3)
        client.quarantine("tiny", ["p000", "p001", "p002"], reason="broken")
        policy, engine = make_policy(config)
        result = train(config, client, policy, engine)
    assert (result.stopped, result.progress.step) == ("pool_empty", 0)
    assert len(result.evaluations) == 1


def test_a_batch_divided_by_its_informative_groups_is_not_called_weighted(tmp_path: Path) -> None:
    config = make_config(tmp_path, **HORVITZ_THOMPSON, loss={"inverse_yield": "kept"}, stop={"steps": 2})
    run(config)
    with service(tmp_path) as client:
        claim = client.audit("tiny").claim_realised
    assert claim.type == "modified"
    assert any("weights were not applied" in condition for condition in claim.conditions)


def test_keeping_the_inverse_yield_multiplies_the_step_by_it(tmp_path: Path) -> None:
    found = []
    for name in ("cancelled", "kept"):
        config = make_config(
            tmp_path / name, loss={"inverse_yield": name}, optimizer={"max_grad_norm": math.inf}, stop={"steps": 1}
        )
        run(config)
        found.append(Metrics(tmp_path / name / "metrics.jsonl").lines("step")[0])
    cancelled, kept = found
    assert cancelled["inverse_yield"] == kept["inverse_yield"] > 1
    assert kept["gradient_norm"] == pytest.approx(cancelled["gradient_norm"] * kept["inverse_yield"], rel=1e-5)


def test_a_report_that_the_service_rejects_stops_the_run(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    with service(tmp_path) as client:
        fill(client)
        policy, engine = make_policy(config)
        report = client.report

        def voided_meanwhile(run: str, groups: Any, **options: Any) -> Any:
            groups = list(groups)
            if not groups[0].ticket.startswith("tiny:0:heldout"):
                report(run, [midband.group(groups[0].ticket, void="lost")])
            return report(run, groups, **options)

        client.report = voided_meanwhile  # type: ignore[method-assign]
        with pytest.raises(MidbandError, match=r"run tiny, batch 0: tiny:0:train:0:0:0: .*\(ticket_closed\)"):
            train(config, client, policy, engine)


def test_the_engine_is_told_of_the_weights_at_the_start_and_after_each_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told_of: list[int] = []

    def begin(steps: int) -> None:
        config = make_config(tmp_path, stop={"steps": steps})
        with service(tmp_path) as client:
            fill(client)
            policy, engine = make_policy(config)
            monkeypatch.setattr(engine, "sync", lambda *, policy_version: told_of.append(policy_version))
            train(config, client, policy, engine)

    begin(2)
    assert told_of == [0, 1, 2]
    begin(4)
    assert told_of == [0, 1, 2, 2, 3, 4]
