"""Figures that published methods can be checked against, from our own functions at pass rates that are known.

What a rule trains on a prompt relative to plain GRPO is Σ_k P(k kept) c(k) / Σ_k P(k) c(k): a group with k of G passed
moves the policy along dp with c(k) = sqrt(k (G - k)), as GRPO divides by the standard deviation.
"""

import numpy as np
import pytest

from predictors.base import Observations
from predictors.registry import build_estimator
from predictors.streak import keep_probability
from predictors.value import degenerate_probability, expected_absolute_advantage, expected_over_counts
from selector.policies import PRESETS, build_policy
from tests.selector.test_policies import make_beliefs, make_policy

GROUP_SIZE = 8
PASS_RATES = [0.01, 0.05, 0.10, 0.20, 0.50]


def grpo_step(pass_rate: list[float], kept_k: np.ndarray) -> np.ndarray:
    """Expected length of the step along dp from a group of each prompt, of groups that are kept."""
    share_k = np.arange(GROUP_SIZE + 1) / GROUP_SIZE
    p = np.array(pass_rate)
    return expected_over_counts(p, np.zeros(len(p)), kept_k * np.sqrt(share_k * (1 - share_k)))


@pytest.mark.parametrize(
    ("group_size", "expected"), [(8, {0.9: 0.43, 0.95: 0.66, 0.99: 0.92}), (16, {0.9: 0.19, 0.95: 0.44, 0.99: 0.85})]
)
def test_chances_to_be_degenerate(group_size: int, expected: dict[float, float]) -> None:
    for pass_rate, chance in expected.items():
        both = degenerate_probability(np.array([pass_rate, 1 - pass_rate]), group_size)
        np.testing.assert_allclose(both, chance, atol=0.005)


def test_groups_of_eight_damp_the_step_of_grpo_near_the_ends() -> None:
    p = np.array([0.5, 0.1, 0.05, 0.01])
    found = expected_absolute_advantage(p, np.zeros(4), GROUP_SIZE, "grpo") / (2 * np.sqrt(p * (1 - p)))

    np.testing.assert_allclose(found, [0.93, 0.70, 0.54, 0.26], atol=0.005)


def test_dropping_degenerate_groups_leaves_the_direction_as_it_is() -> None:
    mixed_k = np.array([0.0] + [1.0] * 7 + [0.0])

    np.testing.assert_allclose(grpo_step(PASS_RATES, mixed_k) / grpo_step(PASS_RATES, np.ones(9)), 1.0)


def test_a_band_on_the_observed_group_trains_less_on_the_ends() -> None:
    config = PRESETS["band"].config
    assert config.low is not None
    assert config.high is not None
    share_k = np.arange(GROUP_SIZE + 1) / GROUP_SIZE
    kept_k = ((share_k >= config.low) & (share_k <= config.high)).astype(float)

    found = grpo_step(PASS_RATES, kept_k) / grpo_step(PASS_RATES, np.ones(9))

    np.testing.assert_allclose(found, [0.045, 0.21, 0.40, 0.67, 0.96], atol=0.006)


def test_selection_by_variance_trains_less_on_the_ends() -> None:
    utility_N = make_policy("variance", power=1.0).utility(make_beliefs(PASS_RATES), group_size=GROUP_SIZE)

    np.testing.assert_allclose(utility_N / utility_N[-1], [0.040, 0.19, 0.36, 0.64, 1.0], atol=0.005)


def test_mopps_and_variance_prefer_the_same_prompts() -> None:
    mopps = build_policy(PRESETS["mopps"].config, weights="none", advantage="grpo")
    beliefs = make_beliefs(PASS_RATES)

    np.testing.assert_allclose(
        mopps.utility(beliefs, group_size=GROUP_SIZE),
        4 * make_policy("variance", power=1.0).utility(beliefs, group_size=GROUP_SIZE),
    )


def test_a_prompt_that_passes_a_twentieth_of_the_time_still_teaches_in_a_third_of_its_groups() -> None:
    informative = make_policy(power=1.0).utility(make_beliefs([0.05]), group_size=GROUP_SIZE)

    assert informative[0] == pytest.approx(0.34, abs=0.005)


def test_the_value_of_the_knapsack_peaks_at_a_third() -> None:
    p = np.linspace(0.01, 0.99, 99)
    value_N = make_policy("knapsack", power=1.0).utility(make_beliefs(p.tolist()), group_size=1000)

    assert p[np.argmax(value_N)] == pytest.approx(1 / 3, abs=0.006)


def trained_share(pass_rate: float) -> float:
    """What GRESO trains on a prompt relative to no skipping, in the long run: 1/E[1/keep] over the groups trained on.

    A run of z groups is one of z + 1 with the chance of its kind, and else begins anew or ends.
    """
    easy, hard = pass_rate**GROUP_SIZE, (1 - pass_rate) ** GROUP_SIZE
    length = np.arange(0, 3000)
    waiting = 1.0 - easy - hard  # after a mixed group the next is offered at once
    for kind, sign in ((easy, 1), (hard, -1)):
        # The share of groups that end a run of exactly z of this kind: kind^z (1 - kind), z >= 1.
        waiting += float((kind ** length[1:] * (1 - kind) / keep_probability(sign * length[1:])).sum())
    return 1.0 / waiting


def test_greso_skips_prompts_that_pass_a_twentieth_of_the_time_and_trains_them_a_twelfth() -> None:
    found = [trained_share(p) for p in PASS_RATES]

    # The first figure of the method's own terms: 0.016, a twelfth, about a third, four fifths, all.
    np.testing.assert_allclose(found, [0.016, 0.085, 0.35, 0.81, 0.99], rtol=0.03)
    assert 1 / found[1] == pytest.approx(12.0, abs=0.15)


def test_greso_by_its_estimator_trains_a_prompt_as_often_as_the_closed_form_says() -> None:
    # 600 prompts of one pass rate, offered 400 times; the first hundred let their runs settle.
    rng = np.random.default_rng(0)
    estimator = build_estimator("streak", {})
    estimator.resize(np.zeros(600, np.int32))
    trained = []
    for visit in range(400):
        run_N = estimator.beliefs().run_N
        assert run_N is not None
        rows = np.flatnonzero(rng.random(600) < keep_probability(run_N))
        trained.append(len(rows) / 600)
        estimator.observe(
            Observations(
                rows_B=rows,
                passes_B=rng.binomial(GROUP_SIZE, 0.05, len(rows)).astype(float),
                scored_B=np.full(len(rows), GROUP_SIZE),
                version_B=np.full(len(rows), visit),
            )
        )

    # Visits of a prompt are correlated over about a hundred of them: as good as 3 · 600 independent ones, of sd 0.3.
    assert np.mean(trained[100:]) == pytest.approx(trained_share(0.05), abs=4 * 0.3 / np.sqrt(1800))
