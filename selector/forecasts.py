"""How good the predictions stored at the draws were, by purpose, by the age of the evidence and by where it came from.

`selector.accounts` calls it. Knows columns of issued tickets; nothing of estimators.

Of every group that came back, the belief of its draw is scored against it: predictions were made before, so this is
honest on selected tickets too; those of the audit speak for the pool. Axes: B groups, R bins.
"""

from dataclasses import dataclass

import numpy as np

from predictors.calibration import beta_binomial_log_loss, brier, log_loss, randomised_pit
from selector.issued import Bools, Floats, Integers, Issued, own_lag
from selector.state import RunState
from selector.types import TicketState

LAGS = (0, 1, 2, 4, 8, 16, 32)  # first lag of each bin
CENTRAL = (0.05, 0.95)
EDGE = 1e-9  # stored beliefs are kept so far inside of what the scores take
GOLDEN = (5**0.5 - 1) / 2
NUM_BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Means over groups; None where no group has one."""

    groups: int
    predicted: float | None  # pass rate
    observed: float | None
    log_loss: float | None  # of the passes, nats a group
    informative_predicted: float | None
    informative_observed: float | None
    brier: float | None  # of "the group is informative"
    informative_log_loss: float | None
    central: float | None  # share of the randomised PIT in [.05, .95]: .9 if beliefs are as wide as they should be


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliable:
    """One bin of forecasts: what was said and what came."""

    low: float
    high: float
    groups: int
    predicted: float
    observed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """`by_lag`: versions since the prompt's own newest group. `by_evidence`: whether it had one."""

    overall: Scores
    by_purpose: dict[str, Scores]
    by_lag: dict[str, Scores]
    by_evidence: dict[str, Scores]
    pass_rate: tuple[Reliable, ...]
    informative: tuple[Reliable, ...]


def calibration(state: RunState, issued: Issued) -> Calibration:
    """Of groups that came back whole and could not be stopped by their outcomes."""
    table = issued.table
    used_M = (table["state"] == TicketState.REPORTED) & (table["scored"] == table["group_size"]) & ~issued.in_waves_M
    groups = _Groups.of(issued, used_M)
    lag_B, audit_B = own_lag(state, issued)[used_M], issued.audit_M[used_M]
    bin_B = np.searchsorted(LAGS, lag_B, side="right") - 1
    return Calibration(
        overall=groups.scores(np.ones(lag_B.size, bool)),
        by_purpose={name: groups.scores(mask) for name, mask in (("audit", audit_B), ("train", ~audit_B))},
        by_lag={_lag_name(code): groups.scores(bin_B == code) for code in range(len(LAGS)) if (bin_B == code).any()},
        by_evidence={"own groups": groups.scores(lag_B >= 0), "other prompts or the prior": groups.scores(lag_B < 0)},
        pass_rate=_reliability(groups.mean_B, groups.share_B, np.ones(lag_B.size, bool)),
        informative=_reliability(groups.informative_B, groups.is_informative_B.astype(np.float64), groups.judged_B),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """Losses of each group, made once."""

    mean_B: Floats
    share_B: Floats
    loss_B: Floats
    pit_B: Floats  # NaN for graded sums that are no whole number
    informative_B: Floats
    is_informative_B: Bools
    judged_B: Bools

    @classmethod
    def of(cls, issued: Issued, used_M: Bools) -> "_Groups":
        table = issued.table
        mean_B = np.clip(issued.pass_rate_M[used_M], EDGE, 1 - EDGE)
        variance_B = np.minimum(issued.variance_M[used_M], mean_B * (1 - mean_B) * (1 - EDGE))
        scored_B: Integers = table["scored"][used_M].astype(np.int64)
        passes_B = np.clip(table["passes"][used_M], 0.0, scored_B)
        whole_B = passes_B == np.rint(passes_B)
        # Evenly spread over [0, 1), blind to outcomes and to what a restore discarded: the audit says the same however
        # often it is asked, and of a run that was interrupted too.
        chance_B = np.modf(np.flatnonzero(used_M) * GOLDEN)[0]
        pit_B = np.full(mean_B.size, np.nan)
        pit_B[whole_B] = randomised_pit(
            mean_B[whole_B], variance_B[whole_B], passes_B[whole_B], scored_B[whole_B], chance_B[whole_B]
        )
        return cls(
            mean_B=mean_B,
            share_B=passes_B / np.maximum(scored_B, 1),
            loss_B=beta_binomial_log_loss(mean_B, variance_B, passes_B, scored_B),
            pit_B=pit_B,
            informative_B=np.clip(issued.informative_M[used_M], 0.0, 1.0),
            is_informative_B=table["informative"][used_M] == 1,
            judged_B=table["informative"][used_M] >= 0,
        )

    def scores(self, chosen_B: Bools) -> Scores:
        judged_B = chosen_B & self.judged_B
        forecast, event = self.informative_B[judged_B], self.is_informative_B[judged_B]
        pit = self.pit_B[chosen_B]
        pit = pit[np.isfinite(pit)]
        return Scores(
            groups=int(np.count_nonzero(chosen_B)),
            predicted=_mean(self.mean_B[chosen_B]),
            observed=_mean(self.share_B[chosen_B]),
            log_loss=_mean(self.loss_B[chosen_B]),
            informative_predicted=_mean(forecast),
            informative_observed=_mean(event.astype(np.float64)),
            brier=_mean(brier(forecast, event.astype(np.float64))),
            informative_log_loss=_mean(log_loss(forecast, event)),
            central=_mean(((pit >= CENTRAL[0]) & (pit <= CENTRAL[1])).astype(np.float64)),
        )


def _reliability(forecast_B: Floats, outcome_B: Floats, chosen_B: Bools) -> tuple[Reliable, ...]:
    """Equal bins of the forecast that hold any group. Shares serve as outcomes too."""
    forecast_B, outcome_B = forecast_B[chosen_B], outcome_B[chosen_B]
    bin_B = np.minimum((forecast_B * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    count_R = np.bincount(bin_B, minlength=NUM_BINS)
    said_R, came_R = (
        np.bincount(bin_B, values, NUM_BINS) / np.maximum(count_R, 1) for values in (forecast_B, outcome_B)
    )
    return tuple(
        Reliable(
            low=code / NUM_BINS,
            high=(code + 1) / NUM_BINS,
            groups=int(count_R[code]),
            predicted=float(said_R[code]),
            observed=float(came_R[code]),
        )
        for code in np.flatnonzero(count_R).tolist()
    )


def _lag_name(code: int) -> str:
    if code == len(LAGS) - 1:
        return f"{LAGS[code]} or more"
    low, high = LAGS[code], LAGS[code + 1] - 1
    return str(low) if low == high else f"{low} to {high}"


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if values.size else None
