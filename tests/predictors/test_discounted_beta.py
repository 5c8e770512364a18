"""The discounted Beta against the published recursion, and the fading of what is left alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.predictors.groups import estimator, feed, groups

MOPPS = {"process_noise": 0.0, "prior_successes": 1.0, "prior_failures": 1.0}


def test_one_group_on_a_fixed_prior_by_hand() -> None:
    made = estimator("discounted_beta", num_rows=1, discount=0.5, **MOPPS)
    made.observe(groups([0], [3]))
    beliefs = made.beliefs()

    assert beliefs.mean_N[0] == pytest.approx(4 / 10)
    assert beliefs.variance_N[0] == pytest.approx(4 * 6 / 100 / 11)
    assert beliefs.n_eff_N[0] == pytest.approx(8)


@given(
    st.floats(0, 1),
    st.floats(0.1, 5),
    st.floats(0.1, 5),
    st.lists(st.tuples(st.integers(0, 8), st.integers(8, 12)), min_size=1, max_size=10),
)
def test_the_recursion_of_mopps_is_reproduced(
    discount: float, alpha_0: float, beta_0: float, history: list[tuple[int, int]]
) -> None:
    options = {"discount": discount, "process_noise": 0.0, "prior_successes": alpha_0, "prior_failures": beta_0}
    made = estimator("discounted_beta", num_rows=1, **options)
    alpha, beta = alpha_0, beta_0
    for version, (passes, scored) in enumerate(history):
        made.advance(100 * version)
        made.observe(groups([0], [passes], scored=scored, version=100 * version))
        alpha = discount * alpha + (1 - discount) * alpha_0 + passes
        beta = discount * beta + (1 - discount) * beta_0 + scored - passes

    beliefs = made.beliefs()
    assert beliefs.mean_N[0] == pytest.approx(alpha / (alpha + beta))
    assert beliefs.variance_N[0] == pytest.approx(alpha * beta / (alpha + beta) ** 2 / (alpha + beta + 1))


def test_without_process_noise_what_is_left_alone_never_fades() -> None:
    made = estimator("discounted_beta", num_rows=1, discount=0.5, **MOPPS)
    made.observe(groups([0], [3]))
    before = made.beliefs()
    made.advance(100_000)

    assert made.beliefs().variance_N[0] == before.variance_N[0]


def test_process_noise_fades_evidence_by_hand() -> None:
    """8 rollouts after 1000 versions of noise 1e-4 are worth 8 / (1 + 4 * 8 * .1) of them."""
    made = estimator("discounted_beta", num_rows=1, process_noise=1e-4)
    made.observe(groups([0], [8]))
    made.advance(1000)

    assert made.beliefs().n_eff_N[0] == pytest.approx(8 / 4.2)


def test_a_new_group_finds_the_older_ones_faded_and_discounted_by_hand() -> None:
    made = estimator("discounted_beta", num_rows=1, process_noise=1e-4, discount=0.5)
    made.observe(groups([0], [8], version=0))
    made.observe(groups([0], [8], version=1000))
    made.advance(1000)

    assert made.beliefs().n_eff_N[0] == pytest.approx(0.5 * 8 / 4.2 + 8)


def test_fading_in_two_steps_is_fading_in_one() -> None:
    """1/n grows by 4 q a version, so groups of the same counts fade alike however often a row is read."""
    once, late = (
        estimator("discounted_beta", num_rows=1, process_noise=1e-3, discount=1.0),
        estimator("discounted_beta", num_rows=1, process_noise=1e-3, discount=1.0),
    )
    for made in (once, late):
        made.observe(groups([0], [2], version=0))
    once.advance(30)
    once.beliefs()
    for made in (once, late):
        made.advance(60)

    assert once.beliefs().n_eff_N[0] == late.beliefs().n_eff_N[0] == pytest.approx(1 / (1 / 8 + 4e-3 * 60))


def test_a_fixed_prior_ignores_what_other_prompts_did() -> None:
    made = estimator("discounted_beta", num_rows=100, **MOPPS)
    made.observe(groups(np.arange(50), 0))

    np.testing.assert_allclose(made.beliefs().mean_N[50:], 0.5)


def test_the_prior_of_a_tried_prompt_moves_with_its_category() -> None:
    made = estimator("discounted_beta", num_rows=500)
    made.observe(groups([0], [4]))
    before = made.beliefs().mean_N[0]
    made.observe(groups(np.arange(1, 400), 8))

    assert made.beliefs().mean_N[0] > before


@pytest.mark.parametrize(
    ("discount", "passes", "alpha", "beta"), [(1.0, [3, 8, 0], 12, 14), (0.5, [3, 8, 0], 5.75, 10.25)]
)
def test_the_posterior_of_mopps_after_three_groups_by_hand(
    discount: float, passes: list[int], alpha: float, beta: float
) -> None:
    """Without forgetting Beta(1 + 11, 1 + 13); with .5: 1 + (3/4 + 8/2 + 0) and 1 + (5/4 + 0/2 + 8)."""
    made = estimator("discounted_beta", num_rows=1, discount=discount, **MOPPS)
    for version, passed in enumerate(passes):
        made.observe(groups([0], [passed], version=version))
    beliefs = made.beliefs()

    assert beliefs.mean_N[0] == pytest.approx(alpha / (alpha + beta))
    assert beliefs.variance_N[0] == pytest.approx(alpha * beta / (alpha + beta) ** 2 / (alpha + beta + 1))


def test_the_memory_of_mopps_at_rest() -> None:
    """(2 (1 - l) + 8) / (1 - l) pseudo-counts: 18 at l = .5; without forgetting 2 + 8 for each visit, unbounded."""
    forgetting, counting = (estimator("discounted_beta", num_rows=1, discount=rate, **MOPPS) for rate in (0.5, 1.0))
    for version in range(60):
        for made in (forgetting, counting):
            made.observe(groups([0], [version % 9], version=version))

    for made, pseudo_counts in ((forgetting, 18), (counting, 2 + 8 * 60)):
        beliefs = made.beliefs()
        spread = beliefs.mean_N[0] * (1 - beliefs.mean_N[0])
        assert spread / beliefs.variance_N[0] - 1 == pytest.approx(pseudo_counts)


def test_a_jump_is_forgotten_at_the_discount_and_never_without() -> None:
    """20 visits at .2, 10 at .8: with .5 what is left of the first is 2^-10; by counting two thirds."""
    rng = np.random.default_rng(0)
    forgetting, counting = (estimator("discounted_beta", num_rows=2000, discount=rate, **MOPPS) for rate in (0.5, 1.0))
    for pass_rate, versions in ((0.2, np.arange(20)), (0.8, np.arange(20, 30))):
        for made in (forgetting, counting):
            feed(made, np.full(2000, pass_rate), versions=versions, rng=rng)

    # Means of 2000 prompts; the sd of one is .4 / sqrt(16 / 1.5) = .12 at most, so .0027 for their mean.
    assert forgetting.beliefs().mean_N.mean() == pytest.approx((1 + 16 * 0.8) / 18, abs=0.011)
    assert counting.beliefs().mean_N.mean() == pytest.approx((1 + 240 * 0.4) / 242, abs=0.011)


def test_counting_converges_on_static_pass_rates() -> None:
    rng = np.random.default_rng(1)
    pass_rate_N = rng.uniform(0, 1, 400)
    made = estimator("discounted_beta", num_rows=400, discount=1.0, **MOPPS)
    feed(made, pass_rate_N, versions=np.arange(200), rng=rng)

    # 1600 rollouts: the sd of a prompt is at most .0125.
    assert np.abs(made.beliefs().mean_N - pass_rate_N).max() < 4 * 0.0125
