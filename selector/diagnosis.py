"""Which constraint binds a run, and what each remedy could save at most, from its seconds, yields and groups.

`api` calls `diagnose`. Knows sums; nothing of tickets or runs.

T is the sum of all phases' seconds. With g generation, c scoring, e environment, u update, w weight sync and i idle
seconds, and y the share of informative groups, every saving is a share of T and an upper bound: what would be saved if
the remedy were perfect, cost nothing itself and changed nothing else. Bounds do not add up, as remedies meet in the
same seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MEMORY_FULL = 0.95  # share of an accelerator's memory from which its peak binds
OUTWEIGHS_MEMORY = 0.25  # share of all seconds from which another constraint binds before a full memory does
MEMORY_FACT = "accelerator_memory_bytes"  # of the environment: what one accelerator has
MEMORY_PEAK = "accelerator"  # of peak_memory_bytes; the largest of all names when it is not among them


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What could be done, and the most that it could save."""

    remedy: str
    against: str  # the constraint
    saving: float | None  # share of all seconds; None where what it takes was not told
    formula: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Constraints by the share of time that they hold, and remedies with the largest saving first."""

    binding: str | None  # "idle", "low_signal", "memory", "environment"; None when nothing was told
    statement: str
    shares: Mapping[str, float | None]
    remedies: Sequence[Remedy]
    missing: Sequence[str]


def diagnose(
    seconds: Mapping[str, float],
    *,
    informative: int,
    judged: int,
    small_groups: float | None = None,
    peak_memory_bytes: Mapping[str, int] | None = None,
    environment: Mapping[str, Sequence[str]] | None = None,
) -> Diagnosis:
    """seconds: by phase of `selector.ledger`, all 0 when no step told any. small_groups: `saving_of_small_groups`.

    Raises ValueError unless 0 <= informative <= judged.
    """
    if not 0 <= informative <= judged:
        raise ValueError(f"informative groups must be between 0 and the {judged} judged ones, got {informative}")
    total = sum(seconds.values())
    wasted = 1 - informative / judged if judged else None
    memory = memory_share(peak_memory_bytes or {}, environment or {})
    rolled = seconds["generation"] + seconds["scoring"] + seconds["environment"]

    def share(value: float | None) -> float | None:
        return None if value is None or total <= 0 else value / total

    shares = {
        "idle": share(seconds["idle"]),
        "low_signal": share(None if wasted is None else wasted * (rolled + seconds["update"])),
        "environment": share(seconds["environment"]),
        "memory": memory,
    }
    apart = max(rolled, seconds["update"] + seconds["weight_sync"])
    remedies = [
        Remedy(
            remedy="perfect selection",
            against="low_signal",
            saving=shares["low_signal"],
            formula="(1 - y)(g + c + e + u) / T",
            note="the same informative groups, and no other group rolled out or trained on; an audit share and a floor "
            "keep a part of this on purpose",
        ),
        Remedy(
            remedy="perfect overlap of generation and update",
            against="idle",
            saving=share(total - apart),
            formula="1 - max(g + c + e, u + w) / T",
            note="takes devices for both at once and accepts weights one step older; it saves time, not "
            "accelerator-seconds, unless they were idle",
        ),
        Remedy(
            remedy="a better split of devices",
            against="idle",
            saving=shares["idle"],
            formula="i / T",
            note="between generation and training, so that nobody waits; phases that share all devices and follow each "
            "other have no split to mend",
        ),
        Remedy(
            remedy="groups of 3",
            against="low_signal",
            saving=share(None if small_groups is None else small_groups * (rolled + seconds["update"])),
            formula="(1 - (3 / y_3) / (n / y)) (g + c + e + u) / T",
            note="as many informative groups from fewer rollouts: y_3 is the share of mixed triples within the groups "
            "as they are, of n rollouts, and no other size is cheaper. A group of 3 has a noisier baseline, which this "
            "ignores",
        ),
        Remedy(
            remedy="environments that never make the model wait",
            against="environment",
            saving=shares["environment"],
            formula="e / T",
            note="all environment time hidden behind other work",
        ),
    ]
    known = {name: value for name, value in shares.items() if value is not None and name != "memory"}
    binding = max(known, key=lambda name: known[name]) if any(value > 0 for value in known.values()) else None
    if memory is not None and memory >= MEMORY_FULL and (binding is None or known[binding] < OUTWEIGHS_MEMORY):
        binding = "memory"
    return Diagnosis(
        binding=binding,
        statement=_statement(binding, shares),
        shares=shares,
        remedies=sorted(remedies, key=lambda r: (r.saving is None, -(r.saving or 0.0))),
        missing=_missing(total, judged, memory, small_groups),
    )


def memory_share(peak: Mapping[str, int], environment: Mapping[str, Sequence[str]]) -> float | None:
    """Peak / capacity of one accelerator; None unless both were told."""
    told = environment.get(MEMORY_FACT, ())
    if not peak or not told or not told[-1].isdigit() or int(told[-1]) == 0:
        return None
    return peak.get(MEMORY_PEAK, max(peak.values())) / int(told[-1])


def saving_of_small_groups(passes_B: NDArray[np.float64], scored_B: NDArray[np.int64]) -> float | None:
    """Share of the rollouts that groups of 3 would save for as many mixed ones: 1 − (3 / y_3) / (Σ n / mixed groups).

    B reported groups: passes_B of scored_B rollouts passed. With k of n a pair is mixed with probability
    2k(n − k) / (n(n − 1)), whose mean over the groups, y_2, is unbiased. A mixed triple has two mixed pairs of three,
    so 3 / y_3 = 2 / y_2; a mixed set of m has at least m − 1 of m(m − 1)/2, so m / y_m is no less: no size costs fewer
    rollouts for a mixed group than 3, and 2 costs as many. Where sizes differ it may be negative, and is 0.
    None when outcomes are graded, groups are of one, or none is mixed. Raises ValueError for shapes that differ.
    """
    if passes_B.shape != scored_B.shape:
        raise ValueError(f"passes_B and scored_B must be (B,) alike, got {passes_B.shape} and {scored_B.shape}")
    mixed = np.count_nonzero((passes_B > 0) & (passes_B < scored_B))
    if not mixed or (scored_B < 2).any() or (passes_B != np.rint(passes_B)).any():
        return None
    pairs = float(np.mean(2 * passes_B * (scored_B - passes_B) / (scored_B * (scored_B - 1))))
    return max(0.0, 1 - (2 / pairs) / (float(scored_B.sum()) / mixed))


_WORDS = {
    "idle": "compute that waits",
    "low_signal": "rollouts that teach nothing",
    "memory": "memory",
    "environment": "the environment",
}


def _statement(binding: str | None, shares: Mapping[str, float | None]) -> str:
    if binding is None:
        return "nothing can be said: no step told its seconds, or no group was judged"
    held = shares[binding]
    if held is None:
        raise ValueError(f"the constraint {binding} binds without a share")
    if binding == "memory":
        return f"memory binds: its peak is {100 * held:.0f} % of an accelerator's, so batches and groups cannot grow"
    return f"what binds first is {_WORDS[binding]}: {100 * held:.0f} % of all seconds go there"


def _missing(total: float, judged: int, memory: float | None, small_groups: float | None) -> list[str]:
    missing = []
    if total <= 0:
        missing.append("seconds by phase: send `costs` with each step")
    if not judged:
        missing.append("judged groups: report train draws")
    if memory is None:
        missing.append(f"memory: send peak_memory_bytes and the fact {MEMORY_FACT} of the environment with `costs`")
    if judged and small_groups is None:
        missing.append("smaller groups: needs mixed groups, of outcomes 0 and 1, that no rule of waves stops")
    return missing
