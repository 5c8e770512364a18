"""How readily prompts with a streak of degenerate groups are skipped follows the share of such groups.

Built by `build_controller`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from selector.config import PolicyConfig
from selector.controllers.base import Controller, Numbers, Seen, check_between, number_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Greso(Controller):
    """keep ← clip(keep − step) where the share of such groups is at its target or above, keep + step below it; for
    easy groups (all right) and hard ones (all wrong) apart, from the second pass over the pool on (GRESO, arXiv
    2506.02177, and its code: a target of a quarter of all groups, one third of it easy). Groups are judged as they were
    made: with a rule of waves that stops them early more are alike than of whole ones, and targets are to be raised.
    """

    sets = ("easy_keep", "hard_keep")

    step: float = 0.01
    easy_share: float = 0.25 / 3
    hard_share: float = 0.5 / 3
    lowest: float = 0.05
    highest: float = 0.95

    def __post_init__(self) -> None:
        for name in ("step", "easy_share", "hard_share", "lowest", "highest"):
            check_between(name, getattr(self, name), 0.0, 1.0)
        if not 0.0 < self.lowest <= self.highest:
            raise ValueError(f"lowest of the controller must be in (0, highest], got {self.lowest}")

    def begin(self, policy: PolicyConfig) -> Numbers:
        return {name: number_of(policy, name) for name in self.sets}

    def after(self, numbers: Mapping[str, float], seen: Seen) -> Numbers:
        if not seen.groups or seen.epochs < 1.0:
            return dict(numbers)
        return {
            "easy_keep": self._moved(numbers["easy_keep"], seen.easy / seen.groups >= self.easy_share),
            "hard_keep": self._moved(numbers["hard_keep"], seen.hard / seen.groups >= self.hard_share),
        }

    def _moved(self, keep: float, too_many: bool) -> float:
        return min(max(keep - self.step if too_many else keep + self.step, self.lowest), self.highest)
