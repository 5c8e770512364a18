"""Predictions as they were made, beside what came: scored together, by lag and by where their evidence came from.

Called by the audit and by benchmarks, with what was stored at each draw. A reader of one table sees whether beliefs are
as sure as they say for prompts left alone for long, and for prompts that were never tried.
Axes: B predictions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum

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

LAG_BUCKETS: tuple[tuple[str, int, int], ...] = (
    ("never tried", NEVER, NEVER), ("lag 0", 0, 0), ("lag 1-10", 1, 10), ("lag 11-30", 11, 30),
    ("lag 31-100", 31, 100), ("lag 101-300", 101, 300), ("lag > 300", 301, 2**62),
)  # fmt: skip
"""Names, and least and largest lag in policy versions."""

COVERED = (0.05, 0.95)
"""Values of the randomised PIT that count as covered: 90 % of them if beliefs are right."""

OWN_SHARE = 0.5
"""A belief is called the prompt's own if at least this share of its weight in rollouts is."""


class Evidence(StrEnum):
    """What a prediction rests on."""

    OWN = "own"
    """Mostly the prompt's own rollouts."""

    BORROWED = "borrowed"
    """Mostly what other prompts showed, tried or not."""

    PRIOR = "prior"
    """Nothing that anybody has seen."""


EVIDENCE: tuple[str, ...] = tuple(kind.value for kind in Evidence)
"""Names of the codes that `evidence` gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Beliefs at the time of the prediction. All (B,)."""

    mean_B: FloatArray  # in (0, 1)
    variance_B: FloatArray  # in [0, mean (1 - mean))
    informative_B: FloatArray  # P(informative), in [0, 1]
    lag_B: IntArray  # versions since the newest own evidence, NEVER without any
    evidence_B: npt.NDArray[np.uint8]  # index into EVIDENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """The groups that were predicted. All (B,)."""

    passes_B: FloatArray  # sum of outcomes; graded ones are allowed
    scored_B: IntArray  # >= 1
    informative_B: Bools  # whether their scores differed
    prompt_B: IntArray  # >= 0; groups of one prompt are alike, so errors are by prompt
    uniform_B: FloatArray  # in [0, 1), drawn by the caller, for the randomised PIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Scores of some predictions; lower is better but for `auc`. None: not defined for these."""

    name: str
    count: int
    log_loss: float  # nats a group, by the beta-binomial
    brier: float  # of the share passed
    informative_log_loss: float
    informative_brier: float
    informative_auc: float | None  # None where all were informative or none was
    informative: Reliability
    coverage: float | None  # share of PIT values in COVERED; None where no group has a whole number of passes
    coverage_error: float | None  # its standard error, prompts as clusters
    pit_distance: float | None  # largest distance of the PIT's distribution from the uniform one, in [0, 1]


def evidence(mean_B: FloatArray, variance_B: FloatArray, own_B: FloatArray, shared_B: Bools) -> npt.NDArray[np.uint8]:
    """(B,) codes into EVIDENCE. A belief is worth c = m (1 - m) / v - 1 rollouts, of which `own` are the prompt's.

    own_B: (B,) >= 0, `Beliefs.n_eff_N`, or rollouts scored before. shared_B: (B,) bool, whether other prompts had shown
    anything that the estimator lets this one have; False throughout for a method that shares nothing.
    A tried prompt is OWN where nothing is shared, whatever the share of its prior.
    """
    concentration_B = mean_B * (1.0 - mean_B) / np.maximum(variance_B, np.finfo(np.float64).tiny) - 1.0
    mostly_own_B = (own_B > 0.0) & (~shared_B | (own_B >= OWN_SHARE * concentration_B))
    rest_B = np.where(shared_B, EVIDENCE.index(Evidence.BORROWED), EVIDENCE.index(Evidence.PRIOR))
    return np.where(mostly_own_B, EVIDENCE.index(Evidence.OWN), rest_B).astype(np.uint8)


def scored_by_lag(predicted: Predicted, came: Came) -> tuple[Scored, ...]:
    """One entry for each of LAG_BUCKETS that has a prediction."""
    lag_B = predicted.lag_B
    parts = ((name, (lag_B >= low) & (lag_B <= high)) for name, low, high in LAG_BUCKETS)
    return tuple(_of_parts(predicted, came, parts))


def scored_by_evidence(predicted: Predicted, came: Came) -> tuple[Scored, ...]:
    """One entry for each of EVIDENCE that has a prediction."""
    parts = ((name, predicted.evidence_B == code) for code, name in enumerate(EVIDENCE))
    return tuple(_of_parts(predicted, came, parts))


def scored_together(predicted: Predicted, came: Came, *, name: str = "all") -> Scored:
    """All predictions as one. Raises ValueError if there are none, or if one is out of range."""
    mean_B, variance_B, scored_B = predicted.mean_B, predicted.variance_B, came.scored_B
    if mean_B.size == 0:
        raise ValueError("there must be a prediction to score")
    event_B = np.asarray(came.informative_B, dtype=bool)
    share_B = came.passes_B / scored_B
    ranked = event_B.any() and not event_B.all()
    coverage, coverage_error, pit_distance = _pit_scores(predicted, came)
    return Scored(
        name=name,
        count=int(mean_B.size),
        log_loss=float(beta_binomial_log_loss(mean_B, variance_B, came.passes_B, scored_B).mean()),
        brier=float(brier(mean_B, share_B).mean()),
        informative_log_loss=float(log_loss(predicted.informative_B, event_B).mean()),
        informative_brier=float(brier(predicted.informative_B, event_B.astype(np.float64)).mean()),
        informative_auc=auc(predicted.informative_B, event_B) if ranked else None,
        informative=reliability(predicted.informative_B, event_B),
        coverage=coverage,
        coverage_error=coverage_error,
        pit_distance=pit_distance,
    )


def clustered_error(inside_B: Bools, prompt_B: IntArray) -> float:
    """Standard error of the mean of `inside`, prompts as clusters: sqrt(sum over prompts of (sum of residuals)^2) / B.

    prompt_B: (B,) >= 0. Raises ValueError if B = 0.
    """
    if inside_B.size == 0:
        raise ValueError("there must be a prediction to score")
    residual_B = inside_B - inside_B.mean()
    _, cluster_B = np.unique(prompt_B, return_inverse=True)
    return float(np.sqrt(np.sum(np.bincount(cluster_B, weights=residual_B) ** 2))) / inside_B.size


def distance_from_uniform(value_B: FloatArray) -> float:
    """Largest distance of the share of values below x from x, of Kolmogorov and Smirnov, in [1 / (2 B), 1].

    value_B: (B,) in [0, 1]. Raises ValueError if B = 0.
    """
    size = value_B.size
    if size == 0:
        raise ValueError("there must be a value to compare")
    sorted_B, steps = np.sort(value_B), np.arange(size + 1) / size
    return float(np.max(np.maximum(steps[1:] - sorted_B, sorted_B - steps[:-1])))


def _pit_scores(predicted: Predicted, came: Came) -> tuple[float, float, float] | tuple[None, None, None]:
    """Coverage, its error and the distance from uniform, of groups with a whole number of passes."""
    whole = np.flatnonzero(came.passes_B == np.rint(came.passes_B))
    if not whole.size:
        return None, None, None
    pit_B = randomised_pit(
        predicted.mean_B[whole],
        predicted.variance_B[whole],
        came.passes_B[whole],
        came.scored_B[whole],
        came.uniform_B[whole],
    )
    inside_B = (pit_B >= COVERED[0]) & (pit_B <= COVERED[1])
    return float(inside_B.mean()), clustered_error(inside_B, came.prompt_B[whole]), distance_from_uniform(pit_B)


def _of_parts(predicted: Predicted, came: Came, parts: Iterator[tuple[str, Bools]]) -> Iterator[Scored]:
    for name, inside_B in parts:
        at = np.flatnonzero(inside_B)
        if at.size:
            taken_predicted = Predicted(**{f.name: getattr(predicted, f.name)[at] for f in fields(Predicted)})
            taken_came = Came(**{f.name: getattr(came, f.name)[at] for f in fields(Came)})
            yield scored_together(taken_predicted, taken_came, name=name)
