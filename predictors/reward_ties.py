"""How likely the rewards of a group are not all alike: for each prompt, from how often siblings' rewards were equal.

Owned by `rewards`, which tells it every group. Knows rows, categories, ties and lags; not rewards.
Axes: N rows, C categories, B groups, each of another row.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from predictors.base import FloatArray, IntArray, State
from predictors.calibration import beta_binomial_log_loss
from predictors.learned_rate import FACTORS, LearnedRate
from predictors.levels import Levels
from predictors.reward_groups import RewardGroups
from predictors.ties import Ties

JUMP_START = 1e-3
"""Jumps per version, to start with."""

MOST_CONSTANT = 0.999
"""Largest chance that a prompt's rewards never differ: a bound on what groups that were all alike can say."""

CATEGORY_WEIGHT = 4.0
"""First groups that the pool counts for in a category."""

FIRST_MEMORY = 5_000.0
"""First groups of rows over which what they showed of categories fades by a factor of e."""

FLAT_MEAN, FLAT_OVERLAP, MAX_OVERLAP = 0.5, 1.0 / 3.0, 0.95
"""Ties before anything is known: those of Beta(1, 1); and the largest overlap that squares may show."""

CONSTANT_START = 0.25
"""Share of prompts whose rewards never differ, before anything is known; it counts for one group."""

MEAN_EDGE = 1e-4
"""Expected shares of ties stay this far from 0 and 1."""

ROW_COLUMNS: dict[str, type[np.generic]] = {
    "constant_N": np.float32,  # chance that its rewards never differ
    "tied_N": np.float32,  # siblings that were like the commonest of their group, of groups that could differ
    "apart_N": np.float32,  # and that were not
}
SUMS = ("groups", "constant", "counted", "tie", "squared", "square")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ties:
    """What is thought of some rows: never any difference, else Beta(a, b) ties. All (N,)."""

    constant: FloatArray
    alpha: FloatArray
    beta: FloatArray

    def chance(self, ties: FloatArray, trials: FloatArray) -> FloatArray:
        """Of so many ties."""
        return self.of_constant(ties, trials) + (1.0 - self.constant) * self.by_chance(ties, trials)

    def of_constant(self, ties: FloatArray, trials: FloatArray) -> FloatArray:
        return np.asarray(self.constant * (ties == trials))

    def by_chance(self, ties: FloatArray, trials: FloatArray) -> FloatArray:
        total = self.alpha + self.beta
        mean = np.clip(self.alpha / total, MEAN_EDGE, 1.0 - MEAN_EDGE)
        loss = beta_binomial_log_loss(mean, mean * (1.0 - mean) / (total + 1.0), ties, np.maximum(trials, 1))
        return np.where(trials > 0, np.exp(-loss), 1.0)

    def differs(self, group_size: int) -> FloatArray:
        """(1 - constant) (1 - E[q^(G-1)]), E = prod_{j<G-1} (a + j) / (a + b + j)."""
        alike = np.ones(self.alpha.shape)
        total = self.alpha + self.beta
        for j in range(group_size - 1):
            alike *= (self.alpha + j) / (total + j)
        return (1.0 - self.constant) * (1.0 - alike)


class RewardTies:
    """A prompt's rewards never differ, or else a sibling is like the commonest reward of its group with chance q.

    k ties of n - 1 siblings are one observation of q ~ Beta(a, b); k = n - 1 of either. By `lag` versions after its
    last group a prompt has become another of its category with chance g = r lag / (1 + r lag), r learned from the
    likelihood of what comes; a group counts for that too, and what was known before fades by the chance that it has.
    The category's share of constant prompts, a and b are those of first groups of rows, which no policy could choose by
    how they score, each counted by the chance that its prompt is constant (one step of EM a group), shrunk to the pool.
    Rewards with several common values are all alike more seldom or oftener: a shift in log-odds, by category
    (`ties.Ties`).
    """

    def __init__(self) -> None:
        self._rows = {name: np.zeros(0, dtype) for name, dtype in ROW_COLUMNS.items()}
        self._sums = {name: np.zeros(1) for name in SUMS}
        self._jumps = LearnedRate(JUMP_START)
        self._shift = Ties()

    def resize(self, num_rows: int, num_categories: int) -> None:
        """Old rows and categories keep their state; no rows while nothing is known of any."""
        self._shift.resize(num_categories)
        for name, column_C in self._sums.items():
            self._sums[name] = np.r_[column_C, np.zeros(max(num_categories - column_C.size, 0))]
        for name, dtype in ROW_COLUMNS.items():
            column_N = self._rows[name]
            self._rows[name] = np.r_[column_N, np.zeros(num_rows - column_N.size, dtype)]

    def informative(
        self, at: IntArray, category_N: npt.NDArray[np.int32], lag_N: FloatArray, tried_N: np.ndarray, group_size: int
    ) -> FloatArray:
        """P(a group of so many is not all alike) of these rows; `at` is not looked at where they were not tried."""
        return self._shift.adjusted(self._plain(at, category_N, lag_N, tried_N, group_size), category_N)

    def _plain(
        self, at: IntArray, category_N: npt.NDArray[np.int32], lag_N: FloatArray, tried_N: np.ndarray, group_size: int
    ) -> FloatArray:
        """The same before the learned shift."""
        prior = self._prior()
        chance_N = prior.differs(group_size)[category_N]
        tried = np.flatnonzero(tried_N)
        if tried.size:
            jumped_T = self._jumped(lag_N[tried], self._jumps.value)
            own_T = self._own(at[tried], category_N[tried], prior).differs(group_size)
            chance_N[tried] += (1.0 - jumped_T) * (own_T - chance_N[tried])
        return chance_N

    def _own(self, at: IntArray, category_N: npt.NDArray[np.int32], prior: _Ties) -> _Ties:
        """Rows that were tried, as they were then."""
        return _Ties(
            constant=self._rows["constant_N"][at].astype(np.float64),
            alpha=prior.alpha[category_N] + self._rows["tied_N"][at],
            beta=prior.beta[category_N] + self._rows["apart_N"][at],
        )

    @staticmethod
    def _jumped(lag_N: FloatArray, rate: float) -> FloatArray:
        return np.asarray(rate * lag_N / (1.0 + rate * lag_N))

    def observe(
        self, groups: RewardGroups, category_B: npt.NDArray[np.int32], lag_B: FloatArray, tried_B: np.ndarray
    ) -> None:
        """Groups of rows that each occur once; lag_B: versions since what is known of them."""
        trials_B, ties_B = (groups.size_B - 1).astype(np.float64), groups.ties_B.astype(np.float64)
        self._start(category_B[~tried_B], ties_B[~tried_B], trials_B[~tried_B])
        self._learn_shift(groups, category_B, lag_B, tried_B)
        prior = self._prior()
        of_prior = _Ties(
            constant=prior.constant[category_B], alpha=prior.alpha[category_B], beta=prior.beta[category_B]
        )
        own = self._own(groups.rows_B, category_B, prior)
        new_B, old_B = of_prior.chance(ties_B, trials_B), own.chance(ties_B, trials_B)
        told = np.flatnonzero(tried_B & (lag_B > 0.0) & (trials_B > 0))
        if told.size:
            losses = [
                -np.log(old_B[told] + self._jumped(lag_B[told], self._jumps.value * factor) * (new_B - old_B)[told])
                for factor in FACTORS
            ]
            self._jumps.learn(*losses)
        jumped_B = np.where(tried_B, self._jumped(lag_B, self._jumps.value), 1.0)
        total_B = jumped_B * new_B + (1.0 - jumped_B) * old_B
        constant_B = jumped_B * of_prior.of_constant(ties_B, trials_B)
        constant_B += (1.0 - jumped_B) * own.of_constant(ties_B, trials_B)
        constant_B = np.minimum(constant_B / total_B, MOST_CONSTANT)
        kept_B = (1.0 - jumped_B) * old_B / total_B
        rows_B, rows = groups.rows_B, self._rows
        rows["constant_N"][rows_B] = constant_B
        rows["tied_N"][rows_B] = kept_B * rows["tied_N"][rows_B] + (1.0 - constant_B) * ties_B
        rows["apart_N"][rows_B] = kept_B * rows["apart_N"][rows_B] + (trials_B - ties_B)

    def _start(self, category_B: npt.NDArray[np.int32], ties_B: FloatArray, trials_B: FloatArray) -> None:
        """First groups of rows, into what is known of categories."""
        told = np.flatnonzero(trials_B > 0)
        if not told.size:
            return
        category_B, ties_B, trials_B = category_B[told], ties_B[told], trials_B[told]
        prior, size = self._prior(), self._sums["groups"].size
        of_B = _Ties(constant=prior.constant[category_B], alpha=prior.alpha[category_B], beta=prior.beta[category_B])
        constant_B = of_B.of_constant(ties_B, trials_B) / of_B.chance(ties_B, trials_B)
        tie_B, differs_B = ties_B / trials_B, 1.0 - constant_B
        squared_B = differs_B * (trials_B >= 2)
        square_B = squared_B * tie_B * (ties_B - 1.0) / np.maximum(trials_B - 1.0, 1.0)
        kept = float(np.exp(-told.size / FIRST_MEMORY))
        for name, added_B in zip(
            SUMS, (np.ones(told.size), constant_B, differs_B, differs_B * tie_B, squared_B, square_B), strict=True
        ):
            self._sums[name] = kept * self._sums[name] + np.bincount(category_B, added_B, size)

    def _prior(self) -> _Ties:
        """Of each category, (C,)."""
        sums = self._sums
        pool = (sums["tie"].sum() + FLAT_MEAN) / (sums["counted"].sum() + 1.0)
        square = (sums["square"].sum() + FLAT_OVERLAP) / (sums["squared"].sum() + 1.0)
        overlap = float(np.clip((square - pool**2) / (pool * (1.0 - pool)), 1e-6, MAX_OVERLAP))
        mean_C = _shrunk(sums["tie"], sums["counted"], FLAT_MEAN)
        levels = Levels.of(mean_C, np.full(mean_C.size, overlap), 1.0)
        constant_C = np.minimum(_shrunk(sums["constant"], sums["groups"], CONSTANT_START), MOST_CONSTANT)
        return _Ties(constant=constant_C, alpha=levels.alpha, beta=levels.beta)

    def _learn_shift(
        self, groups: RewardGroups, category_B: npt.NDArray[np.int32], lag_B: FloatArray, tried_B: np.ndarray
    ) -> None:
        plain_B = np.zeros(lag_B.size)
        for size in np.unique(groups.size_B).tolist():
            of_size = np.flatnonzero(groups.size_B == size)
            plain_B[of_size] = self._plain(
                groups.rows_B[of_size], category_B[of_size], lag_B[of_size], tried_B[of_size], int(size)
            )
        told = np.flatnonzero(groups.size_B > 1)
        every_B = np.ones(told.size, np.bool_)
        self._shift.observe(plain_B[told], ~groups.is_alike_B[told], every_B, category_B[told])

    def discount(self, kept: float, category_N: npt.NDArray[np.int32]) -> None:
        """Own evidence of every row counts as this share; the chance to be constant goes towards its category's."""
        rows, prior_N = self._rows, self._prior().constant[category_N]
        rows["constant_N"][:] = prior_N + kept * (rows["constant_N"] - prior_N)
        for name in ("tied_N", "apart_N"):
            rows[name] *= np.float32(kept)

    def state(self) -> State:
        """Copies: columns by row, sums by category, numbers."""
        return {
            **{name: column_N.copy() for name, column_N in self._rows.items()},
            **{f"ties_{name}_C": column_C.copy() for name, column_C in self._sums.items()},
            "jumps": self._jumps.state(),
            **{f"shift.{name}": array for name, array in self._shift.state().items()},
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take arrays that the owner has checked. Raises ValueError for a shift that does not fit, before it does."""
        shift = Ties()
        shift.load_state({k.removeprefix("shift."): v for k, v in state.items() if k.startswith("shift.")})
        self._shift = shift
        self._rows = {name: np.array(state[name]) for name in ROW_COLUMNS}
        self._sums = {name: np.array(state[f"ties_{name}_C"]) for name in SUMS}
        self._jumps = LearnedRate.from_state(state["jumps"])


def _shrunk(sum_C: FloatArray, count_C: FloatArray, start: float) -> FloatArray:
    """Averages by category, each shrunk to the pool's, which is `start` to begin with and counts that for one."""
    pool = (float(sum_C.sum()) + start) / (float(count_C.sum()) + 1.0)
    return np.asarray((sum_C + CATEGORY_WEIGHT * pool) / (count_C + CATEGORY_WEIGHT))
