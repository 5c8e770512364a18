"""The difficulty that is drawn around follows the pass rate. Built by `build_controller`."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import tanh

from selector.config import PolicyConfig
from selector.controllers.base import Controller, Numbers, Seen, check_between, number_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Adarft(Controller):
    """T ← clip(T + rate·tanh(slope·(R̄ − wanted)), 0, 1), R̄ the mean share passed (AdaRFT, arXiv 2504.05520).

    The method's scale is 0 to 100 and its rate 50; here it is 0 to 1, so one step moves T by at most
    rate·tanh(slope·max(wanted, 1 − wanted)): 0.38 by default. Groups that come back late move it late. R̄ is over first
    waves where groups may be stopped by their outcomes.
    """

    sets = ("target",)

    rate: float = 0.5
    slope: float = 2.0
    wanted: float = 0.5

    def __post_init__(self) -> None:
        check_between("rate", self.rate, 0.0, 1.0)
        check_between("slope", self.slope, 0.0, 100.0)
        check_between("wanted", self.wanted, 0.0, 1.0)

    def begin(self, policy: PolicyConfig) -> Numbers:
        return {"target": number_of(policy, "target")}

    def after(self, numbers: Mapping[str, float], seen: Seen) -> Numbers:
        if not seen.groups:
            return dict(numbers)
        moved = numbers["target"] + self.rate * tanh(self.slope * (seen.share_sum / seen.groups - self.wanted))
        return {"target": min(max(moved, 0.0), 1.0)}
