"""Names under which estimators look for numbers from outside: signals that a trainer pushes, features of a pool.

Read by the estimators and by whoever takes such numbers in. Any other name is a feature like every other.
"""

from collections.abc import Mapping

import numpy as np

from predictors.base import Column, FloatArray

VALUE = "value"
"""A belief of the pass rate under the policy at the version it was made at, such as PCL's value network gives."""

WEAK, STRONG = "weak", "strong"
"""Pass rates of a weak and of a strong reference model, as BOTS reads them."""

RATES = (VALUE, WEAK, STRONG)
"""These are pass rates, so in [0, 1]."""


def pass_rates(columns: Mapping[str, Column], name: str, num_rows: int) -> FloatArray:
    """(N,) the column of this name, NaN where it has no number in [0, 1], it is a vector, or there is none.

    Raises ValueError for a column that does not have one entry a row.
    """
    column = columns.get(name)
    if column is None:
        return np.full(num_rows, np.nan)
    check_length(name, column, num_rows)
    if column.value_N.ndim != 1:
        return np.full(num_rows, np.nan)
    with np.errstate(invalid="ignore"):
        return np.where((column.value_N >= 0.0) & (column.value_N <= 1.0), column.value_N, np.nan)


def check_length(name: str, column: Column, num_rows: int) -> None:
    """Raises ValueError unless the column has one entry a row."""
    if column.value_N.shape[0] != num_rows:
        raise ValueError(f"column {name!r} has {column.value_N.shape[0]} entries for {num_rows} rows")
