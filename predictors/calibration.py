"""Scores of predictions against what came: losses per observation, the ranking measure, and what calibration looks at.

Called by benchmarks, by the audit and by the learner of drift rates. Lower is better except for `auc`. Losses are one
number an observation, so a caller can average them by lag, stratum or source. Axes: B observations, R bins.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from predictors.base import FloatArray

MAX_FACTORS = 32
"""Factors of a product that are taken one by one."""

SMALL_GROWTH = 1e-3
"""Relative growth of the factors below which their mean logarithm is taken from its series, to 1e-13."""

MIN_PROBABILITY = 1e-12
"""Probabilities are kept this far from 0 and 1 in `log_loss`, so one sure and wrong forecast costs 27.6 nats."""


def beta_binomial_log_loss(
    mean_B: FloatArray, variance_B: FloatArray, passes_B: FloatArray, scored_B: npt.NDArray[np.int64]
) -> FloatArray:
    """-log P(k of n pass) in nats, when the pass rate has a Beta distribution with this mean and variance.

    With r = v / (m (1 - m)) the probability is

        C(n, k) prod_{j<k} (m (1-r) + j r) prod_{j<n-k} ((1-m) (1-r) + j r) / prod_{j<n} (1 - r + j r)

    which is binomial at r = 0. A graded sum k that is no whole number has no such probability; there each product is
    continued between whole numbers, log-linearly up to MAX_FACTORS, which orders forecasts in the same way.

    mean_B: (B,) in (0, 1), or (E, B) of several beliefs about the same groups. variance_B: of that shape, in
    [0, m (1 - m)). passes_B: (B,) in [0, n]. scored_B: (B,) >= 1. Returns the shape of mean_B, >= 0 for whole k. Raises
    ValueError if a value is out of range.
    """
    mean_B, variance_B = np.asarray(mean_B, dtype=np.float64), np.asarray(variance_B, dtype=np.float64)
    passes_B, scored_B = np.asarray(passes_B, dtype=np.float64), np.asarray(scored_B)
    failures_B = scored_B - passes_B
    spread_B = mean_B * (1.0 - mean_B)
    if not ((mean_B > 0.0) & (mean_B < 1.0) & (variance_B >= 0.0) & (variance_B < spread_B)).all():
        raise ValueError("mean_B must be in (0, 1) and variance_B in [0, mean (1 - mean))")
    if not ((passes_B >= 0.0) & (failures_B >= 0.0) & (scored_B >= 1)).all():
        raise ValueError("scored_B must be >= 1 and passes_B in [0, scored_B]")
    overlap_B = variance_B / spread_B
    rest_B = 1.0 - overlap_B
    log_probability_B = (
        _log_product(mean_B * rest_B, overlap_B, passes_B)
        + _log_product((1.0 - mean_B) * rest_B, overlap_B, failures_B)
        - _log_product(rest_B, overlap_B, scored_B.astype(np.float64))
    )
    count_TB, one = np.stack([passes_B, failures_B, scored_B.astype(np.float64)]), np.ones(())
    ways_passed_B, ways_failed_B, ways_B = _log_product(one, one, count_TB)
    log_choices_B = ways_B - ways_passed_B - ways_failed_B
    return np.asarray(-(log_probability_B + log_choices_B))


def brier(probability_B: FloatArray, outcome_B: FloatArray) -> FloatArray:
    """Squared distance of forecast and outcome (an event as 0 or 1, or a share). Both (B,) in [0, 1]; returns (B,)."""
    return np.asarray((_checked_unit("probability_B", probability_B) - _checked_unit("outcome_B", outcome_B)) ** 2)


def log_loss(probability_B: FloatArray, event_B: npt.NDArray[np.bool_]) -> FloatArray:
    """-log of the probability given to what happened, in nats. probability_B: (B,) in [0, 1]; event_B: (B,) bool."""
    probability_B = np.clip(_checked_unit("probability_B", probability_B), MIN_PROBABILITY, 1.0 - MIN_PROBABILITY)
    return np.asarray(-np.log(np.where(event_B, probability_B, 1.0 - probability_B)))


def auc(score_B: FloatArray, event_B: npt.NDArray[np.bool_]) -> float:
    """Chance that a random event scores above a random non-event, ties counting one half. In [0, 1].

    Raises ValueError for NaN scores, or unless both an event and a non-event are there.
    """
    score_B, event_B = np.asarray(score_B, dtype=np.float64), np.asarray(event_B, dtype=bool)
    num_events = int(event_B.sum())
    num_others = event_B.size - num_events
    if num_events == 0 or num_others == 0:
        raise ValueError(f"auc needs an event and a non-event, got {num_events} events among {event_B.size}")
    if np.isnan(score_B).any():
        raise ValueError("score_B must not hold NaN")
    _, tie_B, size = np.unique(score_B, return_inverse=True, return_counts=True)
    mean_rank_B = (np.cumsum(size) - (size - 1) / 2.0)[tie_B]
    above = mean_rank_B[event_B].sum() - num_events * (num_events + 1) / 2.0
    return float(above / (num_events * num_others))


def randomised_pit(
    mean_B: FloatArray,
    variance_B: FloatArray,
    passes_B: FloatArray,
    scored_B: npt.NDArray[np.int64],
    uniform_B: FloatArray,
) -> FloatArray:
    """P(K < k) + u P(K = k), K beta-binomial with this belief: uniform on [0, 1] if beliefs are right.

    The randomised probability integral transform of a count (Czado, Gneiting and Held 2009). Counts cannot have
    equal-tailed intervals of an exact level; the share of these values in [.05, .95] is 90 % exactly.

    uniform_B: (B,) in [0, 1), drawn by the caller. passes_B: (B,) whole. Others as in `beta_binomial_log_loss`.
    Returns (B,) in [0, 1]. Raises ValueError if a value is out of range. Costs max(n) passes over the arrays.
    """
    mean_B, variance_B = np.asarray(mean_B, dtype=np.float64), np.asarray(variance_B, dtype=np.float64)
    passes_B, uniform_B = np.asarray(passes_B, dtype=np.float64), _checked_unit("uniform_B", uniform_B)
    if not (passes_B == np.rint(passes_B)).all():
        raise ValueError("passes_B must be whole numbers")
    overlap_B = variance_B / (mean_B * (1.0 - mean_B))
    pass_start_B, fail_start_B = mean_B * (1.0 - overlap_B), (1.0 - mean_B) * (1.0 - overlap_B)
    chance_B = np.exp(-beta_binomial_log_loss(mean_B, variance_B, np.zeros_like(mean_B), scored_B))
    below_B, at_B = np.zeros_like(mean_B), chance_B.copy()
    for k in range(int(passes_B.max(initial=0.0))):
        left_B = scored_B - k - 1.0
        rising_B = (passes_B > k) & (left_B >= 0.0)
        below_B += np.where(rising_B, chance_B, 0.0)
        odds_B = (pass_start_B + k * overlap_B) / (fail_start_B + np.maximum(left_B, 0.0) * overlap_B)
        chance_B = chance_B * (left_B + 1.0) / (k + 1.0) * odds_B
        at_B = np.where(passes_B == k + 1, chance_B, at_B)
    return np.clip(below_B + uniform_B * at_B, 0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Forecasts of an event in bins of equal width: a forecast is reliable if `frequency_R` follows `forecast_R`."""

    forecast_R: FloatArray  # mean forecast of the bin; NaN if it is empty
    frequency_R: FloatArray  # share of events in the bin; NaN if it is empty
    count_R: npt.NDArray[np.int64]

    @property
    def error(self) -> float:
        """Expected calibration error: mean distance of frequency and forecast, weighted by count; 0 without any."""
        distance_R = np.abs(self.frequency_R - self.forecast_R)
        return float(np.nansum(distance_R * self.count_R) / max(int(self.count_R.sum()), 1))


def reliability(
    probability_B: FloatArray, event_B: npt.NDArray[np.bool_] | FloatArray, *, num_bins: int = 10
) -> Reliability:
    """Bins of width 1 / num_bins over [0, 1], the last closed. Raises ValueError for a forecast outside [0, 1].

    event_B: (B,) bool, or shares in [0, 1], of which a bin's frequency is then the mean.
    """
    probability_B = _checked_unit("probability_B", probability_B)
    event_B = _checked_unit("event_B", np.asarray(event_B, np.float64))
    if num_bins < 1:
        raise ValueError(f"num_bins must be >= 1, got {num_bins}")
    bin_B = np.minimum((probability_B * num_bins).astype(np.int64), num_bins - 1)
    count_R = np.bincount(bin_B, minlength=num_bins)
    sums_R = [np.bincount(bin_B, weights=values, minlength=num_bins) for values in (probability_B, event_B)]
    with np.errstate(invalid="ignore"):
        forecast_R, frequency_R = (sum_R / np.where(count_R, count_R, np.nan) for sum_R in sums_R)
    return Reliability(forecast_R=forecast_R, frequency_R=frequency_R, count_R=count_R)


def _log_product(start_B: FloatArray, step_B: FloatArray, count_B: FloatArray) -> FloatArray:
    """log prod_{j < count} (start + j step), start > 0, step >= 0; a last factor that is cut counts by its share.
    Shapes broadcast.

    Factors from MAX_FACTORS on are summed by the Euler-Maclaurin formula, as a probe may have thousands of rollouts.
    """
    total_B = np.zeros(np.broadcast_shapes(np.shape(start_B), np.shape(count_B)))
    most = count_B.max(initial=0.0)
    for j in range(int(min(np.ceil(most), MAX_FACTORS))):
        share_B = np.minimum(np.maximum(count_B - j, 0.0), 1.0)
        total_B += share_B * np.log(start_B + j * step_B)
    if most > MAX_FACTORS:
        long = np.broadcast_to(count_B > MAX_FACTORS, total_B.shape)
        first_J, step_J, count_J = (
            np.broadcast_to(array_B, total_B.shape)[long]
            for array_B in (start_B + MAX_FACTORS * step_B, step_B, count_B - MAX_FACTORS)
        )
        total_B[long] += _log_tail(first_J, step_J, count_J)
    return total_B


def _log_tail(first_B: FloatArray, step_B: FloatArray, count_B: FloatArray) -> FloatArray:
    """log prod_{j < count} (first + j step) for first >= MAX_FACTORS step: integral, ends, first and third derivative.

    The term left out is at most MAX_FACTORS^-5 / 1260 = 2.4e-11.
    """
    growth_B = step_B * count_B / first_B
    last_B = first_B + step_B * count_B
    small_B = growth_B < SMALL_GROWTH
    safe_B = np.where(small_B, 1.0, growth_B)
    mean_log_B = np.where(
        small_B,
        growth_B / 2.0 - growth_B**2 / 6.0 + growth_B**3 / 12.0,
        ((1.0 + safe_B) * np.log1p(safe_B) - safe_B) / safe_B,
    )
    slope_B = step_B / last_B - step_B / first_B
    third_B = 2.0 * ((step_B / last_B) ** 3 - (step_B / first_B) ** 3)
    return np.asarray(
        count_B * (np.log(first_B) + mean_log_B) - np.log1p(growth_B) / 2.0 + slope_B / 12.0 - third_B / 720.0
    )


def _checked_unit(name: str, value_B: FloatArray) -> FloatArray:
    value_B = np.asarray(value_B, dtype=np.float64)
    if not ((value_B >= 0.0) & (value_B <= 1.0)).all():
        raise ValueError(f"{name} must be in [0, 1]")
    return value_B
