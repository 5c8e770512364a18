"""Pass rates of prompts, estimated from counts as the policy changes; pure functions and classes over numpy arrays."""

from predictors.base import NEVER, SOURCES, Beliefs, Estimator, Observations, Source
from predictors.registry import ESTIMATORS, build_estimator, default_options

__all__ = [
    "ESTIMATORS",
    "NEVER",
    "SOURCES",
    "Beliefs",
    "Estimator",
    "Observations",
    "Source",
    "build_estimator",
    "default_options",
]
