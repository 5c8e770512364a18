import numpy as np
import pytest

from predictors.base import Beliefs
from predictors.value import informative_probability
from selector.config import Advantage, PolicyConfig, Weights
from selector.draw import draw
from selector.policies import POLICIES, PRESETS, Policy, build_policy
from tests.selector.draw_cases import make_frame, make_plan

MEANS = [0.001, 0.05, 0.3, 0.5, 0.7, 0.95, 0.999]


def make_beliefs(mean: list[float], variance: float = 0.0) -> Beliefs:
    num = len(mean)
    return Beliefs(
        mean_N=np.array(mean),
        variance_N=np.full(num, variance),
        n_eff_N=np.full(num, 8.0),
        lag_N=np.zeros(num, np.int64),
        source_N=np.ones(num, np.uint8),
    )


def make_policy(
    utility: str = "informative", power: float = 4.0, weights: Weights = "none", advantage: Advantage = "grpo"
) -> Policy:
    config = PolicyConfig(preset="x", estimator="x", utility=utility, power=power, floor=0.1)  # type: ignore[arg-type]
    return build_policy(config, weights=weights, advantage=advantage)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("weights", ["none", "horvitz_thompson", "clipped"])
@pytest.mark.parametrize("advantage", ["grpo", "dr_grpo", "rloo"])
def test_utilities_are_what_a_draw_accepts_and_change_nothing(
    name: str, weights: Weights, advantage: Advantage
) -> None:
    beliefs = make_beliefs([1e-12, *MEANS, 1 - 1e-12], variance=1e-14)
    policy = make_policy(name, weights=weights, advantage=advantage)

    utility_N = policy.utility(beliefs, group_size=8)

    assert utility_N.shape == (9,)
    assert utility_N.dtype == np.float64
    assert len(draw(make_frame(9), utility_N, make_plan(4)).rows_K) == 4
    np.testing.assert_array_equal(utility_N, policy.utility(beliefs, group_size=8))
    np.testing.assert_array_equal(beliefs.mean_N, make_beliefs([1e-12, *MEANS, 1 - 1e-12]).mean_N)


def test_uniform_prefers_nothing_and_says_so() -> None:
    policy = make_policy("uniform")

    np.testing.assert_array_equal(policy.utility(make_beliefs(MEANS), group_size=8), 1.0)
    assert policy.exact_uniform
    assert not make_policy("informative").exact_uniform


def test_without_weights_the_utility_is_a_power_of_the_chance_to_be_informative() -> None:
    # G = 2, p = 1/2: 1 - 2/4. Power 3.
    policy = make_policy(power=3.0)

    assert policy.utility(make_beliefs([0.5]), group_size=2)[0] == pytest.approx(0.125)


def test_with_weights_the_utility_is_the_root_of_the_chance_to_be_informative() -> None:
    for weights in ("horvitz_thompson", "clipped"):
        policy = make_policy(weights=weights, power=9.0)
        assert policy.utility(make_beliefs([0.5]), group_size=2)[0] == pytest.approx(np.sqrt(0.5))


@pytest.mark.parametrize("advantage", ["dr_grpo", "rloo"])
def test_with_weights_and_no_division_it_is_the_standard_deviation_of_an_outcome(advantage: Advantage) -> None:
    policy = make_policy(weights="horvitz_thompson", advantage=advantage)

    # E[p(1-p)] = m - m² - v.
    assert policy.utility(make_beliefs([0.2], variance=0.03), group_size=8)[0] == pytest.approx(np.sqrt(0.13))


def test_unsure_beliefs_count_with_their_spread() -> None:
    policy = make_policy(power=1.0)
    beliefs = make_beliefs([0.02], variance=0.01)

    assert policy.utility(beliefs, group_size=8)[0] == pytest.approx(
        informative_probability(beliefs.mean_N, beliefs.variance_N, 8)[0]
    )


@pytest.mark.parametrize("advantage", ["grpo", "rloo"])
def test_the_weighted_utility_minimises_the_variance_of_the_weighted_step(advantage: Advantage) -> None:
    mean_N = np.linspace(0.02, 0.98, 25)
    beliefs = make_beliefs(mean_N.tolist())
    if advantage == "rloo":
        squared_N = mean_N * (1 - mean_N)
    else:
        squared_N = informative_probability(beliefs.mean_N, beliefs.variance_N, 8)
    utility_N = make_policy(weights="horvitz_thompson", advantage=advantage).utility(beliefs, group_size=8)

    def variance(size_N: np.ndarray) -> float:
        return float((squared_N * size_N.sum() / size_N).sum())

    rng = np.random.default_rng(0)
    best = variance(utility_N)
    assert all(best < variance(utility_N * np.exp(0.1 * rng.standard_normal(25))) for _ in range(200))
    assert best < variance(np.ones(25))
    assert best < variance(utility_N**2)


def test_a_sharper_power_draws_more_informative_groups() -> None:
    mean_N = np.random.default_rng(1).beta(0.3, 0.3, 400).clip(1e-6, 1 - 1e-6)
    beliefs = make_beliefs(mean_N.tolist())
    informative_N = informative_probability(beliefs.mean_N, beliefs.variance_N, 8)

    def expected_yield(policy: Policy) -> float:
        drawn = draw(make_frame(400), policy.utility(beliefs, group_size=8), make_plan(40, audit_share=0.1))
        return float(drawn.inclusion_N @ informative_N) / 40

    yields = [expected_yield(p) for p in (make_policy("uniform"), make_policy(power=1.0), make_policy(power=4.0))]
    assert yields[0] < yields[1] < yields[2]


@pytest.mark.parametrize("power", [0.0, -1.0, np.inf, np.nan])
def test_a_power_that_prefers_nothing_or_everything_is_refused(power: float) -> None:
    with pytest.raises(ValueError, match="power must be finite and > 0"):
        make_policy(power=power)


def test_an_unknown_utility_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"'greedy'.*informative.*uniform"):
        make_policy("greedy")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_and_keeps_a_floor(name: str) -> None:
    preset = PRESETS[name]

    assert preset.config.preset == name
    assert 0 < preset.config.floor <= 1
    assert preset.source
    assert preset.sentence.endswith(".")
    assert isinstance(build_policy(preset.config, weights="none", advantage="grpo"), Policy)


def test_the_presets_of_the_first_version_are_these() -> None:
    assert list(PRESETS) == ["uniform", "midband"]
    assert PRESETS["uniform"].config.utility == "uniform"
    assert PRESETS["midband"].config.utility == "informative"
