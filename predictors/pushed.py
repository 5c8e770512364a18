"""A belief that the trainer pushed, such as a value network's, as the prior of each prompt. Registered as `value`.

With own evidence left out, a reconstruction of what PCL (arXiv 2510.01135) knows of a prompt: the value network itself
is the trainer's. Built by the registry. Axes: N rows, B groups, C categories.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from predictors.base import NEVER, Column, FloatArray, IntArray, Observations, State, require_between
from predictors.discounted_beta import DiscountedBeta, DiscountedBetaConfig
from predictors.experts import MEAN_EDGE, aged, parameters
from predictors.names import VALUE, pass_rates
from predictors.rows import MIN_N_EFF, Reader, Reading, Rows

TRUST_GROUPS = 16.0
"""Groups that the start counts for in what is learned: values are taken as they are, their errors as START_OVERLAP."""

START_OVERLAP = 0.2
"""Variance of p around the value, over m (1 - m), before anything is known: a value is worth 4 rollouts."""

OVERLAP_RANGE = (1e-3, 0.95)
"""What is learned of it stays in here: a value is worth at most 999 rollouts."""

MEMORY_GROUPS = 2000.0
"""Groups over which what was learned fades by a factor of e, as the value network learns too."""

SUMS = (
    "groups", "value", "value_value", "rate", "value_rate", "rate_rate", "groups_n", "value_n", "value_value_n", "lag",
)  # fmt: skip
"""Sums over groups, all fading: of 1, v, v v, y = k/n, v y, y y; of 1, v and v v again over n; of the value's lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How pass rates follow from values: m = a + b v, with a variance of overlap m (1 - m) around it."""

    a: float
    b: float
    overlap: float
    usual_lag: float  # versions by which groups came after their values

    def mean(self, value_N: FloatArray) -> FloatArray:
        """m, in (0, 1)."""
        return np.asarray(np.clip(self.a + self.b * value_N, MEAN_EDGE, 1.0 - MEAN_EDGE))


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedValueConfig(DiscountedBetaConfig):
    """Options; `process_noise` ages a value as it ages own evidence."""

    own_share: float = 1.0
    """Share of own evidence that counts beside a value; 0 believes values alone, as PCL does."""

    def __post_init__(self) -> None:
        DiscountedBetaConfig.__post_init__(self)
        require_between("own_share", self.own_share, 0.0, 1.0)


class PushedValue(DiscountedBeta):
    """Beta(m c, (1 - m) c) from a pushed value v, and own groups on top of it as in `DiscountedBeta`.

    m = a + b v, a line fitted to k/n of the first group of each prompt after its value was made: which prompts are
    tried first does not depend on how they will score, while later on selection looks for those that disagree. c comes
    from how far these groups were from m beyond their own noise: with r = variance of p over m (1 - m), the mean of
    (k/n - m)^2 is m (1 - m) (r + (1 - r)/n). Both start from "as it is" and START_OVERLAP. A value that is older than
    values were on average when they were tested has aged by process_noise per version in arcsin(sqrt(p)), as beliefs do
    in `experts.aged`. A prompt without a value has the prior that DiscountedBeta has.

    Own groups count as if the value had not seen them. A value network trained on them says less than that once c is
    learned from groups that it had seen; here c is learned only from groups that came after the value.
    """

    name = "value"
    reads_columns = True

    def __init__(self, config: PushedValueConfig) -> None:
        super().__init__(config)
        self._own_share = config.own_share
        self._sums = dict.fromkeys(SUMS, 0.0)
        self._value_N: FloatArray = np.empty(0)
        self._made_N: IntArray | None = None

    @classmethod
    def config_type(cls) -> type[PushedValueConfig]:
        return PushedValueConfig

    def resize(self, category_N: npt.NDArray[np.int32]) -> None:
        super().resize(category_N)
        added = self._last_N.shape[0] - self._value_N.shape[0]
        self._value_N = np.r_[self._value_N, np.full(added, np.nan)]
        if self._made_N is not None:
            self._made_N = np.r_[self._made_N, np.zeros(added, np.int64)]

    def attach(self, columns: Mapping[str, Column]) -> None:
        self._value_N = pass_rates(columns, VALUE, self._last_N.shape[0])
        self._made_N = columns[VALUE].version_N if VALUE in columns else None

    def _update(self, groups: Observations, newest_B: IntArray) -> None:
        self._learn(groups)
        super()._update(groups, newest_B)

    def _learn(self, groups: Observations) -> None:
        """Compare values with the groups that came after them."""
        lag_B = groups.version_B - self._made(groups.rows_B, groups.version_B)
        last_B = self._last_N[groups.rows_B]
        is_first_B = last_B == NEVER if self._made_N is None else last_B < self._made_N[groups.rows_B]
        tested = np.flatnonzero(~np.isnan(self._value_N[groups.rows_B]) & (lag_B >= 0) & is_first_B)
        if not tested.size:
            return
        scored_B = groups.scored_B[tested].astype(np.float64)
        value_B, rate_B = self._value_N[groups.rows_B[tested]], groups.passes_B[tested] / scored_B
        added = (
            np.ones_like(value_B), value_B, value_B**2, rate_B, value_B * rate_B, rate_B**2,
            1.0 / scored_B, value_B / scored_B, value_B**2 / scored_B, lag_B[tested].astype(np.float64),
        )  # fmt: skip
        kept = np.exp(-tested.size / MEMORY_GROUPS)
        for name, values in zip(SUMS, added, strict=True):
            self._sums[name] = kept * self._sums[name] + float(values.sum())

    @property
    def fit(self) -> "Fit":
        """What is known of values. The start is TRUST_GROUPS groups on the line y = v, with v uniform in [0, 1]."""
        sums, start = self._sums, TRUST_GROUPS
        groups = sums["groups"] + start
        value, rate = (sums["value"] + start / 2.0) / groups, (sums["rate"] + start / 2.0) / groups
        variance = (sums["value_value"] + start / 3.0) / groups - value**2
        b = max(((sums["value_rate"] + start / 3.0) / groups - value * rate) / variance, 0.0)
        a = rate - b * value
        # Sums over the groups of m^2, of m (1 - m), of the same over n, and of (y - m)^2.
        square = a**2 * sums["groups"] + 2.0 * a * b * sums["value"] + b**2 * sums["value_value"]
        spread = a * sums["groups"] + b * sums["value"] - square
        noise = a * (1.0 - a) * sums["groups_n"] + (b - 2.0 * a * b) * sums["value_n"] - b**2 * sums["value_value_n"]
        error = sums["rate_rate"] - 2.0 * (a * sums["rate"] + b * sums["value_rate"]) + square
        start /= 6.0  # m (1 - m) on average over uniform values
        overlap = (error - noise + start * START_OVERLAP) / (max(spread - noise, 0.0) + start)
        usual_lag = sums["lag"] / max(sums["groups"], 1.0)
        return Fit(a=a, b=b, overlap=float(np.clip(overlap, *OVERLAP_RANGE)), usual_lag=usual_lag)

    def _made(self, at: Rows, otherwise: IntArray) -> IntArray:
        """Versions at which the values of these rows were made; `otherwise` for values of any version."""
        return otherwise if self._made_N is None else self._made_N[at]

    def _row_priors(self, rows_B: IntArray) -> tuple[FloatArray, FloatArray]:
        return self._with_values(*super()._row_priors(rows_B), self.fit, rows_B)

    def _reader(self) -> Reader:
        return partial(self._read_value, *self._prior_parameters(), self.fit)

    def _read_value(self, alpha_C: FloatArray, beta_C: FloatArray, fit: "Fit", at: Rows, now_N: IntArray) -> Reading:
        category_N = self._prior.category_N[at]
        alpha_N, beta_N = self._with_values(alpha_C[category_N], beta_C[category_N], fit, at)
        share_N = np.where(np.isnan(self._value_N[at]), 1.0, self._own_share)
        mean_N, variance_N, n_eff_N = self._posterior(alpha_N, beta_N, at, now_N, share_N)
        return mean_N, variance_N, np.maximum(n_eff_N, MIN_N_EFF)

    def _with_values(
        self, alpha_N: FloatArray, beta_N: FloatArray, fit: "Fit", at: Rows
    ) -> tuple[FloatArray, FloatArray]:
        """These priors, which are changed, with those of the values of rows that have one in their place."""
        value_N = self._value_N[at]
        has = np.flatnonzero(~np.isnan(value_N))
        if has.size:
            made_N = self._made(at, np.full(value_N.shape, self._version))[has]
            wander_N = self._config.process_noise * np.maximum(self._version - made_N - fit.usual_lag, 0.0)
            alpha, beta = parameters(fit.mean(value_N[has]), np.full(has.size, fit.overlap))
            mean_N, overlap_N = aged(alpha, beta, np.zeros(has.size), wander_N)
            alpha_N[has], beta_N[has] = parameters(mean_N, overlap_N)
        return alpha_N, beta_N

    def state(self) -> State:
        return {**super().state(), **{f"sum_{name}": np.array(value) for name, value in self._sums.items()}}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().load_state(state)
        self._sums = {name: float(state[f"sum_{name}"]) for name in SUMS}
        self._value_N, self._made_N = np.full(self._last_N.shape[0], np.nan), None
