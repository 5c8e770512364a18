"""Learning of the two rates from surprises whose truth is known."""

import numpy as np
import pytest

from predictors.drift import DRIFT_SD, MAX_LOG_STEP, NOISE_RANGE, NOISE_WEIGHT, DriftRates, Surprise


def surprise(error: list[float], slope: list[float], score: list[float] | None = None) -> Surprise:
    return Surprise(
        error_B=np.array(error),
        variance_B=np.full(len(error), 0.02),
        drift_slope_B=np.array(slope),
        noise_score_B=np.zeros(len(error)) if score is None else np.array(score),
    )


def test_one_step_by_hand() -> None:
    rates = DriftRates(drift=0.0, process_noise=1e-4, memory=1000.0)
    rates.learn(surprise([0.1], [5.0], [0.5]))

    assert rates.drift == pytest.approx((5 * 0.1 / 0.02) / (25 / 0.02 + DRIFT_SD**-2))
    assert rates.process_noise == pytest.approx(1e-4 * np.exp(0.5 / (0.25 + NOISE_WEIGHT)))


def test_the_true_drift_is_found_from_errors_of_predictions_that_already_use_what_is_known() -> None:
    rng = np.random.default_rng(0)
    rates = DriftRates(drift=0.0, process_noise=1e-4, memory=20_000.0)
    for _ in range(100):
        slope = rng.uniform(0, 10, 128)
        error = slope * (6e-4 - rates.drift) + rng.normal(0, np.sqrt(0.02), 128)
        rates.learn(surprise(error.tolist(), slope.tolist()))

    # Information of 12,800 groups of slope^2 33 / .02, most of it remembered: sd below 3e-4.
    assert rates.drift == pytest.approx(6e-4, abs=4 * np.sqrt(rates.drift_variance))
    assert np.sqrt(rates.drift_variance) < 3e-4


def test_old_evidence_fades_so_that_a_turn_of_the_drift_is_followed() -> None:
    rates = DriftRates(drift=0.0, process_noise=1e-4, memory=500.0)
    for true in (1e-3, -1e-3):
        for _ in range(40):
            slope = np.full(100, 5.0)
            rates.learn(surprise((slope * (true - rates.drift)).tolist(), slope.tolist()))
        assert rates.drift == pytest.approx(true, rel=0.3)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_one_wild_call_moves_the_noise_by_a_bounded_factor(sign: float) -> None:
    rates = DriftRates(drift=0.0, process_noise=1e-4, memory=1000.0)
    rates.learn(surprise([0.0] * 50, [0.0] * 50, [sign * 0.1] * 50))

    assert np.log(rates.process_noise / 1e-4) == pytest.approx(sign * MAX_LOG_STEP)


def test_the_noise_stays_in_its_range() -> None:
    for sign in (-1.0, 1.0):
        rates = DriftRates(drift=0.0, process_noise=1e-4, memory=10.0)
        for _ in range(500):
            rates.learn(surprise([0.0] * 50, [0.0] * 50, [sign * 0.3] * 50))
        assert NOISE_RANGE[0] * (1 - 1e-9) <= rates.process_noise <= NOISE_RANGE[1]


def test_without_memory_both_rates_stay_as_given() -> None:
    rates = DriftRates(drift=2e-4, process_noise=3e-5, memory=0.0)
    rates.learn(surprise([0.3] * 10, [5.0] * 10, [1.0] * 10))

    assert (rates.drift, rates.process_noise, rates.drift_variance) == (2e-4, 3e-5, 0.0)


def test_a_call_without_groups_changes_nothing() -> None:
    rates = DriftRates(drift=1e-4, process_noise=3e-5, memory=100.0)
    before = rates.state()
    rates.learn(surprise([], []))

    assert all(before[key] == value for key, value in rates.state().items())
