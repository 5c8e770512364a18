"""Designs that draw each prompt by itself, so that chance decides how many there are, and their exact chances.

Called by `draw`. Knows arrays, places and streams; nothing of weights, reasons or how a utility came about. N rows of
the pool, N_e of them eligible, K places of which m are audit; d due rows have a place for sure, K' = K−m−d are left.

poisson       each other row is kept with k = the π_t that the systematic design would give it, Σk = K'.
bernoulli     each other row is kept with k = max(f, min(1, (1+c)·u/max u)): GRESO's walk (arXiv 2506.02177), that goes
              through a uniform permutation of the rows and keeps each with its k until the places are full. The first
              K' of n kept rows in a uniform order are a simple random K' of the n, so this is how it is drawn.
categorical   K' rows drawn with replacement with chances q; a row drawn twice is one ticket, as a prompt in flight is
              not drawn again: π_t = 1−(1−q)^K'. Kept repeats would be several tickets of one prompt.

Of n kept rows min(n, K') stay, a simple random sample. Then rows of a uniform permutation of the eligible are added:
the first m of it are the audit, in the sample or not, and b of it that are not in the sample come in, as many as there
are audit tickets, and more where the batch must be a multiple of `unit`, must not be empty, or is to be filled up. So
a batch has at most K tickets, and K under `fill`. With a(n) = min(1, K'/n), r(n) = b(n)/(N_e−d−min(n, K')) and n₋ the
number of other rows kept, of known law,
  π = k·E[a(n₋+1) + (1−a(n₋+1))·r(n₋+1)] + (1−k)·E[r(n₋)],   Σπ = expected tickets,
over the draw's own chance, whatever its size came to be. For `categorical` the law of the size has no such form, so
the audit alone is added, which is independent of the sample: π = π_t + (1−π_t)·m/N_e.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import floor as round_down

import numpy as np

from selector.config import Sampler
from selector.sampling.designs import uniform_order_prefix
from selector.sampling.randomness import Stream
from selector.sampling.targets import ROUNDING, Classes, Places, first_due, proportional_inclusion

SMALL = 1.0 / 16.0  # chances below this go into power series; the others are grouped by level
LEVELS = 2**12  # chances from SMALL up are multiples of 1/LEVELS, so that there are few levels
SERIES_TERMS = 20  # of powers of at most 1/8: the rest is below the rounding of floats
TAIL = 45.0  # nats; what is left out of a law of counts is less than e^-TAIL
BLOCK = 2**20  # numbers worked on at once

ValueOf = Callable[[np.ndarray], np.ndarray]
Rng = Callable[[Stream], np.random.Generator]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picked:
    """The rows of a batch, before their order is drawn. B tickets."""

    rows_B: np.ndarray  # int64, all different
    audit_B: np.ndarray  # bool
    selected_N: np.ndarray  # π_t, without audit and fillers
    inclusion_N: np.ndarray  # π


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many tickets a batch has once n of the other rows were kept."""

    total: int  # K
    audit: int  # m
    sure: int  # d
    eligible: int  # N_e
    unit: int
    fill: bool

    @property
    def places(self) -> int:
        """K'."""
        return self.total - self.audit - self.sure

    def stay(self, kept: np.ndarray) -> np.ndarray:
        """a(n): the share of the kept rows that stays."""
        stay: np.ndarray = np.minimum(1.0, self.places / np.maximum(kept, 1))
        return stay

    def added(self, kept: np.ndarray) -> np.ndarray:
        """b(n): rows of the permutation that come in."""
        sample = self.sure + np.minimum(kept, self.places)
        least = np.maximum(sample + self.audit, min(1, self.total))
        tickets = self.total if self.fill else np.minimum(-(-least // self.unit) * self.unit, self.total)
        added: np.ndarray = tickets - sample
        return added

    def added_share(self, kept: np.ndarray) -> np.ndarray:
        """r(n): chance of a row outside the sample to come in."""
        outside = self.eligible - self.sure - np.minimum(kept, self.places)
        share: np.ndarray = self.added(kept) / np.maximum(outside, 1)
        return share


def pick(
    sampler: Sampler, classes: Classes, places: Places, *, floor: float, unit: int, fill: bool, rng: Rng
) -> Picked:
    """One batch. Raises ValueError for `categorical` with a unit above 1."""
    spare = 0.0 if places.audit else floor * places.selected
    sure = first_due(classes, round_down(places.selected - spare + ROUNDING))
    eligible = np.flatnonzero(classes.gain_N)
    gain_N = classes.gain_N.copy()
    gain_N[sure] = 0.0
    sizes = Sizes(total=places.total, audit=places.audit, sure=len(sure), eligible=len(eligible), unit=unit, fill=fill)
    if sampler == "categorical":
        chosen, selected_N = _with_replacement(classes.utility_N, gain_N, sizes, floor, rng)
        added = sizes.audit
        inclusion_N = selected_N + (1.0 - selected_N) * (gain_N > 0.0) * (sizes.audit / max(len(eligible), 1))
    else:
        keep_N = keep_chance(sampler, classes.utility_N, gain_N, sizes.places, floor)
        kept = np.flatnonzero(rng(Stream.KEEP).random(len(keep_N)) < keep_N)
        stay = uniform_order_prefix(len(kept), min(len(kept), sizes.places), rng(Stream.THIN))
        chosen = kept[stay]
        added = int(sizes.added(np.array(len(kept))))
        selected_N, inclusion_N = _inclusion(keep_N, gain_N > 0.0, sizes)
    selected_N[sure] = inclusion_N[sure] = 1.0
    sample = np.concatenate([sure, chosen])
    # Of the first b + |sample| rows of the permutation at most |sample| lie in it.
    prefix = eligible[
        uniform_order_prefix(len(eligible), min(added + len(sample), len(eligible)), rng(Stream.AUDIT_ORDER))
    ]
    audit = prefix[: sizes.audit]
    new = prefix if sampler != "categorical" else audit
    rows = np.concatenate([sample, new[~np.isin(new, sample)][:added]])
    return Picked(rows_B=rows, audit_B=np.isin(rows, audit), selected_N=selected_N, inclusion_N=inclusion_N)


def keep_chance(sampler: Sampler, utility_N: np.ndarray, gain_N: np.ndarray, places: int, floor: float) -> np.ndarray:
    """k of the rows with a gain (1+c) above 0: (N,) in [0, 1], multiples of 1/LEVELS from SMALL up."""
    if places == 0:
        return np.zeros(len(gain_N))
    if sampler == "poisson":
        keep_N = proportional_inclusion(utility_N, gain_N, places, floor)
    else:
        size_N = np.where(gain_N > 0.0, utility_N, 0.0)
        largest = float(size_N.max(initial=0.0))
        share_N = size_N / largest if largest > 0.0 else np.ones(len(gain_N))
        keep_N = np.where(gain_N > 0.0, np.maximum(np.minimum(share_N * gain_N, 1.0), floor), 0.0)
    return np.where(keep_N < SMALL, keep_N, np.round(keep_N * LEVELS) / LEVELS)


def _with_replacement(
    utility_N: np.ndarray, gain_N: np.ndarray, sizes: Sizes, floor: float, rng: Rng
) -> tuple[np.ndarray, np.ndarray]:
    """The different rows of K' draws, and π_t = 1−(1−q)^K' over the pool."""
    if sizes.unit > 1:
        raise ValueError(
            f"design 'categorical' cannot bring its tickets to a multiple of {sizes.unit}: draw with divisor 1"
        )
    if sizes.places == 0:
        return np.zeros(0, np.int64), np.zeros(len(gain_N))
    size_N = np.where(gain_N > 0.0, utility_N, 0.0)
    largest = float(size_N.max())
    size_N = gain_N * (size_N / largest) if largest > 0.0 else gain_N
    chance_N = (1.0 - floor) * (size_N / size_N.sum()) + floor * (gain_N / gain_N.sum())
    end_N = np.cumsum(chance_N)
    drawn = np.searchsorted(end_N, rng(Stream.KEEP).random(sizes.places) * end_N[-1], side="right")
    with np.errstate(divide="ignore"):  # one row alone: q = 1
        return np.unique(drawn), -np.expm1(sizes.places * np.log1p(-np.minimum(chance_N, 1.0)))


def _inclusion(keep_N: np.ndarray, other_N: np.ndarray, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """π_t and π of the other rows, (N,); 0 for rows that are none."""

    def stays(kept: np.ndarray) -> np.ndarray:
        return sizes.stay(kept + 1)

    def comes_in(kept: np.ndarray) -> np.ndarray:
        share: np.ndarray = stays(kept) + (1.0 - stays(kept)) * sizes.added_share(kept + 1)
        return share

    stays_N, comes_in_N, added_N = expected_without(keep_N, (stays, comes_in, sizes.added_share))
    inclusion_N = np.clip(keep_N * comes_in_N + (1.0 - keep_N) * added_N, 0.0, 1.0)
    return keep_N * np.minimum(stays_N, 1.0) * other_N, inclusion_N * other_N


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountLaw:
    """The chances of n = first, first + 1, ..., up to less than e^-TAIL outside."""

    first: int
    chance_M: np.ndarray

    def count(self) -> np.ndarray:
        """(M,) the n that have these chances."""
        return self.first + np.arange(len(self.chance_M))


def count_law(keep_N: np.ndarray) -> CountLaw:
    """The law of how many of independent rows are kept (the Poisson binomial).

    keep_N: (N,) chances in [0, 1]; those from SMALL up take few values. By the discrete Fourier transform of its
    characteristic function Π(1 + k(z−1)), |z| = 1: rows of one level are a power, and Σ log(1 + k(z−1)) over small k
    is a series in the sums of k, k², ... The window is Bernstein's for a tail of e^-TAIL. Errors are of the order of
    1e-15 in each chance.
    """
    sure = int(np.count_nonzero(keep_N == 1.0))
    small = keep_N[(keep_N > 0.0) & (keep_N < SMALL)]
    level_L, count_L = np.unique(keep_N[(keep_N >= SMALL) & (keep_N < 1.0)], return_counts=True)
    power_sum = [float((small**r).sum()) for r in (1, 2)] if len(small) else [0.0, 0.0]
    mean = power_sum[0] + float(level_L @ count_L)
    variance = power_sum[0] - power_sum[1] + float((level_L * (1.0 - level_L)) @ count_L)
    reach = TAIL / 3.0 + np.sqrt((TAIL / 3.0) ** 2 + 2.0 * TAIL * variance)
    first = max(0, int(mean - reach))
    last = min(len(small) + int(count_L.sum()), int(mean + reach) + 1)
    size = 1 << int(last - first + 1).bit_length()
    angle_J = 2.0 * np.pi * np.arange(size // 2 + 1) / size
    log_size_J, turn_J = np.zeros(len(angle_J)), -angle_J * first
    for start in range(0, len(level_L), max(1, BLOCK // len(angle_J))):
        block = slice(start, start + max(1, BLOCK // len(angle_J)))
        k_L1 = level_L[block, None]
        real_LJ, imaginary_LJ = 1.0 - k_L1 + k_L1 * np.cos(angle_J), k_L1 * np.sin(angle_J)
        square_LJ = np.maximum(real_LJ**2 + imaginary_LJ**2, np.finfo(float).tiny)
        log_size_J += 0.5 * (count_L[block] @ np.log(square_LJ))
        turn_J += count_L[block] @ np.arctan2(imaginary_LJ, real_LJ)
    if len(small):
        step_J = np.expm1(1j * angle_J)
        series_J, power_N = np.zeros(len(angle_J), np.complex128), np.ones(len(small))
        sums = []
        for _ in range(SERIES_TERMS):
            power_N = power_N * small
            sums.append(float(power_N.sum()))
        for r in range(SERIES_TERMS, 0, -1):
            series_J = step_J * (series_J + (-1.0) ** (r + 1) * sums[r - 1] / r)
        log_size_J, turn_J = log_size_J + series_J.real, turn_J + series_J.imag
    chance = np.fft.irfft(np.exp(log_size_J) * np.exp(-1j * turn_J), size)[: last - first + 1]
    return CountLaw(first=first + sure, chance_M=np.maximum(chance, 0.0))


def expected_without(keep_N: np.ndarray, values: tuple[ValueOf, ...]) -> list[np.ndarray]:
    """E[value(n₋)] by row, n₋ the number of the other rows kept: a (N,) array for each value.

    The law P of all rows is that of the others, Q, and the row itself: P(n) = (1−k)·Q(n) + k·Q(n−1). Solved for Q
    forwards for k < 1/2 and backwards above, once for each level. For small k, with x = k/(1−k), the series
    E_Q[value(n)] = Σ_r (−x)^r E_P[value(n + r)]/(1−k) is as good. Values must be bounded and defined for n >= 0.
    """
    law = count_law(keep_N)
    count_M = law.count()
    results = [np.empty(len(keep_N)) for _ in values]
    small_N = keep_N < SMALL
    ratio = keep_N[small_N] / (1.0 - keep_N[small_N])
    for value, result_N in zip(values, results, strict=True):
        terms = [float(law.chance_M @ value(count_M + r)) for r in range(SERIES_TERMS)]
        sums = np.zeros(len(ratio))
        for term in reversed(terms):
            sums = term - ratio * sums
        result_N[small_N] = sums / (1.0 - keep_N[small_N])
    level_L, place = np.unique(keep_N[~small_N], return_inverse=True)
    for result_N, of_level in zip(results, _by_level(law, level_L, values), strict=True):
        result_N[~small_N] = of_level[place]
    return results


def _by_level(law: CountLaw, level_L: np.ndarray, values: tuple[ValueOf, ...]) -> list[np.ndarray]:
    """E[value(n₋)] for a row of each level. n₋ runs from one below the window of the law to its end."""
    low_L, high_L = level_L[level_L < 0.5], level_L[level_L >= 0.5]
    count = law.first - 1 + np.arange(len(law.chance_M) + 1)
    value_VM = np.stack([value(np.maximum(count, 0)) for value in values])
    sums_VL = np.zeros((len(values), len(level_L)))
    before_l = np.zeros(len(low_L))
    for place, chance in enumerate(law.chance_M.tolist(), start=1):
        before_l = (chance - low_L * before_l) / (1.0 - low_L)
        sums_VL[:, : len(low_L)] += value_VM[:, place, None] * before_l
    after_h = np.zeros(len(high_L))
    for place in range(len(law.chance_M) - 1, -1, -1):
        after_h = (law.chance_M[place] - (1.0 - high_L) * after_h) / high_L
        sums_VL[:, len(low_L) :] += value_VM[:, place, None] * after_h
    return list(sums_VL)
