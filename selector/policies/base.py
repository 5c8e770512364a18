"""What a selection policy is: beliefs in, how much a ticket of each prompt is worth out.

Called by the engine before each train draw. A policy knows beliefs by row; it must not know which prompts are in
flight or at rest, how many are drawn, or chance: the design turns its utilities into inclusion probabilities.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np

from predictors.base import Beliefs
from selector.config import Advantage, PolicyConfig, Weights


class Policy(ABC):
    """Rules for every implementation. `utility` is pure and deterministic and draws nothing. Only ratios count: a
    utility means the same on any scale. All zero means no preference. A policy has no state: what was learned is in
    the beliefs.
    """

    exact_uniform: ClassVar[bool] = False
    """Every prompt alike, whatever the beliefs: the claim is `exact` and weights are 1."""

    @classmethod
    @abstractmethod
    def from_config(cls, config: PolicyConfig, *, weights: Weights, advantage: Advantage) -> Self:
        """The policy of a run. Raises ValueError naming a value out of range."""

    @abstractmethod
    def utility(self, beliefs: Beliefs, *, group_size: int) -> np.ndarray:
        """Worth of one ticket by row: (N,) float64, finite and >= 0. N is whatever rows the beliefs are of."""
