"""The words every estimator speaks: what it is told, what it answers, and the interface between the two.

Called by the engine through `registry.build_estimator`. Knows rows of a pool, counts and policy versions; must not
know prompts, runs, tickets, HTTP or files. Axes: N rows of the pool, B groups in one call, C categories.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
State = dict[str, np.ndarray]

NEVER = -1
"""Lag of a row that was never tried, and the stored version of its last evidence."""


class Source(StrEnum):
    """Where the evidence behind a belief comes from."""

    PRIOR = "prior"
    OWN = "own"


SOURCES: tuple[str, ...] = tuple(source.value for source in Source)
"""Names of the codes in `Beliefs.source_N`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beliefs:
    """What is thought of each row's pass rate under the current policy.

    N is all rows of the pool, or the rows that were asked for, in that order.
    """

    mean_N: FloatArray  # in (0, 1): expected pass rate now
    variance_N: FloatArray  # >= 0 and < mean (1 - mean): how unsure that pass rate is, not the noise of a group
    n_eff_N: FloatArray  # own rollouts this belief is worth, after ageing; 0 = never tried, > 0 otherwise
    lag_N: IntArray  # policy versions since the newest own evidence, NEVER when never tried
    source_N: npt.NDArray[np.uint8]  # index into SOURCES
    run_N: IntArray | None = None  # groups in a row that were all right (> 0) or all wrong (< 0), if they are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """Closed groups in the order in which they count; a row may occur more than once.

    Only scored rollouts are counted: a group without any must be left out, never sent as a failure.
    Raises ValueError naming the array and the first bad value.
    """

    rows_B: IntArray
    passes_B: FloatArray  # sum of the outcomes, each in [0, 1]; graded outcomes are allowed
    scored_B: IntArray  # rollouts with an outcome, >= 1
    version_B: IntArray  # policy version that generated, >= 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = _checked_column(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            if value.shape != self.rows_B.shape:
                raise ValueError(f"{field.name} has {value.shape[0]} entries, rows_B has {self.rows_B.shape[0]}")
        _refuse("rows_B", self.rows_B, self.rows_B < 0, "must be >= 0")
        _refuse(
            "scored_B", self.scored_B, self.scored_B < 1, "must be >= 1; leave out a group without a scored rollout"
        )
        _refuse("version_B", self.version_B, self.version_B < 0, "must be >= 0")
        _refuse("passes_B", self.passes_B, ~np.isfinite(self.passes_B), "must be finite")
        _refuse("passes_B", self.passes_B, self.passes_B < 0, "must be >= 0")
        _refuse("passes_B", self.passes_B, self.passes_B > self.scored_B, "must not exceed scored_B")

    def __len__(self) -> int:
        return int(self.rows_B.shape[0])

    def take(self, index: IntArray) -> "Observations":
        """The groups at these positions."""
        return Observations(
            rows_B=self.rows_B[index],
            passes_B=self.passes_B[index],
            scored_B=self.scored_B[index],
            version_B=self.version_B[index],
        )

    def rounds(self) -> Iterator["Observations"]:
        """Split so that a row occurs at most once in each part and its groups keep their order over the parts.

        This is what lets an estimator update with whole arrays. One part when no row is repeated.
        """
        size = len(self)
        if size == 0:
            return
        by_row = np.argsort(self.rows_B, kind="stable")
        sorted_rows = self.rows_B[by_row]
        is_first = np.r_[True, sorted_rows[1:] != sorted_rows[:-1]]
        if is_first.all():
            yield self
            return
        position = np.arange(size)
        occurrence = np.empty(size, dtype=np.int64)
        occurrence[by_row] = position - np.maximum.accumulate(np.where(is_first, position, 0))
        by_occurrence = np.argsort(occurrence, kind="stable")
        for part in np.split(by_occurrence, np.cumsum(np.bincount(occurrence))[:-1]):
            yield self.take(part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Numbers about rows that no group says: a feature of the pool, or a signal that the trainer pushed."""

    value_N: FloatArray  # (N,), or (N, F) for a vector; NaN where there is none
    version_N: IntArray | None = (
        None  # policy version each was made at, NEVER where there is none; None: of any version
    )


class Estimator(ABC):
    """Tracks the pass rate of every row of one pool.

    Rules for every implementation. Deterministic: the same calls give the same bits. `beliefs` is pure. Groups of one
    call count in order. Evidence is never refused for being late: a group older than what is known already says less,
    or, to a published method that knows no versions, as much as any other.
    One small group is bounded evidence: no pass among a few rollouts is "unknown so far", never "impossible".
    Not thread safe; the engine has one writer.
    """

    whole_groups: ClassVar[bool] = False
    """Whether a group that was made in waves is shown as one, and not wave by wave. A wave's size is settled before it
    is made, so its share passed is unbiased given the past; that of a group stopped by its outcomes is not."""

    reads_columns: ClassVar[bool] = False
    """Whether attached columns matter; where not, nobody needs to get hold of them."""

    @classmethod
    @abstractmethod
    def default_options(cls) -> dict[str, float]:
        """Every option with its default."""

    @classmethod
    @abstractmethod
    def from_options(cls, options: Mapping[str, float]) -> Self:
        """A new estimator without rows. Raises ValueError naming an unknown option or a value out of range."""

    @abstractmethod
    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        """The pool grew, or categories changed. category_N: (N,) codes >= 0. Old rows keep their state."""

    @abstractmethod
    def observe(self, observations: Observations) -> None:
        """Learn from closed groups. Raises ValueError for a row outside the pool; then nothing has changed."""

    def observe_silence(self, silent: Observations, loss_share: float) -> None:
        """Learn from groups that were not reported where only informative ones are; `silence.after_silence` has the
        likelihood. `passes_B` is not looked at, `scored_B` is the size of the group, `loss_share` in [0, 1] the share
        of informative groups that get lost. Raises ValueError for a row outside the pool.

        By default nothing is learned: a published method sees what it is told, and what it says of a censored feed is
        biased towards the middle.
        """
        self.beliefs(silent.rows_B)

    @abstractmethod
    def advance(self, policy_version: int) -> None:
        """The policy is now this version. O(1): rows age when they are read. Raises ValueError if it goes back."""

    @abstractmethod
    def beliefs(self, rows: IntArray | None = None) -> Beliefs:
        """Beliefs of these rows, or of all, as fresh arrays. Changes nothing."""

    def pass_rates(self) -> Beliefs:
        """Beliefs of all rows as a draw needs them: mean, variance and runs, to the bit. The other arrays may be empty,
        where filling them costs time.
        """
        return self.beliefs()

    def attach(self, columns: Mapping[str, Column]) -> None:  # noqa: B027 - most estimators read none
        """Read these columns by name from now on, in place of all attached before; one entry a row each.

        They stay the owner's: no estimator changes them or has them in its state, so they are attached again after
        `resize`, after `load_state` and after a change. An estimator that reads none ignores them.
        """

    def discount(self, kept: float) -> None:
        """Let each row's own evidence count as this share of its rollouts, in [0, 1], as a run begins with what another
        one learned; what is known of categories and of the pool stays. Raises ValueError for a share below 1 where an
        estimator keeps no such count, as most published methods do not.
        """
        require_between("discount", kept, 0.0, 1.0)
        if kept < 1.0:
            raise ValueError(f"{type(self).__name__} keeps no count of evidence that could be discounted: give 1")

    @abstractmethod
    def state(self) -> State:
        """Copies of everything needed to go on bit for bit: plain numeric arrays."""

    @abstractmethod
    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Become the estimator that gave this state, its number of rows included.

        Raises ValueError naming an unknown, missing, wrong-shaped or wrong-typed array; then nothing has changed.
        """


ConfigT = TypeVar("ConfigT")


def parse_options(config_type: type[ConfigT], options: Mapping[str, float], *, estimator: str) -> ConfigT:
    """Build an estimator's configuration from plain numbers; the dataclass itself checks the ranges."""
    known = [field.name for field in fields(config_type)]  # type: ignore[arg-type]
    for name, value in options.items():
        if name not in known:
            raise ValueError(f"estimator {estimator!r} has no option {name!r}; its options are {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            raise ValueError(f"option {name!r} of estimator {estimator!r} must be a finite number, got {value!r}")
    return config_type(**{name: float(value) for name, value in options.items()})


def require_between(name: str, value: float, low: float, high: float) -> None:
    """Raises ValueError unless low <= value <= high."""
    if not low <= value <= high:
        raise ValueError(f"{name} must be in [{low:g}, {high:g}], got {value!r}")


def check_rows(rows: IntArray, num_rows: int) -> None:
    """Raises ValueError unless rows is one-dimensional, integer and inside the pool."""
    if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(f"rows must be a one-dimensional integer array, got shape {rows.shape} of {rows.dtype}")
    _refuse(
        "rows", rows, (rows < 0) | (rows >= num_rows), f"must be in 0..{num_rows - 1}; call resize when a pool grows"
    )


def check_categories(category_N: np.ndarray, num_rows: int) -> npt.NDArray[np.int32]:
    """The codes as int32. Raises ValueError for codes below 0 or fewer codes than there are rows."""
    category_N = np.asarray(category_N)
    if category_N.ndim != 1 or not np.issubdtype(category_N.dtype, np.integer):
        raise ValueError(
            f"category_N must be a one-dimensional integer array, got shape {category_N.shape} of {category_N.dtype}"
        )
    if category_N.shape[0] < num_rows:
        raise ValueError(f"category_N has {category_N.shape[0]} entries for {num_rows} rows; rows are never removed")
    _refuse("category_N", category_N, category_N < 0, "must be >= 0")
    return category_N.astype(np.int32)


def check_version(policy_version: int, current: int) -> int:
    """The version as int. Raises ValueError if it goes back."""
    if policy_version < current:
        raise ValueError(f"policy_version must not go back: it is {current}, got {policy_version}; load an older state")
    return int(policy_version)


def check_state(state: Mapping[str, np.ndarray], like: Mapping[str, np.ndarray], *, rows_from: str) -> None:
    """Compare names, types and shapes with an example state.

    Arrays whose name ends in _N have one entry a row, state[rows_from] giving the number of rows; those in _C have one
    a category, for all codes of category_N at least; all others have no axis.
    """
    missing, unknown = sorted(set(like) - set(state)), sorted(set(state) - set(like))
    if missing or unknown:
        raise ValueError(
            f"estimator state does not fit: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}"
        )
    num_rows = np.size(state[rows_from])
    num_categories = max((np.size(state[name]) for name in like if name.endswith("_C")), default=0)
    if num_categories:
        num_categories = max(num_categories, int(np.max(state["category_N"], initial=0)) + 1)
    for name, example in like.items():
        shape = {"_N": (num_rows,), "_C": (num_categories,)}.get(name[-2:], ())
        array = np.asarray(state[name])
        if array.dtype != example.dtype or array.shape != shape:
            raise ValueError(
                f"estimator state {name!r} must be {example.dtype} of shape {shape}, as {rows_from!r} has {num_rows} "
                f"rows; got {array.dtype} of {array.shape}"
            )
        if not np.isfinite(array).all():
            raise ValueError(f"estimator state {name!r} must be finite")


def _checked_column(name: str, value: np.ndarray) -> np.ndarray:
    """A one-dimensional array of the column's type; a real number where a whole one belongs is refused."""
    array = np.asarray(value)
    wanted = np.dtype(np.float64 if name == "passes_B" else np.int64)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    if not np.can_cast(array.dtype, wanted, casting="same_kind") or array.dtype == np.bool_:
        raise ValueError(f"{name} must hold {wanted} values, got {array.dtype}")
    return array.astype(wanted, copy=False)


def _refuse(name: str, values: np.ndarray, bad: npt.NDArray[np.bool_], rule: str) -> None:
    """Raises ValueError naming the first bad entry, if there is one."""
    if bad.any():
        position = int(np.flatnonzero(bad)[0])
        raise ValueError(f"{name}[{position}] = {values[position].item()} {rule}")
