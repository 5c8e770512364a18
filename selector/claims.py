"""What can honestly be said of a run's draws: derived from the configuration, never declared by hand.

Called by the engine at each draw and by the presets' listing. Knows configuration values only; whether the trainer
applied the weights is settled later, by the audit.
"""

from dataclasses import dataclass
from enum import StrEnum

from selector.config import Advantage, RunConfig


class ClaimType(StrEnum):
    """From the strongest to the weakest."""

    EXACT = "exact"  # every prompt is equally likely; nothing has to be corrected
    UNBIASED = "unbiased"  # the expected step is the uniform one, given the weights
    MODIFIED = "modified"  # another objective, which can be named and whose w(p) the audit reports
    EMPIRICAL = "empirical"  # nothing provable


# What the expected step climbs when prompts count alike. GRPO divides by the group's standard deviation, so for large
# groups it follows dp/sqrt(p(1-p)), whose integral is 2 arcsin sqrt(p).
OBJECTIVE: dict[Advantage, str] = {
    "grpo": "mean over prompts of 2*arcsin(sqrt(pass rate)), damped near 0 and 1 by the finite group",
    "dr_grpo": "mean over prompts of the pass rate, times 1 - 1/group_size",
    "rloo": "mean over prompts of the pass rate",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """`objective` says what the expected step climbs; the claim holds while every one of `conditions` does."""

    type: ClaimType
    objective: str
    conditions: list[str]


FULL_GROUP = "every ticket is trained on with its full group"
KEPT_DENOMINATOR = "the sum over tickets is divided by the K of the answer, not by the groups that came back"
WEIGHTS_APPLIED = "each ticket's loss is multiplied by its weight, and steps report weights_applied"
NOTHING_LOST = "reports do not go missing for reasons that depend on the outcome"


def derive_claim(config: RunConfig, *, empirical: bool = False) -> Claim:
    """The claim of policy x weights x loss aggregation x advantage.

    empirical: the design gives some prompts no chance, or chances nobody knows (top-k without a floor). A policy with
    floor 0 is such a design. A mean over tokens is a ratio whose denominator depends on the draw, so no weight makes it
    unbiased; a mean over sequences is one over prompts as long as groups are of one size.
    """
    objective = OBJECTIVE[config.advantage]
    if config.is_uniform:
        return Claim(type=ClaimType.EXACT, objective=objective, conditions=[NOTHING_LOST])
    if empirical or config.policy.floor <= 0.0:
        return Claim(type=ClaimType.EMPIRICAL, objective="not known", conditions=[])
    if config.weights == "horvitz_thompson" and config.loss_aggregation != "per_token":
        conditions = [WEIGHTS_APPLIED, KEPT_DENOMINATOR, NOTHING_LOST]
        if config.loss_aggregation == "per_sequence":
            conditions.append(FULL_GROUP)
        return Claim(type=ClaimType.UNBIASED, objective=objective, conditions=conditions)
    if config.weights == "none":
        why = "each prompt counted by its chance of being drawn: w(p) as the audit reports it"
    elif config.loss_aggregation == "per_token":
        why = "a mean over tokens, which is a ratio: prompts with long answers count for more"
    else:
        why = "weights cut at max_weight, so rarely drawn prompts count for less: w(p) as the audit reports it"
    applied = [] if config.weights == "none" else [WEIGHTS_APPLIED]
    return Claim(type=ClaimType.MODIFIED, objective=f"{objective}; {why}", conditions=[*applied, NOTHING_LOST])
