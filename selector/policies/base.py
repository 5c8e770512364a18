"""What a selection policy is: beliefs in, how much a ticket of each prompt is worth out.

Called by the engine before each train draw. A policy knows beliefs by row; it must not know which prompts are in
flight or at rest, how many are drawn, or chance: the design turns its utilities into inclusion probabilities.
"""

from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from predictors.base import Beliefs
from predictors.rewards import RewardBeliefs
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
        with_default = {f.name for f in fields(cls) if f.default is not MISSING}  # type: ignore[arg-type]
        values: dict[str, Any] = {}
        for name in _field_names(cls):
            value = of_the_run[name] if name in of_the_run else getattr(config, name)
            if value is None and name in with_default:
                continue
            if value is None:
                raise ValueError(f"utility {config.utility!r} needs {name}")
            values[name] = value
        return cls(**values)

    @property
    def informative_power(self) -> int | None:
        """The whole power of P(informative) that `utility` is, and `reward_utility` too, where they are just that: then
        a draw need not write them out. None for all other policies.
        """
        return None

    @abstractmethod
    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        """Worth of one ticket by row: (N,) float64, finite and >= 0. N is whatever rows the beliefs are of.

        informative_N: their P(informative) for groups of this size, where the caller has worked it out already.
        """

    def reward_utility(self, beliefs: RewardBeliefs, *, group_size: int) -> np.ndarray | None:
        """The same of prompts that have rewards and no outcomes, on the scale of `utility`; beliefs: for groups of this
        size. None for a policy that needs pass rates: it sees such a prompt as one that was never tried.
        """
        return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowFacts:
    """What a run knows of prompts beside their beliefs, before a train draw; all (N,)."""

    frame_N: np.ndarray  # bool, prompts that a train draw may ever hold
    drawn_N: np.ndarray  # int, train draws that held it
    age_N: np.ndarray  # int64 >= 1, train draws since the last of them, all and one more where there was none
    progress_N: np.ndarray  # float64 in [-1, 1], recent pass rate less that of longer ago; NaN where not known
    feature_N: np.ndarray  # float64, the feature that the policy names; NaN where a prompt lacks it

    @classmethod
    def none(cls, num_rows: int) -> Self:
        """Facts of prompts of which nothing is known."""
        unknown_N = np.full(num_rows, np.nan)
        return cls(
            frame_N=np.ones(num_rows, bool),
            drawn_N=np.zeros(num_rows, np.int64),
            age_N=np.ones(num_rows, np.int64),
            progress_N=unknown_N,
            feature_N=unknown_N,
        )


class FactPolicy(Policy):
    """A policy whose utility looks at more of a prompt than its belief."""

    @abstractmethod
    def utility(
        self,
        beliefs: Beliefs,
        *,
        group_size: int,
        informative_N: np.ndarray | None = None,
        facts: RowFacts | None = None,
    ) -> np.ndarray:
        """As for every policy. facts: of the same rows; without them nothing is known beside the beliefs."""


OF_THE_RUN = frozenset({"weights", "advantage"})


def _field_names(policy: type[Policy]) -> list[str]:
    return [field.name for field in fields(policy)]  # type: ignore[arg-type]


def check_power(power: float) -> None:
    """Raises ValueError for an exponent that would prefer nothing or turn the order round."""
    if not 0.0 < power < np.inf:
        raise ValueError(f"power must be finite and > 0, got {power}")
