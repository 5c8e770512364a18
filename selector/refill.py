"""Refill, the dynamic sampling of DAPO: how many more groups to draw until a batch has its informative ones.

`config` holds the bounds as a part of the policy; `batches.refilling` reads a batch's waves and asks for a size here.
Pure arithmetic; knows nothing of tickets.
"""

from dataclasses import dataclass
from math import ceil, gcd


@dataclass(frozen=True, slots=True, kw_only=True)
class RefillConfig:
    """Bounds of dynamic sampling (DAPO, arXiv 2503.14476). Raises ValueError naming a value out of range."""

    rounds: int = 10  # draws for one batch at most, the first among them
    largest: float = 3.0  # largest refill, in batches
    cancel_yield: bool = False  # whether kept groups are to be multiplied by the yield

    def __post_init__(self) -> None:
        if self.rounds < 2:
            raise ValueError(f"refill.rounds must be >= 2, the first draw among them, got {self.rounds}")
        if not 0.0 < self.largest < float("inf"):
            raise ValueError(f"refill.largest must be finite and > 0, got {self.largest}")


def refill_size(missing: int, informative: int, judged: int, *, target: int, largest: float, multiple: int) -> int:
    """Tickets to draw for `missing` more informative groups: ⌈missing/ŷ⌉, at most largest·target, rounded up.

    ŷ = (informative + ½)/(judged + 1), the yield of the earlier waves of this batch with half a group of either kind
    added, so that waves without any informative group ask for many and not for infinitely many. Of this batch only:
    the size must not depend on what it is to yield. multiple: returned sizes are multiples of it. Raises ValueError
    for counts that cannot be.
    """
    if not (missing >= 1 and 0 <= informative <= judged and multiple >= 1 and target >= 1):
        raise ValueError(f"missing {missing}, informative {informative}, judged {judged}, multiple {multiple}")
    wanted = missing * (judged + 1) / (informative + 0.5)
    size = max(1, min(ceil(wanted), ceil(largest * target)))
    return -(-size // multiple) * multiple


def ticket_multiple(divisor: int, group_size: int) -> int:
    """Smallest number of tickets whose rollouts are a multiple of `divisor`."""
    return divisor // gcd(divisor, group_size)
