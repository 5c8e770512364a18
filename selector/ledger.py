"""Where every token, rollout and second went, by source and phase.

`fold` writes it; `api` shows it. Sums balance: a token reported has exactly one source at any time, and moves (to
`rejected` when its ticket is void, to `lost` when a restore discards it) rather than being counted twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from selector.types import SOURCES, Source

PHASES = ("generation", "scoring", "update", "weight_sync", "idle", "environment")


@dataclass(slots=True)
class Ledger:
    """Running sums."""

    tokens: dict[Source, int] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0))
    rollouts: dict[Source, int] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0))
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    statuses: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("reported", "scored", "unscored", "error", "truncated"), 0)
    )

    def add(self, source: Source, *, tokens: int, rollouts: int) -> None:
        self.tokens[source] += tokens
        self.rollouts[source] += rollouts

    def move(self, origin: Source, target: Source, *, tokens: int, rollouts: int) -> None:
        """Takes tokens and rollouts from one source to another; the total stays."""
        self.add(origin, tokens=-tokens, rollouts=-rollouts)
        self.add(target, tokens=tokens, rollouts=rollouts)

    def add_costs(self, costs: Mapping[str, Any]) -> None:
        """Adds what a step says of its seconds; environment times add up over their parts."""
        for phase in PHASES:
            value = costs.get(f"{phase}_s")
            if isinstance(value, Mapping):
                self.seconds[phase] += sum(value.values())
            elif value is not None:
                self.seconds[phase] += value

    def to_json(self) -> dict[str, Any]:
        return {
            "tokens": {source.value: count for source, count in self.tokens.items()},
            "rollouts": {source.value: count for source, count in self.rollouts.items()},
            "seconds": dict(self.seconds),
            "statuses": dict(self.statuses),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        return cls(
            tokens={Source(k): int(v) for k, v in values["tokens"].items()},
            rollouts={Source(k): int(v) for k, v in values["rollouts"].items()},
            seconds={str(k): float(v) for k, v in values["seconds"].items()},
            statuses={str(k): int(v) for k, v in values["statuses"].items()},
        )
