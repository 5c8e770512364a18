"""Where every token, rollout and second went, by source and phase; energy, memory and environment as the trainer says.

`folding` writes it; `api` shows it. Sums balance: a token reported has exactly one source at any time, and moves (to
`rejected` when its ticket is void, to `lost` when a restore discards it) rather than being counted twice. What nobody
told stays unknown and is never counted as 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from selector.types import SOURCES, Source

PHASES = ("generation", "scoring", "update", "weight_sync", "idle", "environment")
# Looking at the held-out split is how quality is measured, and control arms are another run's work: neither is part of
# what the run's own quality cost.
NOT_TRAINING = (Source.HELDOUT, Source.CONTROL)
MAX_VALUES = 8  # kept of one fact of the environment that changes, the first and the latest among them
LONGEST_ROLLOUT_S = 1e6  # eleven days
COSTS = ("accelerator_s", "energy_j")  # known only as far as every step told them


@dataclass(slots=True)
class Ledger:
    """Running sums. `told`: how many steps said each quantity; `steps`: how many said any cost at all."""

    tokens: dict[Source, int] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0))
    rollouts: dict[Source, int] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0))
    # What rollouts took by the caller's word, in whole microseconds: such sums are exact, in whatever order they come.
    # Rollouts that are generated at the same time count each, so this is no time on the clock.
    microseconds: dict[Source, int] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0))
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    statuses: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("reported", "scored", "unscored", "error", "truncated"), 0)
    )
    environment_seconds: dict[str, float] = field(default_factory=dict)  # create, reset, act, observe, teardown, ...
    accelerator_s: float = 0.0  # sum over steps of accelerators times the seconds of all their phases
    energy_j: float = 0.0
    accelerators: float | None = None  # the most that a step named
    peak_memory_bytes: dict[str, int] = field(default_factory=dict)  # the largest of each name
    environment: dict[str, list[str]] = field(default_factory=dict)  # values in the order in which they were told
    steps: int = 0
    told: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COSTS, 0))

    def add(self, source: Source, *, tokens: int, rollouts: int, microseconds: int = 0) -> None:
        self.tokens[source] += tokens
        self.rollouts[source] += rollouts
        self.microseconds[source] += microseconds

    def move(self, origin: Source, target: Source, *, tokens: int, rollouts: int, microseconds: int = 0) -> None:
        """Takes tokens, rollouts and their time from one source to another; the totals stay."""
        self.add(origin, tokens=-tokens, rollouts=-rollouts, microseconds=-microseconds)
        self.add(target, tokens=tokens, rollouts=rollouts, microseconds=microseconds)

    def add_costs(self, costs: Mapping[str, Any]) -> None:
        """Adds what a step says of its seconds; environment times add up over their parts.

        A step's accelerator-seconds are its accelerators times the sum of its phases, the idle one among them. Phases
        that overlap in time are counted each, so a trainer that overlaps them reports what each took by itself.
        """
        if not any(value is not None for name, value in costs.items() if name != "environment"):
            self._see(costs)
            return
        took = {phase: costs.get(f"{phase}_s") for phase in PHASES}
        for part, part_s in (took["environment"] or {}).items():
            self.environment_seconds[part] = self.environment_seconds.get(part, 0.0) + part_s
        phases_s = {
            phase: sum(value.values()) if isinstance(value, Mapping) else value
            for phase, value in took.items()
            if value is not None
        }
        for phase, phase_s in phases_s.items():
            self.seconds[phase] += phase_s
        self.steps += 1
        accelerators = costs.get("accelerators")
        if accelerators is not None:
            self.accelerator_s += accelerators * sum(phases_s.values())
            self.accelerators = max(accelerators, self.accelerators or 0.0)
            self.told["accelerator_s"] += bool(phases_s)
        if costs.get("energy_j") is not None:
            self.energy_j += costs["energy_j"]
            self.told["energy_j"] += 1
        self.add(Source.REPLAY, tokens=costs.get("replay_tokens") or 0, rollouts=0)
        self.add(Source.OVERHEAD, tokens=costs.get("overhead_tokens") or 0, rollouts=0)
        for name, size in (costs.get("peak_memory_bytes") or {}).items():
            self.peak_memory_bytes[name] = max(size, self.peak_memory_bytes.get(name, 0))
        self._see(costs)

    def spent(self) -> dict[str, float | None]:
        """What training has cost so far, in every unit: looks at the held-out split and control arms are left out.

        None for a unit that some step kept to itself, or that none told: half a sum is no cost. Before anything was
        rolled out it is 0 in every unit.
        """
        tokens, rollouts = (
            sum(n for source, n in counts.items() if source not in NOT_TRAINING)
            for counts in (self.tokens, self.rollouts)
        )
        nothing = not tokens and not rollouts and not self.steps
        known = {name: nothing or 0 < self.told[name] == self.steps for name in COSTS}
        return {
            "tokens": tokens,
            "rollouts": rollouts,
            **{name: getattr(self, name) if known[name] else None for name in COSTS},
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "tokens": {source.value: count for source, count in self.tokens.items()},
            "rollouts": {source.value: count for source, count in self.rollouts.items()},
            "microseconds": {source.value: count for source, count in self.microseconds.items()},
            "seconds": dict(self.seconds),
            "statuses": dict(self.statuses),
            "environment_seconds": dict(self.environment_seconds),
            "peak_memory_bytes": dict(self.peak_memory_bytes),
            "environment": {name: list(values) for name, values in self.environment.items()},
            "told": dict(self.told),
            **{name: getattr(self, name) for name in _SCALARS},
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Reads what any earlier version wrote: sources and sums that it did not have begin at zero."""
        ledger = cls(
            seconds={str(k): float(v) for k, v in values["seconds"].items()},
            statuses={str(k): int(v) for k, v in values["statuses"].items()},
            environment_seconds={str(k): float(v) for k, v in values.get("environment_seconds", {}).items()},
            peak_memory_bytes={str(k): int(v) for k, v in values.get("peak_memory_bytes", {}).items()},
            environment={str(k): list(v) for k, v in values.get("environment", {}).items()},
        )
        ledger.tokens |= {Source(k): int(v) for k, v in values["tokens"].items()}
        ledger.rollouts |= {Source(k): int(v) for k, v in values["rollouts"].items()}
        ledger.microseconds |= {Source(k): int(v) for k, v in values.get("microseconds", {}).items()}
        ledger.told |= values.get("told", {})
        for name in _SCALARS:
            setattr(ledger, name, values.get(name, getattr(ledger, name)))
        return ledger

    def _see(self, costs: Mapping[str, Any]) -> None:
        for name, value in (costs.get("environment") or {}).items():
            known = self.environment.setdefault(name, [])
            if value not in known:
                del known[MAX_VALUES - 1 :]
                known.append(value)


_SCALARS = ("accelerator_s", "energy_j", "accelerators", "steps")


def whole_microseconds(seconds_B: NDArray[np.float64]) -> NDArray[np.int64]:
    """(B,) int64. What is longer than LONGEST_ROLLOUT_S counts as that, so that sums of integers stay exact."""
    return np.rint(np.minimum(seconds_B, LONGEST_ROLLOUT_S) * 1e6).astype(np.int64)


def compared(value: Any) -> Any:
    """What a step sent twice is compared by: its costs without the environment, in which another process may differ."""
    return {k: v for k, v in value.items() if k != "environment"} if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """What a useful outcome cost. The useful outcome is an informative group; `judged` groups were looked at for it."""

    informative: int
    judged: int
    per_informative_group: Mapping[str, float | None]  # unit -> cost; None where it is unknown or nothing was useful

    @property
    def share(self) -> float | None:
        return self.informative / self.judged if self.judged else None


def efficiency(spent: Mapping[str, float | None], *, informative: int, judged: int) -> Efficiency:
    """Cost / informative groups in every unit; everything spent on training counts, whatever it was spent on.

    Its inverse is informative groups per token, rollout or accelerator-second.
    Raises ValueError unless 0 <= informative <= judged.
    """
    if not 0 <= informative <= judged:
        raise ValueError(f"informative groups must be between 0 and the {judged} judged ones, got {informative}")
    per = {unit: cost / informative if cost is not None and informative else None for unit, cost in spent.items()}
    return Efficiency(informative=informative, judged=judged, per_informative_group=per)
