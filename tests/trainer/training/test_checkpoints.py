"""A run that was cut off goes on to the very bits of one that was not, on the real service with a tiny model."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs the trainer extra")

from tests.trainer.tiny import (  # noqa: E402
    HORVITZ_THOMPSON,
    Killed,
    fill,
    killed_in,
    make_config,
    make_policy,
    run,
    same_state,
    service,
    told,
)
from trainer.errors import InvalidRequest  # noqa: E402
from trainer.grpo import Result, train  # noqa: E402
from trainer.policy import Policy  # noqa: E402
from trainer.training.config import TrainConfig  # noqa: E402
from trainer.training.metrics import Line  # noqa: E402


def drawn(config: TrainConfig) -> dict[str, Any]:
    """All that must not depend on whether a run was interrupted: draws of both kinds, beliefs, counts, audit."""
    with service(config.output) as client:
        info = client.run(config.run.name)
        found: dict[str, Any] = {
            # Predicted seconds are learned from a clock, which no two runs share.
            "beliefs": {name: c for name, c in client.beliefs(config.run.name).items() if name != "seconds"},
            "tickets": info.tickets.reported,
            "informative": info.informative,
            "states": info.states,
            "version": info.policy_version,
            "audit": client.audit(config.run.name).model_dump(exclude={"branch"}),
        }
        for index in range(config.stop.steps or 0):
            batch = client.batch(config.run.name, index)
            tickets = [(t.prompt, t.purpose, t.inclusion_probability, t.weight, t.predicted) for t in batch.tickets]
            found[f"batch {index}"] = (batch.digest, batch.frame, batch.eligible, batch.predicted_yield, tickets)
        for index in (0, 5, 10):
            batch = client.batch(config.run.name, index, purpose="heldout")
            found[f"held out {index}"] = [ticket.prompt for ticket in batch.tickets]
    return found


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainConfig, Policy, Result]:
    config = make_config(tmp_path_factory.mktemp("whole"), **HORVITZ_THOMPSON)
    result, policy = run(config)
    return config, policy, result


def assert_equal_runs(config: TrainConfig, policy: Policy, uninterrupted: tuple[TrainConfig, Policy, Result]) -> None:
    whole, whole_policy, _ = uninterrupted
    assert same_state(policy, whole_policy)
    assert told(config) == told(whole)
    found, expected = drawn(config), drawn(whole)
    for name in expected:
        assert found[name] == expected[name], name


def test_a_run_killed_in_the_middle_goes_on_to_the_same_bits(
    tmp_path: Path, uninterrupted: tuple[TrainConfig, Policy, Result]
) -> None:
    config = make_config(tmp_path, **HORVITZ_THOMPSON)
    with pytest.raises(Killed):
        run(config, killed_in(8))  # checkpoints are of steps 3 and 6
    result, policy = run(config)
    assert_equal_runs(config, policy, uninterrupted)
    assert (result.progress.step, result.progress.branch) == (11, 1)
    with service(tmp_path) as client:
        assert client.costs("tiny").rollouts["lost"] == 2 * 8 * 4  # two steps; what they cost does not go away
        assert client.batch("tiny", 7).branch == 1
        assert client.batch("tiny", 5).branch == 0


def test_a_run_killed_again_and_again_goes_on_to_the_same_bits(
    tmp_path: Path, uninterrupted: tuple[TrainConfig, Policy, Result]
) -> None:
    config = make_config(tmp_path, **HORVITZ_THOMPSON)
    for step in (2, 5, 5, 7):  # twice behind the same checkpoint, once before any but the first
        with pytest.raises(Killed):
            run(config, killed_in(step))
    result, policy = run(config)
    assert_equal_runs(config, policy, uninterrupted)
    assert result.progress.branch == 4
    lines = [json.loads(line) for line in (tmp_path / "restores.jsonl").read_text().splitlines()]
    assert [(line["step"], line["branch"]) for line in lines] == [(0, 1), (3, 2), (3, 3), (6, 4)]


def test_a_run_killed_while_a_checkpoint_is_written_goes_on_from_the_one_before(
    tmp_path: Path, uninterrupted: tuple[TrainConfig, Policy, Result]
) -> None:
    config = make_config(tmp_path, **HORVITZ_THOMPSON)

    def dies_at_the_third(policy: Policy) -> None:
        save, calls = policy.save, []

        def dying(folder: Path) -> None:
            calls.append(folder)
            save(folder)
            if len(calls) == 3:
                raise Killed

        policy.save = dying  # type: ignore[method-assign]

    with pytest.raises(Killed):
        run(config, prepare=dies_at_the_third)
    with service(tmp_path) as client:
        assert [checkpoint.step for checkpoint in client.checkpoints("tiny")] == [0, 3, 6]
    _, policy = run(config)
    assert_equal_runs(config, policy, uninterrupted)


def test_a_run_killed_before_its_first_checkpoint_begins_anew(
    tmp_path: Path, uninterrupted: tuple[TrainConfig, Policy, Result]
) -> None:
    config = make_config(tmp_path, **HORVITZ_THOMPSON)

    def dies(policy: Policy) -> None:
        def dying(folder: Path) -> None:
            raise Killed

        policy.save = dying  # type: ignore[method-assign]

    with pytest.raises(Killed):
        run(config, prepare=dies)
    result, policy = run(config)
    assert_equal_runs(config, policy, uninterrupted)
    assert result.progress.branch == 0


def test_a_run_that_ended_can_be_made_longer(tmp_path: Path, uninterrupted: tuple[TrainConfig, Policy, Result]) -> None:
    short = make_config(tmp_path, **HORVITZ_THOMPSON, stop={"steps": 6})
    result, _ = run(short)
    assert result.stopped == "steps"
    config = make_config(tmp_path, **HORVITZ_THOMPSON)
    _, policy = run(config)
    whole, whole_policy, _ = uninterrupted
    assert same_state(policy, whole_policy)
    # The look at its former end is all that it has more.
    assert [line for line in told(config) if line["kind"] == "step"] == [
        line for line in told(whole) if line["kind"] == "step"
    ]
    assert drawn(config)["beliefs"] == drawn(whole)["beliefs"]


def test_a_look_at_the_step_of_a_checkpoint_is_not_taken_again(tmp_path: Path) -> None:
    config = make_config(tmp_path, evaluation={"every": 3}, checkpoints={"every": 3}, stop={"steps": 4})
    with pytest.raises(Killed):
        run(config, killed_in(4))
    run(config)
    assert [line["step"] for line in told(config) if line["kind"] == "evaluation"] == [0, 3, 4]


def test_the_latest_two_checkpoints_are_kept(uninterrupted: tuple[TrainConfig, Policy, Result]) -> None:
    config, _, _ = uninterrupted
    kept = sorted(path.name for path in (config.output / "checkpoints").iterdir())
    assert kept == ["step-00000009", "step-00000011"]


def test_a_run_that_is_done_is_left_alone(uninterrupted: tuple[TrainConfig, Policy, Result]) -> None:
    config, _, result = uninterrupted
    before = (config.output / "metrics.jsonl").read_bytes()
    again, _ = run(config)
    assert again == result
    assert (config.output / "metrics.jsonl").read_bytes() == before
    assert not (config.output / "restores.jsonl").exists()


def test_another_configuration_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    run(make_config(tmp_path, stop={"steps": 1}))
    with pytest.raises(InvalidRequest, match=r"loss\.clip_high: 0\.2 then, 0\.3 now"):
        run(make_config(tmp_path, loss={"clip_high": 0.3}))


def test_a_run_that_another_folder_began_is_refused(tmp_path: Path) -> None:
    config = make_config(tmp_path, stop={"steps": 1})
    run(config)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(InvalidRequest, match=r"'tiny' has drawn prompts already, and .* holds no checkpoint"):
        run(config)


def test_a_database_that_does_not_know_the_checkpoint_is_refused(tmp_path: Path) -> None:
    run(make_config(tmp_path, stop={"steps": 1}))
    for file in tmp_path.glob("midband.db*"):
        file.unlink()
    with service(tmp_path) as client:
        fill(client)
        client.create_run("tiny", pool="tiny", group_size=4)
    with pytest.raises(InvalidRequest, match=r"checkpoint of step 1, and the service has none there of run 'tiny'"):
        run(make_config(tmp_path))


def test_a_run_that_something_else_draws_from_is_refused(tmp_path: Path) -> None:
    config = make_config(tmp_path, checkpoints={"every": 1})
    with service(tmp_path) as client:
        fill(client)

        def draws_too(line: Line) -> None:
            if line["kind"] == "step" and line["step"] == 1:
                client.draw("tiny", 7, 2, policy_version=1)
            killed_in(2)(line)

        with pytest.raises(Killed):
            train(config, client, *make_policy(config), watch=draws_too)
    with pytest.raises(InvalidRequest, match=r"goes on from index 7, but .* from 1: something else draws"):
        run(config)
