"""What a controller is: totals of the groups that came back in, numbers of the policy out.

Asked by `batches.controlling` before each train draw but the refills of one. A controller sees counts only: no prompt,
no belief, and nothing of held-out, control or probe tickets.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import ClassVar

import numpy as np

from selector.config import PolicyConfig

Numbers = dict[str, float]
"""A controller's numbers by name: its whole state, recorded with every draw."""

COUNTS = (
    "groups",
    "easy",
    "hard",
    "share_sum",
    "low_groups",
    "low_informative",
    "middle_groups",
    "middle_informative",
    "high_groups",
    "high_informative",
)
"""What is counted between two draws, in the order in which a run keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Groups of train and audit tickets that were reported since the last train draw, refills of one being one.

    Where a rule of waves may stop a group by its outcomes, shares passed are those of first waves, as k/n of what was
    made is biased. `easy`, `hard` and `informative` are not: they say what came of the groups as they were made, which
    is what the next batch will yield under the same rule; of whole groups a rule that stops early shows more alike.
    """

    groups: int = 0
    easy: int = 0  # not informative, and more than half passed
    hard: int = 0  # not informative, and at most half did
    share_sum: float = 0.0  # of the shares passed; of what was sure to be made of each group
    low_groups: int = 0  # of prompts that the draw had predicted to pass at most `low`
    low_informative: int = 0
    middle_groups: int = 0
    middle_informative: int = 0
    high_groups: int = 0  # of prompts predicted to pass more than `high`
    high_informative: int = 0
    epochs: float = 0.0  # tickets of all train draws so far, per prompt of the frame

    @classmethod
    def of(cls, counts: np.ndarray, epochs: float) -> "Seen":
        """counts: (C,) in the order of COUNTS."""
        values = {name: float(value) for name, value in zip(COUNTS, counts.tolist(), strict=True)}
        whole = {name: int(value) for name, value in values.items() if name != "share_sum"}
        return cls(**whole, share_sum=values["share_sum"], epochs=epochs)

    @property
    def informative(self) -> int:
        return self.groups - self.easy - self.hard


class Controller(ABC):
    """Rules for every implementation. `after` is pure; where no group came back it leaves every number that answers
    groups as it is. A controller has no state but its numbers; its options are the fields of its dataclass.
    """

    sets: ClassVar[tuple[str, ...]] = ()
    """The numbers of the policy that it moves; its own numbers of these names stand in their place."""

    @classmethod
    def required(cls) -> frozenset[str]:
        """Options without a default."""
        return frozenset(f.name for f in fields(cls) if f.default is MISSING)  # type: ignore[arg-type]

    @abstractmethod
    def begin(self, policy: PolicyConfig) -> Numbers:
        """The numbers of a run's first draw. Raises ValueError for a policy that lacks one to begin with."""

    @abstractmethod
    def after(self, numbers: Mapping[str, float], seen: Seen) -> Numbers:
        """The numbers of the next draw, in the same order."""

    def overrides(self, numbers: Mapping[str, float]) -> Numbers:
        """The policy's numbers in force."""
        return {name: numbers[name] for name in self.sets}


def number_of(policy: PolicyConfig, name: str) -> float:
    """A number of the policy to begin with. Raises ValueError where it has none."""
    value = getattr(policy, name)
    if value is None:
        raise ValueError(f"the controller begins with the policy's {name}: give it")
    return float(value)


def check_between(name: str, value: float, low: float, high: float) -> None:
    """Raises ValueError for an option outside [low, high]; written so that NaN fails."""
    if not low <= value <= high:
        raise ValueError(f"{name} of the controller must be in [{low:g}, {high:g}], got {value}")
