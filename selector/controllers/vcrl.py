"""How varied a group has to be rises once, after some steps. Built by `build_controller`."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from selector.config import PolicyConfig
from selector.controllers.base import Controller, Numbers, Seen, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class Vcrl(Controller):
    """κ = `first` for `steps` draws and `later` from then on; a band of shares passed around one half stands for it
    (VCRL, arXiv 2509.19803).

    A group of G with k passes has the normalised variance v = 4k(G−k)/G² for an even G, so v ≥ κ is
    |k/G − 1/2| ≤ √(1−κ)/2. For an odd G the variance is normalised by its own largest value, a G²/(G²−1)-th more, and
    the band is narrower than the method's by less than 1/G. It counts draws and reads no outcome.
    """

    sets = ("low", "high")

    first: float = 0.3
    later: float = 0.8
    steps: float = 20.0

    def __post_init__(self) -> None:
        check_between("first", self.first, 0.0, 0.99)
        check_between("later", self.later, 0.0, 0.99)
        check_between("steps", self.steps, 0.0, 1e9)

    def begin(self, policy: PolicyConfig) -> Numbers:
        return self._at(0.0)

    def after(self, numbers: Mapping[str, float], seen: Seen) -> Numbers:
        return self._at(numbers["draws"] + 1.0)

    def _at(self, draws: float) -> Numbers:
        threshold = self.first if draws < self.steps else self.later
        half = sqrt(1.0 - threshold) / 2.0
        return {"draws": draws, "threshold": threshold, "low": 0.5 - half, "high": 0.5 + half}
