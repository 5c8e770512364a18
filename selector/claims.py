"""What can honestly be said of a run's draws: derived from the configuration, never declared by hand.

Called by the engine at each draw and by the presets' listing. Knows configuration values only; whether the trainer
applied the weights is settled later, by the audit.
"""

from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from selector.config import Advantage, LossAggregation, Signal, Weights


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
    conditions: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """JSON-ready, in field order."""
        return {**asdict(self), "type": str(self.type), "conditions": list(self.conditions)}


FIXED_GROUP = "every ticket is trained on with its full group"
REPAIRED = "each group's loss is multiplied by n/(n - 1), n the rollouts of its ticket"
KEPT_DENOMINATOR = "the sum over tickets is divided by the K of the answer, not by the groups that came back"
WEIGHTS_APPLIED = "each ticket's loss is multiplied by its weight, and steps report weights_applied"
SURPLUS_IN_ORDER = (
    "of more informative groups than were asked for, those drawn last are left out, never an audit ticket"
)
NOTHING_CARRIED = "no surplus of an earlier step is trained on"
NO_OTHER_TERM = "the loss has no KL or entropy term, which dropped groups would have had a part in"
BY_RULE: dict[str, str] = {
    "screen": "each prompt counted by the chance that its first wave is informative, the later rollouts given that",
    "pilot": "each prompt counted by the chance that its pilot is between the rule's limits",
    "until_success": "groups of a size that depends on their outcomes: those with rare passes end on a pass",
    "balanced": "groups of a size that depends on their outcomes: those end that have both kinds",
    "rescue": "groups of a size that depends on their outcomes: those with too few passes go on to one more",
}
NOTHING_LOST = "reports do not go missing for reasons that depend on the outcome"
BEGUN = (
    "groups that begin with a probe's rollouts are conditioned on them, which had a say in when their prompt was drawn"
)


def derive_claim(
    *,
    uniform: bool,
    empirical: bool,
    weights: Weights,
    loss_aggregation: LossAggregation,
    advantage: Advantage,
    varying_groups: bool = False,
    rule: str | None = None,
    refilled: bool = False,
    signal: Signal = "reward",
) -> Claim:
    """The claim of a design x weights x loss aggregation x advantage.

    uniform: the policy treats all prompts alike. empirical: the design gives some prompts no chance, or chances
    nobody knows (top-k without a floor). varying_groups: tickets have different numbers n of rollouts. A mean over
    tokens is a ratio whose denominator depends on the draw, so no weight makes it unbiased; a mean over sequences is
    one over prompts as long as groups are of one size. Groups of different sizes leave the expected step as it is for
    a mean per prompt with RLOO, whose every group points along dp, and with Dr. GRPO once its (1 − 1/n) is divided
    out; GRPO's step depends on n itself.

    rule: the wave's, by which a group's own outcomes say how many rollouts it gets, so that no weight known at the draw
    makes up for it. refilled: degenerate groups are replaced. Under uniform draws that leaves the direction as it is,
    as E[g | mixed] = E[g]/P(mixed), if a group counts by the reward it is judged by and each prompt alike.
    """
    objective = OBJECTIVE[advantage]
    if empirical:
        return Claim(type=ClaimType.EMPIRICAL, objective="not known", conditions=())
    if varying_groups:
        return _varying(uniform, weights, loss_aggregation, advantage)
    if rule is not None:
        return Claim(
            type=ClaimType.MODIFIED,
            objective=f"{objective}; {BY_RULE[rule]}",
            conditions=(NOTHING_LOST,),
        )
    if refilled:
        return _refilled(uniform, loss_aggregation, signal, objective)
    if uniform:
        return Claim(type=ClaimType.EXACT, objective=objective, conditions=(NOTHING_LOST,))
    if weights == "horvitz_thompson" and loss_aggregation != "per_token":
        conditions = [WEIGHTS_APPLIED, KEPT_DENOMINATOR, NOTHING_LOST]
        if loss_aggregation == "per_sequence":
            conditions.append(FIXED_GROUP)
        return Claim(type=ClaimType.UNBIASED, objective=objective, conditions=tuple(conditions))
    if weights == "none":
        why = "each prompt counted by its chance of being drawn: w(p) as the audit reports it"
    elif loss_aggregation == "per_token":
        why = "a mean over tokens, which is a ratio: prompts with long answers count for more"
    else:
        why = "weights cut at max_weight, so rarely drawn prompts count for less: w(p) as the audit reports it"
    applied = () if weights == "none" else (WEIGHTS_APPLIED,)
    return Claim(type=ClaimType.MODIFIED, objective=f"{objective}; {why}", conditions=(*applied, NOTHING_LOST))


def begun_by_probes(claim: Claim) -> Claim:
    """The claim where train tickets may begin with rollouts of probes.

    Given its probe, a group's expected step is not its prompt's. Were every group of a prompt as likely to begin with
    its probe, however that turned out, the average over probes would be, as a probe that is stopped and then gone on
    with is an unbroken sequence of rollouts. But a draw by beliefs prefers some outcomes, those that it left go on to
    later draws, and under uniform draws, too, a probe that takes longer to decide blocks its prompt for longer.
    """
    if claim.type is ClaimType.EMPIRICAL:
        return claim
    return replace(claim, type=ClaimType.MODIFIED, objective=f"{claim.objective}; {BEGUN}")


def _varying(uniform: bool, weights: Weights, loss_aggregation: LossAggregation, advantage: Advantage) -> Claim:
    """The claim where tickets have different numbers of rollouts."""
    fixed = derive_claim(
        uniform=uniform, empirical=False, weights=weights, loss_aggregation=loss_aggregation, advantage=advantage
    )
    if loss_aggregation == "per_prompt" and advantage != "grpo":
        repaired = (REPAIRED,) if advantage == "dr_grpo" else ()
        return replace(
            fixed,
            objective=fixed.objective.replace(OBJECTIVE[advantage], OBJECTIVE["rloo"]),
            conditions=(*fixed.conditions, *repaired),
        )
    if loss_aggregation == "per_prompt":
        why = "groups of different sizes, whose step GRPO damps differently"
    else:
        why = "groups of different sizes, so prompts with more rollouts count for more"
    conditions = fixed.conditions if fixed.type is not ClaimType.UNBIASED else (WEIGHTS_APPLIED, NOTHING_LOST)
    return Claim(type=ClaimType.MODIFIED, objective=f"{fixed.objective}; {why}", conditions=conditions)


def _refilled(uniform: bool, loss_aggregation: LossAggregation, signal: Signal, objective: str) -> Claim:
    """Of dynamic sampling: the uniform step up to the factor 1/yield, or else another objective, and why."""
    whys = [
        (not uniform, "replacements are drawn by beliefs: each prompt counted by its chance of being drawn"),
        (loss_aggregation != "per_prompt", f"a loss {loss_aggregation} depends on the other groups that were kept"),
        (signal != "reward", "groups are kept by another signal than the reward behind the advantage"),
    ]
    why = next((text for holds, text in whys if holds), None)
    if why is not None:
        return Claim(type=ClaimType.MODIFIED, objective=f"{objective}; {why}", conditions=(NOTHING_LOST,))
    return Claim(
        type=ClaimType.UNBIASED,
        objective=f"{objective}; each step times a positive factor, 1/yield",
        conditions=(SURPLUS_IN_ORDER, NOTHING_CARRIED, NO_OTHER_TERM, NOTHING_LOST),
    )
