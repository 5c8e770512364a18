"""What a rollout of each prompt costs, in tokens and in seconds: learned online from what came back.

Called by the engine, which feeds it closed groups, and read by utilities and tickets. Knows rows, categories, costs and
policy versions; must not know tickets, purposes or HTTP. A row takes 24 bytes and the code of its category.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import numpy.typing as npt

from predictors.base import FloatArray, IntArray, State, check_categories, check_rows
from predictors.log_cost import CATEGORY_COLUMNS, Expected, LogCost, longest_of, mean_of

Quantity = Literal["tokens", "seconds"]
QUANTITIES: tuple[Quantity, ...] = ("tokens", "seconds")

LAST_VERSION = 2**31 - 1  # that is told apart: four bytes a row; later ones count as this one
BLOCK_ROWS = 8192
"""Rows read at once: a dozen float64 buffers of this length fit in a second-level cache."""

UNSEEN_VERSION = -1
"""Version of the last call before there was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutCosts:
    """Rollouts that came back; R of them. A cost of 0 or less was not measured.

    Raises ValueError naming the array and what is wrong with it.
    """

    rows_R: IntArray
    tokens_R: FloatArray
    seconds_R: FloatArray
    truncated_R: npt.NDArray[np.bool_]  # cut by a limit: it would have cost at least as much
    version_R: IntArray  # policy version that generated, >= 0

    def __post_init__(self) -> None:
        for field in fields(self):
            array = getattr(self, field.name)
            if array.shape != (self.rows_R.size,):
                raise ValueError(f"{field.name} must have shape {(self.rows_R.size,)}, got {array.shape}")
            if not np.isfinite(array).all():
                raise ValueError(f"{field.name} must be finite")
        if self.version_R.size and self.version_R.min() < 0:
            raise ValueError(f"version_R must be >= 0, got {self.version_R.min()}")


class Costs:
    """One `LogCost` for tokens and one for seconds, and when each row was last seen.

    Deterministic: the same calls give the same bits. Rollouts of one call count together, in whatever order. A rollout
    older than what is known of its row counts as one of now. No prediction exceeds the dearest rollout seen so far: a
    prompt whose rollouts are all cut off could cost anything, but is paid for up to the limit only.
    """

    def __init__(self) -> None:
        self._models: dict[Quantity, LogCost] = {quantity: LogCost() for quantity in QUANTITIES}
        self._category_N: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._last_N: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._last_call = UNSEEN_VERSION

    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        """The pool grew, or categories changed. category_N: (N,) codes >= 0. Old rows keep what is known of them."""
        self._category_N = check_categories(category_N, self._last_N.size)
        self._last_N = np.r_[self._last_N, np.zeros(self._category_N.size - self._last_N.size, np.int32)]
        for model in self._models.values():
            model.resize(self._category_N.size, int(self._category_N.max(initial=0)) + 1)

    def observe(self, costs: RolloutCosts) -> None:
        """Learn from rollouts. Raises ValueError for a row outside the pool; then nothing has changed."""
        check_rows(costs.rows_R, self._last_N.size)
        if not costs.rows_R.size:
            return
        newest = int(costs.version_R.max())
        elapsed = float(max(newest - self._last_call, 0)) if self._last_call != UNSEEN_VERSION else 0.0
        for quantity, cost_R in zip(QUANTITIES, (costs.tokens_R, costs.seconds_R), strict=True):
            measured = np.flatnonzero(cost_R > 0)
            if measured.size:
                rows_U, place_R = np.unique(costs.rows_R[measured], return_inverse=True)
                version_U = np.zeros(rows_U.size, np.int64)
                np.maximum.at(version_U, place_R, np.minimum(costs.version_R[measured], LAST_VERSION))
                self._models[quantity].note_largest(float(cost_R[measured].max()))
                self._models[quantity].observe(
                    rows_U,
                    self._category_N[rows_U],
                    np.maximum(version_U - self._last_N[rows_U], 0).astype(np.float64),
                    elapsed,
                    place_R,
                    np.log(cost_R[measured].astype(np.float64)),
                    costs.truncated_R[measured],
                )
        np.maximum.at(self._last_N, costs.rows_R, np.minimum(costs.version_R, LAST_VERSION).astype(np.int32))
        self._last_call = max(newest, self._last_call)

    def mean(self, quantity: Quantity, version: int, rows: IntArray | None = None) -> FloatArray | None:
        """Expected cost of one rollout of these rows, or of all, under this version; None while nothing is known."""
        return self._read(quantity, version, rows, mean_of)

    def maximum(
        self, quantity: Quantity, version: int, group_size: int, rows: IntArray | None = None
    ) -> FloatArray | None:
        """Expected cost of the dearest of a group's rollouts, which decides when a batch is done; None as above."""
        return self._read(quantity, version, rows, longest_of(group_size))

    def _read(
        self, quantity: Quantity, version: int, rows: IntArray | None, cost: Callable[[Expected], FloatArray]
    ) -> FloatArray | None:
        if rows is not None:
            check_rows(rows, self._last_N.size)
        model = self._models[quantity]
        if not model.is_known:
            return None
        size = self._last_N.size if rows is None else rows.size
        cost_N = np.empty(size)
        for start in range(0, size, BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            at: IntArray | slice = block if rows is None else rows[block]
            lag_N = np.maximum(min(version, LAST_VERSION) - self._last_N[at], 0)
            cost_N[block] = cost(model.expected(at, self._category_N[at], lag_N.astype(np.float64)))
        return np.minimum(cost_N, model.largest, out=cost_N)

    def state(self) -> State:
        """Copies of everything needed to go on bit for bit: plain numeric arrays."""
        return {
            "category_N": self._category_N.copy(),
            "last_N": self._last_N.copy(),
            "last_call": np.array(self._last_call, np.int64),
            **{f"{q}.{name}": array for q, model in self._models.items() for name, array in model.state().items()},
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Become the predictor that gave this state, its number of rows included.

        Raises ValueError naming an array that is unknown, missing, wrong-shaped or wrong-typed; then nothing has
        changed.
        """
        self._check(state)
        self._category_N, self._last_N = np.array(state["category_N"]), np.array(state["last_N"])
        self._last_call = int(state["last_call"])
        for quantity, model in self._models.items():
            prefix = f"{quantity}."
            model.load_state({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})

    def _check(self, state: Mapping[str, np.ndarray]) -> None:
        like = self.state()
        if set(state) != set(like):
            raise ValueError(
                f"cost state does not fit: missing {sorted(set(like) - set(state))}, "
                f"unknown {sorted(set(state) - set(like))}"
            )
        num_rows, num_categories = np.size(state["last_N"]), int(np.max(state["category_N"], initial=0)) + 1
        num_categories = max(num_categories, np.size(state[f"{QUANTITIES[0]}.{next(iter(CATEGORY_COLUMNS))}"]))
        for name, example in like.items():
            shape = {"_N": (num_rows,), "_C": (num_categories,)}.get(name[-2:], ())
            array = state[name]
            if array.shape != shape or array.dtype != example.dtype or not np.isfinite(array).all():
                raise ValueError(
                    f"cost state {name!r} must be finite {example.dtype} of shape {shape}, got {array.dtype} of "
                    f"{array.shape}"
                )
