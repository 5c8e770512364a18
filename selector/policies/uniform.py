"""Every prompt alike: the policy of a run that only wants the audit and the ledger, and the arm others are compared
with.

Built by `build_policy`. Looks at no belief.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from predictors.base import Beliefs
from selector.policies.base import Policy


@dataclass(frozen=True, slots=True)
class Uniform(Policy):
    """u = 1."""

    exact_uniform: ClassVar[bool] = True

    def utility(self, beliefs: Beliefs, *, group_size: int, informative_N: np.ndarray | None = None) -> np.ndarray:
        return np.ones(len(beliefs.mean_N))
