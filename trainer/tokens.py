"""Rollouts as tensors: their tokens side by side, and the log-probabilities that a model gives them.

`trainer.policy` works with it. It knows models and tokens, and nothing of advantages, losses or optimizers.
Axes: B rollouts, P tokens of a padded prompt, T tokens of an answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch.nn.utils.rnn import pad_sequence

from trainer.rollout.base import Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Rollouts side by side: prompts padded on the left, answers on the right, so that all answers begin together."""

    ids: torch.Tensor  # (B, P+T)
    attended: torch.Tensor  # (B, P+T), 1 where there is a token
    answer_BT: torch.Tensor
    mask_BT: torch.Tensor  # tokens that the model wrote: not padding, and not what an environment put in
    sampled_logp_BT: torch.Tensor

    @classmethod
    def of(cls, rollouts: Sequence[Rollout], device: torch.device) -> Self:
        prompt_BP = padded([torch.tensor(rollout.prompt_ids) for rollout in rollouts], side="left")
        answer_BT = padded([torch.tensor(rollout.completion_ids) for rollout in rollouts])
        before_BP = padded([torch.ones(len(rollout.prompt_ids)) for rollout in rollouts], side="left")
        there_BT = padded([torch.ones(len(rollout.completion_ids)) for rollout in rollouts])
        written_BT = padded([torch.tensor(written(rollout)) for rollout in rollouts])
        return cls(
            ids=torch.cat([prompt_BP, answer_BT], dim=1).to(device),
            attended=torch.cat([before_BP, there_BT], dim=1).long().to(device),
            answer_BT=answer_BT.to(device),
            mask_BT=written_BT.bool().to(device),
            sampled_logp_BT=padded([torch.tensor(rollout.logprobs) for rollout in rollouts]).to(device),
        )


def written(rollout: Rollout) -> list[float]:
    """1 for each token of the answer that the model wrote, 0 for what it was told in between."""
    return [float(one) for one in rollout.written] or [1.0] * len(rollout.completion_ids)


def log_probabilities(model: Any, tokens: Tokens, *, temperature: float, bfloat16: bool = False) -> torch.Tensor:
    """(B, T) float32 log-probabilities of the answers' tokens, at the temperature they were sampled with.

    `bfloat16`: the model's products are computed in it; the normalisation is in float32 all the same.
    """
    with torch.autocast(tokens.ids.device.type, torch.bfloat16, enabled=bfloat16):
        logits: torch.Tensor = model(
            input_ids=tokens.ids,
            attention_mask=tokens.attended,
            position_ids=(tokens.attended.cumsum(dim=1) - 1).clamp(min=0),
            logits_to_keep=tokens.answer_BT.shape[1] + 1,
            use_cache=False,
        ).logits
    logits = logits[:, :-1].float() / temperature
    chosen: torch.Tensor = logits.gather(-1, tokens.answer_BT[..., None])[..., 0] - logits.logsumexp(dim=-1)
    return chosen


def padded(rows: list[torch.Tensor], *, side: Literal["left", "right"] = "right") -> torch.Tensor:
    return pad_sequence(rows, batch_first=True, padding_side=side)
