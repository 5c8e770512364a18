"""The simulated learner learns as it says, and the loop that the engine runs in with it closes."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from predictors.value import degenerate_probability
from selector.config import RunConfig
from selector.policies import PRESETS
from tests.benchmarks.closed_loop import BATCH_SIZE, GROUP_SIZE, Closed, closed_loop
from tests.benchmarks.learner_model import Constants, Learner
from tests.benchmarks.simulate import IN_PARTS

SMALL = Constants(num_prompts=600, num_heldout=100)
STILL = replace(SMALL, own=0.0, category=0.0, everyone=0.0, num_regressions=0)


def loop(preset: str, constants: Constants = SMALL, *, num_steps: int = 40, **changes: object) -> Closed:
    config = RunConfig(pool="simulated", policy=PRESETS[preset].config, **changes)  # type: ignore[arg-type]
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
    middle, hopeless = int(np.argmin(np.abs(p_N - 0.5))), int(np.argmin(p_N))
    before = learner.skill_C.copy()

    outcome_KG = learner.step(0, np.array([middle, hopeless]), GROUP_SIZE, np.array([2.0, 1.0]))

    assert 0 < outcome_KG[0].sum() < GROUP_SIZE
    assert not outcome_KG[1].any()
    x = 2.0 * p_N[middle] * (1 - p_N[middle])
    assert learner.own_N[middle] == pytest.approx(x)
    assert learner.own_N[hopeless] == 0.0
    assert learner.skill_C[learner.category_N[middle]] - before[learner.category_N[middle]] == pytest.approx(0.1 * x)
    assert np.count_nonzero(learner.skill_C != before) == 1
    assert learner.ability == pytest.approx(0.01 * x)


def test_regressions_come_from_the_seed_whatever_is_trained() -> None:
    learners = [Learner(SMALL, 3, 50) for _ in range(2)]
    assert learners[0].regressions == learners[1].regressions != Learner(SMALL, 4, 50).regressions
    step, category = learners[0].regressions[0]
    lost = sum(at == (step, category) for at in learners[0].regressions) * SMALL.regression
    before = learners[0].skill_C[category]

    learners[0].step(step, np.zeros(0, np.int64), GROUP_SIZE, np.zeros(0))

    assert learners[0].skill_C[category] == pytest.approx(before - lost)


def test_outcomes_follow_the_pass_rates() -> None:
    learner = Learner(STILL, 0, 10)
    rows = np.repeat(np.argsort(np.abs(learner.pass_rate() - 0.3))[:4], 500)
    share = learner.step(0, rows, GROUP_SIZE, np.ones(len(rows))).mean()

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
    # Uniform weights are 1, so the step has the second moment that it has.
    assert found.knowing_moment == pytest.approx(1.0)


def test_selection_finds_more_and_the_audit_is_not_misled() -> None:
    uniform, midband = loop("uniform"), loop("midband")

    assert midband.informative_per_rollout > 1.3 * uniform.informative_per_rollout
    assert midband.covered
    assert midband.reweighted_error is not None
    # 40 draws: within four standard errors of a difference estimate from 13 audit tickets a draw.
    assert abs(midband.uniform_error or 0.0) < 4 * 0.5 / np.sqrt(40 * 13)


def test_weights_bring_the_second_moment_near_its_bound() -> None:
    found = loop("midband", weights="horvitz_thompson")

    assert found.least_moment < found.knowing_moment < 1.15 * found.least_moment
    assert found.second_moment < 1.0


def test_waits_are_counted_from_the_first_draw_to_the_last() -> None:
    # 128 of 600 a draw: nobody can be drawn at all five, and some are never drawn in five.
    found = loop("uniform", STILL, num_steps=5)

    assert found.never_drawn > 0
    assert found.longest_wait == 5
    assert len(found.pool_T) == len(found.heldout_T) == 5


@pytest.mark.slow
def test_the_command_prints_one_figure_a_line() -> None:

    printed = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.simulate", "--json", "--quick"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    figures = [json.loads(line) for line in printed.splitlines()]

    assert {figure["case"] for figure in figures} >= set(PRESETS) - {"random-equal-rollouts", *IN_PARTS}
    assert {figure["benchmark"] for figure in figures} == {"simulate"}
