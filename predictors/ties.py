"""How often groups of graded scores tie: what P(informative) of a pass rate is out by where scores are not 0 or 1.

Called by the engine, which says how groups of such categories came out, and by whoever reads P(informative) of a run.
Knows probabilities and categories; not rows, scores or policies. Axes: N rows, C categories, B groups.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from predictors.base import FloatArray, State

POOL_VARIANCE, CATEGORY_VARIANCE = 4.0, 1.0
"""Prior variances of the pool's shift and of a category's about it, in log-odds."""

MEMORY = 5_000.0
"""Groups over which what was learned fades by a factor of e."""

MAX_STEP = 1.0
"""Most that a shift moves in one call."""

EDGE = 1e-9
"""Probabilities stay this far from 0 and 1 in log-odds."""

COLUMNS: dict[str, tuple[type[np.generic], float]] = {
    "graded_C": (np.bool_, 0.0),  # a score other than 0 and 1 was seen
    "offset_C": (np.float64, 0.0),
    "variance_C": (np.float64, CATEGORY_VARIANCE),
}


class Ties:
    """log-odds P(informative) = log-odds of what binary scores would have + shift + offset_c, in graded categories.

    Partial credit ties less often than passes and failures of the same mean, rounded or capped scores more often; both
    are a shift, common to a category and shrunk to the pool, learned as an extended Kalman filter of a logistic
    regression, with y 1 for an informative group: precision h = sum P (1 - P), error g = sum (y - P). Categories whose
    scores are all 0 or 1 are left as they are, to the bit. Where P does not depend on the pass rate at all, as with
    continuous rewards, the shift takes it near 1 for all but the surest beliefs.
    """

    def __init__(self) -> None:
        self._columns = {name: np.zeros(0, dtype) for name, (dtype, _) in COLUMNS.items()}
        self._shift, self._variance = 0.0, POOL_VARIANCE

    @property
    def graded_C(self) -> npt.NDArray[np.bool_]:
        """(C,) categories in which a score other than 0 and 1 was seen."""
        return self._columns["graded_C"]

    def resize(self, num_categories: int) -> None:
        """More categories; old ones keep what was learned."""
        for name, (dtype, start) in COLUMNS.items():
            column_C = self._columns[name]
            added = np.full(max(num_categories - column_C.size, 0), start, dtype)
            self._columns[name] = np.r_[column_C, added]

    def adjusted(self, informative_N: FloatArray, category_N: np.ndarray) -> FloatArray:
        """P(informative) by category, from that of binary scores; the same array while no category is graded."""
        if not self.graded_C.any():
            return informative_N
        chance_N = np.clip(informative_N, EDGE, 1.0 - EDGE)
        odds_N = chance_N / (1.0 - chance_N) * np.exp(self._shift + self._columns["offset_C"][category_N])
        return np.asarray(np.where(self.graded_C[category_N], odds_N / (1.0 + odds_N), informative_N))

    def observe(
        self,
        informative_B: FloatArray,
        happened_B: npt.NDArray[np.bool_],
        graded_B: npt.NDArray[np.bool_],
        category_B: np.ndarray,
    ) -> None:
        """Groups: what was expected with binary scores, whether they were informative, and whether a score of theirs
        was other than 0 and 1.
        """
        self.graded_C[category_B[graded_B]] = True
        told = np.flatnonzero(self.graded_C[category_B])
        if told.size == 0:
            return
        category_B = category_B[told]
        chance_B = self.adjusted(informative_B[told], category_B)
        offset_C, variance_C = self._columns["offset_C"], self._columns["variance_C"]
        fade = float(np.exp(told.size / MEMORY))
        self._variance = min(self._variance * fade, POOL_VARIANCE)
        np.minimum(variance_C * fade, CATEGORY_VARIANCE, out=variance_C)
        error_C = np.bincount(category_B, happened_B[told] - chance_B, offset_C.size)
        weight_C = np.bincount(category_B, chance_B * (1.0 - chance_B), offset_C.size)
        shared_C = 1.0 / (1.0 + variance_C * weight_C)
        self._variance = 1.0 / (1.0 / self._variance + float(np.sum(weight_C * shared_C)))
        step = float(np.clip(self._variance * np.sum(error_C * shared_C), -MAX_STEP, MAX_STEP))
        self._shift += step
        offset_C += np.clip(variance_C * shared_C * (error_C - weight_C * step), -MAX_STEP, MAX_STEP)
        variance_C *= shared_C

    def state(self) -> State:
        """Copies of everything needed to go on bit for bit."""
        columns = {name: column_C.copy() for name, column_C in self._columns.items()}
        return {**columns, "shift": np.array([self._shift, self._variance])}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Become the one that gave this state. Raises ValueError for arrays that do not fit."""
        size = np.size(state.get("offset_C", ()))
        shapes = dict.fromkeys(COLUMNS, (size,)) | {"shift": (2,)}
        if set(state) != set(shapes) or any(state[name].shape != shape for name, shape in shapes.items()):
            raise ValueError(f"state of ties must have {sorted(shapes)} of fitting shapes, got {sorted(state)}")
        self._columns = {name: np.array(state[name], dtype) for name, (dtype, _) in COLUMNS.items()}
        self._shift, self._variance = (float(value) for value in state["shift"])
