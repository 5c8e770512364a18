"""The model under training: its optimizer, what one batch does to its weights, and how both are kept.

`trainer.grpo` calls `update` once a step and hands `save` and `load` to the checkpoints. The formulas are in
`advantages` and `loss`. It knows groups of rollouts, and nothing of the service or of how prompts are selected.

Axes: K tickets, G rollouts of each, B rollouts that were scored, P tokens of a padded prompt, T tokens of an answer.
"""

import copy
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from trainer.advantages import TOLERANCE, group_advantages
from trainer.errors import InvalidRequest, MidbandError
from trainer.finished.duplicate import duplicate_informative
from trainer.finished.keeping import keep_rollouts
from trainer.finished.replay import Replayed
from trainer.learner.model import load_learner
from trainer.lora import load_adapters, save_adapters, with_adapters
from trainer.loss import Loss, policy_loss, sequence_coefficients
from trainer.past_groups import PastGroups
from trainer.rollout.base import Rollout, RolloutGroup
from trainer.tokens import Tokens, log_probabilities, padded, written
from trainer.training.config import TrainConfig

WEIGHTS_FILE, OPTIMIZER_FILE = "model.safetensors", "optimizer.safetensors"
FORMAT = {"format": "pt"}  # what transformers asks of a file of weights
FIGURES = ("loss", "gradient_norm", "clipped", "kl", "log_ratio")  # of one pass
COUNTED = ("ok", "truncated")  # statuses of rollouts that the service counts, too


class Policy:
    """A causal model that learns. Its weights change in place, so an engine that holds the model samples from them."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: TrainConfig) -> None:
        self.tokenizer, self.config = tokenizer, config
        # The KL term is against the weights of the start: the model comes with them even when a checkpoint follows.
        self.reference = copy.deepcopy(model).eval().requires_grad_(False) if config.loss.kl_coefficient else None
        if config.model.gradient_checkpointing:
            # Not the older, re-entrant form: it gives no gradient where the inputs need none, as with adapters.
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if config.model.lora is not None:
            model = with_adapters(model, config.model.lora, seed=config.seed)
        self.model = model.eval()
        self.parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        keep, settings = config.loss.keep, config.optimizer
        self.past = PastGroups(keep.memory, keep.max_lag) if keep.rule == "popo" else None
        self.optimizer = torch.optim.AdamW(
            list(self.parameters.values()),
            lr=settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
        )

    @classmethod
    def at_start(cls, config: TrainConfig) -> Self:
        """The model that the configuration names, on its device, in float32.

        Weights that adapters sit on are held, so with adapters they are in the precision of the products.
        """
        settings = config.model
        if config.model.path is None:
            model, tokenizer = load_learner()
        elif not (config.model.path / "config.json").is_file():
            raise InvalidRequest(f"{config.model.path} holds no model in transformers' format: it has no config.json")
        else:
            held = settings.lora is not None and settings.precision == "bfloat16"
            model = AutoModelForCausalLM.from_pretrained(
                config.model.path, dtype=torch.bfloat16 if held else torch.float32
            )
            tokenizer = AutoTokenizer.from_pretrained(config.model.path)
        return cls(model.to(settings.device or ("cuda" if torch.cuda.is_available() else "cpu")), tokenizer, config)

    def update(self, groups: Sequence[RolloutGroup], *, step: int, factor: float = 1.0) -> dict[str, float]:
        """Learn from a batch, one group for each ticket as drawn: a pass or more, an optimizer step each. -> figures

        `factor` multiplies the loss. Rollouts without an advantage, those of degenerate groups, are left out of the
        forward pass unless a KL term needs them, as their part of the loss is 0; they stay in its denominators, and
        the optimizer steps also when no rollout is left, unless `keep` would fill the batch with copies and too few
        groups are informative: then nothing changes. Raises MidbandError if a gradient is not a finite number.
        """
        rate = self._set_learning_rate(step)
        if self.config.loss.keep.rule == "duplicate":
            source = duplicate_informative(
                np.array([is_informative(group) for group in groups]), np.random.default_rng([self.config.seed, step])
            )
            if source is None:
                return {**dict.fromkeys(FIGURES, 0.0), "learning_rate": rate}
            groups = [groups[place] for place in source.tolist()]
        replayed: list[Replayed] = []
        if self.past is not None:
            groups, replayed = self.past.fill(groups, [is_informative(group) for group in groups], version=step)
        rollouts, ticket_B, advantage_B = self._scored(groups)
        coefficient_B = factor * sequence_coefficients(
            ticket_B,
            torch.tensor([round(sum(written(rollout))) for rollout in rollouts], dtype=torch.int64),
            torch.tensor([self._weight_of(group, step) for group in groups], dtype=torch.float64),
            torch.tensor([group.ticket.group_size for group in groups]),
            self.config.loss.aggregation,
            constant_length=self.config.loss.constant_length,
        )
        counted = (advantage_B != 0).tolist() if self.reference is None else [True] * len(rollouts)
        rows = [b for b, rollout in enumerate(rollouts) if counted[b] and rollout.completion_ids]
        chosen = [rollouts[b] for b in rows]
        older = {b for b, rollout in enumerate(chosen) if rollout.made_by not in (None, step)}
        importance = self._importance(chosen, ticket_B[rows].tolist(), {one.place for one in replayed}, older)
        self.model.train()
        with _keyed_generator(self.config.seed, step, self.model.device):
            passes = [
                self._pass(chosen, advantage_B[rows], coefficient_B[rows], importance)
                for _ in range(self.config.optimizer.passes)
            ]
        self.model.eval()
        # The first pass says how the sampler's probabilities agree with ours, the last what the clip came to hold.
        figures = {**passes[-1], "log_ratio": passes[0]["log_ratio"], "loss": passes[0]["loss"], "learning_rate": rate}
        if self.config.loss.importance_cap is not None:
            ratios = [
                ratio
                for row, rollout in zip(importance or (), chosen, strict=True)
                for ratio, own in zip(row, written(rollout), strict=True)
                if own
            ]
            capped = sum(ratio >= self.config.loss.importance_cap for ratio in ratios)
            figures |= {"importance": sum(ratios) / max(len(ratios), 1), "capped": capped / max(len(ratios), 1)}
        if self.past is not None:
            lags = [one.lag for one in replayed]
            figures |= {"replayed": float(len(lags)), "replay_lag": sum(lags) / max(len(lags), 1)}
        return figures

    def twin(self) -> PreTrainedModel:
        """A copy of the model, for a worker that samples while this one is changed; `snapshot` keeps it in step."""
        return copy.deepcopy(self.model).eval().requires_grad_(False)

    def snapshot(self, twin: PreTrainedModel) -> Callable[[], None]:
        """Keeps what is trained as it is now; the answer gives it to the twin, whenever that is called."""
        kept = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
        there = dict(twin.named_parameters())

        def load() -> None:
            for name, value in kept.items():
                there[name].data.copy_(value)

        return load

    def save(self, folder: Path) -> None:
        """Write the model in transformers' format, or its adapters in peft's, and the optimizer's tensors beside it."""
        if self.config.model.lora is not None:
            save_adapters(self.model, folder)
        else:
            save_model(self.model, str(folder / WEIGHTS_FILE), metadata=FORMAT)
            self.model.config.save_pretrained(folder)
            if self.model.generation_config is not None:
                self.model.generation_config.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        state = self.optimizer.state
        save_file(
            {f"{name}/{key}": value for name, one in self.parameters.items() for key, value in state[one].items()},
            folder / OPTIMIZER_FILE,
        )
        if self.past is not None:
            self.past.save(folder)

    def load(self, folder: Path) -> None:
        """Take weights, optimizer and past groups from a folder that `save` wrote, to the bit."""
        if self.past is not None:
            self.past.load(folder)
        if self.config.model.lora is not None:
            load_adapters(self.model, folder)
        else:
            load_model(self.model, folder / WEIGHTS_FILE, device=str(self.model.device))
        self.optimizer.state.clear()
        for place, value in load_file(folder / OPTIMIZER_FILE).items():
            name, _, key = place.rpartition("/")
            parameter = self.parameters[name]
            # AdamW counts its steps on the CPU wherever the weights are.
            self.optimizer.state[parameter][key] = value if key == "step" else value.to(parameter.device)

    def _scored(self, groups: Sequence[RolloutGroup]) -> tuple[list[Rollout], torch.Tensor, torch.Tensor]:
        """The scored rollouts of all groups in order; (B,) the place of each one's ticket, and its advantage."""
        size = max(len(group.rollouts) for group in groups)
        reward_KG = torch.full((len(groups), size), math.nan, dtype=torch.float64)
        for k, group in enumerate(groups):
            for g, rollout in enumerate(group.rollouts):
                if len(rollout.logprobs) != len(rollout.completion_ids):
                    raise MidbandError(
                        f"ticket {group.ticket.ticket}, rollout {g}: {len(rollout.completion_ids)} tokens with "
                        f"{len(rollout.logprobs)} log-probabilities: training needs an engine that gives one for each"
                    )
                reward_KG[k, g] = math.nan if (reward := reward_of(rollout)) is None else reward
        scored_KG, keep = ~reward_KG.isnan(), self.config.loss.keep
        tokens_KG = np.zeros(reward_KG.shape, np.int64)
        for k, group in enumerate(groups):
            tokens_KG[k, : len(group.rollouts)] = [len(rollout.completion_ids) for rollout in group.rollouts]
        kept = keep_rollouts(
            keep.rule, reward_KG.numpy(), scored_KG.numpy(), tokens_KG, share=keep.share, threshold=keep.threshold
        )
        counted_KG = torch.from_numpy(kept.counted_KG)
        advantage_KG = group_advantages(reward_KG, torch.from_numpy(kept.compared_KG), self.config.loss.advantage)
        place_B2 = counted_KG.nonzero()
        rollouts = [groups[k].rollouts[g] for k, g in place_B2.tolist()]
        return rollouts, place_B2[:, 0], advantage_KG[counted_KG]

    def _pass(
        self,
        rollouts: Sequence[Rollout],
        advantage_B: torch.Tensor,
        coefficient_B: torch.Tensor,
        importance: Sequence[Sequence[float]] | None,
    ) -> dict[str, float]:
        """One pass over these rollouts, in pieces that fit into memory, and one optimizer step."""
        settings, loss, device = self.config.optimizer, self.config.loss, self.model.device
        for parameter in self.parameters.values():
            parameter.grad = torch.zeros_like(parameter)
        parts: list[Loss] = []
        for start in range(0, len(rollouts), settings.microbatch):
            place = slice(start, start + settings.microbatch)
            tokens = Tokens.of(rollouts[place], device)
            with torch.no_grad():
                reference_BT = None if self.reference is None else self._logp(self.reference, tokens)
            part = policy_loss(
                self._logp(self.model, tokens),
                tokens.sampled_logp_BT,
                tokens.mask_BT,
                advantage_B[place].to(device),
                coefficient_B[place].to(device),
                clip_low=loss.clip_low,
                clip_high=loss.clip_high,
                reference_BT=reference_BT,
                kl_coefficient=loss.kl_coefficient,
                importance_BT=None
                if importance is None
                else padded([torch.tensor(row) for row in importance[place]]).to(device),
            )
            torch.autograd.backward(part.total)
            parts.append(replace(part, total=part.total.detach()))
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters.values(), settings.max_grad_norm))
        if not math.isfinite(norm):
            raise MidbandError(f"the gradient's norm is {norm}: go back to a checkpoint with a lower learning rate")
        self.optimizer.step()
        num_tokens = sum(part.num_tokens for part in parts)
        return {
            "loss": sum(float(part.total) for part in parts),
            "gradient_norm": norm,  # before clipping
            "clipped": sum(float(part.clipped_sum) for part in parts) / max(num_tokens, 1),
            "kl": sum(float(part.kl_sum) for part in parts) / max(num_tokens, 1),
            "log_ratio": sum(float(part.log_ratio_sum) for part in parts) / max(num_tokens, 1),
        }

    def _importance(
        self, rollouts: list[Rollout], ticket_of: Sequence[int], replayed: Set[int], older: Set[int] = frozenset()
    ) -> list[Sequence[float]] | None:
        """By how much each token is likelier under the weights of now than to its sampler; None: nobody asks.

        Rollouts it is asked of are given, in place, the log-probabilities of the weights of now, so that the clip is
        about those. Without a cap these are the replayed ones, by ticket, and older ones that a group began with, by
        their place here, and 1 stands for the others. With one these are all, as
        a sampler with other kernels, another precision or older weights is another policy; the ratios of fresh
        rollouts are cut at it, which bounds their variance for a bias towards smaller steps (Ionides, "Truncated
        importance sampling", J. Comput. Graph. Stat. 17, 2008).
        """
        cap = self.config.loss.importance_cap
        if cap is None and not replayed and not older:
            return None
        importance: list[Sequence[float]] = [[1.0] * len(rollout.completion_ids) for rollout in rollouts]
        rows = [b for b, ticket in enumerate(ticket_of) if cap is not None or ticket in replayed or b in older]
        size = self.config.optimizer.microbatch
        for start in range(0, len(rows), size):
            piece = rows[start : start + size]
            tokens = Tokens.of([rollouts[b] for b in piece], self.model.device)
            with torch.no_grad():
                now_BT = self._logp(self.model, tokens)
            ratio_BT = (now_BT - tokens.sampled_logp_BT).exp()
            for b, now_T, ratio_T in zip(piece, now_BT.tolist(), ratio_BT.tolist(), strict=True):
                length = len(rollouts[b].completion_ids)
                limit = math.inf if cap is None or ticket_of[b] in replayed else cap
                rollouts[b] = replace(rollouts[b], logprobs=now_T[:length])
                importance[b] = [min(ratio, limit) for ratio in ratio_T[:length]]
        return importance

    def _weight_of(self, group: RolloutGroup, step: int) -> float:
        """The ticket's weight, 1 without any; less for a group of older weights where the run's rule says so."""
        weight = 1.0 if group.ticket.weight is None else group.ticket.weight
        rule = self.config.asynchrony
        return weight * rule.decay ** (step - group.version) if rule.rule == "down_weight" and group.version else weight

    def _logp(self, model: PreTrainedModel, tokens: Tokens) -> torch.Tensor:
        settings = self.config.model
        return log_probabilities(
            model, tokens, temperature=settings.temperature, bfloat16=settings.precision == "bfloat16"
        )

    def _set_learning_rate(self, step: int) -> float:
        settings = self.config.optimizer
        rate = settings.learning_rate * min(1.0, (step + 1) / (settings.warmup_steps + 1))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return rate


def reward_of(rollout: Rollout) -> float | None:
    """What the trainer optimises, by the service's rule of what counts: None for no score and for errors."""
    if rollout.outcome is None or rollout.status not in COUNTED:
        return None
    return rollout.outcome if rollout.reward is None else rollout.reward


def is_informative(group: RolloutGroup) -> bool:
    """Whether the rewards that count differ, by the tolerance of the advantages."""
    rewards = [reward for rollout in group.rollouts if (reward := reward_of(rollout)) is not None]
    return bool(rewards) and max(rewards) - min(rewards) > TOLERANCE


@contextmanager
def _keyed_generator(seed: int, step: int, device: torch.device) -> Iterator[None]:
    """Dropout, if the model has any, by seed and step; the process's generators are afterwards as they were."""
    key = hashlib.blake2b(f"{seed}:update:{step}".encode(), digest_size=8).digest()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int.from_bytes(key, "little", signed=True))
        yield
