"""What a draw is given and what it answers: the pool as it sees it, what is asked of it, and a batch with its chances.

`draw` and `batches.drawing` speak in these; so does whoever redraws. Values only: how a batch comes about is in `draw`.
N rows of the pool, K tickets.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property
from math import gcd
from typing import Literal

import numpy as np

from selector.config import Sampler, Weights
from selector.sampling.inclusion import Inclusion
from selector.sampling.randomness import Stream, stream

Short = Literal["partial", "fill"]


class RestingCode(IntEnum):
    """Whether a prompt is drawn for review only, and why."""

    NONE = 0
    MASTERED = 1
    DEFERRED = 2


class ShortReason(StrEnum):
    """Why a batch has fewer tickets than asked for."""

    POOL_EMPTY = "pool_empty"  # the frame has no prompts
    ALL_IN_FLIGHT = "all_in_flight"  # with nothing blocked the batch would have been full, or nothing active is left
    ALL_MASTERED = "all_mastered"  # no prompt of the frame is new or active, and most are mastered
    ALL_DEFERRED = "all_deferred"  # the same, and most are deferred
    POOL_EXHAUSTED = "pool_exhausted"  # too few prompts
    QUOTA = "quota"  # the design drew fewer, by its own chance
    DIVISOR = "divisor"  # cut to a multiple and nothing else
    NOTHING_TO_LEARN = "nothing_to_learn"  # of probes: no other prompt is worth one now
    PROBE_BUDGET = "probe_budget"  # others are, and the run's bounds on probes leave no tokens for them


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawFrame:
    """The pool as a draw sees it, all (N,)."""

    frame_N: np.ndarray  # bool, prompts that may ever be drawn for this purpose
    blocked_N: np.ndarray  # bool, in flight or cooling down
    credit_N: np.ndarray  # int32, c: draws in a row for which the row was blocked just before this one
    resting_code_N: np.ndarray  # uint8, RestingCode
    due_N: np.ndarray  # bool, prompts to be looked at now, at rest or not
    # int32, draws since a due row's turn: who goes first when not all due rows fit. Of others it says nothing.
    waited_N: np.ndarray | None = None
    stratum_N: np.ndarray | None = None  # int64, the quota that a row is under: place in the plan's plus 1, or 0

    def __post_init__(self) -> None:
        lengths = {len(a) for a in (self.frame_N, self.blocked_N, self.credit_N, self.resting_code_N, self.due_N)}
        if len(lengths) != 1:
            raise ValueError(f"columns of a draw frame differ in length: {sorted(lengths)}")

    @cached_property
    def free_N(self) -> np.ndarray:
        """(N,) bool: rows of the frame that are not blocked."""
        free_N: np.ndarray = np.greater(self.frame_N, self.blocked_N)
        return free_N

    def eligible_N(self, *, allow_repeat: bool) -> np.ndarray:
        """(N,) bool: rows that a draw may touch. With repeats allowed none is blocked."""
        return self.frame_N if allow_repeat else self.free_N


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawPlan:
    """What is asked of one draw, and the counters that key its randomness."""

    size: int
    group_size: int
    divisor: int = 1  # tickets * group_size must be a multiple of it
    audit_share: float = 0.0
    short: Short = "partial"
    allow_repeat: bool = False
    review_share: float = 0.0
    floor: float = 1.0  # share of each part spread evenly; 0 gives up every claim
    weights: Weights = "none"
    max_weight: float = 10.0
    exact_uniform: bool = False  # every prompt alike: utility and rest are ignored
    top: bool = False  # the largest utilities are taken; chances in proportion to them otherwise
    candidates: float | None = None  # with `top`: so many times the places are drawn first, to choose from; None: all
    quotas: tuple[float, ...] = ()  # shares of the selected places by stratum; what they leave is for stratum 0
    sampler: Sampler | None = None  # draws each prompt by itself, so that the size varies; None: exactly K
    seed: int
    purpose_code: int
    index: int
    refill: int = 0

    def __post_init__(self) -> None:
        for name in ("size", "group_size", "divisor"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        for name in ("audit_share", "review_share", "floor"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be in [0, 1], got {getattr(self, name)}")
        if self.candidates is not None and not (self.top and self.candidates >= 1.0):
            raise ValueError(f"candidates must be >= 1 and need top, got {self.candidates}")
        if not self.max_weight > 0:
            raise ValueError(f"max_weight must be > 0, got {self.max_weight}")

    @property
    def unit(self) -> int:
        """Tickets come in multiples of this."""
        return self.divisor // gcd(self.group_size, self.divisor)

    def rng(self, name: Stream) -> np.random.Generator:
        return stream(self.seed, name, self.purpose_code, self.index, self.refill)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawn:
    """A batch, with the chances under which it came about. K tickets, N rows of the pool."""

    rows_K: np.ndarray  # int64, in ticket order
    audit_K: np.ndarray  # bool
    inclusion_K: np.ndarray  # float64 in (0, 1], chance that the row is in this batch, given m
    weight_K: np.ndarray  # float64, as handed out
    ht_weight_K: np.ndarray  # float64, K(1+c)/(N·π), whatever was handed out
    reason: ShortReason | None  # why fewer than asked for; None when all are here
    frame: int
    eligible: int
    blocked: int
    num_audit: int  # m
    due_unplaced: int  # eligible due rows that had no sure place; those not drawn stay due
    most: int  # tickets that the design can return
    selected_N: np.ndarray  # π_t over the pool in units of 1/`unit`, 0 where not eligible
    unit: float
    expected: Inclusion  # expected tickets by row, 0 where not eligible; π but where prompts repeat

    @property
    def expected_N(self) -> np.ndarray:
        """(N,) float64, expected tickets."""
        return self.expected.all_N

    @property
    def inclusion_N(self) -> np.ndarray:
        """(N,) float64, π over the pool, 0 where not eligible."""
        inclusion_N: np.ndarray = np.minimum(self.expected_N, 1.0)
        return inclusion_N

    @property
    def selected_inclusion_N(self) -> np.ndarray:
        """(N,) float64, π_t over the pool."""
        pi_N: np.ndarray = self.selected_N / self.unit
        return pi_N
