"""POPO: degenerate groups give their places to the most recent informative ones of earlier steps, by reference.

What is kept are names: the ticket, and the version of the policy that made its rollouts. Whoever holds the rollouts
looks them up. K groups of a batch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from trainer.finished.claim import Claim, ClaimType

CLAIM = Claim(
    type=ClaimType.MODIFIED,
    objective="that of the run over a mix of prompts shifted to those lately informative, with importance weights from "
    "the policy that made each rollout",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """An informative group of an earlier step."""

    ticket: str
    behaviour_version: int  # of the weights that made its rollouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A place of the batch and the past group that fills it."""

    place: int
    ticket: str
    behaviour_version: int  # whose log-probabilities the importance weights are against
    lag: int  # versions since


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The latest informative groups, oldest first: a value, changed by making another."""

    size: int
    groups: tuple[Past, ...] = ()

    def after(self, groups: Iterable[Past]) -> "Memory":
        """With these added; the oldest leave where there are more than `size`."""
        held = (*self.groups, *groups)
        return Memory(size=self.size, groups=held[max(len(held) - self.size, 0) :])


def fill_places(
    informative_K: Sequence[bool] | np.ndarray, memory: Memory, *, version: int, max_lag: int
) -> list[Replayed]:
    """Which past groups stand in for the degenerate groups of this batch, the most recent first, each at most once
    (POPO, arXiv 2606.01281). Places beyond what is recent enough stay as they are.

    What it does to the expected gradient: a fresh degenerate group adds 0, so nothing is lost by its place. A replayed
    one adds its prompt once more, by importance weights π/π_behaviour of its own rollouts, which are unbiased for its
    step under the present policy given the group, but that it was informative is a condition: prompts count by how
    often they lately were. The weights belong to `behaviour_version`; the clip belongs to the policy at the start of
    the update (decoupled). Both the taking of replayed groups for on-policy ones and long lags were reported to make
    training collapse, so `max_lag` has no default.

    version: of the weights about to be updated. Raises ValueError for a negative max_lag, or a group from the future.
    """
    if max_lag < 0:
        raise ValueError(f"max_lag must be >= 0, got {max_lag}")
    ahead = next((past for past in memory.groups if past.behaviour_version > version), None)
    if ahead is not None:
        raise ValueError(f"ticket {ahead.ticket} is of version {ahead.behaviour_version}, ahead of {version}")
    recent = [past for past in reversed(memory.groups) if version - past.behaviour_version <= max_lag]
    places = np.flatnonzero(~np.asarray(informative_K, bool)).tolist()
    return [
        Replayed(
            place=place,
            ticket=past.ticket,
            behaviour_version=past.behaviour_version,
            lag=version - past.behaviour_version,
        )
        for place, past in zip(places, recent, strict=False)
    ]
