"""The simulated learner learns as it says, and the loop that the engine runs in with it closes."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from predictors.value import degenerate_probability
from selector.batches.drawing import DrawRequest
from selector.config import RunConfig
from selector.engine import RunEngine
from selector.groups.reports import GroupIn, Report, RolloutIn
from selector.policies import PRESETS
from tests.benchmarks.closed_loop import GROUP_SIZE, Closed, closed_loop, pool_of
from tests.benchmarks.learner_model import Constants, Learner
from tests.benchmarks.rolling_out import BATCH_SIZE, roll_out_step, whole_groups
from tests.benchmarks.simulate import LEFT_OUT, main

SMALL = Constants(num_prompts=600, num_heldout=100)
STILL = replace(SMALL, own=0.0, category=0.0, everyone=0.0, num_regressions=0)


def loop(preset: str, constants: Constants = SMALL, *, num_steps: int = 40, **changes: object) -> Closed:
    preset_config, sizes = PRESETS[preset].config, {"group_size": PRESETS[preset].group_size}
    config = RunConfig(pool="simulated", policy=preset_config, **(sizes | changes))  # type: ignore[arg-type]
    return closed_loop(config, constants, seed=1, num_steps=num_steps)


def test_a_learner_begins_with_the_shares_it_names() -> None:
    learner = Learner(Constants(), 0, 10)
    p_N = learner.pass_rate()

    assert np.mean(learner.difficulty_N >= 6.0) == pytest.approx(0.4)
    assert np.mean(learner.difficulty_N <= -4.5) == pytest.approx(0.3)
    assert np.mean(p_N < 0.02) == pytest.approx(0.4, abs=0.03)
    assert np.mean(p_N > 0.97) == pytest.approx(0.3, abs=0.03)


def test_an_informative_group_raises_its_prompt_its_category_and_everybody() -> None:
    constants = replace(SMALL, own=1.0, category=0.1, everyone=0.01, noise=0.0, num_regressions=0)
    learner = Learner(constants, 0, 10)
    p_N = learner.pass_rate()
    middle = int(np.argmin(np.abs(p_N - 0.5)))
    before = learner.skill_C.copy()

    learner.learn(0, np.array([middle]), np.array([2.0]))

    x = 2.0 * p_N[middle] * (1 - p_N[middle])
    assert learner.own_N[middle] == pytest.approx(x)
    assert np.count_nonzero(learner.own_N) == 1
    assert learner.skill_C[learner.category_N[middle]] - before[learner.category_N[middle]] == pytest.approx(0.1 * x)
    assert np.count_nonzero(learner.skill_C != before) == 1
    assert learner.ability == pytest.approx(0.01 * x)


def test_regressions_come_from_the_seed_whatever_is_trained() -> None:
    learners = [Learner(SMALL, 3, 50) for _ in range(2)]
    assert learners[0].regressions == learners[1].regressions != Learner(SMALL, 4, 50).regressions
    step, category = learners[0].regressions[0]
    lost = sum(at == (step, category) for at in learners[0].regressions) * SMALL.regression
    before = learners[0].skill_C[category]

    learners[0].learn(step, np.zeros(0, np.int64), np.zeros(0))

    assert learners[0].skill_C[category] == pytest.approx(before - lost)


def test_outcomes_follow_the_pass_rates() -> None:
    learner = Learner(STILL, 0, 10)
    rows = np.repeat(np.argsort(np.abs(learner.pass_rate() - 0.3))[:4], 500)
    share = learner.roll_out(0, rows, GROUP_SIZE).mean()

    assert share == pytest.approx(learner.pass_rate()[rows].mean(), abs=4 * np.sqrt(0.21 / (len(rows) * GROUP_SIZE)))


def test_a_uniform_draw_finds_as_many_informative_groups_as_there_are() -> None:
    found = loop("uniform", STILL, num_steps=60)
    p_N = Learner(STILL, 1, 60).pass_rate()
    expected = float(1 - degenerate_probability(p_N, GROUP_SIZE).mean())
    groups = 60 * BATCH_SIZE

    assert found.informative_T.sum() / groups == pytest.approx(expected, abs=4 * np.sqrt(expected / groups))
    assert found.heldout_T.tolist() == [found.heldout_T[0]] * 60
    assert found.rollouts_to(found.heldout_T[0]) == BATCH_SIZE * GROUP_SIZE
    assert found.rollouts_to(1.1) is None
    assert found.rollouts_T.tolist() == [BATCH_SIZE * GROUP_SIZE] * 60


def test_uniform_weights_leave_the_second_moment_as_it_is() -> None:
    found = loop("uniform", STILL, num_steps=5, weights="horvitz_thompson").moments

    assert found is not None
    assert found.knowing == pytest.approx(1.0)


def test_selection_finds_more_and_the_audit_is_not_misled() -> None:
    uniform, midband = loop("uniform"), loop("midband")

    assert midband.informative_per_rollout > 1.3 * uniform.informative_per_rollout
    assert midband.covered
    assert midband.reweighted_error is not None
    # 40 draws: within four standard errors of a difference estimate from 13 audit tickets a draw.
    assert abs(midband.uniform_error or 0.0) < 4 * 0.5 / np.sqrt(40 * 13)


def test_weights_bring_the_second_moment_near_its_bound_and_near_what_was_predicted() -> None:
    found = loop("midband", Constants(num_prompts=2_000, num_heldout=100), num_steps=60, weights="horvitz_thompson")

    assert found.moments is not None
    assert found.moments.least < found.moments.knowing < 1.15 * found.moments.least
    assert found.moments.actual < 1.0
    assert found.moments.actual == pytest.approx(found.moments.predicted, rel=0.15)


def test_waits_are_counted_from_the_first_draw_to_the_last() -> None:
    # 128 of 600 a draw: nobody can be drawn at all five, and some are never drawn in five.
    found = loop("uniform", STILL, num_steps=5)

    assert found.never_drawn > 0
    assert found.longest_wait == 5
    assert len(found.rollouts_T) == len(found.heldout_T) == 5


def test_nobody_waits_longer_than_the_revisit_period_says() -> None:
    found = loop("midband", num_steps=90, review_share=0.2)

    assert found.revisit_draws is not None
    assert found.revisit_draws < 45
    assert found.longest_wait < found.revisit_draws
    assert found.never_drawn == 0


def test_whole_groups_are_the_event_that_a_report_makes() -> None:
    learner = Learner(SMALL, 1, 5)
    engine, _ = RunEngine.begin("r", RunConfig(pool="simulated", policy=PRESETS["duet"].config), pool_of(learner))
    request = DrawRequest(index=0, size=BATCH_SIZE, policy_version=0, group_size=GROUP_SIZE)
    event = engine.draw(request, now=0.0)
    assert event is not None
    engine.apply(event)
    outcome_KG = learner.roll_out(0, event.row_K, event.rollouts_K)
    groups = [
        GroupIn(
            ticket=engine.state.ticket_id(place),
            rollouts=[RolloutIn(outcome=o, reward=o, tokens=1) for o in outcomes[:size].astype(float).tolist()],
        )
        for place, (outcomes, size) in enumerate(zip(outcome_KG, event.rollouts_K, strict=True))
    ]

    assert whole_groups(engine, 0, outcome_KG, event.rollouts_K) == engine.report(Report(groups=groups)).event


def test_a_refilled_step_counts_every_rollout_and_trains_on_what_is_kept() -> None:
    learner = Learner(SMALL, 1, 5)
    config = RunConfig(pool="simulated", policy=PRESETS["dapo"].config)
    engine, _ = RunEngine.begin("r", config, pool_of(learner))

    done = roll_out_step(engine, learner, 0)

    assert len(done.events) > 1
    assert len(done.row_K) == BATCH_SIZE <= done.informative < done.groups
    assert done.rollouts == GROUP_SIZE * done.groups


def test_waves_stop_as_the_engine_says_and_the_rest_is_not_made() -> None:
    learner = Learner(SMALL, 1, 5)
    config = RunConfig(pool="simulated", policy=PRESETS["speed"].config, group_size=24)
    engine, _ = RunEngine.begin("r", config, pool_of(learner))

    done = roll_out_step(engine, learner, 0)

    arrived = engine.state.book.tickets["arrived"][: done.groups]
    assert set(arrived.tolist()) == {4, 24}
    assert done.rollouts == arrived.sum()
    audit = done.events[0].audit_K
    informative = int((~audit & (arrived == 24)).sum())
    assert informative <= len(done.row_K) <= informative + audit.sum()
    assert not engine.state.book.open


def test_what_a_pilot_drops_is_not_trained_on() -> None:
    learner = Learner(SMALL, 1, 5)
    config = RunConfig(pool="simulated", policy=PRESETS["pilot-commit"].config, group_size=64)
    engine, _ = RunEngine.begin("r", config, pool_of(learner))

    done = roll_out_step(engine, learner, 0)

    dropped = engine.state.book.tickets["row"][: done.groups][engine.state.book.tickets["dropped"][: done.groups]]
    assert len(dropped)
    assert not np.isin(dropped, done.row_K).any()
    assert done.informative > len(done.row_K)


def test_labels_are_another_models_shares_and_no_truth() -> None:
    learner = Learner(Constants(), 0, 5)
    label_N, failed_N = learner.label(), 1.0 - learner.pass_rate()

    assert set(np.unique(label_N * 128 % 1)) == {0.0}
    assert 0.9 < np.corrcoef(label_N, failed_N)[0, 1] < 0.99


def test_a_person_gets_a_table_with_a_row_a_case_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "simulated.png"
    only = ["--only", "midband", "speed", "midband, weights applied"]
    monkeypatch.setattr(sys, "argv", ["simulate", "--quick", "--picture", str(picture), *only])

    main()

    printed = capsys.readouterr().out
    rows = [line.split("│")[1].strip() for line in printed.splitlines() if line.startswith("│")]
    assert sorted(rows) == ["midband", "midband, weights applied", "speed", "uniform"]
    assert "second_moment_bound" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_command_prints_one_figure_a_line() -> None:

    printed = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.simulate", "--json", "--quick"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    figures = [json.loads(line) for line in printed.splitlines()]

    assert {figure["case"] for figure in figures} >= set(PRESETS) - LEFT_OUT
    assert {figure["benchmark"] for figure in figures} == {"simulate"}
