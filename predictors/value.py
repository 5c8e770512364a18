"""From a belief to what a group is worth: the functions of a pass rate that policies rank prompts by.

Called by policies and by the audit, on every row of the pool at each draw, so they work through memory in blocks that
stay in the processor's cache. Pure; knows nothing of where a belief comes from. A belief is read as the Beta
distribution with its mean and variance, and outcomes as 0 or 1. What needs that distribution beyond its moments is in
`predictors.beta`. Axes: N rows; G rollouts in a group, k of them passed.
"""

from math import comb, log
from typing import Literal

import numpy as np

from predictors.base import FloatArray
from predictors.compiled import compiled

AdvantageRule = Literal["grpo", "dr_grpo", "rloo"]
"""How rewards of a group become advantages: (r − mean)/sd, r − mean, r − mean of the others."""

BLOCK_ROWS = 8192
"""Rows worked on at once: five float64 buffers of this length (320 KiB) fit in a second-level cache."""

MAX_CONCENTRATION = 1e12
"""Concentration given to a belief without any variance; its Beta distribution is a point for every purpose here."""

LOOP_ROWS = 512
"""The same in a compiled loop: six float64 numbers for each of these rows (24 KiB) fit in a first-level cache."""

_STRIDE = LOOP_ROWS + 16
"""From one number to the next: not a page, as addresses that are whole pages apart wait for each other."""

# Where they begin in the loop's working memory: one array, so that the compiler sees that they lie apart.
_OVERLAP, _PASS, _FAIL, _ALL_PASS, _ALL_FAIL, _BELOW = 0, _STRIDE, 2 * _STRIDE, 3 * _STRIDE, 4 * _STRIDE, 5 * _STRIDE
_WORK = 6 * _STRIDE

MOST_OVERLAP = 1.0 + 1e-9
"""Largest v / (m (1 - m)) that rounding may give."""

MAX_MULTIPLIED = 16.0
"""Largest whole power that is taken by multiplying: four products at most, or seven."""

RESCALE_EVERY = 64
"""Factors multiplied up before they are divided out: 64 factors of at most G each stay far from overflow."""

BAND_ROUNDING = 1e-9
"""Slack of a band's ends, so that 0.2 holds 2 of 10."""

MAX_OVERLAP = 1.0 - 1e-12
"""Largest v / (m (1 - m)) taken into logarithms: closer to 1 a belief says 0 or 1 and nothing else."""


def beta_parameters(mean_N: FloatArray, variance_N: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The Beta distribution with this mean and variance: alpha = m c, beta = (1 - m) c, c = m (1 - m) / v - 1.

    mean_N: (N,) in (0, 1). variance_N: (N,) in [0, m (1 - m)). Returns alpha_N, beta_N, both > 0.
    A variance of 0 gives a concentration c of MAX_CONCENTRATION. Raises ValueError outside these ranges.
    """
    mean_N, variance_N = _checked_belief(mean_N, variance_N)
    with np.errstate(divide="ignore", over="ignore"):
        concentration_N = np.minimum(mean_N * (1.0 - mean_N) / variance_N - 1.0, MAX_CONCENTRATION)
    if not (concentration_N > 0.0).all():
        raise ValueError("variance_N must be below mean (1 - mean)")
    return mean_N * concentration_N, (1.0 - mean_N) * concentration_N


def degenerate_probability(pass_rate_N: FloatArray, group_size: int) -> FloatArray:
    """Chance that all G rollouts score alike, so that a group-relative method learns nothing: p^G + (1-p)^G.

    pass_rate_N: (N,) known pass rates in [0, 1]. Returns (N,) in [2^(1-G), 1]. Assumes binary outcomes that are
    independent given p. Raises ValueError if group_size < 1 or a pass rate is outside [0, 1].
    """
    _check_group_size(group_size)
    pass_rate_N = np.asarray(pass_rate_N, dtype=np.float64)
    if not ((pass_rate_N >= 0.0) & (pass_rate_N <= 1.0)).all():
        raise ValueError("pass_rate_N must be in [0, 1]")
    return np.asarray(pass_rate_N**group_size + (1.0 - pass_rate_N) ** group_size)


def informative_probability(mean_N: FloatArray, variance_N: FloatArray, group_size: int) -> FloatArray:
    """Chance that G rollouts do not all score alike, for a pass rate that is itself uncertain.

    1 - E[p^G] - E[(1-p)^G] under the Beta distribution with this mean and variance. With r = v / (m (1 - m)), the
    chance that two rollouts share their outcome beyond what m says,

        E[p^G] = m prod_{j=1}^{G-1} (m (1 - r) + j r) / (1 + (j - 1) r)

    which is m^G at r = 0 and m at r = 1 without a special case, and never forms the huge alpha, beta of a sure belief.

    mean_N: (N,) in (0, 1). variance_N: (N,) in [0, m (1 - m)], the upper end included as the limit. Returns (N,) in
    [0, 1). Assumes binary outcomes. Raises ValueError if group_size < 1 or a belief is out of range.
    """
    _check_group_size(group_size)
    mean_N, variance_N = _checked_shapes(mean_N, variance_N)
    result_N = np.empty_like(mean_N)
    if _informative_rows(mean_N, variance_N, group_size, result_N):
        _checked_belief(mean_N, variance_N)
        raise ValueError("variance_N must not exceed mean (1 - mean)")
    return result_N


@compiled
def _informative_rows(mean_N: FloatArray, variance_N: FloatArray, group_size: int, result_N: FloatArray) -> int:
    """P(informative) written to `result_N`; returns how many rows have a belief out of range.

    Products by short loops over a block: the factors of a few hundred rows at a time.
    """
    size, bad = mean_N.shape[0], 0
    work = np.empty(_WORK)
    for start in range(0, size, LOOP_ROWS):
        stop = min(start + LOOP_ROWS, size)
        count = stop - start
        mean_b, variance_b, result_b = mean_N[start:stop], variance_N[start:stop], result_N[start:stop]
        for i in range(count):
            mean, variance = mean_b[i], variance_b[i]
            rest = 1.0 - mean
            overlap = variance / (mean * rest)
            bad += 0 if mean > 0.0 and mean < 1.0 and variance >= 0.0 and overlap <= MOST_OVERLAP else 1
            overlap = overlap if overlap < 1.0 else 1.0
            work[_OVERLAP + i] = overlap
            work[_PASS + i] = mean - mean * overlap
            work[_FAIL + i] = rest - rest * overlap
            work[_ALL_PASS + i] = mean  # becomes E[p^G] times the product of denominators
            work[_ALL_FAIL + i] = rest  # and this E[(1-p)^G]
            work[_BELOW + i] = 1.0
        if group_size % 2 == 0:  # its factors come by twos
            for i in range(count):
                work[_ALL_PASS + i] *= work[_PASS + i] + work[_OVERLAP + i]
                work[_ALL_FAIL + i] *= work[_FAIL + i] + work[_OVERLAP + i]
        j = 2 - group_size % 2
        while j < group_size:
            # Four factors at a time, where nothing is divided out between: each number is read and written less often.
            if j + 3 < group_size and j % RESCALE_EVERY >= 2 and (j + 2) % RESCALE_EVERY >= 2:
                for i in range(count):
                    overlap, one_pass, one_fail = work[_OVERLAP + i], work[_PASS + i], work[_FAIL + i]
                    one, two, three, four = j * overlap, (j + 1) * overlap, (j + 2) * overlap, (j + 3) * overlap
                    all_pass = work[_ALL_PASS + i] * ((one_pass + one) * (one_pass + two))
                    work[_ALL_PASS + i] = all_pass * ((one_pass + three) * (one_pass + four))
                    all_fail = work[_ALL_FAIL + i] * ((one_fail + one) * (one_fail + two))
                    work[_ALL_FAIL + i] = all_fail * ((one_fail + three) * (one_fail + four))
                    below = work[_BELOW + i] * ((1.0 + (j - 1) * overlap) * (1.0 + one))
                    work[_BELOW + i] = below * ((1.0 + two) * (1.0 + three))
                j += 4
                continue
            for i in range(count):
                overlap = work[_OVERLAP + i]
                one, two = j * overlap, (j + 1) * overlap
                work[_ALL_PASS + i] *= (work[_PASS + i] + one) * (work[_PASS + i] + two)
                work[_ALL_FAIL + i] *= (work[_FAIL + i] + one) * (work[_FAIL + i] + two)
                work[_BELOW + i] *= (1.0 + (j - 1) * overlap) * (1.0 + one)
            if j % RESCALE_EVERY < 2:
                for i in range(count):
                    work[_ALL_PASS + i] /= work[_BELOW + i]
                    work[_ALL_FAIL + i] /= work[_BELOW + i]
                    work[_BELOW + i] = 1.0
            j += 2
        for i in range(count):
            alike = (work[_ALL_PASS + i] + work[_ALL_FAIL + i]) / work[_BELOW + i]
            alike = 1.0 - alike
            alike = alike if alike > 0.0 else 0.0
            result_b[i] = alike if alike < 1.0 else 1.0
    return bad


def raised(value_N: FloatArray, power: float) -> FloatArray:
    """value^power for values >= 0, by multiplication where the power is a small whole number. Returns (N,)."""
    if not (power.is_integer() and 1.0 <= power <= MAX_MULTIPLIED):
        return np.asarray(value_N**power)
    result_N = np.empty_like(value_N)
    _multiply_up(value_N, np.array([bit == "1" for bit in f"{int(power):b}"[1:]]), result_N)
    return result_N


@compiled
def _multiply_up(value_N: FloatArray, bits: np.ndarray, result_N: FloatArray) -> None:
    """The power of which these are the binary digits after the first, written to `result_N`."""
    size = value_N.shape[0]
    for start in range(0, size, LOOP_ROWS):
        stop = min(start + LOOP_ROWS, size)
        value_b, result_b = value_N[start:stop], result_N[start:stop]
        for i in range(stop - start):
            result_b[i] = value_b[i]
        for bit in bits:
            for i in range(stop - start):
                result_b[i] *= result_b[i]
            if bit:
                for i in range(stop - start):
                    result_b[i] *= value_b[i]


def expected_outcome_variance(mean_N: FloatArray, variance_N: FloatArray) -> FloatArray:
    """E[p (1 - p)] = m (1 - m) - v: what the outcome of one rollout is expected to vary for a known p.

    mean_N: (N,) in (0, 1). variance_N: (N,) in [0, m (1 - m)]. Returns (N,) in [0, 1/4]; times n / (n - 1) and (n - 1)
    / n it is what sample variances of a group with and without Bessel's correction are expected to be.
    """
    mean_N, variance_N = _checked_belief(mean_N, variance_N)
    return np.asarray(np.maximum(mean_N * (1.0 - mean_N) - variance_N, 0.0))


def expected_squared_advantage(
    mean_N: FloatArray, variance_N: FloatArray, group_size: int, rule: AdvantageRule
) -> FloatArray:
    """E[(1/G) Σ A²] of a group: with rollout gradients of like size, what the squared step of a ticket is in proportion
    to.

    grpo: P(informative), as advantages divided by the standard deviation have mean square 1 or are all 0. dr_grpo: A is
    r less the group's mean, so it is (G - 1)/G E[p (1 - p)]. rloo: r less the mean of the others, G/(G - 1) E[p (1 -
    p)]. A group of one has no advantage. Returns (N,) >= 0. Raises ValueError if group_size < 1 or a belief is out of
    range.
    """
    _check_group_size(group_size)
    if rule == "grpo":
        return informative_probability(mean_N, variance_N, group_size)
    spread_N = expected_outcome_variance(mean_N, variance_N)
    if group_size == 1:
        return np.zeros_like(spread_N)
    others = (group_size - 1) / group_size
    return spread_N / others if rule == "rloo" else spread_N * others


def expected_absolute_advantage(
    mean_N: FloatArray, variance_N: FloatArray, group_size: int, rule: AdvantageRule
) -> FloatArray:
    """E[(1/G) Σ |A|] of a group, the signal of SEC (arXiv 2505.14970).

    With k of G passed and q = k/G the mean of |r - q| is 2 q (1 - q). grpo divides it by the standard deviation, which
    leaves 2 sqrt(q (1 - q)) and needs the distribution of k; dr_grpo has E = 2 (G - 1)/G E[p (1 - p)] and rloo
    2 E[p (1 - p)] in closed form. Returns (N,) >= 0. Raises ValueError if group_size < 1 or a belief is out of range.
    """
    _check_group_size(group_size)
    if rule == "grpo":
        share_k = np.arange(group_size + 1) / group_size
        return expected_over_counts(mean_N, variance_N, 2.0 * np.sqrt(share_k * (1.0 - share_k)))
    absolute_N = 2.0 * expected_outcome_variance(mean_N, variance_N)
    if group_size == 1:
        return np.zeros_like(absolute_N)
    return absolute_N if rule == "rloo" else absolute_N * ((group_size - 1) / group_size)


def band_probability(
    mean_N: FloatArray, variance_N: FloatArray, group_size: int, low: float, high: float
) -> FloatArray:
    """P(low <= k/G <= high): the chance that the share passed of the next group lies in a band, ends included.

    0 everywhere where no k/G lies in it. Returns (N,) in [0, 1]. Raises ValueError unless 0 <= low < high <= 1.
    """
    _check_group_size(group_size)
    if not 0.0 <= low < high <= 1.0:
        raise ValueError(f"a band needs 0 <= low < high <= 1, got {low} and {high}")
    share_k = np.arange(group_size + 1) / group_size
    inside_k = (share_k >= low - BAND_ROUNDING) & (share_k <= high + BAND_ROUNDING)
    return np.minimum(expected_over_counts(mean_N, variance_N, inside_k.astype(np.float64)), 1.0)


def target_closeness(mean_N: FloatArray, variance_N: FloatArray, target: float) -> FloatArray:
    """1 - E[(p - t)²] / max(t, 1 - t)²: 1 for a pass rate known to be the target, 0 for one known to be the farthest.

    E[(p - t)²] = (m - t)² + v. At t = 1/2 it is 4 E[p (1 - p)]. Returns (N,) in [0, 1]. Raises ValueError unless the
    target is in [0, 1] and the beliefs are in range.
    """
    if not 0.0 <= target <= 1.0:
        raise ValueError(f"target must be in [0, 1], got {target}")
    mean_N, variance_N = _checked_belief(mean_N, variance_N)
    farthest = max(target, 1.0 - target)
    return np.asarray(np.clip(1.0 - ((mean_N - target) ** 2 + variance_N) / farthest**2, 0.0, 1.0))


def knapsack_value(mean_N: FloatArray, variance_N: FloatArray, group_size: int) -> FloatArray:
    """E[(1 - p^G - (1 - p)^G) p (1 - p)²], the value of G rollouts in Knapsack RL (arXiv 2509.25849).

    A chance to be informative times the gain from being so, which is largest at p = 1/3. By moments of the Beta
    distribution: E[p (1 - p)²] - E[p^(G+1) (1 - p)²] - E[p (1 - p)^(G+2)]. Returns (N,) in [0, 4/27].
    Raises ValueError if group_size < 1 or a belief is out of range.
    """
    _check_group_size(group_size)
    value_N = (
        beta_moment(mean_N, variance_N, 1, 2)
        - beta_moment(mean_N, variance_N, group_size + 1, 2)
        - beta_moment(mean_N, variance_N, 1, group_size + 2)
    )
    return np.asarray(np.maximum(value_N, 0.0))


def beta_moment(mean_N: FloatArray, variance_N: FloatArray, passes: int, failures: int) -> FloatArray:
    """E[p^a (1 - p)^b] for a, b >= 1: the chance of one given sequence of a passes and b failures.

    With r = v / (m (1 - m)): m (1 - m) (1 - r) prod_{1<=j<a} (m (1-r) + j r) prod_{1<=j<b} ((1-m) (1-r) + j r) /
    prod_{1<=j<a+b} (1 - r + j r). Returns (N,) in [0, 1]. Raises ValueError for a or b < 1, or a belief out of range.
    """
    if passes < 1 or failures < 1:
        raise ValueError(f"passes and failures must be >= 1, got {passes} and {failures}")
    mean_N, variance_N = _checked_belief(mean_N, variance_N)
    overlap_N = np.minimum(variance_N / (mean_N * (1.0 - mean_N)), 1.0)
    rest_N = 1.0 - overlap_N
    moment_N = mean_N * (1.0 - mean_N) * rest_N
    starts = [(mean_N * rest_N, j) for j in range(1, passes)]
    starts += [((1.0 - mean_N) * rest_N, j) for j in range(1, failures)]
    # The denominator of j = 1 is 1. One of the others for each factor, so that no product leaves the range of floats.
    for below, (start_N, j) in enumerate(starts, start=2):
        moment_N *= (start_N + j * overlap_N) / (rest_N + below * overlap_N)
    return np.asarray(moment_N)


def expected_over_counts(mean_N: FloatArray, variance_N: FloatArray, value_k: FloatArray) -> FloatArray:
    """Σ_k P(k of G pass) value_k, k = 0..G, under the Beta-binomial distribution of the belief.

    P(k) = C(G, k) prod_{j<k} (m (1-r) + j r) prod_{j<G-k} ((1-m) (1-r) + j r) / prod_{j<G} (1 - r + j r), summed as
    logarithms, with r = v / (m (1 - m)) held below 1.

    value_k: (G + 1,) finite. Returns (N,). Raises ValueError if a belief is out of range.
    """
    mean_N, variance_N = _checked_belief(mean_N, variance_N)
    group_size = len(value_k) - 1
    counts = [k for k in range(group_size + 1) if value_k[k] != 0.0]
    result_N = np.zeros_like(mean_N)
    for start in range(0, mean_N.size, BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        mean, overlap = mean_N[block], variance_N[block] / (mean_N[block] * (1.0 - mean_N[block]))
        overlap = np.minimum(overlap, MAX_OVERLAP)
        rest = 1.0 - overlap
        pass_kb = _log_products(mean * rest, overlap, group_size)
        fail_kb = _log_products((1.0 - mean) * rest, overlap, group_size)
        all_b = _log_products(rest, overlap, group_size)[group_size]
        for k in counts:
            log_probability = pass_kb[k] + fail_kb[group_size - k] - all_b + log(comb(group_size, k))
            result_N[block] += value_k[k] * np.exp(log_probability)
    return result_N


def _log_products(start_b: FloatArray, step_b: FloatArray, count: int) -> FloatArray:
    """log prod_{j<k} (start + j step) for k = 0..count: (count + 1, b)."""
    factors = np.zeros((count + 1, start_b.size))
    np.log(start_b + np.arange(count)[:, None] * step_b, out=factors[1:])
    return np.cumsum(factors, axis=0)


def _check_group_size(group_size: int) -> None:
    if group_size < 1:
        raise ValueError(f"group_size must be >= 1, got {group_size}")


def _checked_shapes(mean_N: FloatArray, variance_N: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both as float64 of one shape."""
    mean_N = np.asarray(mean_N, dtype=np.float64)
    variance_N = np.asarray(variance_N, dtype=np.float64)
    if mean_N.ndim != 1 or mean_N.shape != variance_N.shape:
        raise ValueError(f"mean_N and variance_N must be (N,) alike, got {mean_N.shape} and {variance_N.shape}")
    return mean_N, variance_N


def _checked_belief(mean_N: FloatArray, variance_N: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same, and in range; written so that NaN fails."""
    mean_N, variance_N = _checked_shapes(mean_N, variance_N)
    if mean_N.size and not (mean_N.min() > 0.0 and mean_N.max() < 1.0):
        raise ValueError(f"mean_N must be in (0, 1), got values from {mean_N.min()} to {mean_N.max()}")
    if mean_N.size and not (variance_N.min() >= 0.0 and np.isfinite(variance_N.max())):
        raise ValueError(f"variance_N must be >= 0 and finite, got values from {variance_N.min()}")
    return mean_N, variance_N
