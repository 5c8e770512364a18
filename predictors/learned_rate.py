"""A rate of a pool that is learned from slopes of the likelihood of what comes. Used by what is believed of rewards.

Knows a number and scores; not what they are of. Axes: B groups.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import FloatArray

STEP = 0.25
"""Half the step in the log of the rate over which a slope is measured."""

FACTORS = (float(np.exp(-STEP)), float(np.exp(STEP)))

PRIOR_INFORMATION, MEMORY, MAX_STEP = 3.0, 5_000.0, 0.5
"""Information that it starts with, groups over which what was learned fades by a factor of e, and the largest step of
the logarithm in a call."""

RANGE = (1e-7, 1.0)


@dataclass(slots=True)
class LearnedRate:
    """Natural-gradient steps on the log of a rate, with the empirical Fisher information, as in `pace.Pace`."""

    value: float
    information: float = 0.0

    def learn(self, lower_B: FloatArray, higher_B: FloatArray) -> None:
        """From the losses, in nats, of B groups with the rate times each of FACTORS."""
        score_B = (lower_B - higher_B) / (2.0 * STEP)
        self.information = float(np.exp(-score_B.size / MEMORY)) * self.information + float(np.sum(score_B**2))
        step = np.clip(np.sum(score_B) / (self.information + PRIOR_INFORMATION), -MAX_STEP, MAX_STEP)
        self.value = float(np.clip(self.value * np.exp(step), *RANGE))

    def state(self) -> np.ndarray:
        return np.array([self.value, self.information])

    @classmethod
    def from_state(cls, state: np.ndarray) -> "LearnedRate":
        value, information = state.tolist()
        return cls(value, information)
