"""The estimators by name. A new one is a file with a class, its configuration, and one line here."""

from collections.abc import Mapping

from predictors.base import Estimator
from predictors.beta_with_reference import BetaWithReference
from predictors.category import Category
from predictors.discounted_beta import DiscountedBeta
from predictors.features import Features
from predictors.hmm import Hmm
from predictors.kalman_arcsine import KalmanArcsine
from predictors.kalman_logit import KalmanLogit
from predictors.last_mean import LastMean
from predictors.mixture import Mixture
from predictors.pushed import PushedValue
from predictors.streak import Streak

ESTIMATORS: dict[str, type[Estimator]] = {
    "beta_with_reference": BetaWithReference,
    "category": Category,
    "discounted_beta": DiscountedBeta,
    "features": Features,
    "hmm": Hmm,
    "kalman_arcsine": KalmanArcsine,
    "kalman_logit": KalmanLogit,
    "last_mean": LastMean,
    "mixture": Mixture,
    "streak": Streak,
    "value": PushedValue,
}


def build_estimator(name: str, options: Mapping[str, float]) -> Estimator:
    """A new estimator without rows. Raises ValueError naming an unknown name or option, or a value out of range."""
    return _estimator_type(name).from_options(options)


def default_options(name: str) -> dict[str, float]:
    """Every option of an estimator with its default. Raises ValueError naming an unknown estimator."""
    return _estimator_type(name).default_options()


def _estimator_type(name: str) -> type[Estimator]:
    if name not in ESTIMATORS:
        raise ValueError(f"no estimator is called {name!r}; there are {', '.join(sorted(ESTIMATORS))}")
    return ESTIMATORS[name]
