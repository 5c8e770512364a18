"""The informative rule and the closing of a group: one place, used by reports and by expiry.

A group is informative when its rewards (or outcomes, as the run says) differ by more than the run's tolerance over the
rollouts that were scored. Infrastructure errors and unscored rollouts have no say.
"""

from collections.abc import Callable, Sequence
from math import fsum

from selector.config import RunConfig
from selector.run.events import Closing
from selector.types import RolloutStatus, VoidReason

COUNTED = (RolloutStatus.OK, RolloutStatus.TRUNCATED)
GIVES_REWARD = (RolloutStatus.REWARDED, RolloutStatus.TRUNCATED)
"""Of rollouts without an outcome: those whose reward may count by itself."""


def judge(
    outcomes: Sequence[float | None],
    rewards: Sequence[float | None],
    statuses: Sequence[int],
    *,
    config: RunConfig,
    void: VoidReason | None = None,
    expired: bool = False,
    may_be_silent: bool = False,
    rewards_count: Callable[[], bool] | None = None,
    prior: Sequence[tuple[float | None, float | None, int]] = (),
) -> Closing:
    """How a group closes with these rollouts, in any order.

    `void`: it ends without counting, for this reason. `expired`: its deadline passed; it counts if it has enough.
    `may_be_silent`: that nothing came back says something, `beliefs.silence`. `rewards_count`: asked of a group without
    any outcome that has rewards, whether it counts by them. `prior`: outcome, reward and status of what the group
    begins with; it has a say in the verdict and is counted nowhere.
    """
    scored = [
        (outcome, reward)
        for outcome, reward, status in zip(outcomes, rewards, statuses, strict=True)
        if outcome is not None and status in COUNTED
    ]
    passes = fsum(outcome for outcome, _ in scored)  # exact, so the order of arrival changes nothing
    whole = [*scored, *((outcome, reward) for outcome, reward, _ in prior)]
    by_outcome = is_informative([outcome for outcome, _ in whole], config.tolerance)
    by_reward = is_informative([reward for _, reward in whole], config.tolerance)
    rewarded = _rewards_alone(outcomes, rewards, statuses) if rewards_count is not None and not scored else []
    if rewarded and rewards_count is not None and rewards_count():
        by_outcome = by_reward = is_informative([*rewarded, *(reward for _, reward, _ in prior)], config.tolerance)
    else:
        rewarded = []
    enough = max(len(scored), len(rewarded)) >= config.min_rollouts
    reason = VoidReason.NONE if enough else _why_too_few(statuses, expired)
    if may_be_silent and not statuses:
        reason = VoidReason.SILENT
    if void is not None:
        reason = void
    reported = reason is VoidReason.NONE
    return Closing(
        reported=reported,
        reason=reason,
        scored=len(scored),
        passes=passes,
        informative=(by_outcome if config.signal == "outcome" else by_reward) if reported else None,
        disagrees=reported and by_outcome != by_reward,
        rewarded=len(rewarded),
    )


def is_informative(signal: Sequence[float | None], tolerance: float) -> bool:
    """Whether the known values of the signal differ by more than the tolerance; one value alone never does."""
    known = [value for value in signal if value is not None]
    return len(known) > 1 and max(known) - min(known) > tolerance


def _rewards_alone(
    outcomes: Sequence[float | None], rewards: Sequence[float | None], statuses: Sequence[int]
) -> list[float]:
    return [
        reward
        for outcome, reward, status in zip(outcomes, rewards, statuses, strict=True)
        if outcome is None and reward is not None and status in GIVES_REWARD
    ]


def _why_too_few(statuses: Sequence[int], expired: bool) -> VoidReason:
    if statuses and all(status == RolloutStatus.ERROR for status in statuses):
        return VoidReason.ERROR
    return VoidReason.EXPIRED if expired else VoidReason.TOO_FEW
