"""Probes: which prompts deserve a few rollouts that only inform the beliefs, and when a prompt has had enough of them.

`batches.probe_draw` asks it at a draw of purpose probe, `groups.standing` when a wave of such a ticket is complete.
Pure arithmetic on beliefs; knows nothing of tickets, events or who reports. N rows of the pool, K probed.

A probe is worth what it may change. A prompt that turns out better than the tickets which it would displace, those that
the policy's draw is not sure of, earns their places; `displaced` says how often these are informative, `least`, and how
many places there are to gain. `probe_value` works out what a probe adds then, in informative groups a decision, where
it is stopped as well as can be. A decision serves USES training groups, and a rollout costs what it would have bought
in training at the very most, 1/G of an informative group, and more for a prompt of long answers: so a prompt is worth a
probe while USES · gain is above that. The most worth come first, until together they would fill what there is to gain.
The same rule stops a prompt's waves, at a higher price where other prompts are waiting: what a rollout is worth in
beginning with the next of them. So most prompts get one wave, and whoever may still change the draw gets more.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import inf

import numpy as np

from predictors.value import beta_parameters
from selector.probe_value import index_of_probe, moments, value_of_probe
from selector.sampling.designs import capped_inclusion
from selector.waves import Seen, Verdict, WaveConfig

FIRST_WAVE = 2
"""Rollouts of the first wave, and of each later one; two are the fewest that can differ."""

USES = 8.0
"""Training groups that one decision serves, before the policy has moved on, less what a rollout is priced too high. Set
by hand, from a simulated learner whose log-odds rise by an eighth a group: a larger number buys more rollouts."""


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
    price: float  # of one more rollout of theirs, in informative groups a decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Displaced:
    """The tickets of a training batch that better prompts would take the place of."""

    least: float  # chance that such a ticket's group is informative
    missing: float  # how many of their groups are expected to be not informative; infinite before the first batch


def displaced(informative_N: np.ndarray, utility_N: np.ndarray, floor: float, places: float | None) -> Displaced:
    """What the policy's draw would give up for one more prompt that it is sure to draw.

    With π = min(1, κ·utility), Σπ = places, that prompt takes 1 from the rows below 1 in proportion to their π, as κ
    falls: so least = Σ π·u / Σ π over these, and missing = (1 − floor)·Σ π·(1 − u). The evenly spread part, floor, is
    taken from nobody. places: selected tickets of a training batch; None while none was drawn: then no row counts as
    sure. (N,) eligible rows.
    """
    if not len(informative_N):
        return Displaced(least=0.0, missing=0.0)
    size_N = utility_N if np.any(utility_N > 0.0) else np.ones(len(utility_N))
    if places is None:
        return Displaced(least=float(informative_N @ size_N) / float(size_N.sum()), missing=inf)
    pi_N = capped_inclusion(size_N, min(places, float(np.count_nonzero(size_N))))
    pi_N[pi_N >= 1.0] = 0.0
    total, useful = float(pi_N.sum()), float(pi_N @ informative_N)
    least = useful / total if total > 0.0 else 1.0
    return Displaced(least=least, missing=(1.0 - floor) * (total - useful))


def plan_probes(
    mean_N: np.ndarray,
    variance_N: np.ndarray,
    tokens_N: np.ndarray | None,
    eligible_N: np.ndarray,
    owed_N: np.ndarray,
    order_N: np.ndarray,
    *,
    size: int,
    ends: tuple[int, ...],
    group_size: int,
    needed: Displaced,
    open_N: np.ndarray,
    budget: float | None,
) -> ProbePlan:
    """The rows to probe, most value per predicted token first, within `size` places and `budget` tokens.

    tokens_N: (N,) expected of one rollout, None while nothing is known: then all cost alike, and no budget binds, as
    the rollouts of these very probes will say. owed_N: (N,) bool, rows at rest whose turn for a look has come: they are
    worth it without a reckoning. open_N: (N,) bool, rows with an open probe, whose gain is on its way. ends: rollouts
    at the end of each wave. order_N: (N,) int, a keyed permutation that decides among equals. Rows of equal worth are
    taken as many as their mean cost leaves room for, so that the chance of each is exact.
    """
    looked = np.flatnonzero(eligible_N | open_N)
    is_open = open_N[looked]
    cost = np.ones(len(looked)) if tokens_N is None else tokens_N[looked]
    relative = cost / cost.mean() if len(looked) else cost
    base = 1.0 / (USES * group_size)
    found = value_of_probe(
        mean_N[looked], variance_N[looked], ends, group_size=group_size, least=needed.least, price_N=base * relative
    )
    missing = needed.missing - float(found.gain_N[is_open].sum())
    is_worth = (owed_N[looked] | (found.gain_N > ends[0] * base * relative)) & ~is_open
    rows, cost, gain = looked[is_worth], cost[is_worth] * ends[0], found.gain_N[is_worth]
    ratio = np.where(owed_N[rows], inf, gain / (relative * found.rollouts_N)[is_worth])
    ranked = np.lexsort((order_N[rows], -ratio))
    rows, cost, gain, ratio = rows[ranked], cost[ranked], gain[ranked], ratio[ranked]
    wanted = int(np.count_nonzero(np.cumsum(gain) - gain < missing)) if missing > 0 else 0
    wanted = max(wanted, int(np.count_nonzero(owed_N[rows])))
    places = min(size, wanted)
    if budget is not None and tokens_N is not None:
        places = min(places, _affordable(cost, ratio, budget))
    inclusion_N = np.zeros(len(mean_N))
    price = base
    if places:
        last = ratio[places - 1]
        ties = ratio == last
        above = int(np.count_nonzero(ratio > last))
        inclusion_N[rows[ratio > last]] = 1.0
        inclusion_N[rows[ties]] = (places - above) / np.count_nonzero(ties)
        if places < len(rows):
            after = rows[places]
            belief = float(mean_N[after]), float(variance_N[after])
            price = index_of_probe(*belief, ends, group_size=group_size, least=needed.least, price=base)
    return ProbePlan(
        rows_K=rows[:places],
        inclusion_N=inclusion_N,
        num_worth=wanted,
        unaffordable=places < min(size, wanted),
        price=price,
    )


def settle_rule(group_size: int, least: float, min_rollouts: int, price: float | None = None) -> WaveConfig | None:
    """The waves of a probe of at most `group_size` rollouts; None where that is one wave, or a first one could never
    count. price: of one more rollout, in informative groups a decision; None: what it is worth in training at most.
    """
    first = max(FIRST_WAVE, min_rollouts)
    if first >= group_size:
        return None
    return WaveConfig(rule="settle", first=first, step=FIRST_WAVE, low=least, price=price)


def settled(
    rule: WaveConfig,
    seen: Seen,
    belief: tuple[float, float],
    *,
    left: int,
    group_size: int,
    kept: int | None = None,
) -> Verdict:
    """Whether a probe of which `left` rollouts have not been asked for goes on. belief: mean and variance at its draw.

    kept: how many of the next `left` a train group could begin with, in a run with a store; None without one. A group
    that is informative already is drawn there, so that as many cost nothing, and any further one is made for nobody.
    Otherwise what was seen is added to the belief as to a Beta distribution, whatever the run's estimator does with it.
    Nothing scored: nothing to go on, so it stops.
    """
    if not seen.scored or not left:
        return Verdict.STOP
    if kept is not None and seen.informative:
        return Verdict.CONTINUE if kept >= min(rule.step or left, left) else Verdict.STOP
    least = 0.0 if rule.low is None else rule.low
    price = 1.0 / (USES * group_size) if rule.price is None else rule.price
    step = rule.step or left
    ends = (*range(step, left, step), left)
    goes_on = _goes_on(belief, seen.right, seen.scored, ends, group_size, least, price)
    return Verdict.CONTINUE if goes_on else Verdict.STOP


@lru_cache(maxsize=8192)
def _goes_on(
    belief: tuple[float, float],
    right: int,
    scored: int,
    ends: tuple[int, ...],
    group_size: int,
    least: float,
    price: float,
) -> bool:
    """Prompts never tried share their beliefs, so that many of them ask the same."""
    alpha_1, beta_1 = beta_parameters(np.array([belief[0]]), np.array([belief[1]]))
    mean_1, variance_1 = moments(alpha_1 + right, beta_1 + (scored - right))
    found = value_of_probe(mean_1, variance_1, ends, group_size=group_size, least=least, price_N=np.array([price]))
    return float(found.gain_N[0]) > price * ends[0]


def _affordable(cost: np.ndarray, ratio: np.ndarray, budget: float) -> int:
    """How many of these ranked rows the budget is for, ties at their mean cost."""
    if not len(cost):
        return 0
    begins = np.r_[True, ratio[1:] != ratio[:-1]]
    group = np.cumsum(begins) - 1
    mean_cost = np.bincount(group, cost) / np.bincount(group)
    return int(np.searchsorted(np.cumsum(mean_cost[group]), budget * (1.0 + 1e-12), side="right"))
