"""The Kalman filter by hand, against an exact posterior, and the rates it learns on simulated pools."""

import numpy as np
import pytest

from predictors import arcsine
from predictors.base import FloatArray
from predictors.calibration import beta_binomial_log_loss
from predictors.drift import DRIFT_SD
from predictors.kalman_arcsine import KalmanArcsine
from tests.predictors.groups import estimator, groups

FIXED_RATES = {"memory_groups": 0.0, "process_noise": 1e-4, "drift": 0.0}


def kalman(num_rows: int, **options: float) -> KalmanArcsine:
    made = estimator("kalman_arcsine", num_rows=num_rows, **options)
    assert isinstance(made, KalmanArcsine)
    return made


def walk(psi_N: FloatArray, *, drift: float, noise: float, lag: int, rng: np.random.Generator) -> FloatArray:
    """psi after so many versions of drift and random walk, folded back into [0, pi/2]."""
    psi_N = np.arcsin(np.sqrt(arcsine.shifted_centre(psi_N, np.full(psi_N.size, drift * lag))))
    moved = psi_N + rng.normal(0, np.sqrt(noise * lag), psi_N.size)
    return np.asarray(np.arcsin(np.abs(np.sin(moved))))


def simulate(
    made: KalmanArcsine, *, drift: float, noise: float, lag: int, visits: int, seed: int, num_rows: int = 1000
) -> float:
    """Feed a pool that moves at these rates; the mean log loss of the predictions over the last half."""
    rng = np.random.default_rng(seed)
    psi_N, rows, losses = rng.uniform(0, np.pi / 2, num_rows), np.arange(num_rows), []
    scored = np.full(num_rows, 8)
    for visit in range(visits):
        made.advance(visit * lag)
        passes = rng.binomial(8, np.sin(psi_N) ** 2).astype(float)
        beliefs = made.beliefs()
        losses.append(beta_binomial_log_loss(beliefs.mean_N, beliefs.variance_N, passes, scored).mean())
        made.observe(groups(rows, passes, version=visit * lag))
        psi_N = walk(psi_N, drift=drift, noise=noise, lag=lag, rng=rng)
    return float(np.mean(losses[visits // 2 :]))


def test_two_mixed_groups_by_hand() -> None:
    """Second group of a row: gain v / (v + 1/32) on psi after v has grown by 50 versions of noise 1e-4."""
    made = kalman(1, **FIXED_RATES)
    made.observe(groups([0], [4]))
    state = made.state()
    m, v = state["mean_psi_N"][0], state["variance_psi_N"][0] + 50 * 1e-4
    made.observe(groups([0], [2], version=50))
    gain = v / (v + 1 / 32)

    assert made.state()["mean_psi_N"][0] == pytest.approx(m + gain * (np.arcsin(0.5) - m))
    assert made.state()["variance_psi_N"][0] == pytest.approx(v * (1 - gain))


def test_a_group_without_a_pass_is_a_half_gaussian_around_zero_by_hand() -> None:
    made = kalman(1, **FIXED_RATES)
    made.observe(groups([0], [4]))
    m, v = made.state()["mean_psi_N"][0], made.state()["variance_psi_N"][0]
    made.observe(groups([0], [0]))
    gain = v / (v + 1 / 16)

    assert made.state()["mean_psi_N"][0] == pytest.approx(m * (1 - gain))
    assert made.state()["variance_psi_N"][0] == pytest.approx(v * (1 - gain))


def frozen(made: KalmanArcsine, *, process_noise: float) -> KalmanArcsine:
    """So sure of its rates that nothing moves them, while slopes are still carried."""
    state = made.state()
    state["rates_noise_information"] = np.array(1e15)
    state["rates_drift_information"] = np.array(1e30)
    state["rates_process_noise"] = np.array(process_noise)
    made.load_state(state)
    return made


def test_carried_slopes_are_the_derivatives_in_log_process_noise() -> None:
    """Central differences of two filters with noise a per cent apart, over mixed, failed and passed groups."""
    low, middle, high = (frozen(kalman(3), process_noise=1e-4 * np.exp(step)) for step in (-0.01, 0, 0.01))
    for made in (low, middle, high):
        for version, passes in ((0, [4, 0, 8]), (30, [6, 1, 8]), (90, [3, 0, 7]), (100, [5, 2, 8])):
            made.observe(groups([0, 1, 2], passes, version=version))

    for value, slope in (("mean_psi_N", "mean_slope_N"), ("variance_psi_N", "variance_slope_N")):
        difference = (high.state()[value] - low.state()[value]) / 0.02
        assert (np.abs(difference) > 1e-5).all()
        # The drift of a row does not feel that its mean would be elsewhere; here there is no drift.
        np.testing.assert_allclose(middle.state()[slope], difference, rtol=1e-3)


def test_a_drift_that_is_not_known_widens_beliefs_by_hand() -> None:
    """Variance of the drift times squared lag at p = 1/2."""
    unsure, sure = kalman(1, process_noise=0.0), kalman(1, process_noise=0.0, memory_groups=0.0)
    for made in (unsure, sure):
        made.observe(groups([0], [4]))
        made.advance(20)
    v = unsure.state()["variance_psi_N"][0]

    assert sure.beliefs().variance_N[0] == pytest.approx((1 - np.exp(-8 * v)) / 8)
    assert unsure.beliefs().variance_N[0] == pytest.approx((1 - np.exp(-8 * (v + (DRIFT_SD * 20) ** 2))) / 8)


def test_passes_and_failures_are_mirror_images() -> None:
    made, mirror = kalman(9), kalman(9)
    for version in (0, 30):
        made.observe(groups(np.arange(9), np.arange(9), version=version))
        mirror.observe(groups(np.arange(9), 8 - np.arange(9), version=version))

    np.testing.assert_allclose(made.beliefs().mean_N, 1 - mirror.beliefs().mean_N, atol=1e-9)
    np.testing.assert_allclose(made.beliefs().variance_N, mirror.beliefs().variance_N, atol=1e-9)


@pytest.mark.parametrize("history", [[4, 3, 5], [1, 0, 2], [0, 0, 0], [8, 7, 8], [2, 6, 4]])
def test_the_belief_is_close_to_the_exact_posterior_of_a_still_pass_rate(history: list[int]) -> None:
    """A flat prior in psi times the binomial likelihoods, on a fine grid."""
    made = kalman(400, memory_groups=0.0, process_noise=0.0)
    quantile = np.sin((np.arange(399) + 0.5) / 399 * np.pi / 2) ** 2
    made.observe(groups(np.arange(1, 400), quantile * 1000, scored=1000))
    made.observe(groups([0] * len(history), history))

    psi = np.linspace(0, np.pi / 2, 20_001)[1:-1]
    p = np.sin(psi) ** 2
    weight = p ** sum(history) * (1 - p) ** (8 * len(history) - sum(history))
    weight /= weight.sum()
    exact_mean = weight @ p
    exact_sd = np.sqrt(weight @ (p - exact_mean) ** 2)
    beliefs = made.beliefs(np.array([0]))

    assert beliefs.mean_N[0] == pytest.approx(exact_mean, abs=0.5 * exact_sd)
    assert 0.5 < np.sqrt(beliefs.variance_N[0]) / exact_sd < 1.5


@pytest.mark.parametrize("start", [1e-6, 1e-4, 1e-2])
def test_the_process_noise_is_learned_from_any_start(start: float) -> None:
    made = kalman(1000, process_noise=start)
    simulate(made, drift=0.0, noise=2e-4, lag=10, visits=40, seed=0)

    assert 1e-4 < made.process_noise < 4e-4
    assert abs(made.drift) < 2e-4


def test_the_process_noise_scales_with_what_a_version_is() -> None:
    made = kalman(1000)
    simulate(made, drift=0.0, noise=2e-3, lag=1, visits=40, seed=1)

    assert 1e-3 < made.process_noise < 4e-3


def test_the_drift_is_learned_and_lowers_the_loss() -> None:
    learning, still = kalman(1000), kalman(1000, **FIXED_RATES)
    loss = simulate(learning, drift=8e-4, noise=1e-4, lag=10, visits=40, seed=2)
    loss_still = simulate(still, drift=8e-4, noise=1e-4, lag=10, visits=40, seed=2)

    assert learning.drift == pytest.approx(8e-4, abs=2e-4)
    assert loss < loss_still


def test_learned_rates_cost_nothing_against_the_true_ones() -> None:
    """The gap in mean loss over 20,000 predictions is below .005 nats, a tenth of what a wrong rate costs here."""
    learned = simulate(kalman(1000), drift=5e-4, noise=2e-4, lag=10, visits=40, seed=3)
    true = simulate(
        kalman(1000, memory_groups=0.0, process_noise=2e-4, drift=5e-4),
        drift=5e-4,
        noise=2e-4,
        lag=10,
        visits=40,
        seed=3,
    )
    wrong = simulate(
        kalman(1000, memory_groups=0.0, process_noise=1e-2, drift=0.0),
        drift=5e-4,
        noise=2e-4,
        lag=10,
        visits=40,
        seed=3,
    )

    assert learned < true + 0.005
    assert wrong > true + 0.05


def test_a_long_absence_never_shifts_a_belief_by_more_than_two_in_log_odds() -> None:
    made = kalman(500)
    simulate(made, drift=2e-3, noise=1e-5, lag=10, visits=20, seed=4, num_rows=500)
    before = made.state()["mean_psi_N"]
    made.advance(10**9)
    shift = made.drift * 1e9
    moved = made.beliefs().mean_N

    assert shift > 1
    assert (moved < arcsine.shifted_centre(before, np.full(500, 0.5)) + arcsine.MAX_VARIANCE).all()


def test_a_first_group_meets_the_prior_that_earlier_prompts_taught() -> None:
    rng = np.random.default_rng(5)
    informed, alone = kalman(400), kalman(400)
    informed.observe(groups(np.arange(300), rng.binomial(8, 0.9, 300)))
    for made in (informed, alone):
        made.observe(groups([399], [4]))

    assert informed.beliefs().mean_N[399] > alone.beliefs().mean_N[399] + 0.05


@pytest.mark.parametrize(("noise", "scored"), [(1e-4, 8), (1e-3, 2)])
def test_at_rest_the_variance_is_that_of_the_steady_filter(noise: float, scored: int) -> None:
    """v = (v + qL) R / (v + qL + R) with R = 1 / (4 n), of groups with half passed L versions apart."""
    lag, half = 10, scored // 2
    made = estimator("kalman_arcsine", num_rows=1, process_noise=noise, memory_groups=0.0)
    for visit in range(300):
        made.advance(lag * visit)
        made.observe(groups([0], [half], scored=scored, version=lag * visit))

    grown, observed = noise * lag, 1.0 / (4.0 * scored)
    at_rest = (np.sqrt(grown**2 + 4.0 * grown * observed) - grown) / 2.0
    assert made.state()["variance_psi_N"][0] == pytest.approx(at_rest, rel=1e-6)
