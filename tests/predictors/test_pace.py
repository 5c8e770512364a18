"""The numbers that the mixture learns of a pool: by hand, and that they stay in their ranges."""

import numpy as np
import pytest

from predictors.pace import (
    DRIFT_SHARE,
    JUMP_LOG_ODDS_RANGE,
    JUMP_WEIGHT,
    LOG_STRENGTH_RANGE,
    MAX_STEP,
    MAX_STRENGTH_STEP,
    NOISE_RANGE,
    NOISE_WEIGHT,
    START_JUMP_SHARE,
    START_LAG,
    START_LAG_WEIGHT,
    STRENGTH_WEIGHT,
    Pace,
    Surprise,
)


def surprise(
    *, error: float = 0.0, slope: float = 0.0, noise: float = 0.0, jump: float = 0.0, lag: float = 10.0, size: int = 1
) -> Surprise:
    """So many groups alike, their errors of variance .1."""
    return Surprise(
        lag_B=np.full(size, lag),
        error_B=np.full(size, error),
        variance_B=np.full(size, 0.1),
        drift_slope_B=np.full(size, slope),
        noise_score_B=np.full(size, noise),
        jump_score_B=np.full(size, jump),
    )


def pace(*, memory: float = 1e12) -> Pace:
    return Pace(process_noise=1e-4, memory=memory)


def test_one_surprise_moves_the_noise_by_hand() -> None:
    made = pace()
    made.learn(surprise(noise=0.5))

    assert made.process_noise == pytest.approx(1e-4 * np.exp(0.5 / (0.25 + NOISE_WEIGHT)))


def test_one_surprise_moves_the_share_of_jumps_by_hand() -> None:
    made = pace()
    made.learn(surprise(jump=0.1))
    start = np.log(START_JUMP_SHARE / (1 - START_JUMP_SHARE))
    moved = start + 0.1 / (0.01 + JUMP_WEIGHT * (START_JUMP_SHARE * (1 - START_JUMP_SHARE)) ** 2)

    assert made.jump_share == pytest.approx(1 / (1 + np.exp(-moved)))


def test_drift_is_a_ridge_regression_by_hand() -> None:
    """Errors .2 at slope 4, variance .1: evidence 8, information 160, and the prior's L / (DRIFT_SHARE^2 q)."""
    made = pace()
    made.learn(surprise(error=0.2, slope=4.0, lag=30.0))

    assert made.drift == pytest.approx(8.0 / (160.0 + 30.0 / (DRIFT_SHARE**2 * 1e-4)))


def test_errors_made_with_a_drift_count_from_there() -> None:
    """The second group is predicted with the first drift d; that nothing is wrong confirms d, by half as much again."""
    made = pace()
    made.learn(surprise(error=0.2, slope=4.0, lag=30.0))
    drift = made.drift
    made.learn(surprise(error=0.0, slope=4.0, lag=30.0))

    assert made.drift == pytest.approx((8.0 + 160.0 * drift) / (320.0 + 30.0 / (DRIFT_SHARE**2 * 1e-4)))


def test_the_usual_lag_is_that_of_groups_apart_by_hand() -> None:
    made = pace()
    made.learn(surprise(error=0.2, slope=4.0, lag=0.0, size=5))
    made.learn(surprise(error=0.2, slope=4.0, lag=85.0))
    usual = (START_LAG * START_LAG_WEIGHT + 85.0) / (START_LAG_WEIGHT + 1)

    assert made.drift == pytest.approx((6 * 8.0 + 160 * _drift(5)) / (6 * 160.0 + usual / (DRIFT_SHARE**2 * 1e-4)))


def _drift(size: int) -> float:
    """After so many groups with errors .2 at slope 4 at the start lag."""
    return size * 8.0 / (size * 160.0 + START_LAG / (DRIFT_SHARE**2 * 1e-4))


def test_one_surprise_moves_the_strength_by_hand() -> None:
    made = pace()
    made.learn_strength(np.array([-0.5, 0.1]))

    assert made.strength == pytest.approx(np.exp(-0.4 / (0.26 + STRENGTH_WEIGHT)))


def test_what_was_learned_long_ago_fades() -> None:
    """With a memory of 10 groups the information of 100 groups before is gone, so the step is as large as at first."""
    fresh, old = pace(memory=10.0), pace(memory=10.0)
    old.learn(surprise(noise=0.5, size=50))
    old.learn(surprise(noise=0.0, size=200))
    before = old.process_noise
    fresh.learn(surprise(noise=0.5))
    old.learn(surprise(noise=0.5))

    assert old.process_noise / before == pytest.approx(fresh.process_noise / 1e-4, rel=1e-3)


def test_no_surprise_teaches_nothing() -> None:
    made = pace()
    made.learn(surprise(size=0))

    assert {name: float(value) for name, value in made.state().items()} == {
        name: float(value) for name, value in pace().state().items()
    }


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_numbers_move_by_limited_steps_and_stay_in_their_ranges(sign: float) -> None:
    made = pace()
    made.learn(surprise(noise=sign * 1e-3, jump=sign * 1e-3, size=100_000))
    assert abs(np.log(made.process_noise / 1e-4)) <= MAX_STEP
    made.learn_strength(np.full(100_000, sign * 1e-3))
    assert abs(np.log(made.strength)) <= MAX_STRENGTH_STEP

    for _ in range(300):
        made = _pushed(made, sign)
    at = 0 if sign < 0 else 1
    assert made.process_noise == pytest.approx(NOISE_RANGE[at])
    assert np.log(made.strength) == pytest.approx(LOG_STRENGTH_RANGE[at])
    assert made.least_jump_share == pytest.approx(1 / (1 + np.exp(-JUMP_LOG_ODDS_RANGE[at])))


def _pushed(made: Pace, sign: float) -> Pace:
    made.learn(surprise(noise=sign * 1e-3, jump=sign * 1e-3, size=100_000))
    made.learn_strength(np.full(100_000, sign * 1e-3))
    return made


def test_the_least_share_of_jumps_counts_as_none_and_can_grow_again() -> None:
    made = pace()
    for _ in range(300):
        made = _pushed(made, -1.0)
    assert made.jump_share == 0.0
    assert made.least_jump_share > 0.0

    made.learn(surprise(jump=0.01, size=1_000))
    assert made.jump_share > 0.0


def test_a_restored_pace_goes_on_alike() -> None:
    made, again = pace(), pace()
    made.learn(surprise(error=0.1, slope=2.0, noise=0.3, jump=-0.2, size=5))
    again.load_state(made.state())
    for one in (made, again):
        one.learn(surprise(error=-0.1, slope=3.0, noise=0.1, jump=0.2, size=3))
        one.learn_strength(np.array([0.2]))

    assert {name: float(value) for name, value in made.state().items()} == {
        name: float(value) for name, value in again.state().items()
    }
