"""A censored feed, where the trainer reports informative groups only: which silence says something, and how much.

A train ticket that closes without a single rollout, by `final` or at its deadline, is silent: its group was degenerate,
or it was informative and got lost. Audit tickets are reported in full whatever came out, so the share of them that
never comes back is the share of any that gets lost. Silence reaches beliefs only: no prompt goes to rest, is counted as
reported or as failed by it.
"""

import numpy as np

from selector.run.state import RunState
from selector.types import PURPOSE_CODE, Purpose, VoidReason

LOSS_START, LOSS_WEIGHT = 0.05, 20.0
"""Loss share to start with, and the audit tickets that this counts for."""

NOT_HEARD_OF = (VoidReason.EXPIRED, VoidReason.TOO_FEW, VoidReason.SILENT)
"""Ends of a ticket of which nothing came, unless the trainer said what became of it."""


def may_be_silent(state: RunState, ticket: int) -> bool:
    """Whether it says something of the prompt that nothing comes back for this ticket."""
    is_train = state.book.tickets["purpose"][ticket] == PURPOSE_CODE[Purpose.TRAIN]
    return state.config.feed == "informative_only" and bool(is_train)


def loss_share(state: RunState) -> float:
    """Chance that a group that should have been reported was not, in (0, 1)."""
    lost, closed = state.heard.tolist()
    return float((lost + LOSS_START * LOSS_WEIGHT) / (closed + LOSS_WEIGHT))


def count_heard(state: RunState, ordinals: np.ndarray) -> None:
    """Audit tickets that ended: how many, and how many of them without a word."""
    table = state.book.tickets
    ordinals = ordinals[table["purpose"][ordinals] == PURPOSE_CODE[Purpose.AUDIT]]
    reason = table["reason"][ordinals]
    lost = np.isin(reason, NOT_HEARD_OF) & (table["arrived"][ordinals] == 0)
    told = (reason == VoidReason.NONE) | lost
    state.heard += np.array([np.count_nonzero(lost), np.count_nonzero(told)], np.float64)
