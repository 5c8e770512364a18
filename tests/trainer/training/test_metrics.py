"""The file of metrics, and the figures of a step."""

import math
from pathlib import Path

import pytest

from tests.trainer.factories import make_ticket
from trainer.rollout.base import Rollout, RolloutGroup
from trainer.training.metrics import Metrics
from trainer.training.progress import Laps, Progress, step_costs, step_line


def groups() -> list[RolloutGroup]:
    return [
        RolloutGroup(
            ticket=make_ticket("a"),
            rollouts=(
                Rollout(outcome=1.0, tokens=3, seconds=0.5),
                Rollout(outcome=0.0, tokens=5, seconds=1.0, status="truncated"),
            ),
        ),
        RolloutGroup(
            ticket=make_ticket("b"),
            rollouts=(Rollout(outcome=None, tokens=4, status="unscored"), Rollout(outcome=0.5, tokens=None)),
        ),
    ]


def laps(**seconds: float) -> Laps:
    found = Laps()
    found.seconds = seconds
    return found


def test_lines_are_appended_read_and_cut(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl")
    assert (metrics.num_bytes, metrics.lines()) == (0, [])
    metrics.cut(0)
    metrics.append({"kind": "step", "step": 1})
    place = metrics.num_bytes
    metrics.append({"kind": "evaluation", "step": 1})
    assert metrics.lines("step") == [{"kind": "step", "step": 1}]
    assert len(metrics.lines()) == 2
    metrics.cut(place)
    assert metrics.lines() == [{"kind": "step", "step": 1}]
    metrics.cut(10**6)
    assert len(metrics.lines()) == 1


def test_a_number_that_is_none_never_gets_into_the_file(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl")
    with pytest.raises(ValueError, match="not JSON compliant"):
        metrics.append({"kind": "step", "loss": math.nan})
    assert metrics.num_bytes == 0


def test_seconds_go_to_the_phase_that_took_them() -> None:
    costs = step_costs(groups(), laps(draw=0.1, rollouts=2.0, report=0.2, update=3.0, weight_sync=0.4))
    assert costs == pytest.approx(
        {"accelerators": 1, "generation_s": 1.5, "scoring_s": 0.5, "update_s": 3.0, "weight_sync_s": 0.4, "idle_s": 0.3}
    )
    # Whatever the engine says, a step's rollouts took no longer than they took.
    short = laps(draw=0, rollouts=1.0, report=0, update=0, weight_sync=0)
    assert step_costs(groups(), short)["scoring_s"] == 0
    silent = [RolloutGroup(ticket=make_ticket("a"), rollouts=(Rollout(outcome=1.0),))]
    assert step_costs(silent, short)["generation_s"] == 1.0


def test_laps_are_measured_from_the_end_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 11.0, 13.5])
    monkeypatch.setattr("trainer.training.progress.time.perf_counter", lambda: next(times))
    found = Laps()
    found.end("one")
    found.end("two")
    assert found.seconds == {"one": 1.0, "two": 2.5}


def test_the_line_of_a_step_by_hand() -> None:
    at = Progress(step=4, tokens=100, rollouts=8, branch=2).after(groups())
    assert (at.step, at.tokens, at.rollouts, at.branch) == (5, 112, 12, 2)
    assert step_line(at, groups(), [True, False, False]) == {
        "kind": "step", "step": 5, "tokens": 112, "rollouts": 12, "branch": 2, "away": 0, "tickets": 2, "judged": 3,
        "informative": 1, "inverse_yield": 3.0, "pass_rate": 0.5, "answer_tokens": 3.0, "truncated": 0.25,
    }  # fmt: skip


def test_a_step_without_an_informative_group_has_no_inverse_yield() -> None:
    assert step_line(Progress(), groups(), [False])["inverse_yield"] is None
    assert step_line(Progress(), groups(), [])["inverse_yield"] is None
