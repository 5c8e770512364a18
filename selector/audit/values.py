"""What an audit says, as values: estimates with their intervals, by stream, by block, and what they come to in words.

`selector.audit.estimates` makes them, `selector.audit.auditing` and `api` read them. Knows no arithmetic.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from selector.audit.contrasts import Contrast
from selector.batches.observations import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over draws with its interval; both None when nothing was observed.

    asymptotic: an interval that holds for long runs only, where there is one; `selector.audit.asymptotic`.
    """

    estimate: float | None
    interval: Interval | None
    asymptotic: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """One quantity three ways."""

    uniform: Estimate
    selected: Estimate
    reweighted: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRatio:
    """Share of the tickets / share of the pool, over all draws; None where the pool had no such prompt."""

    category: Mapping[str, float | None]
    difficulty: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The selected stream minus the pool's mean, as two estimates of the latter have it.

    What the stream showed is a fact: the intervals have the chance of the estimates only.
    """

    against_uniform: Estimate
    against_reweighted: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One of the fixed blocks of draws: the j-th has the level 1 − α/(j(j+1)), so that all of them hold together."""

    number: int  # j, from 1
    draws: tuple[int, int]
    num_draws: int  # fewer than BLOCK_DRAWS in the last one
    level: float
    pass_rate: Curves
    degenerate: Curves


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What `/audit` shows. Each interval of the whole window holds at every look with probability `level`, not all of
    them together; those of the blocks together do, and so do those of the contrasts.
    """

    draws: tuple[int, int] | None  # first and last index with tickets
    num_draws: int
    level: float
    pass_rate: Curves
    degenerate: Curves
    selection_ratio: SelectionRatio
    effective_sample_size: float  # (Σw)²/Σw² over all tickets
    largest_weight: float
    pass_rate_shift: Shift
    degenerate_shift: Shift
    contrasts: tuple[Contrast, ...]
    blocks: tuple[Block, ...]
    num_blocks: int
    claim_reasons: tuple[str, ...]  # why the claim made at the draws is not realised in full; empty if it is
    finding: str | None  # "none", "bias", "too_little"; None without a verdict
    verdict: str | None
    warnings: tuple[str, ...]
