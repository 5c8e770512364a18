from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from api.schemas import PolicyRequest
from predictors.base import Beliefs
from predictors.rewards import RewardBeliefs
from predictors.value import informative_probability, raised
from selector.config import Advantage, PolicyConfig, Utility, Weights
from selector.policies import POLICIES, Policy, build_policy, override
from selector.sampling.draw import draw
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


NEEDED: dict[str, dict[str, Any]] = {
    "target": {"target": 0.3},
    "band": {"low": 0.2, "high": 0.8},
    "pools": {"low": 0.2, "high": 0.8},
    "keep": {"estimator": "streak", "easy_keep": 0.5, "hard_keep": 0.5},
    "difficulty": {"feature": "difficulty", "target": 0.3},
    "shortfall": {"target": 0.5},
    "staleness": {"staleness": 0.1},
    "prompt_replay": {"low": 0.25, "high": 0.75},
}
"""What a utility cannot do without."""


def make_config(utility: str = "informative", **changes: Any) -> PolicyConfig:
    values: dict[str, Any] = {"preset": "x", "estimator": "x", "power": 4.0, "floor": 0.1}
    needed: dict[str, Any] = NEEDED.get(utility, {})
    return PolicyConfig(utility=utility, **(values | needed | changes))  # type: ignore[arg-type]


def make_policy(
    utility: str = "informative", weights: Weights = "none", advantage: Advantage = "grpo", **changes: Any
) -> Policy:
    return build_policy(make_config(utility, **changes), weights=weights, advantage=advantage)


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


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0, 3.0, 4.0, 5.0])
@pytest.mark.parametrize("weights", ["none", "clipped"])
def test_a_policy_that_names_its_power_of_the_chance_to_be_informative_is_it_to_the_bit(
    power: float, weights: Weights
) -> None:
    policy = make_policy(power=power, weights=weights)
    given_N = np.random.default_rng(0).random(200)
    zero_N = np.zeros(200)
    rewarded = RewardBeliefs(
        mean_N=zero_N, mean_variance_N=zero_N, informative_N=given_N, variance_N=zero_N, deviation_N=zero_N,
        n_eff_N=zero_N, lag_N=zero_N.astype(np.int64),
    )  # fmt: skip

    if weights != "none" or power not in (1.0, 2.0, 3.0, 4.0):
        assert policy.informative_power is None
        return
    assert policy.informative_power == power
    for found_N in (
        policy.utility(make_beliefs([0.5] * 200), group_size=8, informative_N=given_N),
        policy.reward_utility(rewarded, group_size=8),
    ):
        assert found_N is not None
        np.testing.assert_array_equal(found_N, raised(given_N, power))


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
@pytest.mark.parametrize("name", [name for name in POLICIES if "power" in POLICIES[name].parameters()])
def test_a_power_that_prefers_nothing_or_everything_is_refused(name: str, power: float) -> None:
    with pytest.raises(ValueError, match="power must be finite and > 0"):
        make_policy(name, power=power)


SURE = [0.5, 0.25]
"""Two pass rates that are known."""


@pytest.mark.parametrize(
    ("name", "advantage", "changes", "expected"),
    [
        # G = 4. P(informative) is 1 - 2/16 and 1 - 1/256 - 81/256.
        ("gradient", "grpo", {"power": 1.0}, [(7 / 8) ** 0.5, (174 / 256) ** 0.5]),
        ("gradient", "grpo", {"power": 2.0}, [7 / 8, 174 / 256]),
        # 3/4 and 4/3 times p(1-p).
        ("gradient", "dr_grpo", {"power": 2.0}, [3 / 16, 9 / 64]),
        ("gradient", "rloo", {"power": 2.0}, [1 / 3, 1 / 4]),
        ("variance", "grpo", {"power": 1.0}, [1 / 4, 3 / 16]),
        ("variance", "rloo", {"power": 2.0}, [1 / 16, 9 / 256]),
        # k = 1, 2, 3 of 4 lie in the band: the groups that differ. k = 2 alone: 6/16 and 6 * 9/256.
        ("band", "grpo", {"low": 0.2, "high": 0.8, "power": 1.0}, [7 / 8, 174 / 256]),
        ("band", "grpo", {"low": 0.5, "high": 0.6, "power": 1.0}, [6 / 16, 54 / 256]),
        ("band", "grpo", {"low": 0.5, "high": 0.6, "power": 2.0}, [36 / 256, (54 / 256) ** 2]),
        # 1 - (p - 0.25)² / 0.75².
        ("target", "grpo", {"target": 0.25, "power": 1.0}, [8 / 9, 1.0]),
        ("target", "grpo", {"target": 0.25, "power": 2.0}, [64 / 81, 1.0]),
        # Mean |A| is 2 sqrt(q(1-q)): sqrt(3)/2 for k = 1 and 3 and 1 for k = 2.
        ("advantage", "grpo", {"power": 1.0}, [8 / 16 * 3**0.5 / 2 + 6 / 16, (108 + 12) / 256 * 3**0.5 / 2 + 54 / 256]),
        ("advantage", "dr_grpo", {"power": 1.0}, [3 / 8, 9 / 32]),
        ("advantage", "rloo", {"power": 1.0}, [1 / 2, 3 / 8]),
        # A pass rate that is known cannot be learnt about.
        ("information", "grpo", {"power": 1.0}, [0.0, 0.0]),
        ("knapsack", "grpo", {"power": 1.0}, [7 / 64, 174 / 256 * 9 / 64]),
        # At `low` a prompt is hard, at `high` not yet easy.
        ("pools", "grpo", {"low": 0.25, "high": 0.5}, [1.0, 0.2]),
        ("pools", "grpo", {"low": 0.2, "high": 0.4}, [0.2, 1.0]),
    ],
)
def test_utilities_of_known_pass_rates_by_hand(
    name: str, advantage: Advantage, changes: dict[str, Any], expected: list[float]
) -> None:
    utility_N = make_policy(name, advantage=advantage, **changes).utility(make_beliefs(SURE), group_size=4)

    np.testing.assert_allclose(utility_N, expected, atol=1e-11)


def test_only_what_is_not_known_can_be_learnt() -> None:
    policy = make_policy("information", power=1.0)
    flat, narrow = make_beliefs([0.5], 1 / 12), make_beliefs([0.5], 1e-4)

    # Under Beta(1, 1): ln 2 - 1/2.
    assert policy.utility(flat, group_size=8)[0] == pytest.approx(np.log(2) - 0.5)
    assert policy.utility(narrow, group_size=8)[0] == pytest.approx(1e-4 / 0.5, rel=1e-3)


def test_a_utility_takes_the_chance_to_be_informative_from_a_caller_who_has_it() -> None:
    beliefs = make_beliefs(MEANS, variance=1e-4)
    informative_N = informative_probability(beliefs.mean_N, beliefs.variance_N, 8)

    for name in POLICIES:
        policy = make_policy(name)
        assert (
            policy.utility(beliefs, group_size=8, informative_N=informative_N).tobytes()
            == policy.utility(beliefs, group_size=8).tobytes()
        )
    used = make_policy(power=1.0).utility(beliefs, group_size=8, informative_N=np.full(7, 0.25))
    assert used.tolist() == [0.25] * 7


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("target", {"target": None}, "utility 'target' needs target"),
        ("target", {"target": 1.5}, r"target must be in \[0, 1\], got 1.5"),
        ("band", {"low": None}, "utility 'band' needs low"),
        ("band", {"high": None}, "utility 'band' needs high"),
        ("band", {"low": 0.8, "high": 0.2}, "low 0.8 and high 0.2"),
        ("band", {"low": 0.2, "high": 0.2}, "low 0.2 and high 0.2"),
        ("band", {"low": -0.1}, "low -0.1"),
        ("band", {"high": np.nan}, "high nan"),
        ("pools", {"low": 0.8, "high": 0.2}, "low 0.8 and high 0.2"),
    ],
)
def test_a_parameter_that_is_missing_or_out_of_range_is_named(name: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_policy(name, **changes)


@pytest.mark.parametrize(
    ("utility", "changes", "words"),
    [
        ("uniform", {"power": 2.0}, "power 2.0 has no effect with utility 'uniform' and design 'proportional': leave"),
        ("uniform", {"floor": 0.5}, "floor 0.5 has no effect"),
        ("uniform", {"target": 0.5}, "target 0.5 has no effect"),
        ("informative", {"target": 0.5}, "target 0.5 has no effect with utility 'informative'"),
        ("band", {"target": 0.5}, "target 0.5 has no effect with utility 'band'"),
        ("band", {"utility": "variance", "low": 0.1}, "low 0.1 has no effect with utility 'variance'"),
        ("informative", {"candidates": 4.0}, "candidates 4.0 has no effect .* design 'proportional'"),
        ("uniform", {"design": "top"}, "design top has no effect"),
        ("uniform", {"reads": "draw"}, "reads draw has no effect"),
    ],
)
def test_a_parameter_that_would_change_nothing_is_refused_by_name(
    utility: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        override(make_config(utility), changes)


def test_an_override_changes_what_it_names_and_drops_what_no_longer_counts() -> None:
    band = make_config("band")

    assert override(band, {"low": 0.1, "floor": 0.5}) == replace(band, low=0.1, floor=0.5)
    assert override(band, {"utility": "target", "target": 0.4}) == replace(
        band, utility="target", target=0.4, low=None, high=None
    )
    top = make_config("variance", design="top", candidates=4.0)
    assert override(top, {"candidates": 2.0}) == replace(top, candidates=2.0)
    assert override(top, {"design": "proportional"}) == replace(top, design="proportional", candidates=None)
    assert override(make_config("uniform"), {"power": 4.0, "floor": 0.1}) == make_config("uniform")


def test_the_contract_names_every_utility_and_every_part_of_a_policy() -> None:
    utilities = PolicyRequest.model_json_schema()["properties"]["utility"]["anyOf"][0]["enum"]

    assert set(POLICIES) == set(get_args(Utility)) == set(utilities)
    assert set(PolicyRequest.model_fields) == set(make_config().to_dict())


@pytest.mark.parametrize(
    ("changes", "weights", "words"),
    [
        ({"floor": 0.0}, "none", r"floor must be in \(0, 1\], or 0 with design 'top', got 0.0"),
        ({"floor": 1.1}, "none", "got 1.1"),
        ({"floor": np.nan}, "none", "got nan"),
        ({"candidates": 4.0}, "none", "candidates must be >= 1 and need design 'top', got 4.0"),
        ({"candidates": 0.5, "design": "top"}, "none", "candidates must be >= 1"),
        ({"candidates": np.nan, "design": "top"}, "none", "candidates must be >= 1"),
        ({"floor": 0.0, "design": "top"}, "horvitz_thompson", "weights 'horvitz_thompson' need a chance"),
        ({"floor": 0.0, "design": "top"}, "clipped", "give a floor, or weights 'none'"),
    ],
)
def test_a_design_that_cannot_be_is_refused_with_the_remedy(
    changes: dict[str, Any], weights: Weights, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        make_policy(weights=weights, **changes)


def test_an_unknown_utility_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"'greedy'.*informative.*uniform.*variance"):
        make_policy("greedy")
