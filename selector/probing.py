"""Probes: which prompts deserve a few rollouts that only inform the beliefs, and when a prompt has had enough of them.

`drawing` asks it at a draw of purpose probe, `standing` when a wave of such a ticket is complete. Pure arithmetic on
beliefs; knows nothing of tickets, events or who reports. N rows of the pool, K probed.

A probe is worth what it may change. The decision is whether a prompt earns a training group of G rollouts: it does if
u, its chance to be informative, is above `least`, what the policy's draw gets as things are. With n more rollouts, k
of them right,
    value = E_k[max(u(k, n), least)] − max(u, least),
in informative groups a decision, k being Beta-binomial under the belief (the value of sample information; Raiffa and
Schlaifer 1961, ch. 4). A decision serves USES training groups; n rollouts of L tokens cost what they would have bought
in training, least·n·L/(G·L̄), L̄ the mean over the pool. A prompt is worth a probe while the first is above the second,
and the same rule, with the prompt's own tokens on both sides, stops its waves: when no outcome of what is left of its
group would change the decision the value is 0, and it is settled. n is looked for over waves to come, not the next one
alone: two rollouts often change nothing where four would.
"""

from dataclasses import dataclass

import numpy as np

from predictors.value import beta_parameters, informative_probability
from selector.waves import Seen, Verdict, WaveConfig

FIRST_WAVE = 2
"""Rollouts of the first wave, and of each later one; two are the fewest that can differ."""

USES = 28.0
"""Training groups that one decision serves, before the policy has moved on. Set by hand, from a simulated learner whose
log-odds rise by an eighth a group: a larger number buys more certainty for more rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbingConfig:
    """Bounds of what probes may cost. Raises ValueError naming a value that is out of range."""

    tokens: float | None = None  # generated between two train draws, by prediction; None: no bound
    share: float | None = None  # tokens of probes to tokens of training, so far; None: no bound

    def __post_init__(self) -> None:
        for name, value in (("tokens", self.tokens), ("share", self.share)):
            if value is not None and not 0.0 < value < float("inf"):
                raise ValueError(f"probing.{name} must be a number > 0, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbePlan:
    """What is probed, and with what chance: which rows is certain but for ties, among which a keyed order decides."""

    rows_K: np.ndarray  # int64, most worth first
    inclusion_N: np.ndarray  # float64: 1 above the last place, an equal share of what is left at it, else 0
    num_worth: int  # rows that would be worth their first wave
    unaffordable: bool  # the budget left some of these out


def boundary(informative_N: np.ndarray, utility_N: np.ndarray, floor: float) -> float:
    """Chance that a group the policy draws is informative: Σ π·u over Σ π, π = floor/N + (1 − floor)·utility/Σ utility.

    (N,) eligible rows. Returns a number in [0, 1]; 0 without rows. The cap π ≤ 1 of a draw is left out: where it binds
    the policy draws further down, so this is a little too high and probes a little too few.
    """
    if not len(informative_N):
        return 0.0
    total = float(utility_N.sum())
    drawn = float(informative_N @ utility_N) / total if total > 0.0 else float(informative_N.mean())
    return floor * float(informative_N.mean()) + (1.0 - floor) * drawn


def value_of_rollouts(
    mean_N: np.ndarray, variance_N: np.ndarray, num_rollouts: int, *, group_size: int, least: float
) -> np.ndarray:
    """(N,) ≥ 0: E_k[max(u(k, n), least)] − max(u, least), informative groups that n rollouts add to a decision.

    By u(0, 0) = E_k[u(k, n)] it is 0 where no k changes the side that u is on. mean_N: (N,) in (0, 1). variance_N: (N,)
    in [0, m (1 − m)). Raises ValueError outside of these, and for fewer rollouts than 1.
    """
    if num_rollouts < 1:
        raise ValueError(f"a wave must have at least 1 rollout, got {num_rollouts}")
    alpha_N, beta_N = beta_parameters(mean_N, variance_N)
    n, total_N = num_rollouts, alpha_N + beta_N
    with_N, prior_N = np.zeros(len(alpha_N)), np.zeros(len(alpha_N))
    chance_N = np.ones(len(alpha_N))  # of k = 0: prod (beta + j) / (total + j)
    for j in range(n):
        chance_N *= (beta_N + j) / (total_N + j)
    for k in range(n + 1):
        known_N = _informative(alpha_N + k, beta_N + (n - k), group_size)
        with_N += chance_N * np.maximum(known_N, least)
        prior_N += chance_N * known_N
        if k < n:
            chance_N = chance_N * ((n - k) / (k + 1)) * (alpha_N + k) / (beta_N + (n - k - 1))
    return np.asarray(np.maximum(with_N - np.maximum(prior_N, least), 0.0))


def value_of_waves(
    mean_N: np.ndarray,
    variance_N: np.ndarray,
    wave: int,
    most: int,
    *,
    group_size: int,
    least: float,
    price_N: np.ndarray,
) -> np.ndarray:
    """(N,) ≥ 0: what a first wave adds to a decision where, once k of it is known, the rest follows or does not:

        E_k[max(max(u(k, w), least), E_j[max(u(k + j, most), least)] − price·(most − w))] − max(u, least)

    price_N: (N,) of one rollout, in informative groups a decision. The first wave's own price is not in it. Stopping
    after each wave is worth a little more, and costs as many terms as there are ways through the waves.
    """
    alpha_N, beta_N = beta_parameters(mean_N, variance_N)
    total_N, n, left = alpha_N + beta_N, wave, most - wave
    chance_N, with_N, prior_N = np.ones(len(alpha_N)), np.zeros(len(alpha_N)), np.zeros(len(alpha_N))
    for j in range(n):
        chance_N *= (beta_N + j) / (total_N + j)
    for k in range(n + 1):
        after_N = _moments(alpha_N + k, beta_N + (n - k))
        known_N = informative_probability(*after_N, group_size)
        more_N = 0.0
        if left:
            more_N = value_of_rollouts(*after_N, left, group_size=group_size, least=least) - price_N * left
        with_N += chance_N * (np.maximum(known_N, least) + np.maximum(more_N, 0.0))
        prior_N += chance_N * known_N
        if k < n:
            chance_N = chance_N * ((n - k) / (k + 1)) * (alpha_N + k) / (beta_N + (n - k - 1))
    return np.asarray(np.maximum(with_N - np.maximum(prior_N, least), 0.0))


def plan_probes(
    mean_N: np.ndarray,
    variance_N: np.ndarray,
    tokens_N: np.ndarray | None,
    eligible_N: np.ndarray,
    owed_N: np.ndarray,
    order_N: np.ndarray,
    *,
    size: int,
    wave: int,
    most: int,
    group_size: int,
    least: float,
    budget: float | None,
) -> ProbePlan:
    """The rows to probe, most value per predicted token first, within `size` places and `budget` tokens.

    tokens_N: (N,) expected of one rollout, None while nothing is known: then all cost alike, and no budget binds, as
    the rollouts of these very probes will say. owed_N: (N,) bool, rows at rest whose turn for a look has come: they are
    worth it without a reckoning. wave and most: rollouts of the first wave and of all. order_N: (N,) int, a keyed
    permutation that decides among equals. Rows of equal worth are taken as many as their mean cost leaves room for, so
    that the chance of each is exact.
    """
    rows = np.flatnonzero(eligible_N)
    cost = np.ones(len(rows)) if tokens_N is None else tokens_N[rows]
    relative = cost / cost.mean() if len(rows) else cost
    price = least / (USES * group_size) * relative  # of a rollout, in informative groups a decision
    value = value_of_waves(
        mean_N[rows], variance_N[rows], wave, most, group_size=group_size, least=least, price_N=price
    )
    is_worth = owed_N[rows] | (value > wave * price)
    rows, cost, ratio = rows[is_worth], cost[is_worth] * wave, value[is_worth] / relative[is_worth]
    ranked = np.lexsort((order_N[rows], -ratio))
    rows, cost, ratio = rows[ranked], cost[ranked], ratio[ranked]
    places = min(size, len(rows))
    if budget is not None and tokens_N is not None:
        places = min(places, _affordable(cost, ratio, budget))
    inclusion_N = np.zeros(len(mean_N))
    if places:
        last = ratio[places - 1]
        ties = ratio == last
        above = int(np.count_nonzero(ratio > last))
        inclusion_N[rows[ratio > last]] = 1.0
        inclusion_N[rows[ties]] = (places - above) / np.count_nonzero(ties)
    return ProbePlan(
        rows_K=rows[:places],
        inclusion_N=inclusion_N,
        num_worth=len(rows),
        unaffordable=places < min(size, len(rows)),
    )


def settle_rule(group_size: int, least: float, min_rollouts: int) -> WaveConfig | None:
    """The waves of a probe of at most `group_size` rollouts; None where that is one wave, or a first one could never
    count.
    """
    first = max(FIRST_WAVE, min_rollouts)
    if first >= group_size:
        return None
    return WaveConfig(rule="settle", first=first, step=FIRST_WAVE, low=least)


def settled(rule: WaveConfig, seen: Seen, belief: tuple[float, float], *, left: int, group_size: int) -> Verdict:
    """Whether a probe of which `left` rollouts have not been asked for goes on. belief: mean and variance at its draw.

    What was seen is added to the belief as to a Beta distribution, whatever the run's estimator does with it. Nothing
    scored: nothing to go on, so it stops.
    """
    if not seen.scored:
        return Verdict.STOP
    least = 0.0 if rule.low is None else rule.low
    alpha, beta = (float(one[0]) for one in beta_parameters(np.array([belief[0]]), np.array([belief[1]])))
    mean, variance = _moments(np.array([alpha + seen.right]), np.array([beta + seen.scored - seen.right]))
    for more in range(1, left + 1):
        value = float(value_of_rollouts(mean, variance, more, group_size=group_size, least=least)[0])
        if USES * group_size * value > least * more:
            return Verdict.CONTINUE
    return Verdict.STOP


def _affordable(cost: np.ndarray, ratio: np.ndarray, budget: float) -> int:
    """How many of these ranked rows the budget is for, ties at their mean cost."""
    if not len(cost):
        return 0
    begins = np.r_[True, ratio[1:] != ratio[:-1]]
    group = np.cumsum(begins) - 1
    mean_cost = np.bincount(group, cost) / np.bincount(group)
    return int(np.searchsorted(np.cumsum(mean_cost[group]), budget * (1.0 + 1e-12), side="right"))


def _informative(alpha_N: np.ndarray, beta_N: np.ndarray, group_size: int) -> np.ndarray:
    mean_N, variance_N = _moments(alpha_N, beta_N)
    return informative_probability(mean_N, variance_N, group_size)


def _moments(alpha_N: np.ndarray, beta_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total_N = alpha_N + beta_N
    mean_N = np.clip(alpha_N / total_N, 1e-300, 1.0 - 1e-16)
    return mean_N, mean_N * (1.0 - mean_N) / (total_N + 1.0)
