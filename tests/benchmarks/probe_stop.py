"""What stopping probes early saves at equal error, exactly: `python -m tests.benchmarks.probe_stop`.

The decision is whether u, the chance that a group of eight is informative, is above a boundary; it is wrong where the
true u is on the other side. The pool is the simulated learner's, the belief before the probe the Beta distribution with
the pool's moments. Errors and rollouts are sums over all ways that a probe can go, so nothing is simulated; the price
of a rollout is the largest at which the rule errs no more than a fixed probe of eight with the same belief.

The bound holds for every rule whatever: with prices c >= 0, whoever errs by e at most with E[n] rollouts has
c·E[n] + e at least the Bayes risk of the best stopping for c, so E[n] >= (risk(c) − e) / c. The risk is worked out on
the pool itself, by backward induction over up to LONGEST rollouts one by one.
Axes: N prompts.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import comb

import numpy as np

from predictors.value import beta_parameters, informative_probability
from selector.probe_value import moments
from selector.probing import settle_rule, settled
from selector.waves import Seen, Verdict
from tests.benchmarks.language import Figure, arguments, show
from tests.benchmarks.learner_model import Constants, Learner

GROUP_SIZE = 8
LONGEST = 40
BOUNDARIES = (0.2, 0.3, 0.4, 0.5, 0.6)
PRICES = np.geomspace(1e-1, 1e-4, 61)
State = tuple[int, int]
"""Rollouts right, and all."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """Chances of each state of a probe that is never stopped, by one sequence: E[p^k (1 − p)^(n − k)]."""

    belief: tuple[float, float]
    any_S: dict[State, float]
    above_S: dict[State, float]  # the part of prompts whose u is above the boundary
    says_S: dict[State, bool]  # whether the belief is that it is

    @classmethod
    def of(cls, pass_rate_N: np.ndarray, least: float) -> "Pool":
        above_N = 1.0 - pass_rate_N**GROUP_SIZE - (1.0 - pass_rate_N) ** GROUP_SIZE > least
        right, wrong = np.log(pass_rate_N), np.log1p(-pass_rate_N)
        belief = float(pass_rate_N.mean()), float(pass_rate_N.var())
        alpha_1, beta_1 = beta_parameters(np.array([belief[0]]), np.array([belief[1]]))
        any_S, above_S, says_S = dict[State, float](), dict[State, float](), dict[State, bool]()
        for n in range(LONGEST + 1):
            for k in range(n + 1):
                chance_N = np.exp(k * right + (n - k) * wrong)
                any_S[k, n], above_S[k, n] = float(chance_N.mean()), float((chance_N * above_N).mean())
                u_1 = informative_probability(*moments(alpha_1 + k, beta_1 + (n - k)), GROUP_SIZE)
                says_S[k, n] = float(u_1[0]) > least
        return cls(belief=belief, any_S=any_S, above_S=above_S, says_S=says_S)

    def wrong(self, state: State, says: bool) -> float:
        return self.any_S[state] - self.above_S[state] if says else self.above_S[state]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    rollouts: float  # expected
    error: float
    price: float


def fixed_error(pool: Pool, size: int = GROUP_SIZE) -> float:
    """Of probes of `size` rollouts each."""
    return sum(comb(size, k) * pool.wrong((k, size), pool.says_S[k, size]) for k in range(size + 1))


def stopped(pool: Pool, least: float, most: int, price: float) -> Stopped:
    """The planner's rule over up to `most` rollouts."""

    rule = settle_rule(most, least, 2, price)
    if rule is None:
        raise ValueError(f"a probe of {most} rollouts has one wave")

    def goes_on(k: int, n: int) -> bool:
        seen = Seen(right=k, scored=n, right_first=0, scored_first=0, informative=0 < k < n)
        return settled(rule, seen, pool.belief, left=most - n, group_size=GROUP_SIZE) is Verdict.CONTINUE

    ends = (*range(rule.first, most, rule.step or 1), most)
    ways: dict[State, float] = {(k, ends[0]): float(comb(ends[0], k)) for k in range(ends[0] + 1)}
    rollouts = error = 0.0
    for n, after in pairwise((*ends, most)):
        following = dict[State, float]()
        for (k, _), sequences in ways.items():
            if n < most and goes_on(k, n):
                for j in range(after - n + 1):
                    state = (k + j, after)
                    following[state] = following.get(state, 0.0) + sequences * comb(after - n, j)
            else:
                rollouts += sequences * pool.any_S[k, n] * n
                error += sequences * pool.wrong((k, n), pool.says_S[k, n])
        ways = following
    return Stopped(rollouts=rollouts, error=error, price=price)


def at_equal_error(pool: Pool, least: float, most: int) -> Stopped:
    """The fewest rollouts over all prices at which the rule errs no more than probes of eight."""
    allowed = fixed_error(pool) + 1e-12
    found = [one for one in (stopped(pool, least, most, float(price)) for price in PRICES) if one.error <= allowed]
    return min(found, key=lambda one: one.rollouts)


def least_rollouts(pool: Pool, error: float) -> float:
    """What no rule that errs by `error` at most can go below."""

    def risk(price: float) -> float:
        risk_k = [min(pool.wrong((k, LONGEST), True), pool.wrong((k, LONGEST), False)) for k in range(LONGEST + 1)]
        for n in range(LONGEST - 1, -1, -1):
            risk_k = [
                min(
                    pool.wrong((k, n), True),
                    pool.wrong((k, n), False),
                    price * pool.any_S[k, n] + risk_k[k] + risk_k[k + 1],
                )
                for k in range(n + 1)
            ]
        return risk_k[0]

    return max((risk(float(price)) - error) / float(price) for price in PRICES)


def main() -> None:
    """Prints a table, or JSON lines."""
    options = arguments("Stopping probes early, at equal error.").parse_args()
    pass_rate_N = Learner(Constants(num_prompts=20_000, hopeless=0.5, mastered=0.3), 7, 10).pass_rate()
    figures = list[Figure]()
    for least in BOUNDARIES[3:4] if options.quick else BOUNDARIES:
        pool = Pool.of(pass_rate_N, least)
        error = fixed_error(pool)
        values = {"error of eight": error, "least share of eight": least_rollouts(pool, error) / GROUP_SIZE}
        for most in (8, 16, 32):
            one = at_equal_error(pool, least, most)
            values |= {f"share of eight, up to {most}": one.rollouts / GROUP_SIZE, f"error, up to {most}": one.error}
        figures += [
            Figure(
                benchmark="probe_stop",
                case=f"boundary {least}",
                metric=name,
                value=value,
                unit="share",
                n=len(pass_rate_N),
                setting={"group_size": GROUP_SIZE},
            )
            for name, value in values.items()
        ]
    show(figures, as_json=options.json)


if __name__ == "__main__":
    main()
