"""How attached columns become the numbers of a regression."""

import numpy as np
import pytest

from predictors.base import Column
from predictors.columns import MAX_CATEGORIES, MAX_DIMENSIONS, MAX_VECTOR, Design
from predictors.names import RATES, pass_rates

NONE = np.zeros(3, np.int32)


def test_numbers_vectors_gaps_and_categories_by_hand() -> None:
    columns = {
        "b": Column(value_N=np.array([0.0, np.nan, np.sinh(2.0)])),
        "a": Column(value_N=np.array([[1.0, 2.0], [np.nan, 3.0], [0.0, 0.0]])),
    }
    design = Design(columns, 3, 2)

    a = np.array([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]])
    expected = np.column_stack([a, [0, 1, 0], [0, 0, 2], [0, 1, 0], [1, 0, 1], [0, 1, 0]])
    matrix = design.matrix(np.arange(3), np.array([0, 1, 0], np.int32))
    np.testing.assert_allclose(matrix, expected)
    np.testing.assert_array_equal(design.column_D, [0, 0, 0, 1, 1, 2, 2])
    np.testing.assert_allclose(design.matrix(np.array([2, 0]), np.zeros(2, np.int32))[:, :4], expected[[2, 0]][:, :4])


def test_a_long_vector_is_projected_the_same_way_for_every_block_and_keeps_lengths_about() -> None:
    rng = np.random.default_rng(0)
    value = rng.normal(size=(50, 4 * MAX_VECTOR))
    design = Design({"text": Column(value_N=value)}, 50, 1)
    whole = design.matrix(np.arange(50), np.zeros(50, np.int32))

    assert whole.shape == (50, MAX_VECTOR + 1)
    np.testing.assert_allclose(design.matrix(np.array([7]), NONE[:1])[0], whole[7])
    again = Design({"text": Column(value_N=value[:1])}, 1, 1)
    np.testing.assert_allclose(again.matrix(np.array([0]), NONE[:1])[0], whole[0])


def test_the_same_columns_have_the_same_signature_and_others_another() -> None:
    number, vector = Column(value_N=np.zeros(3)), Column(value_N=np.zeros((3, 2)))
    signature = Design({"a": number, "b": vector}, 3, 1).signature

    assert Design({"b": vector, "a": number}, 3, 1).signature == signature
    others = [{"a": number}, {"a": vector, "b": vector}, {"a": number, "c": vector}]
    assert len({signature, *(Design(columns, 3, 1).signature for columns in others)}) == 4
    assert Design({"a": number, "b": vector}, 3, 2).signature != signature
    assert Design({}, 3, 5).signature == 0
    assert Design({}, 3, 5).is_empty


def test_there_is_an_end_to_columns_and_categories() -> None:
    many = {f"x{i:04}": Column(value_N=np.zeros(3)) for i in range(MAX_DIMENSIONS)}
    assert Design(many, 3, 10**6).size <= MAX_DIMENSIONS
    design = Design({"a": Column(value_N=np.zeros(3))}, 3, 10**6)
    assert design.size == 2 + MAX_CATEGORIES
    assert design.matrix(np.arange(3), np.array([0, 63, 64], np.int32))[:, 2:].sum(axis=0)[0] == 2


def test_huge_numbers_stay_finite() -> None:
    design = Design({"a": Column(value_N=np.array([1e308, -1e308, 0.0]))}, 3, 1)
    assert np.isfinite(design.matrix(np.arange(3), NONE)).all()
    vector = Design({"v": Column(value_N=np.array([[1e308, -1e308], [1e308, 1e308], [5e7, 0.0]]))}, 3, 1)
    np.testing.assert_array_equal(vector.matrix(np.arange(3), NONE), [[1e6, -1e6, 0], [1e6, 1e6, 0], [1e6, 0, 0]])


def test_a_column_for_other_rows_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="column 'a' has 2 entries for 3 rows"):
        Design({"a": Column(value_N=np.zeros(2))}, 3, 1)


@pytest.mark.parametrize("name", RATES)
def test_a_pass_rate_is_read_where_it_is_one(name: str) -> None:
    column = Column(value_N=np.array([0.0, 1.0, -0.1, 1.1, np.nan, np.inf]))
    found = pass_rates({name: column}, name, 6)

    np.testing.assert_array_equal(found, [0.0, 1.0, np.nan, np.nan, np.nan, np.nan])
    assert np.isnan(pass_rates({}, name, 6)).all()
