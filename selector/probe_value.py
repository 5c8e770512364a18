"""What a probe is worth where it may stop after any of its waves: exact optimal stopping by backward induction.

`probing` calls it, for the plan over a pool and for one prompt whose wave is complete. Pure arithmetic on beliefs;
knows nothing of tickets, budgets or who reports. N rows, b those of one block.

The decision is whether a prompt earns a training group: it does if u, its chance to be informative, is above `least`.
With k of n rollouts right the belief is Beta(alpha + k, beta + n − k), and
    V(k, n) = max(max(u(k, n), least), E_j[V(k + j, n')] − price·(n' − n)),
n' being the end of the next wave and j Beta-binomial; after the last wave the first term is left (Raiffa and Schlaifer
1961, ch. 4; DeGroot 1970, ch. 12). A probe with ends n_1 < n_2 < ... is worth E_j[V(j, n_1)] − max(u, least).
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from predictors.value import beta_parameters, informative_probability

BLOCK_ROWS = 65_536
BISECTIONS = 24


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeValue:
    """Of a probe of each row, stopped as well as can be; all (N,)."""

    gain_N: np.ndarray  # float64 >= 0, informative groups a decision, less the price of all waves but the first
    rollouts_N: np.ndarray  # float64, expected


def value_of_probe(
    mean_N: np.ndarray,
    variance_N: np.ndarray,
    ends: tuple[int, ...],
    *,
    group_size: int,
    least: float,
    price_N: np.ndarray,
) -> ProbeValue:
    """What the first wave adds to a decision where later ones follow as long as they are worth their price.

    What is carried is not V but how far it is above the decision before the probe, which by u(0, 0) = E[u(k, n)] comes
    to the same, and is exactly 0 where no outcome changes the side that u is on.

    ends: rollouts at the end of each wave, rising from 1 or more. mean_N: (N,) in (0, 1). variance_N: (N,) in
    [0, m (1 - m)). price_N: (N,) >= 0 of one rollout, in informative groups a decision. Raises ValueError outside of
    these.
    """
    if not ends or ends[0] < 1 or any(late <= early for early, late in pairwise(ends)):
        raise ValueError(f"waves must end after 1 rollout or more, each later than the one before, got {ends}")
    gain_N, rollouts_N = np.empty(len(mean_N)), np.empty(len(mean_N))
    for start in range(0, len(mean_N), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        found = _of_block(mean_N[block], variance_N[block], (0, *ends), group_size, least, price_N[block])
        gain_N[block], rollouts_N[block] = found
    return ProbeValue(gain_N=gain_N, rollouts_N=rollouts_N)


def _of_block(
    mean_b: np.ndarray,
    variance_b: np.ndarray,
    ends: tuple[int, ...],
    group_size: int,
    least: float,
    price_b: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    alpha_b, beta_b = beta_parameters(mean_b, variance_b)
    earns_b = informative_probability(mean_b, variance_b, group_size) > least
    later: list[tuple[np.ndarray, np.ndarray]] = []  # by k: gain and rollouts from the next wave's end on
    for place in range(len(ends) - 1, -1, -1):
        n = ends[place]
        here: list[tuple[np.ndarray, np.ndarray]] = []
        for k in range(n + 1):
            a_b, b_b = alpha_b + k, beta_b + (n - k)
            go_b, more_b = np.zeros(len(a_b)), np.zeros(len(a_b))
            if later:
                step = ends[place + 1] - n
                chance_b = np.ones(len(a_b))  # of j = 0: prod (b + i) / (a + b + i)
                for i in range(step):
                    chance_b *= (b_b + i) / (a_b + b_b + i)
                for j in range(step + 1):
                    gain_b, rollouts_b = later[k + j]
                    go_b += chance_b * gain_b
                    more_b += chance_b * rollouts_b
                    if j < step:
                        chance_b = chance_b * ((step - j) / (j + 1)) * (a_b + j) / (b_b + (step - j - 1))
                if n == 0:
                    return go_b, more_b + step
                go_b -= price_b * step
                more_b += step
            known_b = informative_probability(*moments(a_b, b_b), group_size)
            stop_b = np.maximum(np.where(earns_b, least - known_b, known_b - least), 0.0)
            goes_on_b = go_b > stop_b
            here.append((np.where(goes_on_b, go_b, stop_b), np.where(goes_on_b, more_b, 0.0)))
        later = here
    raise AssertionError("the first end is 0")


def index_of_probe(
    mean: float, variance: float, ends: tuple[int, ...], *, group_size: int, least: float, price: float
) -> float:
    """The price of a rollout, `price` at least, at which beginning with this prompt is worth no more than it costs.

    The gain falls with the price and the cost of the first wave rises, so bisection finds it.
    """

    def surplus(at: float) -> float:
        found = value_of_probe(
            np.array([mean]), np.array([variance]), ends, group_size=group_size, least=least, price_N=np.array([at])
        )
        return float(found.gain_N[0]) - at * ends[0]

    low, high = price, 1.0
    if surplus(low) <= 0.0:
        return low
    for _ in range(BISECTIONS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if surplus(middle) > 0.0 else (low, middle)
    return low


def moments(alpha_N: np.ndarray, beta_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of Beta distributions, the mean kept within (0, 1)."""
    total_N = alpha_N + beta_N
    mean_N = np.clip(alpha_N / total_N, 1e-300, 1.0 - 1e-16)
    return mean_N, mean_N * (1.0 - mean_N) / (total_N + 1.0)
