"""Predictions as they were made, beside what came: scored together, by lag and by any other part.

Called by the audit with what was stored at each draw, and by the benchmark of estimators. A reader of one table sees
whether beliefs are as sure as they say for prompts left alone for long, and for prompts that were never tried.
Axes: B predictions, A those of one part.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from predictors.base import NEVER, FloatArray, IntArray
from predictors.calibration import (
    Reliability,
    auc,
    beta_binomial_log_loss,
    brier,
    log_loss,
    randomised_pit,
    reliability,
)

Bools = npt.NDArray[np.bool_]
Buckets = tuple[tuple[str, int, int], ...]

LAG_BUCKETS: Buckets = (
    ("never tried", NEVER, NEVER), ("lag 0", 0, 0), ("lag 1-10", 1, 10), ("lag 11-30", 11, 30),
    ("lag 31-100", 31, 100), ("lag 101-300", 101, 300), ("lag > 300", 301, 2**62),
)  # fmt: skip
"""Names, and least and largest lag in policy versions."""

COVERED = (0.05, 0.95)
"""Values of the randomised PIT that count as covered: 90 % of them if beliefs are right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Beliefs at the time of the prediction. All (B,)."""

    mean_B: FloatArray  # in (0, 1)
    variance_B: FloatArray  # in [0, mean (1 - mean))
    informative_B: FloatArray  # P(informative), in [0, 1]
    lag_B: IntArray  # versions since the newest own evidence, NEVER without any


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """The groups that were predicted. All (B,)."""

    passes_B: FloatArray  # sum of outcomes; graded ones are allowed
    scored_B: IntArray  # >= 1
    informative_B: Bools  # whether their scores differed
    judged_B: Bools  # whether that is known; where it is not, `informative_B` says nothing
    prompt_B: IntArray  # >= 0; groups of one prompt are alike, so errors are by prompt
    uniform_B: FloatArray  # in [0, 1), drawn by the caller, for the randomised PIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Scores of some predictions; lower is better but for `informative_auc`. None: not defined for these."""

    name: str
    count: int
    predicted: float  # mean pass rate
    observed: float  # mean share passed
    log_loss: float  # nats a group, by the beta-binomial
    brier: float  # of the share passed
    informative_predicted: float | None  # means over the judged ones, as are all that follow but for the PIT's
    informative_observed: float | None
    informative_log_loss: float | None
    informative_brier: float | None
    informative_auc: float | None  # None also where all were informative or none was
    informative: Reliability
    coverage: float | None  # share of PIT values in COVERED; None where no group has a whole number of passes
    coverage_error: float | None  # its standard error, prompts as clusters
    pit_distance: float | None  # largest distance of the PIT's distribution from the uniform one, in [0, 1]


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """Losses of each prediction, made once, to be averaged over any part of them. All (B,)."""

    predicted: Predicted
    came: Came
    ranked: bool  # whether parts are sorted for what takes it: `informative_auc` and `pit_distance`
    log_loss_B: FloatArray
    pit_B: FloatArray  # NaN for graded sums that are no whole number

    @classmethod
    def of(cls, predicted: Predicted, came: Came, *, ranked: bool = True) -> "Losses":
        """Raises ValueError if a prediction is out of range."""
        mean_B, variance_B, passes_B, scored_B = predicted.mean_B, predicted.variance_B, came.passes_B, came.scored_B
        whole = np.flatnonzero(passes_B == np.rint(passes_B))
        pit_B = np.full(mean_B.size, np.nan)
        pit_B[whole] = randomised_pit(
            mean_B[whole], variance_B[whole], passes_B[whole], scored_B[whole], came.uniform_B[whole]
        )
        return cls(
            predicted=predicted,
            came=came,
            ranked=ranked,
            log_loss_B=beta_binomial_log_loss(mean_B, variance_B, passes_B, scored_B),
            pit_B=pit_B,
        )

    def over(self, name: str, chosen_B: Bools) -> Scored:
        """Raises ValueError if nothing is chosen."""
        at = np.flatnonzero(chosen_B)
        if not at.size:
            raise ValueError("there must be a prediction to score")
        predicted, came = self.predicted, self.came
        mean_A, share_A = predicted.mean_B[at], came.passes_B[at] / came.scored_B[at]
        judged = at[came.judged_B[at]]
        forecast_A, event_A = predicted.informative_B[judged], np.asarray(came.informative_B[judged], bool)
        event_value_A = event_A.astype(np.float64)
        ranked = self.ranked and event_A.any() and not event_A.all()
        whole = at[np.isfinite(self.pit_B[at])]
        pit_A = self.pit_B[whole]
        inside_A = (pit_A >= COVERED[0]) & (pit_A <= COVERED[1])
        return Scored(
            name=name,
            count=int(at.size),
            predicted=float(mean_A.mean()),
            observed=float(share_A.mean()),
            log_loss=float(self.log_loss_B[at].mean()),
            brier=float(brier(mean_A, share_A).mean()),
            informative_predicted=_mean(forecast_A),
            informative_observed=_mean(event_value_A),
            informative_log_loss=_mean(log_loss(forecast_A, event_A)),
            informative_brier=_mean(brier(forecast_A, event_value_A)),
            informative_auc=auc(forecast_A, event_A) if ranked else None,
            informative=reliability(forecast_A, event_value_A),
            coverage=_mean(inside_A.astype(np.float64)),
            coverage_error=clustered_error(inside_A, came.prompt_B[whole]) if whole.size else None,
            pit_distance=distance_from_uniform(pit_A) if whole.size and self.ranked else None,
        )

    def parts(self, named: Iterable[tuple[str, Bools]]) -> tuple[Scored, ...]:
        """One entry for each part that has a prediction."""
        return tuple(self.over(name, chosen_B) for name, chosen_B in named if chosen_B.any())

    def by_lag(self, buckets: Buckets = LAG_BUCKETS) -> tuple[Scored, ...]:
        """One entry for each bucket of lags that has a prediction."""
        lag_B = self.predicted.lag_B
        return self.parts((name, (lag_B >= low) & (lag_B <= high)) for name, low, high in buckets)

    def together(self) -> Scored:
        """All predictions as one. Raises ValueError if there are none."""
        return self.over("all", np.ones(self.log_loss_B.size, bool))


def clustered_error(inside_B: Bools, prompt_B: IntArray) -> float:
    """Standard error of the mean of `inside`, prompts as clusters: sqrt(sum over prompts of (sum of residuals)^2) / B.

    prompt_B: (B,) >= 0. Raises ValueError if B = 0.
    """
    if inside_B.size == 0:
        raise ValueError("there must be a prediction to score")
    residual_B = inside_B - inside_B.mean()
    return float(np.sqrt(np.sum(np.bincount(prompt_B, weights=residual_B) ** 2))) / inside_B.size


def distance_from_uniform(value_B: FloatArray) -> float:
    """Largest distance of the share of values below x from x, of Kolmogorov and Smirnov, in [1 / (2 B), 1].

    value_B: (B,) in [0, 1]. Raises ValueError if B = 0.
    """
    size = value_B.size
    if size == 0:
        raise ValueError("there must be a value to compare")
    sorted_B, steps = np.sort(value_B), np.arange(size + 1) / size
    return float(np.max(np.maximum(steps[1:] - sorted_B, sorted_B - steps[:-1])))


def _mean(value_B: FloatArray) -> float | None:
    return float(value_B.mean()) if value_B.size else None
