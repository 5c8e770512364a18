"""What groups of rewards are worth, against simulated groups."""

from dataclasses import replace

import numpy as np
import pytest

from predictors.reward_value import expected_absolute_advantage, expected_squared_advantage, mean_normal_advantage
from predictors.rewards import RewardBeliefs
from predictors.value import AdvantageRule

BELIEF = RewardBeliefs(
    mean_N=np.array([0.0, 3.0]),
    mean_variance_N=np.zeros(2),
    informative_N=np.array([1.0, 0.25]),
    variance_N=np.array([4.0, 1.0]),
    deviation_N=np.array([2.0, 2.0]),
    n_eff_N=np.ones(2),
    lag_N=np.zeros(2, np.int64),
)


@pytest.mark.parametrize("group_size", [2, 5, 8])
@pytest.mark.parametrize("rule", ["grpo", "dr_grpo", "rloo"])
def test_advantages_are_what_simulated_normal_groups_have(rule: AdvantageRule, group_size: int) -> None:
    """Row 0 always differs; a quarter of the groups of row 1 do, with the same spread."""
    num = 200_000
    reward_MG = 2.0 * np.random.default_rng(0).normal(size=(num, group_size))
    centred_MG = reward_MG - reward_MG.mean(axis=1, keepdims=True)
    scale_M1 = {"grpo": 1.0 / centred_MG.std(axis=1, keepdims=True), "dr_grpo": 1.0}.get(
        rule, group_size / (group_size - 1)
    )
    advantage_MG = centred_MG * scale_M1

    squared = expected_squared_advantage(BELIEF, group_size, rule)
    absolute = expected_absolute_advantage(BELIEF, group_size, rule)

    assert squared == pytest.approx(np.mean(advantage_MG**2) * np.array([1.0, 0.25]), rel=0.01)
    assert absolute == pytest.approx(np.mean(np.abs(advantage_MG)) * np.array([1.0, 0.25]), rel=0.01)


def test_two_normal_rewards_have_advantages_of_one_and_many_those_of_a_normal() -> None:
    assert mean_normal_advantage(2) == pytest.approx(1.0)
    assert mean_normal_advantage(100_000) == pytest.approx(np.sqrt(2.0 / np.pi), rel=1e-4)


def test_a_group_of_one_has_no_advantage_and_none_is_refused() -> None:
    alone = replace(BELIEF, informative_N=np.zeros(2), variance_N=np.zeros(2))
    for rule in ("grpo", "dr_grpo", "rloo"):
        assert expected_squared_advantage(alone, 1, rule).tolist() == [0.0, 0.0]
        assert expected_absolute_advantage(alone, 1, rule).tolist() == [0.0, 0.0]
        with pytest.raises(ValueError, match="group_size"):
            expected_absolute_advantage(BELIEF, 0, rule)
