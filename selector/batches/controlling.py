"""Where a run's controller stands: what it has seen since the last draw, and which numbers are in force.

`drawing` reads, the fold writes. The numbers come from the draw's event, so a replay works nothing out again.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from selector.config import PolicyConfig
from selector.controllers import Numbers, Seen, build_controller
from selector.controllers.base import COUNTS
from selector.groups.standing import fixed_shares
from selector.run.state import RunState
from selector.types import PURPOSE_CODE, Purpose

SEEN_PURPOSES = (PURPOSE_CODE[Purpose.TRAIN], PURPOSE_CODE[Purpose.AUDIT])


def numbers_in_force(state: RunState, *, refill: int) -> Numbers:
    """The controller's numbers for the next train draw; none without a controller. A refill goes on with those of the
    batch that it fills.
    """
    config = state.config.policy.controller
    if config is None:
        return {}
    controller = build_controller(config)
    if not state.controlled:
        return controller.begin(state.config.policy)
    if refill:
        return dict(state.controlled)
    drawn, num_frame = float(state.rows["drawn_N"].sum()), int(np.count_nonzero(state.frame_N))
    return controller.after(state.controlled, Seen.of(state.seen, drawn / max(num_frame, 1)))


def controlled_policy(policy: PolicyConfig, numbers: Numbers) -> PolicyConfig:
    """The policy with the controller's numbers in place of its own."""
    if policy.controller is None or not numbers:
        return policy
    changes: dict[str, Any] = {**build_controller(policy.controller).overrides(numbers)}
    return replace(policy, **changes)


def fold_numbers(state: RunState, numbers: Numbers, *, refill: int) -> None:
    """A train draw was made under these numbers; what it was told by is counted anew."""
    state.controlled = dict(numbers)
    if not refill:
        state.seen[:] = 0.0


def count_groups(state: RunState, ordinals: np.ndarray) -> None:
    """Counts groups that came back and are usable, of train and audit tickets alone.

    Shares are of what was sure to be made of each group. Whether it was informative is a fact about what was made.
    """
    policy, table = state.config.policy, state.book.tickets
    if policy.controller is None:
        return
    ordinals = ordinals[np.isin(table["purpose"][ordinals], SEEN_PURPOSES)]
    if not len(ordinals):
        return
    share_B = fixed_shares(state, ordinals)
    informative_B = table["informative"][ordinals] == 1
    in_force = controlled_policy(policy, state.controlled)
    predicted_B = np.array(
        [state.batch_of(t).event.pass_rate_K[int(table["position"][t])] for t in ordinals.tolist()], np.float64
    )
    low_B = np.zeros(len(ordinals), bool) if in_force.low is None else predicted_B <= in_force.low
    high_B = np.zeros(len(ordinals), bool) if in_force.high is None else predicted_B > in_force.high
    found = {
        "groups": len(ordinals),
        "easy": np.count_nonzero(~informative_B & (share_B > 0.5)),
        "hard": np.count_nonzero(~informative_B & (share_B <= 0.5)),
        "share_sum": share_B.sum(),
    }
    for name, of_pool_B in (("low", low_B), ("middle", ~low_B & ~high_B), ("high", high_B)):
        found[f"{name}_groups"] = np.count_nonzero(of_pool_B)
        found[f"{name}_informative"] = np.count_nonzero(of_pool_B & informative_B)
    state.seen += [float(found[name]) for name in COUNTS]
