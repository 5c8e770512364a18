"""Beta with reference: own groups, and what two reference models say of a prompt, at the ability the policy shows.

The estimator of BOTS (arXiv 2510.26374, in Trinity-RFT). Built by the registry. Axes: N rows, B groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from predictors.base import Column, FloatArray, IntArray, Observations, State, require_between
from predictors.names import STRONG, WEAK, pass_rates
from predictors.rows import MIN_N_EFF, FixedPriorConfig, Reader, Reading, RowEstimator, Rows

ABILITY_KEPT = 0.9
"""Share of the ability known before that is kept at each step with groups."""

MIN_GAP = 0.01
"""Least difference of the references' mean pass rates over a step's groups for these to say something of ability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BetaWithReferenceConfig(FixedPriorConfig):
    """Options. The defaults are those of the released code."""

    forgetting: float = 0.2
    """Share of all evidence that is lost at each policy version (lambda)."""

    reference_share: float = 0.2
    """Weight of what the references say, next to own groups (rho)."""

    reference_rollouts: float = 16.0
    """Rollouts that the references count for at each policy version (m)."""

    def __post_init__(self) -> None:
        FixedPriorConfig.__post_init__(self)
        require_between("forgetting", self.forgetting, 1e-3, 1.0)
        require_between("reference_share", self.reference_share, 0.0, 1.0)
        require_between("reference_rollouts", self.reference_rollouts, 0.0, 1000.0)


class BetaWithReference(RowEstimator[BetaWithReferenceConfig]):
    """alpha <- (1 - l) alpha + l alpha0 + (1 - r) s + r m p~ at each step, and likewise beta with the failures.

    A step is a policy version; s are the successes of the step's groups of the prompt. For a prompt without a group
    p~ = clip(weak + c (strong - weak), 0, 1), between the pass rates of two reference models; one with a group takes
    its own k/n there, as the released code does. Ability c is fitted to each step that has groups: (mean k/n - mean
    weak) / (mean strong - mean weak), the first as it is, later ones smoothed by ABILITY_KEPT. Steps without any group
    go on with the last c. Before the first there is no implicit evidence.

    A prompt never tried so tends to 2 + r m / l pseudo-counts (18 at the defaults), and one with a group of n at every
    step to 2 + ((1 - r) n + r m) / l (82 for n = 16): confidence without any evidence of its own, as published.

    Every prompt's implicit evidence is the same sum over steps of weights (1 - l)^age and of c under those weights, so
    two numbers carry it for the pool. Taking c and the clip at their average over these steps is all that differs from
    working through the pool at each step: nothing where c stands still. The optional halving of r is left out.
    Evidence of an older version counts what it would if it had come in time; each group counts as a step's visit.

    The references are the columns `weak` and `strong` that are attached. A prompt without has 0 and 1; where all are
    without, p~ is the pool's smoothed pass rate.
    """

    name = "beta_with_reference"
    reads_columns = True
    columns: ClassVar = {
        "successes_N": 0.0,
        "failures_N": 0.0,
        "own_steps_N": 0.0,
        "weak_N": np.float32(0.0),
        "strong_N": np.float32(1.0),
    }

    def __init__(self, config: BetaWithReferenceConfig) -> None:
        super().__init__(config)
        self._ability = _Ability(config.forgetting)

    @classmethod
    def config_type(cls) -> type[BetaWithReferenceConfig]:
        return BetaWithReferenceConfig

    def attach(self, columns: Mapping[str, Column]) -> None:
        for name, column in (("weak_N", WEAK), ("strong_N", STRONG)):
            rate_N = pass_rates(columns, column, self._last_N.shape[0])
            self._columns[name] = np.where(np.isnan(rate_N), self.columns[name], rate_N).astype(np.float32)

    def _update(self, groups: Observations, newest_B: IntArray) -> None:
        rows_B, config = groups.rows_B, self._config
        rate_B = groups.passes_B / groups.scored_B
        self._ability.observe(rate_B, self._columns["weak_N"][rows_B], self._columns["strong_N"][rows_B])
        old_B = self._kept(newest_B - self._last_N[rows_B])
        new_B = self._kept(newest_B - groups.version_B)
        in_place_of_reference = config.reference_share * config.reference_rollouts
        for name, count_B in (
            ("successes_N", (1.0 - config.reference_share) * groups.passes_B + in_place_of_reference * rate_B),
            (
                "failures_N",
                (1.0 - config.reference_share) * (groups.scored_B - groups.passes_B)
                + in_place_of_reference * (1.0 - rate_B),
            ),
            ("own_steps_N", np.ones_like(rate_B)),
        ):
            column_N = self._columns[name]
            column_N[rows_B] = old_B * column_N[rows_B] + new_B * count_B

    def advance(self, policy_version: int) -> None:
        before = self._version
        super().advance(policy_version)
        self._ability.close(self._version - before)

    def _reader(self) -> Reader:
        steps, ability = self._ability.implicit_steps()
        return partial(self._read, steps, ability, 0 if self._ability.is_open else 1)

    def _read(self, steps: float, ability: float, not_taken: int, at: Rows, now_N: IntArray) -> Reading:
        config = self._config
        successes_N, failures_N, own_steps_N, weak_N, strong_N = (column_N[at] for column_N in self._columns.values())
        kept_N = self._kept(np.maximum(now_N - self._last_N[at] - not_taken, 0))
        implied_N = np.clip(weak_N + (strong_N.astype(np.float64) - weak_N) * ability, 0.0, 1.0)
        implicit_N = np.maximum(steps - kept_N * own_steps_N, 0.0)
        implicit_N *= config.reference_share * config.reference_rollouts
        mean_N, variance_N = config.posterior(
            kept_N * successes_N + implicit_N * implied_N, kept_N * failures_N + implicit_N * (1.0 - implied_N)
        )
        return mean_N, variance_N, np.maximum(kept_N * (successes_N + failures_N), MIN_N_EFF)

    def state(self) -> State:
        return {**super().state(), **self._ability.state()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().load_state(state)
        self._ability.load_state(state)

    def _kept(self, steps: IntArray) -> FloatArray:
        """Share of evidence that is left after so many steps."""
        return np.asarray((1.0 - self._config.forgetting) ** steps)


class _Ability:
    """How far the policy is between the two references, and what its past steps add up to. Knows no rows.

    A step is open from its first group on: it is then taken for the whole pool, as far as its groups are known, and
    closed when the policy moves on.
    """

    def __init__(self, forgetting: float) -> None:
        self._forgetting = forgetting
        self._scalars = {
            "ability": 0.0,
            "ability_known": 0.0,  # 1 once it was fitted
            "implicit_steps": 0.0,  # closed steps that gave implicit evidence, each faded by its age
            "implicit_ability": 0.0,  # ability, summed over the same with the same weights
            "open_groups": 0.0,
            "open_rate": 0.0,  # sums over the groups of the open step
            "open_weak": 0.0,
            "open_strong": 0.0,
        }

    @property
    def is_open(self) -> bool:
        return self._scalars["open_groups"] > 0.0

    def observe(self, rate_B: FloatArray, weak_B: FloatArray, strong_B: FloatArray) -> None:
        """Groups of the step that is going on, whatever version they name."""
        for name, value_B in (("open_rate", rate_B), ("open_weak", weak_B), ("open_strong", strong_B)):
            self._scalars[name] += float(np.sum(value_B, dtype=np.float64))
        self._scalars["open_groups"] += rate_B.shape[0]

    def implicit_steps(self) -> tuple[float, float]:
        """Steps that gave implicit evidence, each faded by its age, and the average ability over them."""
        steps, summed = self._after(1 if self.is_open else 0)
        return steps, summed / steps if steps > 0.0 else 0.0

    def close(self, versions: int) -> None:
        """The policy has moved on by so many versions; those without groups go on with the last ability."""
        if versions == 0:
            return
        steps, summed = self._after(versions)
        ability, known = self._fitted()
        self._scalars.update(ability=ability, ability_known=known, implicit_steps=steps, implicit_ability=summed)
        self._scalars.update(open_groups=0.0, open_rate=0.0, open_weak=0.0, open_strong=0.0)

    def state(self) -> State:
        return {name: np.array(value) for name, value in self._scalars.items()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        self._scalars = {name: float(state[name]) for name in self._scalars}

    def _after(self, versions: int) -> tuple[float, float]:
        """Both sums after so many more steps of the ability as it is now known."""
        ability, known = self._fitted()
        kept = (1.0 - self._forgetting) ** versions
        added = known * (1.0 - kept) / self._forgetting
        now = self._scalars
        return kept * now["implicit_steps"] + added, kept * now["implicit_ability"] + ability * added

    def _fitted(self) -> tuple[float, float]:
        """Ability with the open step's groups in it, and whether (1 or 0) it is known."""
        now = self._scalars
        gap = now["open_strong"] - now["open_weak"]
        if not abs(gap) > MIN_GAP * now["open_groups"]:
            return now["ability"], now["ability_known"]
        found = (now["open_rate"] - now["open_weak"]) / gap
        if not now["ability_known"]:
            return found, 1.0
        return ABILITY_KEPT * now["ability"] + (1.0 - ABILITY_KEPT) * found, 1.0
