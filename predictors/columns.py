"""From attached columns to the numbers of a regression: one row of a matrix for each row of a pool, some at a time.

Used by `features`. Nothing is kept of a row: a block of rows is read when it is needed.
Axes: N rows of the pool, B rows of a block, F numbers of a vector, D numbers of the regression.
"""

import zlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from predictors.base import Column, FloatArray, IntArray
from predictors.names import check_length

MAX_VECTOR = 128
"""Longer vectors are projected on so many random directions, fixed by the vector's length."""

LARGEST = 1e6
"""Numbers of a vector stay within this of 0."""

MAX_CATEGORIES = 64
"""Categories that have a number of their own; further ones share them."""

MAX_DIMENSIONS = 512
"""Numbers of the regression; columns that would lead beyond, in the order of their names, are left out."""


class Design:
    """Which columns are read, and how.

    A number x counts as arcsinh(x), which is x where it is small and its logarithm where it is large; numbers of a
    vector as they are, up to LARGEST. Each column has one number more: 1 where it is missing, its own
    numbers then being 0. With more than one category each has a number that is 1 in it.
    Raises ValueError for a column that does not have one entry a row.
    """

    def __init__(self, columns: Mapping[str, Column], num_rows: int, num_categories: int) -> None:
        self._columns: list[FloatArray] = []
        parts, sizes = [], []
        self._num_categories = min(num_categories, MAX_CATEGORIES) if num_categories > 1 else 0
        self.size = self._num_categories
        for name in sorted(columns):
            check_length(name, columns[name], num_rows)
            value_N = columns[name].value_N
            size = min(1 if value_N.ndim == 1 else value_N.shape[1], MAX_VECTOR) + 1
            if self.size + size <= MAX_DIMENSIONS:
                self._columns.append(value_N)
                self.size += size
                sizes.append(size)
                parts.append(f"{name}:{value_N.shape[1:]}")
        sizes.append(self._num_categories)
        self.column_D: IntArray = np.repeat(np.arange(len(sizes)), sizes)
        """Which column each number is from; categories are one."""
        self.is_empty = not self._columns
        described = "\n".join([str(self._num_categories), *parts])
        self.signature = 0 if self.is_empty else zlib.crc32(described.encode())
        """Equal where the numbers mean the same; 0 where no column is read."""

    def matrix(self, at: IntArray | slice, category_B: npt.NDArray[np.int32]) -> FloatArray:
        """(B, D) for these rows, which are of these categories."""
        parts = [_numbers(value_N[at]) for value_N in self._columns]
        if self._num_categories:
            parts.append(np.eye(self._num_categories)[category_B % self._num_categories])
        return np.concatenate(parts, axis=1)


def projected(value_BF: FloatArray) -> FloatArray:
    """Vectors with numbers up to LARGEST; those longer than MAX_VECTOR on so many random directions, about as long."""
    value_BF = np.clip(value_BF, -LARGEST, LARGEST)
    length = value_BF.shape[1]
    if length <= MAX_VECTOR:
        return value_BF
    signs_FD = np.random.default_rng(length).integers(0, 2, (length, MAX_VECTOR)) * 2.0 - 1.0
    return np.asarray(value_BF @ signs_FD / np.sqrt(MAX_VECTOR))


def _numbers(value: FloatArray) -> FloatArray:
    """A column's numbers and whether it is missing; a vector is missing where any number of it is."""
    if value.ndim == 1:
        missing_B = ~np.isfinite(value)
        return np.column_stack([np.arcsinh(np.where(missing_B, 0.0, value)), missing_B])
    value_BF = projected(np.asarray(value, np.float64))
    missing_B = np.isnan(value_BF.sum(axis=1))
    if missing_B.any():
        value_BF[missing_B] = 0.0
    return np.column_stack([value_BF, missing_B])
