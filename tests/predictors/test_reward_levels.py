"""What first groups of rewards say of categories: by hand, against simulation, at the edges."""

import numpy as np
import pytest

from predictors.reward_groups import RewardGroups
from predictors.reward_levels import LEAST_LOG_BETWEEN, MAX_SURPRISE, RewardLevels, _chi_square_logs, log_variances


def first(mean: list[float], variance: float = 2.0, size: int = 8) -> RewardGroups:
    """Groups of this size whose rewards all differ, or are all alike if they have no variance."""
    num = len(mean)
    return RewardGroups(
        rows_B=np.arange(num),
        size_B=np.full(num, size),
        mean_B=np.array(mean),
        variance_B=np.full(num, variance),
        ties_B=np.full(num, 0 if variance else size - 1),
        version_B=np.zeros(num, np.int64),
    )


def levels(mean: list[float], category: list[int], track: float = 0.0, variance: float = 2.0) -> RewardLevels:
    made = RewardLevels()
    made.resize(3)
    made.start(first(mean, variance), np.array(category, np.int32), track)
    return made


def test_categories_are_shrunk_to_the_pool_by_hand() -> None:
    """Less the track 1, 3 and 8: the pool has 4, which counts for four groups in each category."""
    made = levels([11.0, 13.0, 18.0], [0, 0, 1], track=10.0)

    np.testing.assert_allclose(made.means(), [20 / 6, 24 / 5, 4.0])


def test_variances_between_rows_by_hand() -> None:
    """Squares 9, 1 and 16 about the mean less three noises of 2 / 8; the start counts for eight groups, at 1 x 2."""
    made = levels([1.0, 3.0, 8.0], [0, 0, 1])
    noise = log_variances(np.array([2.0]), np.array([8]))[1][0]

    assert made.between == pytest.approx((26 - 0.75 + 8 * 2) / 11)
    assert made.log_between == pytest.approx((8 * 1.0 - 3 * noise) / 11)


def test_one_outlier_counts_for_a_bounded_surprise() -> None:
    made = levels([0.0, 1.0] * 10, [0] * 20)
    before = made.between
    made.start(first([1e6]), np.zeros(1, np.int32), 0.0)

    assert before < made.between < before + MAX_SURPRISE**2 * (before + 0.25) / 20


def test_groups_that_are_all_alike_say_nothing_of_spreads() -> None:
    made = levels([1.0, 3.0], [0, 1], variance=0.0)

    assert made.log_between == pytest.approx(1.0)
    assert len(set(made.log_means().tolist())) == 1
    assert made.means()[0] < made.means()[1]


def test_spreads_that_are_alike_leave_the_least_variance_between_them() -> None:
    made = levels([0.0] * 2_000, [0] * 2_000)

    assert made.log_between == LEAST_LOG_BETWEEN


def test_no_first_group_changes_nothing_and_the_state_round_trips() -> None:
    made, copy = levels([1.0, 3.0], [0, 1]), RewardLevels()
    before = made.state()
    made.start(first([]), np.zeros(0, np.int32), 0.0)
    copy.load_state(made.state())
    for one in (made, copy):
        for name, array in one.state().items():
            np.testing.assert_array_equal(array, before[name], err_msg=name)


def test_the_log_of_a_variance_has_the_bias_and_noise_that_simulation_shows() -> None:
    bias, noise = _chi_square_logs(9)
    rng = np.random.default_rng(0)

    assert noise[2] == pytest.approx(np.pi**2 / 6.0)
    assert bias[2] == pytest.approx(-np.euler_gamma)  # psi(1) - log 1
    for freedom in (1, 3, 7, 9):
        logs = np.log(rng.chisquare(freedom, 200_000) / freedom)
        assert logs.mean() == pytest.approx(bias[freedom], abs=4.0 * np.sqrt(noise[freedom] / 200_000))
        assert logs.var() == pytest.approx(noise[freedom], rel=0.03)
