"""Rewards of prompts that have no outcome, such as a reward model's scores: their mean, their spread, their ties.

Called by the engine, which feeds it closed groups of rewards, and read by utilities and tickets where an estimator of
pass rates has nothing to say. Knows rows, categories, rewards and policy versions; must not know tickets, purposes or
HTTP. A row takes 32 bytes, and none before the first reward. Axes: N rows, C categories, B groups.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from predictors.base import NEVER, FloatArray, IntArray, State, check_categories, check_rows, require_between
from predictors.learned_rate import FACTORS, LearnedRate
from predictors.reward_groups import RewardGroups
from predictors.reward_levels import LOG_RANGE, MAX_SURPRISE, RewardLevels, log_variances
from predictors.reward_ties import RewardTies

BLOCK_ROWS = 8192
"""Rows read at once: a dozen float64 buffers of this length fit in a second-level cache."""

LAST_VERSION = 2**31 - 1  # that is told apart: four bytes a row; later ones count as this one

REFERENCE_SIZE = 8
"""Rollouts of the group whose expected variance says how noisy rewards are when means are shrunk."""

TRACK_WEIGHT = 8.0
"""Groups of rows tried before that it takes to believe half of a common movement in one call."""

WANDER_START = 1e-4
"""Variance by which a row's mean wanders per version, to start with, as a share of that between rows."""

MOST_SPREAD_WEIGHT = 24.0
"""Precision that a row's own spread is known with at most: older groups fade. A group of 8 adds about 3."""

LEAST_NOISE = 1e-6
"""Least noise of a reward, as a share of the variance between rows."""

ROW_COLUMNS: dict[str, type[np.generic]] = {
    "mean_N": np.float32,  # own rewards less the track at the time
    "count_N": np.float32,  # rollouts that mean is worth; 0 without any
    "log_spread_N": np.float32,  # log of the variance among siblings, over groups that were not all alike
    "spread_weight_N": np.float32,  # its precision
    "last_N": np.int32,  # newest version of the evidence
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardBeliefs:
    """What is thought of rewards under the current policy, for some rows. All (N,)."""

    mean_N: FloatArray  # expected reward
    mean_variance_N: FloatArray  # how unsure that is, not the noise of a rollout
    informative_N: FloatArray  # P(a group's rewards are not all alike), for the size asked for
    variance_N: FloatArray  # expected variance among siblings: informative times that of groups that differ
    deviation_N: FloatArray  # expected standard deviation among siblings of a group that differs
    n_eff_N: FloatArray  # own rollouts it is worth, after ageing, were they to differ; 0 = never rewarded
    lag_N: IntArray  # versions since the newest own reward, NEVER without any

    def take(self, index: IntArray) -> "RewardBeliefs":
        """Those at these places."""
        return RewardBeliefs(**{field.name: getattr(self, field.name)[index] for field in fields(self)})


class Rewards:
    """The reward of a rollout of row i in category c = track + m_i + e, var(e) = s_i; how often siblings' are equal is
    in `reward_ties`.

    m_i ~ N(m_c, t) at first sight and wanders by w t per version: n own rollouts have the noise s_i / n, and after
    `lag` versions count as n / (1 + n w lag t / s_i). The track takes up what rows tried before have moved by in
    common; w climbs the likelihood of what comes. log s_i ~ N(l_c, u): a group that is not all alike shows
    log(variance) with the bias psi(f) - log f and the noise psi'(f), f = (n - 1)/2, of normal rewards. t, u, m_c and
    l_c are those of first groups of rows, which no policy could choose by how they score, by moments; categories are
    shrunk to the pool.
    Nothing depends on the scale of rewards. Deterministic: the same calls give the same bits.
    """

    def __init__(self) -> None:
        self._category_N: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._rows = {name: np.zeros(0, dtype) for name, dtype in ROW_COLUMNS.items()}
        self._track = 0.0  # where rewards of the pool are by now
        self._is_known = False
        self._levels = RewardLevels()
        self._wander = LearnedRate(WANDER_START)
        self._ties = RewardTies()

    @property
    def is_known(self) -> bool:
        """Whether a reward was ever seen."""
        return self._is_known

    @property
    def rewarded_N(self) -> npt.NDArray[np.bool_]:
        """(N,) rows that have rewards of their own."""
        if not self.is_known:
            return np.zeros(self._category_N.size, np.bool_)
        return np.asarray(self._rows["count_N"] > 0.0)

    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        """The pool grew, or categories changed. category_N: (N,) codes >= 0. Old rows keep what is known of them."""
        self._category_N = check_categories(category_N, self._category_N.size)
        self._grow()

    def _grow(self) -> None:
        num_rows = self._category_N.size if self.is_known else 0
        num_categories = int(self._category_N.max(initial=0)) + 1
        self._ties.resize(num_rows, num_categories)
        self._levels.resize(num_categories)
        for name, dtype in ROW_COLUMNS.items():
            column_N = self._rows[name]
            self._rows[name] = np.r_[column_N, np.zeros(num_rows - column_N.size, dtype)]

    def observe(self, groups: RewardGroups) -> None:
        """Learn from closed groups. Raises ValueError for a row outside the pool; then nothing has changed."""
        check_rows(groups.rows_B, self._category_N.size)
        for part in _rounds(groups):
            if not self.is_known:
                self._is_known, self._track = True, float(np.median(part.mean_B))
                self._grow()
            self._update(part)

    def _update(self, groups: RewardGroups) -> None:
        """Rows occur once."""
        rows_B, rows = groups.rows_B, self._rows
        category_B = self._category_N[rows_B]
        tried_B = rows["count_N"][rows_B] > 0.0
        version_B = np.minimum(groups.version_B, LAST_VERSION)
        known_B = np.where(tried_B, rows["last_N"][rows_B], version_B)
        newest_B = np.maximum(known_B, version_B)
        lag_B, late_B = (newest_B - known_B).astype(np.float64), (newest_B - version_B).astype(np.float64)
        new = np.flatnonzero(~tried_B)
        self._levels.start(groups.take(new), category_B[new], self._track)
        before = self._read(rows_B, lag_B, REFERENCE_SIZE)
        self._learn_wander(groups, before, lag_B, tried_B)
        self._track += _common(before, groups, tried_B)
        self._keep(groups, before, lag_B, late_B)
        self._ties.observe(groups, category_B, lag_B, tried_B)
        rows["last_N"][rows_B] = newest_B

    def _keep(self, groups: RewardGroups, before: RewardBeliefs, lag_B: FloatArray, late_B: FloatArray) -> None:
        rows_B, rows, wander = groups.rows_B, self._rows, self._wander.value
        noise_B = self._noise(before.variance_N)
        kept_B = self._faded(rows["count_N"][rows_B], noise_B, lag_B, wander)
        added_B = self._faded(groups.size_B, noise_B, late_B, wander)
        value_B = groups.mean_B - self._track
        rows["mean_N"][rows_B] = (kept_B * rows["mean_N"][rows_B] + added_B * value_B) / (kept_B + added_B)
        rows["count_N"][rows_B] = kept_B + added_B
        told = np.flatnonzero(~groups.is_alike_B)
        if told.size:
            of_U, (log_U, noise_U) = rows_B[told], log_variances(groups.variance_B[told], groups.size_B[told])
            weight_U = rows["spread_weight_N"][of_U].astype(np.float64)
            total_U = weight_U + 1.0 / noise_U
            rows["log_spread_N"][of_U] = (weight_U * rows["log_spread_N"][of_U] + log_U / noise_U) / total_U
            rows["spread_weight_N"][of_U] = np.minimum(total_U, MOST_SPREAD_WEIGHT)

    def beliefs(self, version: int, group_size: int, rows: IntArray | None = None) -> RewardBeliefs:
        """Of these rows, or of all, for groups of this size under this version. Raises ValueError for a row outside the
        pool, a group_size < 1, and while nothing is known.
        """
        if group_size < 1 or not self.is_known:
            raise ValueError(f"there must be a reward and group_size >= 1, got {group_size} and {self.is_known}")
        if rows is not None:
            check_rows(rows, self._category_N.size)
        size = self._category_N.size if rows is None else rows.size
        parts = []
        for start in range(0, max(size, 1), BLOCK_ROWS):
            at = np.arange(start, min(start + BLOCK_ROWS, size)) if rows is None else rows[start : start + BLOCK_ROWS]
            lag_N = np.maximum(min(version, LAST_VERSION) - self._rows["last_N"][at], 0).astype(np.float64)
            parts.append(self._read(at, lag_N, group_size))
        names = [field.name for field in fields(RewardBeliefs)]
        return RewardBeliefs(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def _read(self, at: IntArray, lag_N: FloatArray, group_size: int) -> RewardBeliefs:
        category_N, count_N = self._category_N[at], self._rows["count_N"][at].astype(np.float64)
        tried_N = count_N > 0.0
        informative_N = self._ties.informative(at, category_N, lag_N, tried_N, group_size)
        usual_N = informative_N
        if group_size != REFERENCE_SIZE:
            usual_N = self._ties.informative(at, category_N, lag_N, tried_N, REFERENCE_SIZE)
        weight_N = self._rows["spread_weight_N"][at].astype(np.float64)
        precision_N = weight_N + 1.0 / self._levels.log_between
        log_mean_N = self._levels.log_means()[category_N]
        log_N = log_mean_N + (self._rows["log_spread_N"][at] - log_mean_N) * weight_N / precision_N
        differing_N = np.exp(np.clip(log_N + 0.5 / precision_N, *LOG_RANGE))
        wander = self._wander.value
        mean_N, variance_N = self._mean(at, lag_N, usual_N * differing_N, wander)
        return RewardBeliefs(
            mean_N=mean_N,
            mean_variance_N=variance_N,
            informative_N=informative_N,
            variance_N=informative_N * differing_N,
            deviation_N=np.exp(np.clip(0.5 * log_N + 0.125 / precision_N, *LOG_RANGE)),
            n_eff_N=self._faded(count_N, self._noise(differing_N), lag_N, wander),
            lag_N=np.where(tried_N, lag_N, NEVER).astype(np.int64),
        )

    def _mean(
        self, at: IntArray, lag_N: FloatArray, siblings_N: FloatArray, wander: float
    ) -> tuple[FloatArray, FloatArray]:
        """Expected reward of these rows, and its variance; siblings_N: that among siblings."""
        noise_N = self._noise(siblings_N)
        own_N = self._faded(self._rows["count_N"][at], noise_N, lag_N, wander)
        share_N = own_N / (own_N + noise_N / self._levels.between)
        category_mean_N = self._levels.means()[self._category_N[at]]
        mean_N = self._track + category_mean_N + share_N * (self._rows["mean_N"][at] - category_mean_N)
        return mean_N, self._levels.between * (1.0 - share_N)

    def _noise(self, siblings_N: FloatArray) -> FloatArray:
        """Variance of one reward about its row's mean: never quite none, or a row would be known for ever."""
        return np.maximum(siblings_N, LEAST_NOISE * self._levels.between)

    def _faded(self, count: np.ndarray, noise_N: FloatArray, lag_N: FloatArray, wander: float) -> FloatArray:
        """What `lag` versions leave of so many rollouts."""
        count = np.asarray(count, np.float64)
        return np.asarray(count / (1.0 + count * wander * lag_N * (self._levels.between / noise_N)))

    def _learn_wander(
        self, groups: RewardGroups, before: RewardBeliefs, lag_B: FloatArray, tried_B: npt.NDArray[np.bool_]
    ) -> None:
        told = np.flatnonzero(tried_B & (lag_B > 0.0))
        if not told.size:
            return
        siblings_B, losses = before.variance_N[told], list[FloatArray]()
        noise_B = self._noise(siblings_B) / groups.size_B[told]
        for factor in FACTORS:
            wander = self._wander.value * factor
            mean_B, variance_B = self._mean(groups.rows_B[told], lag_B[told], siblings_B, wander)
            total_B = variance_B + noise_B
            miss_B = np.minimum((groups.mean_B[told] - mean_B) ** 2 / total_B, MAX_SURPRISE**2)
            losses.append(0.5 * (miss_B + np.log(total_B)))
        self._wander.learn(*losses)

    def discount(self, kept: float) -> None:
        """Let each row's own rewards count as this share of their rollouts, as `Estimator.discount`."""
        require_between("discount", kept, 0.0, 1.0)
        for name in ("count_N", "spread_weight_N"):
            self._rows[name] *= np.float32(kept)
        self._ties.discount(kept, self._category_N[: self._rows["count_N"].size])

    def state(self) -> State:
        """Copies of everything needed to go on bit for bit: plain numeric arrays."""
        return {
            "category_N": self._category_N.copy(),
            **{name: column_N.copy() for name, column_N in self._rows.items()},
            "track": np.array(self._track),
            "known": np.array(float(self._is_known)),
            **self._levels.state(),
            "wander": self._wander.state(),
            **{f"ties.{name}": array for name, array in self._ties.state().items()},
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Become the one that gave this state, its number of rows included. Raises ValueError for arrays that are
        unknown, missing, wrong-shaped or wrong-typed; then nothing has changed.
        """
        self._check(state)
        self._ties.load_state({k.removeprefix("ties."): v for k, v in state.items() if k.startswith("ties.")})
        self._category_N = np.array(state["category_N"])
        self._rows = {name: np.array(state[name]) for name in ROW_COLUMNS}
        self._track, self._is_known = float(state["track"]), bool(state["known"] > 0.0)
        self._levels.load_state(state)
        self._wander = LearnedRate.from_state(state["wander"])

    def _check(self, state: Mapping[str, np.ndarray]) -> None:
        like = self.state()
        if set(state) != set(like):
            raise ValueError(
                f"state of rewards does not fit: missing {sorted(set(like) - set(state))}, "
                f"unknown {sorted(set(state) - set(like))}"
            )
        num_rows, num_categories = np.size(state["category_N"]), np.size(state["groups_C"])
        kept_rows = num_rows if np.any(state["known"]) else 0
        for name, example in like.items():
            array, shape = np.asarray(state[name]), example.shape
            if name.endswith("_N"):
                shape = (num_rows if name == "category_N" else kept_rows,)
            elif name.endswith("_C"):
                shape = (num_categories,)
            if array.dtype != example.dtype or array.shape != shape or not np.isfinite(array).all():
                raise ValueError(
                    f"state of rewards {name!r} must be finite {example.dtype} of shape {shape}, got {array.dtype} of "
                    f"{array.shape}"
                )


def _common(before: RewardBeliefs, groups: RewardGroups, tried_B: npt.NDArray[np.bool_]) -> float:
    """By how much rows that were tried before have moved in common: their mean error by precision, held back."""
    expected_B = before.mean_variance_N + before.variance_N / groups.size_B
    told = np.flatnonzero(tried_B & (expected_B > 0.0))
    if not told.size:
        return 0.0
    limit_B = MAX_SURPRISE * np.sqrt(expected_B[told])
    error_B = np.clip(groups.mean_B[told] - before.mean_N[told], -limit_B, limit_B)
    weight_B = expected_B[told].min() / expected_B[told]
    count = float(weight_B.sum()) ** 2 / float(np.sum(weight_B**2))
    return float(np.average(error_B, weights=weight_B)) * count / (count + TRACK_WEIGHT)


def _rounds(groups: RewardGroups) -> Iterator[RewardGroups]:
    """Split so that a row occurs at most once in each part and its groups keep their order over the parts."""
    left = np.arange(groups.rows_B.size)
    while left.size:
        _, first = np.unique(groups.rows_B[left], return_index=True)
        first = np.sort(first)
        yield groups.take(left[first])
        left = np.delete(left, first)
