"""What one policy did in a replay, round by round, and the figures drawn from it.

Filled by `trainer.replay.loop`, read by the table, the picture and the JSON lines. Axes: R rounds, N prompts.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.schemas import AuditInfo
from trainer.replay.arms import PolicyArm

WARM_UP_ROUNDS = 5  # before them a policy has seen too little to differ from uniform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rounds:
    """One entry a round."""

    groups_R: Ints  # tickets drawn and reported
    rollouts_R: Ints
    informative_R: Ints  # groups, by the service's verdict
    never_seen_R: Ints  # prompts no ticket has named so far
    selected_R: Floats  # mean outcome over all groups of the round: what a reward curve shows
    reweighted_R: Floats  # sum of outcome/(N·π): an unbiased view of the whole pool, noisy for a single round
    weights_R: Floats  # sum of 1/(N·π), 1 on average: dividing by it over many rounds takes most of the noise out
    pool_R: Floats  # mean pass rate of the whole pool, which only a replay knows
    audit_groups_R: Ints
    log_loss_R: Floats  # nats a rollout, prediction at the draw against outcome, audit tickets only; NaN: none
    brier_R: Floats  # mean squared difference, the same tickets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayResult:
    """One policy's replay."""

    arm: PolicyArm
    run: str
    pool: str
    record: str  # name of the record's file
    num_prompts: int
    batch_size: int
    group_size: int
    seed: int
    audit_share: float
    rounds: Rounds
    stopped: str | None  # why the service returned no tickets before the record ended; None: it ended
    audit: AuditInfo
    wall_s: float  # draws, reports and audit, of this run of the replay
    resumed: bool  # groups were known to the service from an earlier replay: wall_s is then no measure

    @property
    def num_groups(self) -> int:
        return int(self.rounds.groups_R.sum())

    @property
    def num_rollouts(self) -> int:
        return int(self.rounds.rollouts_R.sum())

    @property
    def num_informative(self) -> int:
        return int(self.rounds.informative_R.sum())

    @property
    def never_seen(self) -> int:
        """Prompts that were never drawn."""
        return int(self.rounds.never_seen_R[-1]) if len(self.rounds.never_seen_R) else self.num_prompts

    @property
    def informative_share(self) -> float:
        """Of all groups; NaN if there was none."""
        return _ratio(self.num_informative, self.num_groups)

    @property
    def settled_share(self) -> float:
        """Informative share after the warm-up; NaN if the replay was no longer than that."""
        rounds = self.rounds
        return _ratio(int(rounds.informative_R[WARM_UP_ROUNDS:].sum()), int(rounds.groups_R[WARM_UP_ROUNDS:].sum()))

    @property
    def informative_per_100_rollouts(self) -> float:
        return 100 * _ratio(self.num_informative, self.num_rollouts)

    @property
    def log_loss(self) -> float:
        """Nats a rollout over all audit tickets; NaN without an audit."""
        return _weighted(self.rounds.log_loss_R, self.rounds.audit_groups_R)

    @property
    def brier(self) -> float:
        return _weighted(self.rounds.brier_R, self.rounds.audit_groups_R)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _weighted(values_R: Floats, weights_R: Ints) -> float:
    total = int(weights_R.sum())
    return float(np.where(weights_R > 0, values_R * weights_R, 0.0).sum()) / total if total else float("nan")
