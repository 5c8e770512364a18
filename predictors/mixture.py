"""The default estimator: for each prompt four experts, weighted by how well each has predicted that prompt so far.

Built by the registry. Three experts are Beta beliefs with a long, a middle and a short memory; the fourth forgets the
prompt and says what its category is like (`levels`). How fast all of them forget and drift is learned (`pace`); the
arithmetic is in `experts` and, for whole pools, in `reading`. Axes: N rows, B groups, E experts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from predictors.base import (
    NEVER,
    Beliefs,
    FloatArray,
    IntArray,
    Observations,
    State,
    check_categories,
    check_rows,
    check_state,
    require_between,
)
from predictors.configured import ConfiguredEstimator, EstimatorConfig
from predictors.experts import MEAN_EDGE, OVERLAP_RANGE, Experts, aged, losses, parameters
from predictors.levels import CategoryLevels, Levels
from predictors.pace import Pace, Surprise
from predictors.reading import LEAST_PARAMETER, Columns, Moment
from predictors.silence import after_silence, imputed_groups

Bools = npt.NDArray[np.bool_]

SPEED_E1 = np.array([[0.1], [0.7], [5.0]])
"""Process noise of each expert with a memory, in units of the learned one."""

LOG_SPEED_E = np.log(SPEED_E1[:, 0])

SHARE_E1 = np.array([[0.3], [0.5], [0.2]])
"""Their weights to start with, and those that weights return to while a prompt is left alone."""

RETURN_RATE = 40.0
"""Weights are half-way back, and half of the jumps have happened, once process noise times lag is 1 / this."""

GROUPS_PER_STEP = 128
"""Groups after which the pool's pace moves within a call: its logarithms move by a bounded step at a time, so in a
large report of a pool that jumped several small steps teach more than one. A step takes about a millisecond."""

MIN_WEIGHT = 1e-3
"""Least weight of an expert with a memory, so that a prompt that was steady for long can still change."""

LEAST_RETURN_NOISE = 3e-5
"""Process noise that weights and jumps are taken to go with at least: in the steadiest pool a prompt may still jump."""

STRENGTH_STEP = 0.1
"""Half the step in the log of the categories' strength over which the slope of the likelihood is measured."""

OWN_COLUMNS = ("alpha_long_N", "alpha_middle_N", "alpha_short_N", "beta_long_N", "beta_middle_N", "beta_short_N")
WEIGHT_COLUMNS = ("weight_long_N", "weight_middle_N")


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureConfig(EstimatorConfig):
    """Options. What is learned makes them matter little after some thousand groups."""

    process_noise: float = 1e-4
    """Variance per policy version by which arcsin(sqrt(p)) wanders, to start with. On a real run 4e-5 was best."""

    memory_groups: float = 5000.0
    """Groups over which what was learned about the pool's pace fades by a factor of e."""

    def __post_init__(self) -> None:
        require_between("process_noise", self.process_noise, 1e-10, 0.1)
        require_between("memory_groups", self.memory_groups, 100.0, 1e9)


class Mixture(ConfiguredEstimator[MixtureConfig]):
    """p ~ sum_e w_e Beta(a_e, b_e), read as the one Beta with the same mean and variance.

    A group k of n makes it Beta(a_e + k, b_e + n - k) and multiplies w_e by the chance that this expert gave the group.
    Before that, `lag` versions after the last group, with drift d and process noise q, beliefs have aged by shift
    d lag and wander q lag SPEED_e (`experts.aged`), weights have returned to SHARE_e by 1 - g, g = 1 / (1 + RETURN_RATE
    q lag), which is fixed share (Herbster and Warmuth 1998), and the fourth expert, the Beta of the category's newest
    groups, has taken (1 - g) times the learned share of jumps, which is never quite 0. What that one explains of the
    group is put back into the others. Evidence D versions older than what is known counts as n / (1 + 4 n q D)
    rollouts.

    A row keeps a_e and b_e less the alpha and beta of its category's first groups at the time, and is read with those
    of now: what a category turns out to be like reaches prompts that were tried before it was known. 64 bytes a row.
    """

    name: ClassVar = "mixture"

    def __init__(self, config: MixtureConfig) -> None:
        super().__init__(config)
        self._levels = CategoryLevels()
        self._pace = Pace(process_noise=config.process_noise, memory=config.memory_groups)
        self._columns = Columns.untried(0)
        # A row's numbers side by side, as an update needs them all; in the order of OWN_COLUMNS and WEIGHT_COLUMNS.
        self._own_NE: npt.NDArray[np.float32] = np.empty((0, len(OWN_COLUMNS)), dtype=np.float32)
        self._weight_NE: npt.NDArray[np.float16] = np.empty((0, len(WEIGHT_COLUMNS)), dtype=np.float16)

    @classmethod
    def config_type(cls) -> type[MixtureConfig]:
        return MixtureConfig

    @property
    def pace(self) -> Pace:
        """What has been learned of the pool."""
        return self._pace

    @property
    def _num_rows(self) -> int:
        return int(self._columns.last_N.shape[0])

    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        category_N = check_categories(category_N, self._num_rows)
        added = category_N.shape[0] - self._num_rows
        self._levels.resize(category_N)
        self._columns = self._columns.followed_by(Columns.untried(added))
        self._own_NE = np.r_[self._own_NE, np.zeros((added, len(OWN_COLUMNS)), dtype=np.float32)]
        share_E = SHARE_E1[:-1, 0].astype(np.float16)
        self._weight_NE = np.r_[self._weight_NE, np.tile(share_E, (added, 1))]

    def observe(self, observations: Observations) -> None:
        check_rows(observations.rows_B, self._num_rows)
        for part in observations.rounds():
            for start in range(0, len(part), GROUPS_PER_STEP):
                groups = part.take(np.arange(start, min(start + GROUPS_PER_STEP, len(part))))
                is_new_B = self._columns.last_N[groups.rows_B] == NEVER
                if is_new_B.any():
                    self._levels.start(groups.take(np.flatnonzero(is_new_B)))
                self._update(groups, is_new_B)
                self._levels.renew(groups)

    def _update(self, groups: Observations, is_new_B: Bools) -> None:
        """Rows occur once. The experts of a new row are its category's Beta, as nothing has been added to it yet."""
        newest_B, lag_B, first_B, experts = self._before(groups, is_new_B)
        chance_EB = experts.chances(groups)
        late_B = self._pace.process_noise * (newest_B - groups.version_B).astype(np.float64)
        self._learn(groups, experts, chance_EB, lag_B, first_B)
        self._keep(groups.rows_B, newest_B, experts.told(groups, chance_EB, late_B).without_last(), first_B)

    def observe_silence(self, silent: Observations, loss_share: float) -> None:
        """Each expert takes it by its own belief, and counts by the chance that it gave to silence. Levels learn from
        the groups that may have been behind it; the pool's pace learns nothing.
        """
        check_rows(silent.rows_B, self._num_rows)
        for groups in silent.rounds():
            rows_B = groups.rows_B
            is_new_B = self._columns.last_N[rows_B] == NEVER
            newest_B, _, first_B, experts = self._before(groups, is_new_B)
            after = after_silence(experts.mean_EB, experts.overlap_EB, groups.scored_B, loss_share)
            weight_EB = experts.weight_EB * after.chance
            weight_EB /= weight_EB.sum(axis=0)
            told = Experts(
                mean_EB=np.clip(after.mean, MEAN_EDGE, 1.0 - MEAN_EDGE),
                overlap_EB=np.clip(after.overlap, *OVERLAP_RANGE),
                weight_EB=weight_EB,
            )
            self._keep(rows_B, newest_B, told.without_last(), first_B)
            passed_B, failed_B = np.sum(weight_EB * after.passed, axis=0), np.sum(weight_EB * after.failed, axis=0)
            imputed = imputed_groups(groups, passed_B, failed_B)
            first = np.flatnonzero(np.isin(imputed.rows_B, rows_B[is_new_B]))
            if first.size:
                self._levels.start(imputed.take(first))
            self._levels.renew(imputed)

    def _before(self, groups: Observations, is_new_B: Bools) -> tuple[IntArray, FloatArray, Levels, Experts]:
        """As these rows, each of which occurs once, stand before their groups: the newest version of what will be known
        of each, the lag to there, its category's first level, and what all four experts think then.
        """
        rows_B = groups.rows_B
        known_B = np.where(is_new_B, groups.version_B, self._columns.last_N[rows_B])
        newest_B = np.maximum(known_B, groups.version_B)
        lag_B = (newest_B - known_B).astype(np.float64)
        first_B = self._first_levels().take(self._levels.category_N[rows_B])
        return newest_B, lag_B, first_B, self._experts(rows_B, lag_B, first_B)

    def _experts(self, rows_B: IntArray, lag_B: FloatArray, first_B: Levels) -> Experts:
        """What all four think of these rows `lag` versions after their evidence."""
        pace = self._pace
        own_EB = self._own_NE[rows_B].T.astype(np.float64)
        mean_EB, overlap_EB = aged(
            np.maximum(own_EB[: SPEED_E1.size] + first_B.alpha, LEAST_PARAMETER),
            np.maximum(own_EB[SPEED_E1.size :] + first_B.beta, LEAST_PARAMETER),
            pace.drift * lag_B,
            pace.process_noise * SPEED_E1 * lag_B,
        )
        stored_EB = self._weight_NE[rows_B].T.astype(np.float64)
        weight_EB = np.maximum(np.vstack([stored_EB, 1.0 - stored_EB.sum(axis=0)]), MIN_WEIGHT)
        gone_B = self._gone(lag_B)
        weight_EB = weight_EB / weight_EB.sum(axis=0) * (1.0 - gone_B) + SHARE_E1 * gone_B
        jumped_B = gone_B * pace.least_jump_share
        newest_B = self._newest_levels().take(self._levels.category_N[rows_B])
        return Experts(
            mean_EB=np.vstack([mean_EB, newest_B.mean]),
            overlap_EB=np.vstack([overlap_EB, newest_B.overlap]),
            weight_EB=np.vstack([weight_EB * (1.0 - jumped_B), jumped_B]),
        )

    def _learn(
        self, groups: Observations, experts: Experts, chance_EB: FloatArray, lag_B: FloatArray, first_B: Levels
    ) -> None:
        """Tell the pool's pace what these groups say about it, before they change anything.

        Of a new row all experts think alike, and nothing has aged: its slopes are 0 but for the category's strength.
        """
        pace, mean_B, overlap_B = self._pace, *experts.moments()
        pace.learn_strength(_strength_score(groups, mean_B, overlap_B, first_B))
        weighted_EB = experts.weight_EB * chance_EB
        total_B = weighted_EB.sum(axis=0)
        share = pace.least_jump_share
        own_B = weighted_EB[:-1].sum(axis=0) / (1.0 - experts.weight_EB[-1])
        spread_B = mean_B * (1.0 - mean_B)
        surprise = Surprise(
            lag_B=lag_B,
            error_B=groups.passes_B / groups.scored_B - mean_B,
            variance_B=spread_B * (overlap_B + (1.0 - overlap_B) / groups.scored_B),
            drift_slope_B=4.0 * lag_B * spread_B,
            noise_score_B=np.sum(experts.weight_EB[:-1] * _slopes(chance_EB[:-1]), axis=0) / total_B,
            jump_score_B=self._gone(lag_B) * share * (1.0 - share) * (chance_EB[-1] - own_B) / total_B,
        )
        pace.learn(surprise)

    def _keep(self, rows_B: IntArray, newest_B: IntArray, experts: Experts, first_B: Levels) -> None:
        """Store what the three know now."""
        alpha_EB, beta_EB = parameters(experts.mean_EB, experts.overlap_EB)
        self._own_NE[rows_B] = np.concatenate([alpha_EB - first_B.alpha, beta_EB - first_B.beta]).T
        self._weight_NE[rows_B] = experts.weight_EB[:-1].T
        alpha_B, beta_B = parameters(*experts.moments())
        noise_EB = experts.weight_EB * (1.0 - experts.overlap_EB) * experts.mean_EB * (1.0 - experts.mean_EB)
        self._columns.last_N[rows_B] = newest_B
        self._columns.alpha_N[rows_B] = alpha_B - first_B.alpha
        self._columns.beta_N[rows_B] = beta_B - first_B.beta
        self._columns.speed_N[rows_B] = np.sum(noise_EB * SPEED_E1, axis=0) / np.sum(noise_EB, axis=0)

    def beliefs(self, rows: IntArray | None = None) -> Beliefs:
        columns, category_N = self._columns, self._levels.category_N
        if rows is not None:
            check_rows(rows, self._num_rows)
            columns, category_N = columns.take(rows), category_N[rows]
        return self._moment().read(columns, category_N)

    def pass_rates(self) -> Beliefs:
        return self._moment().read(self._columns, self._levels.category_N, evidence=False)

    def _moment(self) -> Moment:
        return Moment(
            version=self._version,
            drift=self._pace.drift,
            process_noise=self._pace.process_noise,
            return_rate=self._return_rate,
            jump_share=self._pace.jump_share,
            first=self._first_levels(),
            newest=self._newest_levels(),
        )

    def discount(self, kept: float) -> None:
        """Alpha and beta beyond the category's are rollouts; the experts' weights stay."""
        require_between("discount", kept, 0.0, 1.0)
        share = np.float32(kept)
        self._own_NE *= share
        self._columns.alpha_N[:] *= share
        self._columns.beta_N[:] *= share

    def state(self) -> State:
        columns = self._columns
        return {
            **self._levels.state(),
            **self._pace.state(),
            "version": np.array(self._version, dtype=np.int64),
            "last_N": columns.last_N.copy(),
            "alpha_N": columns.alpha_N.copy(),
            "beta_N": columns.beta_N.copy(),
            "speed_N": columns.speed_N.copy(),
            **{name: self._own_NE[:, e].copy() for e, name in enumerate(OWN_COLUMNS)},
            **{name: self._weight_NE[:, e].copy() for e, name in enumerate(WEIGHT_COLUMNS)},
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        check_state(state, self.state(), rows_from="category_N")
        self._version = int(state["version"])
        self._columns = Columns(
            last_N=np.array(state["last_N"]),
            alpha_N=np.array(state["alpha_N"]),
            beta_N=np.array(state["beta_N"]),
            speed_N=np.array(state["speed_N"]),
        )
        self._own_NE = np.stack([state[name] for name in OWN_COLUMNS], axis=1)
        self._weight_NE = np.stack([state[name] for name in WEIGHT_COLUMNS], axis=1)
        self._levels.load_state(state)
        self._pace.load_state(state)

    def _first_levels(self) -> Levels:
        pace = self._pace
        return self._levels.first(version=self._version, drift=pace.drift, strength=pace.strength)

    def _newest_levels(self) -> Levels:
        return self._levels.newest(strength=self._pace.strength)

    @property
    def _return_rate(self) -> float:
        """Per version: after 1 / this, weights are half-way back and half of the jumps have happened."""
        return RETURN_RATE * max(self._pace.process_noise, LEAST_RETURN_NOISE)

    def _gone(self, lag_B: FloatArray) -> FloatArray:
        """Share of the way back to SHARE_E1, and of all jumps, after so many versions."""
        return np.asarray(1.0 - 1.0 / (1.0 + self._return_rate * lag_B))


def _strength_score(groups: Observations, mean_B: FloatArray, overlap_B: FloatArray, first_B: Levels) -> FloatArray:
    """Slope of the log likelihood in the log of the strength of categories, which scales the first level's alpha, beta.

    By a central difference, as if the average belief held all of them still.
    """
    alpha_B, beta_B = parameters(mean_B, overlap_B)
    steps = np.array([[-STRENGTH_STEP], [STRENGTH_STEP]])
    alpha_SB = np.maximum(alpha_B + steps * first_B.alpha, LEAST_PARAMETER / 2.0)
    beta_SB = np.maximum(beta_B + steps * first_B.beta, LEAST_PARAMETER / 2.0)
    weaker_B, stronger_B = losses(alpha_SB / (alpha_SB + beta_SB), 1.0 / (alpha_SB + beta_SB + 1.0), groups)
    return np.asarray((weaker_B - stronger_B) / (2.0 * STRENGTH_STEP))


def _slopes(chance_EB: FloatArray) -> FloatArray:
    """Change of each expert's chance per unit of log speed, from its neighbours."""
    rise_EB, run_E = np.diff(chance_EB, axis=0), np.diff(LOG_SPEED_E)
    middle_B = (chance_EB[2] - chance_EB[0]) / (LOG_SPEED_E[2] - LOG_SPEED_E[0])
    return np.stack([rise_EB[0] / run_E[0], middle_B, rise_EB[1] / run_E[1]])
