"""Features: the mixture, with prompts sorted into strata by what attached columns say of their pass rate.

Built by the registry. The columns are features of the pool, such as embeddings of the texts, and signals that a trainer
pushed. Without any it is the mixture, to the bit. Axes: N rows, B groups, D numbers of the regression.
"""

from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from predictors.base import (
    Beliefs,
    Column,
    Estimator,
    FloatArray,
    IntArray,
    Observations,
    State,
    check_categories,
    check_rows,
    check_state,
)
from predictors.columns import Design
from predictors.mixture import Mixture
from predictors.regression import PARTS, Fit, Moments, fitted

NUM_STRATA = 32
"""Strata at most, each of equally many of the prompts that the regression has learned from."""

MIN_TRIED = 16
"""Of those in a stratum, at least."""

FIRST_FIT = 64
"""Prompts that must have been tried before strata are made."""

GROWTH = 1.5
"""Strata are made anew when so many times as many prompts have been tried: some six times for each tenfold."""

EDGE_SAMPLE = 65_536
"""Rows about, evenly spread over those it has learned from, by which the limits of strata are found."""

BLOCK_ROWS = 8192
"""Rows read at once."""

UNSEEN, SEEN, FITTED = 0, 1, 2
"""What the regression has of a row: nothing, its first group, or that group in what it says now."""

MATRICES = ("edges", "sums", "fit_sums", "columns")


class Features(Estimator):
    """A ridge regression of k/n on the columns and the category, a stratum of the pool for each level of it, and the
    mixture on strata in place of categories.

    The regression learns from the first group of each prompt only: which prompts are tried first does not depend on how
    they will score, so these are fair whatever policy selects (as in `levels`). It only sorts: what prompts of a
    stratum are like, how sure that makes a belief and how it moves is what the mixture finds of categories, from the
    same groups, so that an untried prompt is believed as tried ones of its stratum turned out. So that this holds for
    tried and untried alike, prompts that the regression has learned from are sorted by what it says without them: each
    fifth by a regression of the others. Where the columns say nothing, categories stay as they are.

    Costs: the regression has 5 D^2 numbers for the pool and 5 bytes a row beside the mixture's; an update reads the
    columns of the observed rows, and all of them when prompts are sorted anew, which is whenever columns are attached
    and each time that GROWTH as many have been tried. A set of columns that changes is learned anew.
    """

    reads_columns = True

    def __init__(self, own: Mixture) -> None:
        self._own = own
        self._columns: Mapping[str, Column] = {}
        self._given_N: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._design = Design({}, 0, 1)
        self._sorted_N: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._begin(0)

    @classmethod
    def default_options(cls) -> dict[str, float]:
        return Mixture.default_options()

    @classmethod
    def from_options(cls, options: Mapping[str, float]) -> Self:
        return cls(Mixture.from_options(options))

    def _begin(self, signature: int) -> None:
        """Nothing is learned of these columns yet."""
        self._signature = signature
        self._column_D = self._design.column_D if signature else np.empty(0, dtype=np.int64)
        self._moments = Moments(self._column_D.size)
        self._fit_sums_PZZ = self._moments.sums_PZZ
        self._fit: Fit | None = None
        self._edges = np.zeros(NUM_STRATA - 1)
        self._next_fit = FIRST_FIT
        self._seen_N: npt.NDArray[np.int8] = np.full(self._given_N.shape[0], UNSEEN, dtype=np.int8)

    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        old = self._given_N.shape[0]
        self._given_N = check_categories(category_N, old)
        added = self._given_N.shape[0] - old
        self._seen_N = np.r_[self._seen_N, np.full(added, UNSEEN, dtype=np.int8)]
        # The columns of new rows are not here yet: until they are attached these rows are in the middle.
        new_N = self._given_N[old:] if self._fit is None else np.full(added, NUM_STRATA // 2, dtype=np.int32)
        self._columns = {}
        self._sort(self._given_N if self._fit is None else np.r_[self._sorted_N, new_N])

    def attach(self, columns: Mapping[str, Column]) -> None:
        num_rows = self._given_N.shape[0]
        self._design = Design(columns, num_rows, int(self._given_N.max(initial=0)) + 1)
        self._columns = columns
        if self._design.signature != self._signature:
            self._begin(self._design.signature)
        self._sort(self._given_N if self._fit is None else self._strata(self._fit))

    def observe(self, observations: Observations) -> None:
        check_rows(observations.rows_B, self._given_N.shape[0])
        if self._columns and not self._design.is_empty:
            self._learn(observations)
        self._own.observe(observations)
        if self._moments.count >= self._next_fit:
            self._refit()

    def observe_silence(self, silent: Observations, loss_share: float) -> None:
        """As the mixture on strata has it. The regression waits for groups that were reported: it only sorts."""
        self._own.observe_silence(silent, loss_share)

    def _learn(self, observations: Observations) -> None:
        """Take the first groups of rows that the regression has not seen."""
        rows_B, first_B = np.unique(observations.rows_B, return_index=True)
        new = self._seen_N[rows_B] == UNSEEN
        rows_B, first_B = rows_B[new], first_B[new]
        if rows_B.size:
            self._seen_N[rows_B] = SEEN
            rate_B = observations.passes_B[first_B] / observations.scored_B[first_B]
            self._moments.add(self._design.matrix(rows_B, self._given_N[rows_B]), rate_B, rows_B % PARTS)

    def _refit(self) -> None:
        self._next_fit = int(np.ceil(self._moments.count * GROWTH))
        self._fit_sums_PZZ = self._moments.sums_PZZ
        self._fit = _fit_of(self._fit_sums_PZZ, self._column_D)
        self._seen_N[self._seen_N == SEEN] = FITTED
        if self._fit is not None:
            seen = np.flatnonzero(self._seen_N)
            strata = min(NUM_STRATA, max(seen.size // MIN_TRIED, 1))
            levels = np.minimum(np.arange(1, NUM_STRATA) / strata, 1.0)
            self._edges = np.quantile(self._scores(self._fit, seen[:: max(seen.size // EDGE_SAMPLE, 1)]), levels)
        self._sort(self._given_N if self._fit is None else self._strata(self._fit))

    def _strata(self, fit: Fit) -> npt.NDArray[np.int32]:
        """(N,) the stratum of each row."""
        size = self._given_N.shape[0]
        strata_N = np.empty(size, dtype=np.int32)
        for start in range(0, size, BLOCK_ROWS):
            rows = np.arange(start, min(start + BLOCK_ROWS, size))
            strata_N[rows] = np.searchsorted(self._edges, self._scores(fit, rows))
        return strata_N

    def _scores(self, fit: Fit, rows_B: IntArray) -> FloatArray:
        """(B,) what the regression says of rows, of those that it has learned from without them."""
        left_out_B = np.where(self._seen_N[rows_B] == FITTED, rows_B % PARTS, -1)
        return fit.predict(self._design.matrix(rows_B, self._given_N[rows_B]), left_out_B)

    def _sort(self, strata_N: npt.NDArray[np.int32]) -> None:
        """Hand the mixture these categories, if they are others than it has."""
        if not np.array_equal(strata_N, self._sorted_N):
            self._own.resize(strata_N)
            self._sorted_N = strata_N

    def advance(self, policy_version: int) -> None:
        self._own.advance(policy_version)

    def beliefs(self, rows: IntArray | None = None) -> Beliefs:
        return self._own.beliefs(rows)

    def discount(self, kept: float) -> None:
        self._own.discount(kept)

    def state(self) -> State:
        return {
            **self._own.state(),
            "given_category_N": self._given_N.copy(),
            "seen_N": self._seen_N.copy(),
            "signature": np.array(self._signature, dtype=np.int64),
            "next_fit": np.array(self._next_fit, dtype=np.int64),
            "edges": self._edges.copy(),
            "sums": self._moments.sums_PZZ.copy(),
            "fit_sums": self._fit_sums_PZZ.copy(),
            "columns": self._column_D.copy(),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        own = self.state()
        check_state(
            {name: array for name, array in state.items() if name not in MATRICES},
            {name: array for name, array in own.items() if name not in MATRICES},
            rows_from="category_N",
        )
        _check_matrices(state)
        self._own.load_state({name: state[name] for name in self._own.state()})
        self._given_N, self._seen_N = np.array(state["given_category_N"]), np.array(state["seen_N"])
        self._sorted_N = np.array(state["category_N"])
        self._columns = {}
        self._signature, self._next_fit = int(state["signature"]), int(state["next_fit"])
        self._edges, self._column_D = np.array(state["edges"]), np.array(state["columns"])
        self._moments.sums_PZZ, self._fit_sums_PZZ = np.array(state["sums"]), np.array(state["fit_sums"])
        self._fit = _fit_of(self._fit_sums_PZZ, self._column_D)


def _fit_of(sums_PZZ: FloatArray, column_D: IntArray) -> Fit | None:
    """The regression of these sums, None where there is none or it says nothing."""
    if sums_PZZ.shape[1] <= 2 or sums_PZZ[:, 0, 0].sum() < 1.0:
        return None
    fit = fitted(sums_PZZ, column_D)
    return None if fit.is_flat else fit


def _check_matrices(state: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError for what the other checks leave out."""
    missing = [name for name in MATRICES if name not in state]
    if missing:
        raise ValueError(f"estimator state does not fit: missing {missing}, unknown nothing")
    size = max(np.shape(state["sums"])[-1:], default=0)
    shapes = ((NUM_STRATA - 1,), (PARTS, size, size), (PARTS, size, size), (max(size - 2, 0),))
    for name, shape in zip(MATRICES, shapes, strict=True):
        array, dtype = np.asarray(state[name]), np.dtype(np.int64 if name == "columns" else np.float64)
        if array.dtype != dtype or array.shape != shape or size < 2:
            raise ValueError(f"estimator state {name!r} must be {dtype} {shape}, got {array.dtype} {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"estimator state {name!r} must be finite")
