import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.base import Observations
from tests.predictors.groups import groups


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"passes": [1.0, np.nan]}, r"passes_B\[1\] = nan must be finite"),
        ({"passes": [1.0, np.inf]}, r"passes_B\[1\] = inf must be finite"),
        ({"passes": [-0.5, 1.0]}, r"passes_B\[0\] = -0.5 must be >= 0"),
        ({"passes": [8.5, 1.0]}, r"passes_B\[0\] = 8.5 must not exceed scored_B"),
        ({"scored": [8, 0]}, r"scored_B\[1\] = 0 must be >= 1; leave out"),
        ({"version": [-1, 0]}, r"version_B\[0\] = -1 must be >= 0"),
        ({"rows": [3, -2]}, r"rows_B\[1\] = -2 must be >= 0"),
    ],
)
def test_values_out_of_range_are_refused_by_name_and_place(change: dict[str, list[float]], message: str) -> None:
    good: dict[str, list[float]] = {"rows": [3, 4], "passes": [0.0, 1.0], "scored": [8, 8], "version": [0, 1]}

    with pytest.raises(ValueError, match=message):
        groups(**{**good, **change})


def test_columns_of_other_lengths_shapes_or_types_are_refused() -> None:
    rows, passes, ones = np.array([1, 2]), np.array([1.0, 0.0]), np.array([1, 1])

    with pytest.raises(ValueError, match="passes_B has 1 entries, rows_B has 2"):
        Observations(rows_B=rows, passes_B=passes[:1], scored_B=ones, version_B=ones)
    with pytest.raises(ValueError, match="scored_B must be one-dimensional"):
        Observations(rows_B=rows, passes_B=passes, scored_B=ones[:, None], version_B=ones)
    with pytest.raises(ValueError, match="rows_B must hold int64 values, got float64"):
        Observations(rows_B=passes, passes_B=passes, scored_B=ones, version_B=ones)
    with pytest.raises(ValueError, match="passes_B must hold float64 values, got bool"):
        Observations(rows_B=rows, passes_B=passes > 0, scored_B=ones, version_B=ones)  # type: ignore[arg-type]


def test_whole_numbers_of_passes_are_taken_as_such() -> None:
    observed = Observations(
        rows_B=np.array([0]), passes_B=np.array([3]), scored_B=np.array([8], dtype=np.int32), version_B=np.array([0])
    )

    assert observed.passes_B.dtype == np.float64
    assert observed.scored_B.dtype == np.int64


def test_rounds_of_five_groups_by_hand() -> None:
    parts = list(groups([7, 2, 7, 7, 2], [0, 1, 2, 3, 4]).rounds())

    assert [sorted(part.passes_B.tolist()) for part in parts] == [[0, 1], [2, 4], [3]]


@given(st.lists(st.integers(0, 5), max_size=40))
def test_rounds_keep_every_group_once_and_the_order_within_a_row(rows: list[int]) -> None:
    position = np.arange(len(rows), dtype=np.float64)
    parts = list(groups(rows, position, scored=100).rounds())

    for part in parts:
        assert np.unique(part.rows_B).size == len(part) > 0
    for row in set(rows):
        seen = [part.passes_B[part.rows_B == row] for part in parts]
        np.testing.assert_array_equal(np.concatenate(seen), position[np.array(rows) == row])
