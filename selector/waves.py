"""Waves: rules that look at a part of a group and say whether its ticket goes on, and by how many rollouts.

`config` holds one such rule as a part of the policy; `groups.standing` asks it whenever a wave is complete. Pure
arithmetic on counts; knows nothing of tickets, prompts or who reports. A decision depends on the rollouts numbered
below the end of its wave and on nothing else, so it is the same in whatever order, and from however many workers, they
arrived.

A stopped group has k of n with an n that depends on the outcomes. The likelihood of the sequence is untouched by that,
so a posterior from (k, n) holds as it is; k/n is no unbiased estimate of the pass rate, and of a ticket that may be
stopped only the share of its first wave is. Hence counts are recorded, never ratios.
"""

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, Literal

Rule = Literal["screen", "pilot", "until_success", "balanced", "rescue", "settle"]

RIGHT_ABOVE = 0.7
"""Outcome above which a rollout counts as right for these rules; Reinforce-Ada's, and without effect on 0 and 1."""

PARTS: dict[str, tuple[str, ...]] = {
    "screen": (),
    "pilot": ("low", "high"),
    "until_success": ("step",),
    "balanced": ("step", "keep"),
    "rescue": ("step", "ceiling"),
    "settle": ("step", "low"),
}
"""The numbers that each rule needs beside `first`; any other is refused."""


class Verdict(IntEnum):
    """What a rule says of a ticket when a wave is complete."""

    STOP = 0  # it ends with what it has
    CONTINUE = 1
    SKIP = 2  # it ends, and the method does not train on it: too easy
    DEFER = 3  # the same: too hard for now


DROPPED = (Verdict.SKIP, Verdict.DEFER)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveConfig:
    """A rule and its numbers. Raises ValueError naming a number that is missing, idle or out of range.

    screen: continue only a group whose first wave is informative (SPEED, arXiv 2506.09016).
    pilot: skip above `high`, defer below `low`, else commit to the rest (Pilot-Commit, arXiv 2605.26606).
    until_success: `step` more until one is right (AR3PO, arXiv 2509.25808; Reinforce-Ada's "positive").
    balanced: `step` more until `keep`/2 are right and `keep`/2 are wrong (Reinforce-Ada, arXiv 2510.04996).
    rescue: a group of which at most `ceiling` was right gets `step` more until another one is (AERO, arXiv 2602.14338).
    settle: of probes alone; `step` more until it is settled whether a group is informative above `low`, see `probing`.
    """

    rule: Rule
    first: int  # rollouts of the first wave
    step: int | None = None  # of each later one; without it one later wave has the rest
    low: float | None = None  # share right, in [0, 1]
    high: float | None = None
    keep: int | None = None  # even
    ceiling: float | None = None  # share right, in [0, 1)
    price: float | None = None  # of a rollout, for `settle`, in informative groups a decision

    def __post_init__(self) -> None:
        needed = PARTS.get(self.rule)
        if needed is None:
            raise ValueError(f"wave.rule must be one of {sorted(PARTS)}, got {self.rule!r}")
        for name in (f.name for f in fields(self) if f.name not in ("rule", "first")):
            given = getattr(self, name)
            if name == "price" and self.rule == "settle":
                continue  # draws of earlier versions lack it
            if given is None and name in needed:
                raise ValueError(f"wave.{name} is needed with rule {self.rule!r}")
            if given is not None and name not in needed:
                raise ValueError(f"wave.{name} {given} has no effect with rule {self.rule!r}: leave it out")
        least = 2 if self.rule == "screen" else 1  # one rollout alone never differs
        if self.first < least:
            raise ValueError(f"wave.first must be >= {least} with rule {self.rule!r}, got {self.first}")
        if self.step is not None and self.step < 1:
            raise ValueError(f"wave.step must be >= 1, got {self.step}")
        if self.price is not None and not 0.0 <= self.price < float("inf"):
            raise ValueError(f"wave.price must be a number >= 0, got {self.price}")
        if self.keep is not None and (self.keep < 2 or self.keep % 2):
            raise ValueError(f"wave.keep must be even and >= 2, got {self.keep}")
        if self.low is not None and self.high is not None and not 0.0 <= self.low <= self.high <= 1.0:
            raise ValueError(f"wave.low and wave.high must be in order within [0, 1], got {self.low} and {self.high}")
        if self.ceiling is not None and not 0.0 <= self.ceiling < 1.0:
            raise ValueError(f"wave.ceiling must be in [0, 1), got {self.ceiling}")

    def check_run(self, group_size: int, min_rollouts: int) -> None:
        """Raises ValueError where groups of this size could have no second wave, or a first one could never count."""
        if self.rule == "settle":
            raise ValueError("wave.rule 'settle' needs a belief at the draw: probes have it by themselves")
        if self.first >= group_size:
            raise ValueError(
                f"wave.first {self.first} must be below group_size {group_size}, the most rollouts of a ticket: "
                "make the run with a larger group_size"
            )
        if self.first < min_rollouts:
            raise ValueError(
                f"wave.first {self.first} is below min_rollouts {min_rollouts}: no group stopped there could count"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveDecision:
    """What was decided of a ticket after a wave, with what it was decided on."""

    rule: str
    wave: int  # 0 is the first
    end: int  # rollouts of all waves up to this one, errors among them
    right: int  # k of all rollouts up to the end of the wave
    scored: int  # n; errors and unscored rollouts are not among them
    verdict: int  # Verdict
    more: int  # rollouts of the next wave, 0 when there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Counts over the rollouts up to the end of a wave."""

    right: int
    scored: int
    right_first: int  # the same of the first wave
    scored_first: int
    informative: bool  # by the run's rule, on the signal behind the advantage

    def __post_init__(self) -> None:
        if not (0 <= self.right_first <= self.right <= self.scored and self.scored_first <= self.scored):
            raise ValueError(f"counts that cannot be: {self}")


def wave_ends(config: WaveConfig | None, group_size: int) -> tuple[int, ...]:
    """Where each wave ends, as numbers of rollouts: rising, the last one `group_size`; one wave without a rule."""
    if config is None or config.first >= group_size:
        return (group_size,)
    step = config.step or group_size - config.first
    return (*range(config.first, group_size, step), group_size)


def decide(config: WaveConfig, seen: Seen) -> Verdict:
    """What the rule says at the end of a wave that is not the last. Nothing scored: nothing to go on, so it stops."""
    if not seen.scored:
        return Verdict.STOP
    match config.rule:
        case "screen":
            goes_on = seen.informative
        case "pilot":
            share = seen.right / seen.scored
            if share > _number(config.high):
                return Verdict.SKIP
            if share < _number(config.low):
                return Verdict.DEFER
            goes_on = True
        case "until_success":
            goes_on = seen.right == 0
        case "balanced":
            goes_on = 2 * min(seen.right, seen.scored - seen.right) < _number(config.keep)
        case "rescue":
            poor = seen.right_first <= _number(config.ceiling) * seen.scored_first
            goes_on = poor and seen.right == seen.right_first
        case "settle":
            raise ValueError("rule 'settle' is decided on a belief, by probing.settled")
    return Verdict.CONTINUE if goes_on else Verdict.STOP


def wave_from_dict(values: dict[str, Any] | None) -> WaveConfig | None:
    """The inverse of `asdict`."""
    return None if values is None else WaveConfig(**values)


def _number(value: float | None) -> float:
    if value is None:
        raise ValueError("a wave's rule lacks a number that its check should have asked for")
    return value
