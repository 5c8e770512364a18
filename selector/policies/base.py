"""What a selection policy is: beliefs in, how much a ticket of each prompt is worth out.

Called by the engine before each train draw. A policy knows beliefs by row; it must not know which prompts are in
flight or at rest, how many are drawn, or chance: the design turns its utilities into inclusion probabilities.
"""

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, ClassVar, Self

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
    def parameters(cls) -> frozenset[str]:
        """The parts of a `PolicyConfig` that count: those of its name among the fields of a policy's dataclass."""
        return frozenset(_field_names(cls)) - OF_THE_RUN

    @classmethod
    def from_config(cls, config: PolicyConfig, *, weights: Weights, advantage: Advantage) -> Self:
        """The policy of a run. Raises ValueError naming a value that is missing or out of range."""
        of_the_run = {"weights": weights, "advantage": advantage}
        values: dict[str, Any] = {}
        for name in _field_names(cls):
            value = of_the_run[name] if name in of_the_run else getattr(config, name)
            if value is None:
                raise ValueError(f"utility {config.utility!r} needs {name}")
            values[name] = value
        return cls(**values)

    @abstractmethod
    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        """Worth of one ticket by row: (N,) float64, finite and >= 0. N is whatever rows the beliefs are of.

        informative_N: their P(informative) for groups of this size, where the caller has worked it out already.
        """


OF_THE_RUN = frozenset({"weights", "advantage"})


def _field_names(policy: type[Policy]) -> list[str]:
    return [field.name for field in fields(policy)]  # type: ignore[arg-type]


def check_power(power: float) -> None:
    """Raises ValueError for an exponent that would prefer nothing or turn the order round."""
    if not 0.0 < power < np.inf:
        raise ValueError(f"power must be finite and > 0, got {power}")
