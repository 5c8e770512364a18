"""How many tickets to ask for next, so that enough groups are informative. Built by `build_controller`."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from selector.config import PolicyConfig
from selector.controllers.base import Controller, Numbers, Seen, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize(Controller):
    """suggested_size = ⌈margin·wanted/yield⌉, at most `most`·wanted; the yield is the informative share of the groups
    that came back since the last draw, as they were made (GRESO, arXiv 2506.02177, sizes its refills so, with a margin
    of a quarter).

    A suggestion: no draw changes because of it. It moves no number of the policy, so it goes with every utility. Before
    anything came back the yield counts as 1.
    """

    wanted: float  # informative groups of a step
    margin: float = 1.25
    most: float = 8.0  # times `wanted`

    def __post_init__(self) -> None:
        check_between("wanted", self.wanted, 1.0, 1e6)
        check_between("margin", self.margin, 1.0, 10.0)
        check_between("most", self.most, 1.0, 1e3)

    def begin(self, policy: PolicyConfig) -> Numbers:
        return self._at(1.0)

    def after(self, numbers: Mapping[str, float], seen: Seen) -> Numbers:
        return self._at(seen.informative / seen.groups) if seen.groups else dict(numbers)

    def _at(self, share: float) -> Numbers:
        largest = self.most * self.wanted
        needed = largest if share == 0.0 else min(self.margin * self.wanted / share, largest)
        return {"yield": share, "suggested_size": float(ceil(needed))}
