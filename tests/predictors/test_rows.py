"""What estimators with columns share: reading in blocks, the size of a row, and the price of what is not read."""

import numpy as np
import pytest

from predictors.registry import ESTIMATORS
from predictors.rows import BLOCK_ROWS, beta_moments
from tests.predictors.groups import estimator, feed, groups

every_estimator = pytest.mark.parametrize("name", ESTIMATORS)
FIELDS = ("mean_N", "variance_N", "n_eff_N", "lag_N", "source_N")


@every_estimator
def test_rows_beyond_the_first_block_are_read_as_if_alone(name: str) -> None:
    size = 2 * BLOCK_ROWS + 7
    rng = np.random.default_rng(0)
    made = estimator(name, num_rows=size)
    rows = np.sort(rng.choice(size, size // 2, replace=False))
    for version in (3, 11):
        made.advance(version)
        made.observe(groups(rows, rng.binomial(8, 0.4, rows.size), version=version))
    made.advance(20)
    everything = made.beliefs()

    for chosen in (np.arange(size)[::-1], np.arange(BLOCK_ROWS - 2, BLOCK_ROWS + 2), np.array([size - 1])):
        some = made.beliefs(chosen)
        for field in FIELDS:
            np.testing.assert_allclose(
                getattr(some, field), getattr(everything, field)[chosen], rtol=1e-13, err_msg=field
            )


@every_estimator
def test_a_row_takes_at_most_64_bytes_and_five_more_where_columns_sort_it(name: str) -> None:
    most = 69 if name == "features" else 64
    made = estimator(name, num_rows=1000)
    feed(made, np.full(1000, 0.5), versions=np.arange(3), rng=np.random.default_rng(1))

    assert sum(array.nbytes for key, array in made.state().items() if key.endswith("_N")) <= most * 1000


@every_estimator
def test_a_group_changes_the_state_of_its_own_row_only(name: str) -> None:
    made = estimator(name, num_rows=5)
    made.observe(groups([0, 1, 2, 3], [1, 4, 8, 0]))
    made.advance(9)
    before = made.state()
    made.observe(groups([2, 2], [3, 5], version=[9, 7]))
    after = made.state()

    others = np.array([0, 1, 3, 4])
    assert any((after[key][2] != before[key][2]) for key in after if key.endswith("_N"))
    for key in (key for key in after if key.endswith("_N")):
        np.testing.assert_array_equal(after[key][others], before[key][others], err_msg=key)


def test_the_moments_of_a_beta_by_hand() -> None:
    mean_N, variance_N = beta_moments(np.array([1.0, 3.0]), np.array([1.0, 1.0]))

    np.testing.assert_allclose(mean_N, [0.5, 0.75])
    np.testing.assert_allclose(variance_N, [1 / 12, 3 / 80])
