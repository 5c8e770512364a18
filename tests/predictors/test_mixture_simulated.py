"""The default estimator on simulated pools whose pass rates are known."""

import numpy as np
import pytest

from predictors.base import Beliefs, FloatArray
from predictors.calibration import beta_binomial_log_loss
from predictors.mixture import GROUPS_PER_STEP
from predictors.value import informative_probability
from tests.predictors.groups import estimator, groups
from tests.predictors.mixture_cases import LAG, known, mixture, visit, wandered


def mean_loss(beliefs: Beliefs, passes: FloatArray) -> float:
    scored = np.full(passes.size, 8)
    return float(beta_binomial_log_loss(beliefs.mean_N, beliefs.variance_N, passes, scored).mean())


def share_below(beliefs: Beliefs, pass_rate_N: FloatArray, *, steps: int = 4_000) -> FloatArray:
    """(N,) the belief's probability of a pass rate below the true one, by sums over arcsin(sqrt(p))."""
    concentration = beliefs.mean_N * (1 - beliefs.mean_N) / beliefs.variance_N - 1
    alpha, beta = beliefs.mean_N * concentration, (1 - beliefs.mean_N) * concentration
    psi = (np.arange(steps) + 0.5) / steps * np.pi / 2
    log_density = (2 * alpha - 1)[:, None] * np.log(np.sin(psi)) + (2 * beta - 1)[:, None] * np.log(np.cos(psi))
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    below = (density * (psi < np.arcsin(np.sqrt(pass_rate_N))[:, None])).sum(axis=1)
    return np.asarray(below / density.sum(axis=1))


def covered(beliefs: Beliefs, pass_rate_N: FloatArray) -> float:
    """Share of true pass rates inside the middle 90 % of their beliefs."""
    below = share_below(beliefs, pass_rate_N)
    return float(np.mean((below > 0.05) & (below < 0.95)))


def test_static_pass_rates_are_recovered_with_honest_intervals() -> None:
    rng = np.random.default_rng(1)
    made, pass_rate = mixture(1_000), rng.beta(0.6, 0.8, 1_000)
    errors = {}
    for place in range(41):
        beliefs, _ = visit(made, place * LAG, pass_rate, rng)
        if place in (2, 10, 40):
            errors[place] = float(np.sqrt(np.mean((beliefs.mean_N - pass_rate) ** 2)))
            # sd of a share of 1,000 is .0095.
            assert 0.87 < covered(beliefs, pass_rate) < 0.95, place
            assert abs(np.mean(beliefs.mean_N - pass_rate)) < 0.01

    # With 8 n rollouts and nothing forgotten the error is sqrt(E[p (1-p)] / 8 n): .098, .044 and .022 with E = .14.
    assert errors[2] < 0.098
    assert errors[10] < 0.046
    assert errors[40] < 0.024
    assert made.pace.process_noise < 2e-6


def test_a_drift_and_a_wander_are_learned_and_followed_with_honest_intervals() -> None:
    rng = np.random.default_rng(2)
    made, pass_rate = mixture(1_000), rng.beta(1.0, 2.5, 1_000)
    for place in range(50):
        beliefs, _ = visit(made, place * LAG, pass_rate, rng)
        if place in (5, 20, 49):
            # The tails of the wander are thicker than a Beta's, and some rows come to stay at an end.
            assert 0.80 < covered(beliefs, pass_rate) < 0.95, place
            assert abs(np.mean(beliefs.mean_N - pass_rate)) < 0.015
        pass_rate = wandered(pass_rate, drift=6e-4, noise=4e-5, rng=rng)

    assert made.pace.drift == pytest.approx(6e-4, rel=0.35)
    assert made.pace.process_noise == pytest.approx(4e-5, rel=0.5)


@pytest.mark.parametrize("drift", [-1e-3, 1e-3])
def test_a_linear_drift_is_followed_better_than_without_learning_it(drift: float) -> None:
    rng = np.random.default_rng(3)
    made, plain = mixture(500), estimator("discounted_beta", num_rows=500)
    pass_rate, ours, theirs = rng.uniform(0.2, 0.8, 500), [], []
    for place in range(40):
        beliefs, passes = visit(made, place * LAG, pass_rate, rng)
        plain.advance(place * LAG)
        ours.append(mean_loss(beliefs, passes))
        theirs.append(mean_loss(plain.beliefs(), passes))
        plain.observe(groups(np.arange(500), passes, version=place * LAG))
        pass_rate = wandered(pass_rate, drift=drift, noise=0.0, rng=rng)

    assert np.mean(ours[10:]) < np.mean(theirs[10:]) - 0.02
    # Without any wander a drift is thought unlikely, and is drawn to 0; toward the ends it hardly shows.
    assert 0.3 < made.pace.drift / drift < 1.2


def test_a_pool_that_jumps_is_believed_to_jump() -> None:
    """Everything is drawn anew at version 200: unsure within four visits, then as good as before."""
    rng = np.random.default_rng(4)
    made, pass_rate, losses = mixture(1_000), rng.beta(0.6, 0.8, 1_000), []
    for place in range(40):
        if place == 20:
            pass_rate = rng.beta(0.8, 0.6, 1_000)
        beliefs, passes = visit(made, place * LAG, pass_rate, rng)
        losses.append(mean_loss(beliefs, passes))
    flat = np.log(9)  # of a belief that knows nothing

    assert losses[19] < losses[20] - 1.0
    assert losses[24] < flat
    assert losses[39] < losses[19] + 0.15
    assert 0.85 < covered(beliefs, pass_rate) <= 1.0


def test_prompts_that_regress_after_mastery_are_noticed_within_three_groups() -> None:
    """A twentieth of the mastered prompts falls to .5, too few to change the pool's pace; sooner than by counting."""
    rng = np.random.default_rng(5)
    made, plain = mixture(1_000), estimator("discounted_beta", num_rows=1_000)
    pass_rate = np.r_[np.full(800, 0.99), rng.uniform(0.1, 0.9, 200)]
    for place in range(29):
        if place == 26:
            assert np.median(made.beliefs().mean_N[:800]) > 0.97
            pass_rate[:40] = 0.5
        _, passes = visit(made, place * LAG, pass_rate, rng)
        plain.advance(place * LAG)
        plain.observe(groups(np.arange(1_000), passes, version=place * LAG))

    regressed = made.beliefs(np.arange(40))
    assert regressed.mean_N.mean() < plain.beliefs(np.arange(40)).mean_N.mean() - 0.05
    assert regressed.mean_N.mean() < 0.72
    assert informative_probability(*moments(regressed), 8).mean() > 0.8
    assert made.beliefs().mean_N[40:800].mean() > 0.97


def moments(beliefs: Beliefs) -> tuple[FloatArray, FloatArray]:
    return beliefs.mean_N, beliefs.variance_N


def test_rows_that_changed_are_read_with_the_short_memory_and_steady_ones_with_the_long() -> None:
    rng = np.random.default_rng(6)
    made, pass_rate = mixture(1_000), rng.uniform(0.2, 0.8, 1_000)
    for place in range(40):
        visit(made, place * LAG, pass_rate, rng)
        pass_rate[:500] = np.clip(pass_rate[:500] + rng.normal(0, 0.12, 500), 0.05, 0.95)
    state, short = made.state(), known(made)[2][2]

    assert short[:500].mean() > 2 * short[500:].mean()
    assert state["speed_N"][:500].mean() > state["speed_N"][500:].mean()


@pytest.mark.parametrize("passes", [0, 8])
def test_groups_all_alike_for_long_leave_a_chance_of_a_mixed_one(passes: int) -> None:
    """In a pool of all kinds, 30 such groups in a row and a visit's time later."""
    rng = np.random.default_rng(7)
    made, pass_rate = mixture(500), rng.beta(0.6, 0.8, 500)
    pass_rate[0] = passes / 8
    for place in range(30):
        visit(made, place * LAG, pass_rate, rng)
    made.advance(300)
    chance = informative_probability(*moments(made.beliefs(np.array([0]))), 8)[0]

    assert 0.0005 < chance < 0.1


def test_a_whole_pool_in_one_report_is_back_within_three_visits_of_a_jump() -> None:
    """The pace learns in steps, so that what a thousand groups say at once counts as if they had come one by one."""
    rng = np.random.default_rng(4)
    made, pass_rate = mixture(1_000), rng.beta(0.6, 0.8, 1_000)
    for place in range(24):
        if place == 20:
            pass_rate = rng.beta(0.8, 0.6, 1_000)
        beliefs, _ = visit(made, place * LAG, pass_rate, rng)

    assert covered(beliefs, pass_rate) > 0.87  # the sd of a share of 1,000 at .9 is .0095


def test_a_large_report_is_the_same_as_its_steps_one_after_the_other() -> None:
    rng = np.random.default_rng(5)
    whole, parts, pass_rate = mixture(600), mixture(600), rng.beta(0.6, 0.8, 600)
    for version in (0, 10, 20):
        told = groups(np.arange(600), rng.binomial(8, pass_rate), version=version)
        whole.observe(told)
        for start in range(0, 600, GROUPS_PER_STEP):
            parts.observe(told.take(np.arange(start, min(start + GROUPS_PER_STEP, 600))))

    for name, array in whole.state().items():
        np.testing.assert_array_equal(array, parts.state()[name], err_msg=name)
