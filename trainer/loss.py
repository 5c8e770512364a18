"""The loss of a batch: clipped surrogate and KL a token, and how tokens, rollouts and prompts are averaged.

`trainer.grpo` calls it. It knows tensors, and nothing of models, tickets or the service.
Axes: K tickets of the batch as it was drawn, B sequences (rollouts), T tokens of a completion.

The loss is a weighted sum over tokens, loss = Σ_b c_b Σ_t l_bt, and the coefficients c_b are known before the first
forward pass. So a batch may be worked through in pieces of any size, and a sequence whose every l is 0 may be left
out, without a change of anything else.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch

Aggregation = Literal["per_prompt", "per_sequence", "per_token"]


def sequence_coefficients(
    ticket_B: torch.Tensor,
    tokens_B: torch.Tensor,
    weight_K: torch.Tensor,
    group_size_K: torch.Tensor,
    aggregation: Aggregation,
    *,
    constant_length: int | None = None,
) -> torch.Tensor:
    """(B,) float64, the coefficient c_b of a sequence b of ticket k that has T_b tokens.

        per_prompt     w_k / (K · n_k · T_b)      n_k: rollouts of this ticket among the B
        per_sequence   w_k / (Σ_j G_j · T_b)      G_j: rollouts that ticket j was drawn for
        per_token      w_k / Σ_b T_b

    Every scored rollout that came back is among the B, those of degenerate groups too. K and Σ G count the tickets as
    drawn: a group that never came back counts as 0, and does not make the others larger. Only `per_token` has a
    denominator that depends on what came back, and is a ratio for that reason. With groups of one size the first two
    are the same. `constant_length` stands for T_b in them and for the mean of T in `per_token`: Dr. GRPO's way, under
    which a long answer counts for more (arXiv 2503.20783, appendix).

    ticket_B: (B,) int64, places in the K; tokens_B: (B,) int64; weight_K: (K,) the tickets' weights, 1 without any;
    group_size_K: (K,) int64. A sequence without tokens gets a coefficient and has nothing to multiply it with.
    Raises ValueError for an aggregation that is none and for a constant length below 1.
    """
    if aggregation not in get_args(Aggregation):
        raise ValueError(f"aggregation must be one of {', '.join(get_args(Aggregation))}, got {aggregation!r}")
    if constant_length is not None and constant_length < 1:
        raise ValueError(f"constant_length must be >= 1, got {constant_length}")
    weight_B = weight_K.double()[ticket_B]
    if constant_length is not None:
        tokens_B = torch.full_like(tokens_B, constant_length)
    length_B = tokens_B.double().clamp(min=1)
    if aggregation == "per_token":
        return weight_B / length_B.sum()
    if aggregation == "per_sequence":
        return weight_B / (group_size_K.sum() * length_B)
    came_back_K = torch.bincount(ticket_B, minlength=len(weight_K))
    return weight_B / (len(weight_K) * came_back_K[ticket_B] * length_B)


def yield_factor(num_informative: int, num_judged: int) -> float:
    """1/yield: what turns a mean over all groups into one over the informative ones; 1 if there is none of them."""
    return num_judged / num_informative if num_informative else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The loss of some sequences, and sums over their tokens that figures are made of; scalars all of them."""

    total: torch.Tensor  # what is differentiated
    num_tokens: int
    clipped_sum: torch.Tensor  # tokens whose ratio was held, so that they teach nothing any more
    log_ratio_sum: torch.Tensor  # nats, |logp − old logp|: before any update, how far the sampler is from the trainer
    kl_sum: torch.Tensor  # nats, ρ times k3; 0 without a reference


def policy_loss(
    logp_BT: torch.Tensor,
    old_logp_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    advantage_B: torch.Tensor,
    coefficient_B: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    reference_BT: torch.Tensor | None = None,
    kl_coefficient: float = 0.0,
    importance_BT: torch.Tensor | None = None,
) -> Loss:
    """Σ_b c_b Σ_t l_bt over the tokens that `mask_BT` keeps, with A the advantage and ρ = e^(logp − old logp):

        l = −v min(ρ A, clip(ρ, 1 − clip_low, 1 + clip_high) A)  +  β ρ (e^d − d − 1),   d = reference logp − logp

    v, `importance_BT`, is 1 for the old policy's own samples. For tokens that another policy sampled it is the old
    policy's probability over that one's, so that the clip stays about the old policy (decoupled, arXiv 2110.00641).

    A higher `clip_high` than `clip_low` lets rare tokens grow further (DAPO, arXiv 2503.14476, equation 10). The second
    term estimates KL(policy ‖ reference) by k3, which is never negative (Schulman, "Approximating KL divergence"); β is
    `kl_coefficient`. ρ takes it back to the policy's own samples and, as it is differentiated too, makes the expected
    gradient that of the divergence, which k3 alone does not give (arXiv 2512.02556). Gradients flow through `logp_BT`
    only.

    logp_BT, old_logp_BT, reference_BT: (B, T) natural logarithms under the weights of now, under those that sampled,
    and under the reference; what stands behind the mask does not matter. Raises ValueError for a KL term without a
    reference and for a clip_low outside [0, 1] or a negative clip_high.
    """
    if not 0 <= clip_low <= 1 or clip_high < 0:
        raise ValueError(f"clip_low must be in [0, 1] and clip_high >= 0, got {clip_low} and {clip_high}")
    if kl_coefficient and reference_BT is None:
        raise ValueError(f"a KL term (kl_coefficient {kl_coefficient}) needs log-probabilities under a reference")
    mask_BT = mask_BT.bool()
    advantage_B1 = advantage_B.to(logp_BT.dtype)[:, None]
    # Masked before the exponential: what stands behind the mask must not make an infinity, whose gradient is no number.
    log_ratio_BT = torch.where(mask_BT, logp_BT - old_logp_BT, 0.0)
    ratio_BT = log_ratio_BT.exp()
    free_BT = ratio_BT * advantage_B1
    held_BT = ratio_BT.clamp(1 - clip_low, 1 + clip_high) * advantage_B1
    token_loss_BT = -torch.minimum(free_BT, held_BT)
    if importance_BT is not None:
        token_loss_BT = torch.where(mask_BT, importance_BT, 0.0) * token_loss_BT
    kl_BT = torch.zeros_like(logp_BT)
    if reference_BT is not None:
        difference_BT = torch.where(mask_BT, reference_BT - logp_BT, 0.0)
        kl_BT = ratio_BT * (difference_BT.exp() - difference_BT - 1)
        token_loss_BT = token_loss_BT + kl_coefficient * kl_BT
    sequence_loss_B = torch.where(mask_BT, token_loss_BT, 0.0).sum(dim=1)
    return Loss(
        total=(coefficient_B.to(sequence_loss_B.dtype) * sequence_loss_B).sum(),
        num_tokens=int(mask_BT.sum()),
        clipped_sum=(mask_BT & (held_BT < free_BT)).sum(),
        log_ratio_sum=log_ratio_BT.detach().abs().sum(),
        kl_sum=kl_BT.detach().sum(),
    )
