"""Time-uniform confidence sequences for the running mean of bounded observations whose mean may move.

`selector.audit.estimates` calls it with one observation per draw; it serves anything bounded. It knows numbers only:
nothing of draws, tickets or weights.

Axes: T observations in the order in which they were made, J components of the mixture.

The estimand after t observations is (1/t) Σ_{i≤t} μ_i, μ_i = E[x_i | everything before i]; the μ_i may move in any way.
All intervals of a sequence hold together with the stated probability, however often and for whatever reason one looks.

Method: empirical Bernstein with predictable plug-in means and equal weights: Howard, Ramdas, McAuliffe and Sekhon
(2021), arXiv 1810.08240, Theorem 4. With a prediction x̂_i made before x_i, c_i = x̂_i − low_i ≥ 0 and λ·c_i < 1,

    L_t(λ) = exp( λ Σ (x_i − μ_i) − Σ ψ(λ, c_i)·(x_i − x̂_i)² ),     ψ(λ, c) = (−log(1 − cλ) − cλ) / c²

is a nonnegative supermartingale that starts at 1. Its proof, by exp(y − ψ(λ, c)·(y/λ)²) ≤ 1 + y for y ≥ −cλ (Fan, Grama
and Liu 2015), asks nothing but x_i − x̂_i ≥ −c_i. So the distance from the prediction to the near end stands in for the
whole range: never wider, and much tighter where a range is lopsided, as those of weighted sums are.

λ must not change within a sequence, or the estimand would no longer have equal weights. So it is mixed over a fixed
grid with fixed prior weights w_j; the grid is scaled by what is known before the first observation. A component that
meets λ·c_i ≥ 1 is set to zero from there on, which a nonnegative supermartingale may be. By Ville's inequality Σ_j
w_j·L_t(λ_j) stays below 1/α with probability 1 − α, and the limit is where it meets 1/α. Each side has half of the
error. There is no running intersection: it would be wrong for a moving mean.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# The grid: λ = u / scale with u from GRID_TOP down by GRID_RATIO over GRID_SPAN, prior weight ∝ u ** GRID_TILT. Chosen
# by width on 20 to 5,000 observations, from single coin flips to batch means of small spread. The lower end serves
# ranges that grow during a run: a range may grow by GRID_SPAN before the last component dies.
GRID_TOP = 0.95
GRID_RATIO = 1.5
GRID_SPAN = 1e3
GRID_TILT = 0.5
# The scale is the distance from prediction to the end of the range, but never less than this share of the range, as a
# prediction may start on the very end and move away.
MIN_SCALE_SHARE = 0.05
# Below this λ·c the series of ψ is more accurate than the difference of two nearly equal numbers.
SERIES_BELOW = 1e-4
# How far outside its range, relative to the largest range, rounding may carry an observation.
RANGE_TOLERANCE = 1e-9
# Newton's steps end below this share of the value. They approach from the safe side, so stopping early is only wider.
NEWTON_TOLERANCE = 1e-12
NEWTON_MAX_STEPS = 60


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConfidenceSequence:
    """Running mean and its limits after each of T observations; all T intervals hold together."""

    estimate_T: Floats
    low_T: Floats
    high_T: Floats


def mean_sequence(
    x_T: ArrayLike, low_T: ArrayLike, high_T: ArrayLike, level: float = 0.95, *, guess_T: ArrayLike | None = None
) -> ConfidenceSequence:
    """Confidence sequence for (1/t) Σ_{i≤t} μ_i, t = 1 … T.

    x_T: (T,) observations. low_T, high_T: (T,) or scalar, the range of each, known before it was seen. guess_T: (T,)
    or scalar, a prediction of each, made before it was seen; default the middle of the first range. It moves the width
    only: the mean of past x − guess is added to it. Limits lie within the running means of low_T and high_T.
    Raises ValueError if shapes differ, a value is not finite or outside its range, T is 0 or level not in (0, 1).
    """
    alpha = _one_sided_error(level)
    x, low, high, guess = _checked(x_T, low_T, high_T, guess_T)
    count = np.arange(1, x.size + 1)
    floor, ceiling = np.cumsum(low) / count, np.cumsum(high) / count
    estimate = np.cumsum(x) / count
    below = estimate - _margin(x, low, high, guess, alpha, every=True) / count
    above = estimate + _margin(-x, -high, -low, -guess, alpha, every=True) / count
    return ConfidenceSequence(
        estimate_T=estimate, low_T=np.clip(below, floor, ceiling), high_T=np.clip(above, floor, ceiling)
    )


def lower_limit(
    x_T: ArrayLike, low_T: ArrayLike, high_T: ArrayLike, level: float = 0.95, *, guess_T: ArrayLike | None = None
) -> float:
    """Last lower limit of `mean_sequence`, without computing the others. Alone it errs with (1 − level)/2 at most."""
    x, low, high, guess = _checked(x_T, low_T, high_T, guess_T)
    margin = _margin(x, low, high, guess, _one_sided_error(level), every=False)
    return float(np.clip(x.mean() - margin[-1] / x.size, low.mean(), high.mean()))


def upper_limit(
    x_T: ArrayLike, low_T: ArrayLike, high_T: ArrayLike, level: float = 0.95, *, guess_T: ArrayLike | None = None
) -> float:
    """Last upper limit of `mean_sequence`, without computing the others. Alone it errs with (1 − level)/2 at most."""
    x, low, high, guess = _checked(x_T, low_T, high_T, guess_T)
    margin = _margin(-x, -high, -low, -guess, _one_sided_error(level), every=False)
    return float(np.clip(x.mean() + margin[-1] / x.size, low.mean(), high.mean()))


def _one_sided_error(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), such as 0.95, got {level}")
    return (1 - level) / 2


def _checked(
    x_T: ArrayLike, low_T: ArrayLike, high_T: ArrayLike, guess_T: ArrayLike | None
) -> tuple[Floats, Floats, Floats, Floats]:
    x = np.asarray(x_T, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"x_T must be one-dimensional with at least one observation, got shape {x.shape}")
    low, high = _like(x, low_T, "low_T"), _like(x, high_T, "high_T")
    guess = _like(x, (low[0] + high[0]) / 2 if guess_T is None else guess_T, "guess_T")
    if not (np.isfinite(x).all() and np.isfinite(low).all() and np.isfinite(high).all() and np.isfinite(guess).all()):
        raise ValueError("x_T, low_T, high_T and guess_T must be finite: leave out or bound what was not observed")
    slack = RANGE_TOLERANCE * float(np.max(np.abs(low)) + np.max(np.abs(high)))
    wrong = np.flatnonzero((low > high + slack) | (x < low - slack) | (x > high + slack))
    if wrong.size:
        i = int(wrong[0])
        raise ValueError(f"observation {i} is {x[i]}, outside its range [{low[i]}, {high[i]}]: state the worst case")
    return np.clip(x, low, np.maximum(low, high)), low, np.maximum(low, high), guess


def _like(x: Floats, values: ArrayLike, name: str) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.shape not in ((), x.shape):
        raise ValueError(f"{name} must be a scalar or have shape {x.shape}, got {array.shape}")
    return np.broadcast_to(array, x.shape)


def _margin(x_T: Floats, low_T: Floats, high_T: Floats, guess_T: Floats, alpha: float, *, every: bool) -> Floats:
    """Most that Σ (x_i − μ_i) can be, with probability 1 − alpha at all times: (T,), or (1,) for the last time only."""
    before = np.arange(x_T.size)
    residual_before = np.concatenate(([0.0], np.cumsum(x_T - guess_T)[:-1]))
    # One pseudo-observation equal to the guess keeps the first predictions calm.
    prediction_T = np.clip(guess_T + residual_before / (before + 1), low_T, high_T)
    reach_T = prediction_T - low_T
    rate_J, log_prior_J = _grid(reach_T, high_T - low_T)
    penalty = _psi(rate_J, reach_T)
    penalty *= np.square(x_T - prediction_T)[:, None]
    # A dead component must stay dead even where x equals its prediction, where inf · 0 would be NaN.
    penalty[rate_J * reach_T[:, None] >= 1] = np.inf
    spent = np.cumsum(penalty, axis=0) if every else penalty.sum(axis=0, keepdims=True)
    return _crossing(rate_J, log_prior_J - spent, np.log(1 / alpha))


def _grid(reach_T: Floats, width_T: Floats) -> tuple[Floats, Floats]:
    """Rates λ and log prior weights, from the first range that is not a point. Before it nothing is uncertain."""
    open_T = width_T > 0
    first = int(np.argmax(open_T))
    scale = max(reach_T[first], MIN_SCALE_SHARE * width_T[first]) if open_T[first] else 1.0
    steps = np.arange(int(np.log(GRID_SPAN) / np.log(GRID_RATIO)) + 1)
    u_J = GRID_TOP * GRID_RATIO**-steps
    weight_J = u_J**GRID_TILT
    return u_J / scale, np.log(weight_J / weight_J.sum())


def _psi(rate_J: Floats, reach_T: Floats) -> Floats:
    """ψ(λ, c) = (−log(1 − cλ) − cλ)/c², (T, J); λ²/2 at c = 0; where cλ ≥ 1 a finite stand-in that the caller kills."""
    product = np.multiply.outer(reach_T, rate_J)
    inside = np.where((product < SERIES_BELOW) | (product >= 1), 0.5, product)
    unit = (-np.log1p(-inside) - inside) / np.square(inside)
    unit = np.where(product < SERIES_BELOW, 0.5 + product / 3 + np.square(product) / 4, unit)
    return unit * np.square(rate_J)


def _crossing(rate_J: Floats, offset_TJ: Floats, threshold: float) -> Floats:
    """Solve log Σ_j exp(λ_j·d + offset_j) = threshold for d, row by row; inf where every component is dead.

    The left side is convex and increasing in d, so Newton's steps from above come down monotonically and never pass the
    root: each of them is a valid, at worst too wide, limit. The start is the smallest single-component solution.
    """
    with np.errstate(invalid="ignore"):
        start_T = np.min((threshold - offset_TJ) / rate_J, axis=1)
    margin_T = np.full(offset_TJ.shape[0], np.inf)
    alive = np.isfinite(start_T)
    d, offset = start_T[alive], offset_TJ[alive]
    for _ in range(NEWTON_MAX_STEPS):
        exponent = rate_J * d[:, None] + offset
        top = exponent.max(axis=1, initial=-np.inf)
        share = np.exp(exponent - top[:, None])
        total = share.sum(axis=1)
        step = np.maximum(top + np.log(total) - threshold, 0) * total / (share @ rate_J)
        d = d - step
        if not np.any(step > NEWTON_TOLERANCE * np.abs(d)):
            break
    margin_T[alive] = d
    return margin_T
