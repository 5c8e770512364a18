"""What every compiled loop can count on."""

import numpy as np
import pytest
from numba.core import caching

from predictors.compiled import compiled, keep_pages


def inverses(value_N: np.ndarray, result_N: np.ndarray) -> None:
    for row in range(len(value_N)):
        result_N[row] = 1.0 / value_N[row]


def test_a_division_by_zero_is_infinite_as_in_numpy() -> None:
    result_N = np.empty(2)
    compiled(inverses)(np.array([0.0, 4.0]), result_N)
    assert result_N.tolist() == [np.inf, 0.25]


def test_where_no_folder_can_be_written_to_loops_are_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    result_N = np.empty(1)
    compiled(inverses)(np.array([8.0]), result_N)
    assert result_N.tolist() == [0.125]


def test_keeping_pages_touches_and_keeps_none() -> None:
    for _ in range(10_000):
        keep_pages()
