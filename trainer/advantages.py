"""Group-relative advantages: what each rollout of a group is worth, compared with its siblings.

`trainer.policy` calls it once a batch; it knows tensors of rewards and nothing of models, tickets or losses.
Axes: K groups, G rollouts of one prompt.
"""

from typing import Literal, get_args

import torch

Advantage = Literal["grpo", "dr_grpo", "rloo"]
# Added to the standard deviation, in units of reward, as TRL does; others use 1e-6 or 1e-8. Of eight rewards of 0 or 1
# it takes less than one part in 3,000 off the advantages; it matters only where rewards differ by little more.
STD_EPS = 1e-4
TOLERANCE = 1e-6  # the service's default: rewards that differ by no more than this are alike


def group_advantages(
    reward_KG: torch.Tensor, scored_KG: torch.Tensor, kind: Advantage, *, tolerance: float = TOLERANCE
) -> torch.Tensor:
    """(K, G) float64 advantages, 0 where nothing was scored; sums and counts run over a group's n scored rollouts.

        grpo      (r − mean) / (std + 1e-4),   std² = Σ (r − mean)² / (n − 1)      arXiv 2402.03300, section 4.1
        dr_grpo   r − mean                                                         arXiv 2503.20783
        rloo      r − mean of the other n − 1  =  (r − mean) · n / (n − 1)         arXiv 2402.14740

    The sample's deviation (n − 1), as in TRL and verl: with n instead, the same advantages are sqrt(n / (n − 1)) times
    as large, 7 % for eight rollouts. All are exactly 0 in a group whose rewards differ by no more than `tolerance`, and
    in a group with fewer than two scored rollouts, which has nothing to be compared with.

    reward_KG: (K, G) rewards, finite where scored; scored_KG: (K, G) bool. Raises ValueError for other shapes, for a
    kind that is none, and for a scored reward that is not finite.
    """
    if kind not in get_args(Advantage):
        raise ValueError(f"advantage must be one of {', '.join(get_args(Advantage))}, got {kind!r}")
    if reward_KG.ndim != 2 or reward_KG.shape != scored_KG.shape:
        raise ValueError(
            f"rewards and scored must be (K, G), got {tuple(reward_KG.shape)} and {tuple(scored_KG.shape)}"
        )
    reward_KG = torch.where(scored_KG, reward_KG.double(), 0.0)
    if not bool(torch.isfinite(reward_KG).all()):
        raise ValueError("a scored reward is NaN or infinite: mark the rollout as not scored, or mend the grader")
    num_K1 = scored_KG.sum(dim=1, keepdim=True)
    others_K1 = (num_K1 - 1).clamp(min=1)
    mean_K1 = reward_KG.sum(dim=1, keepdim=True) / num_K1.clamp(min=1)
    centred_KG = torch.where(scored_KG, reward_KG - mean_K1, 0.0)
    if kind == "grpo":
        std_K1 = (centred_KG.square().sum(dim=1, keepdim=True) / others_K1).sqrt()
        advantage_KG = centred_KG / (std_K1 + STD_EPS)
    elif kind == "rloo":
        advantage_KG = centred_KG * num_K1 / others_K1
    else:
        advantage_KG = centred_KG
    return torch.where(_differ(reward_KG, scored_KG, tolerance), advantage_KG, 0.0)


def _differ(reward_KG: torch.Tensor, scored_KG: torch.Tensor, tolerance: float) -> torch.Tensor:
    """(K, 1) bool: whether the scored rewards of a group differ by more than the tolerance."""
    if not reward_KG.shape[1]:
        return torch.zeros(reward_KG.shape[0], 1, dtype=torch.bool)
    highest_K1 = torch.where(scored_KG, reward_KG, -torch.inf).amax(dim=1, keepdim=True)
    lowest_K1 = torch.where(scored_KG, reward_KG, torch.inf).amin(dim=1, keepdim=True)
    return highest_K1 - lowest_K1 > tolerance
