"""The weights of the easy and of the hard pool follow what their groups yield. Built by `build_controller`."""

from collections.abc import Mapping
from dataclasses import dataclass

from selector.config import PolicyConfig
from selector.controllers.base import Controller, Numbers, Seen, check_between, number_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWeights(Controller):
    """weight ← (1 − rate)·weight + rate·min(1, yield of the pool / yield of the middle one), and not below `lowest`.

    For the utility `pools`, whose weights prime-rl (orchestrator/curriculum) sets by hand. Yields are smoothed by one
    group each way, (informative + 1)/(groups + 2), so that a pool of which nothing came back moves nothing and one
    group moves little. The pool of a group is the one that its draw had predicted, and it is judged as it was made,
    whole or stopped. The rule is our own.
    """

    sets = ("easy_weight", "hard_weight")

    rate: float = 0.1
    lowest: float = 0.02

    def __post_init__(self) -> None:
        check_between("rate", self.rate, 0.0, 1.0)
        check_between("lowest", self.lowest, 0.0, 1.0)

    def begin(self, policy: PolicyConfig) -> Numbers:
        return {name: number_of(policy, name) for name in self.sets}

    def after(self, numbers: Mapping[str, float], seen: Seen) -> Numbers:
        if not seen.middle_groups:
            return dict(numbers)
        middle = (seen.middle_informative + 1) / (seen.middle_groups + 2)
        return {
            "easy_weight": self._moved(numbers["easy_weight"], seen.high_informative, seen.high_groups, middle),
            "hard_weight": self._moved(numbers["hard_weight"], seen.low_informative, seen.low_groups, middle),
        }

    def _moved(self, weight: float, informative: int, groups: int, middle: float) -> float:
        if not groups:
            return weight
        worth = min(1.0, (informative + 1) / (groups + 2) / middle)
        return max((1.0 - self.rate) * weight + self.rate * worth, self.lowest)
