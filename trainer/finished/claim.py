"""What a rule over finished rollouts lets a step claim. A value beside each rule, for the trainer to report."""

from dataclasses import dataclass
from enum import StrEnum


class ClaimType(StrEnum):
    """As the service's claims, from the strongest to the weakest."""

    UNBIASED = "unbiased"  # the expected step is that of all rollouts, up to a positive factor
    MODIFIED = "modified"  # another objective, which can be named


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """`objective` says what the expected step climbs while prompts are drawn alike and rollouts are on-policy."""

    type: ClaimType
    objective: str


EVERYTHING = Claim(type=ClaimType.UNBIASED, objective="that of the run: every rollout is kept")
