"""How good the predictions stored at the draws were, by purpose, by the age of the evidence and by where it came from.

`selector.audit.accounts` calls it. From columns of issued tickets to what `predictors.scores` scores, and from scores
to what the audit shows; it scores nothing itself.

Of every group that came back, the belief of its draw is scored against it: predictions were made before, so this is
honest on selected tickets too; those of the audit speak for the pool. Axes: B groups.
"""

from dataclasses import dataclass

import numpy as np

from predictors.base import NEVER
from predictors.calibration import Reliability, reliability
from predictors.scores import Buckets, Came, Losses, Predicted, Scored
from selector.audit.issued import Bools, Integers, Issued, own_lag
from selector.run.state import RunState
from selector.types import TicketState

LAGS: Buckets = (
    ("0", 0, 0), ("1", 1, 1), ("2 to 3", 2, 3), ("4 to 7", 4, 7), ("8 to 15", 8, 15), ("16 to 31", 16, 31),
    ("32 or more", 32, 2**62),
)  # fmt: skip
"""Names, and least and largest versions since the prompt's own newest group."""

LEAST_CHECKED = 200
"""Audit groups from which on the width of beliefs is checked."""

CENTRAL, MOST_OFF, MOST_ERRORS = 0.9, 0.05, 4.0
"""Share of groups that should be central, how far from it the audit's may be, and in how many standard errors, as it is
looked at again and again."""

EDGE = 1e-9  # stored beliefs are kept so far inside of what the scores take
GOLDEN = (5**0.5 - 1) / 2


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
    central_error: float | None  # its standard error, prompts as clusters


NO_SCORES = Scores(
    groups=0,
    predicted=None,
    observed=None,
    log_loss=None,
    informative_predicted=None,
    informative_observed=None,
    brier=None,
    informative_log_loss=None,
    central=None,
    central_error=None,
)


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
    losses = Losses.of(_predicted(state, issued, used_M), _came(issued, used_M), ranked=False)
    predicted, came, audit_B = losses.predicted, losses.came, issued.audit_M[used_M]
    own_B = predicted.lag_B != NEVER

    def shown(chosen_B: Bools) -> Scores:
        return _shown(losses.over("", chosen_B)) if chosen_B.any() else NO_SCORES

    judged_B = came.judged_B
    return Calibration(
        overall=shown(np.ones(own_B.size, bool)),
        by_purpose={name: shown(mask_B) for name, mask_B in (("audit", audit_B), ("train", ~audit_B))},
        by_lag={scored.name: _shown(scored) for scored in losses.by_lag(LAGS)},
        by_evidence={"own groups": shown(own_B), "other prompts or the prior": shown(~own_B)},
        pass_rate=_bins(reliability(predicted.mean_B, came.passes_B / came.scored_B)),
        informative=_bins(reliability(predicted.informative_B[judged_B], came.informative_B[judged_B])),
    )


def wrong_width(found: Calibration) -> list[str]:
    """Whether beliefs are surer, or less sure, than the audit bears out. An estimator learns how fast pass rates
    move from all groups; these were drawn uniformly, so they check it for the pool.
    """
    audit = found.by_purpose["audit"]
    if audit.groups < LEAST_CHECKED or audit.central is None or audit.central_error is None:
        return []
    off = audit.central - CENTRAL
    if abs(off) <= max(MOST_OFF, MOST_ERRORS * audit.central_error):
        return []
    return [
        f"of {audit.groups} audit groups {audit.central:.0%} came out within the middle {CENTRAL:.0%} of what was "
        f"predicted: beliefs are {'less sure' if off > 0 else 'surer'} than they should be, so predicted yields are "
        "off; compare `calibration` with that of another estimator"
    ]


def _predicted(state: RunState, issued: Issued, used_M: Bools) -> Predicted:
    mean_B = np.clip(issued.pass_rate_M[used_M], EDGE, 1 - EDGE)
    lag_B = own_lag(state, issued)[used_M]
    return Predicted(
        mean_B=mean_B,
        variance_B=np.minimum(issued.variance_M[used_M], mean_B * (1 - mean_B) * (1 - EDGE)),
        informative_B=np.clip(issued.informative_M[used_M], 0.0, 1.0),
        lag_B=np.where(lag_B < 0, NEVER, lag_B),
    )


def _came(issued: Issued, used_M: Bools) -> Came:
    table = issued.table
    scored_B: Integers = table["scored"][used_M].astype(np.int64)
    return Came(
        passes_B=np.clip(table["passes"][used_M], 0.0, scored_B),
        scored_B=scored_B,
        informative_B=table["informative"][used_M] == 1,
        judged_B=table["informative"][used_M] >= 0,
        prompt_B=issued.row_M[used_M],
        # Evenly spread over [0, 1), blind to outcomes and to what a restore discarded: the audit says the same however
        # often it is asked, and of a run that was interrupted too.
        uniform_B=np.modf(np.flatnonzero(used_M) * GOLDEN)[0],
    )


def _shown(scored: Scored) -> Scores:
    return Scores(
        groups=scored.count,
        predicted=scored.predicted,
        observed=scored.observed,
        log_loss=scored.log_loss,
        informative_predicted=scored.informative_predicted,
        informative_observed=scored.informative_observed,
        brier=scored.informative_brier,
        informative_log_loss=scored.informative_log_loss,
        central=scored.coverage,
        central_error=scored.coverage_error,
    )


def _bins(found: Reliability) -> tuple[Reliable, ...]:
    """Those that hold any group."""
    num = len(found.count_R)
    return tuple(
        Reliable(
            low=code / num,
            high=(code + 1) / num,
            groups=int(found.count_R[code]),
            predicted=float(found.forecast_R[code]),
            observed=float(found.frequency_R[code]),
        )
        for code in np.flatnonzero(found.count_R).tolist()
    )
