"""Rollouts from a transformers causal model in this process, on whatever device its weights are.

The reference trainer and the demo use it. Prompts are padded on the left and read once for all rollouts of their
ticket; each further token costs one pass over the rollouts still being written, on their key-value cache.

Randomness is keyed by the engine's seed and by which ticket of which draw it is, never by the process's generators:
the same ticket under the same weights gives the same rollouts, whatever was generated before. In another batch, sums
in another order may move a probability by a rounding error, so that very rarely another token is drawn.

Axes: K tickets, R rollouts of all of them, P tokens of a padded prompt, T tokens of an answer, V tokens known.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from api.schemas import Ticket
from trainer.errors import InvalidRequest
from trainer.graders import Grader
from trainer.learner.model import load_learner
from trainer.rollout.base import RolloutEngine, RolloutGroup
from trainer.rollout.texts import Answer, end_ids, graded, identity, prompts_of
from trainer.rollout.turns import Said

KEY_BYTES = 16  # of a Philox key
# Share of the rollouts in the cache still being written, above which the finished ones are carried along: dropping them
# copies the cache, which costs about as much as one more token for all.
CROWDED_ABOVE = 0.75


class TorchEngine(RolloutEngine):
    """Samples from `model` as its weights are at the call: what a trainer changes in place is used at once.

    `temperature` > 0 divides the logits; recorded log-probabilities are those of the distribution that was sampled.
    An answer ends with an end token of the model, or unfinished after `max_new_tokens` (status `truncated`; it is
    graded all the same). At most `batch_size` rollouts are written at a time, but never less than a whole ticket.
    `bfloat16`: products are computed in it, by autocast; probabilities are normalised in float32.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        grader: Grader,
        *,
        max_new_tokens: int,
        temperature: float = 1.0,
        seed: int = 0,
        batch_size: int = 512,
        bfloat16: bool = False,
    ) -> None:
        if max_new_tokens < 1 or batch_size < 1:
            raise ValueError(f"max_new_tokens and batch_size must be >= 1, got {max_new_tokens} and {batch_size}")
        if not 0 < temperature < float("inf"):
            raise ValueError(f"temperature must be a number > 0, got {temperature}")
        self._model = model
        self._tokenizer = tokenizer
        self._grader = grader
        self._max_new_tokens = max_new_tokens
        self._temperature = temperature
        self._seed = seed
        self._batch_size = batch_size
        self._bfloat16 = bfloat16
        self._end_ids = end_ids(model.config, getattr(model, "generation_config", None), tokenizer)

    def generate(self, tickets: Sequence[Ticket], *, policy_version: int) -> list[RolloutGroup]:
        """Groups under the weights of now; `policy_version` is the caller's word for them and changes nothing."""
        spans = [range(ticket.group_size) for ticket in tickets]
        return self.generate_part(tickets, spans, policy_version=policy_version)

    def generate_part(
        self, tickets: Sequence[Ticket], spans: Sequence[range], *, policy_version: int
    ) -> list[RolloutGroup]:
        """Rollout n of a ticket is the same whether it is made with the whole group or with some of it.

        The seconds of a batch are shared among its rollouts by their tokens. Raises InvalidRequest for a ticket
        without content or too long for the model, FloatingPointError if the weights give no probabilities.
        """
        prompts = self._prompts(tickets)
        groups: dict[int, RolloutGroup] = {}
        for places in self._batches(prompts, spans):
            started_s = time.perf_counter()
            answers = self._sample(
                [prompts[place] for place in places],
                [tickets[place] for place in places],
                [spans[place] for place in places],
            )
            seconds_per_token = (time.perf_counter() - started_s) / sum(len(answer.ids) for answer in answers)
            texts = self._tokenizer.batch_decode([answer.ids for answer in answers], skip_special_tokens=True)
            written = iter(zip(answers, texts, strict=True))
            for place in places:
                ticket = tickets[place]
                rollouts = [
                    graded(self._grader, ticket, prompts[place], *next(written), seconds_per_token=seconds_per_token)
                    for _ in spans[place]
                ]
                groups[place] = RolloutGroup(ticket=ticket, rollouts=tuple(rollouts), start=spans[place].start)
        return [groups[place] for place in range(len(tickets))]

    def load(self, folder: Path, *, policy_version: int) -> None:
        """Take the weights of a folder in transformers' format, into the model that it samples from."""
        self._model.load_state_dict(AutoModelForCausalLM.from_pretrained(folder).state_dict())

    # One turn at a time, for rollouts that an environment answers: `trainer.rollout.turns`.

    def prompt_ids(self, ticket: Ticket) -> list[int]:
        return self._prompts([ticket])[0]

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False).input_ids)

    def fits(self, ids: Sequence[int]) -> bool:
        limit = self._limit()
        return limit is None or len(ids) + self._max_new_tokens <= limit

    def say(self, histories: Sequence[list[int]], turns: Sequence[tuple[Ticket, int, int]]) -> list[Said]:
        """One answer to each, keyed by ticket, rollout and turn, whatever it is generated together with."""
        said: list[Said] = []
        for start in range(0, len(histories), self._batch_size):
            piece = slice(start, start + self._batch_size)
            keyed = [
                ticket.model_copy(update={"ticket": f"{identity(ticket.ticket)}/{n}/{turn}", "group_size": 1})
                for ticket, n, turn in turns[piece]
            ]
            answers = self._sample(list(histories[piece]), keyed, [range(1)] * len(keyed))
            texts = self._tokenizer.batch_decode([answer.ids for answer in answers], skip_special_tokens=True)
            said += [
                Said(ids=answer.ids, logprobs=answer.logprobs, text=text, ended=answer.finish_reason == "stop")
                for answer, text in zip(answers, texts, strict=True)
            ]
        return said

    def _prompts(self, tickets: Sequence[Ticket]) -> list[list[int]]:
        return prompts_of(tickets, self._tokenizer, max_new_tokens=self._max_new_tokens, limit=self._limit())

    def _limit(self) -> int | None:
        return getattr(self._model.config, "max_position_embeddings", None)

    def _batches(self, prompts: Sequence[Sequence[int]], spans: Sequence[range]) -> Iterator[list[int]]:
        """Places of the tickets of each batch; prompts of like length together, as padding costs as much as text."""
        batch: list[int] = []
        size = 0
        for place in sorted(range(len(spans)), key=lambda place: len(prompts[place])):
            if batch and size + len(spans[place]) > self._batch_size:
                yield batch
                batch, size = [], 0
            batch.append(place)
            size += len(spans[place])
        if batch:
            yield batch

    def _sample(self, prompts: list[list[int]], tickets: list[Ticket], spans: list[range]) -> list[Answer]:
        """One answer a rollout, the rollouts of a ticket together."""
        device = self._model.device
        ids_KP, attended_KP = _left_padded(prompts, device)
        sizes_K = torch.tensor([len(span) for span in spans], device=device)
        ticket_of_R = torch.arange(len(tickets), device=device).repeat_interleave(sizes_K)
        uniform_RT = torch.from_numpy(
            np.concatenate(
                [
                    _uniforms(self._seed, ticket, self._max_new_tokens)[span.start : span.stop]
                    for ticket, span in zip(tickets, spans, strict=True)
                ]
            )
        ).to(device)
        was_training = self._model.training
        self._model.eval()
        try:
            with (
                torch.inference_mode(),
                torch.autocast(device.type, torch.bfloat16, enabled=self._bfloat16),
            ):
                ids_RT, logprob_RT, length_R, ended_R = self._write(ids_KP, attended_KP, ticket_of_R, uniform_RT)
        finally:
            self._model.train(was_training)
        return [
            Answer(ids=ids[:length], logprobs=logprobs[:length], finish_reason="stop" if ended else "length")
            for ids, logprobs, length, ended in zip(
                ids_RT.tolist(), logprob_RT.tolist(), length_R.tolist(), ended_R.tolist(), strict=True
            )
        ]

    def _write(
        self, ids_KP: torch.Tensor, attended_KP: torch.Tensor, ticket_of_R: torch.Tensor, uniform_RT: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids and log-probabilities (R, T), lengths and whether an end token came (R,)."""
        cache = DynamicCache(config=self._model.config)
        logits_KV = self._logits(ids_KP, attended_KP, cache)
        cache.batch_select_indices(ticket_of_R)
        logits, attended = logits_KV[ticket_of_R], attended_KP[ticket_of_R]
        row = torch.arange(len(ticket_of_R), device=ids_KP.device)  # of the rollouts that the cache holds
        going = torch.ones_like(row, dtype=torch.bool)  # which of them are still being written
        ids_RT = torch.zeros_like(uniform_RT, dtype=torch.long)
        logprob_RT = torch.zeros_like(uniform_RT, dtype=torch.float32)
        length_R = torch.full_like(row, self._max_new_tokens)
        ended_R = torch.zeros_like(row, dtype=torch.bool)
        end_ids = torch.tensor(self._end_ids, device=ids_KP.device)
        for t in range(self._max_new_tokens):
            token, logprob = _draw(logits / self._temperature, uniform_RT[row, t])
            ids_RT[row, t], logprob_RT[row, t] = token, logprob
            ends = torch.isin(token, end_ids) & going
            ended_R[row[ends]], length_R[row[ends]] = True, t + 1
            going = going & ~ends
            num_going = int(going.sum())
            if num_going == 0 or t + 1 == self._max_new_tokens:
                break
            if num_going <= CROWDED_ABOVE * len(row):
                kept = going.nonzero()[:, 0]
                row, token, attended, going = row[kept], token[kept], attended[kept], going[kept]
                cache.batch_select_indices(kept)
            attended = torch.cat([attended, torch.ones_like(attended[:, :1])], dim=1)
            logits = self._logits(token[:, None], attended, cache)
        return ids_RT, logprob_RT, length_R, ended_R

    def _logits(self, ids: torch.Tensor, attended: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
        """Logits after the last of `ids`, which follow what the cache holds; float32, whatever the weights are in."""
        positions = (attended.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        logits: torch.Tensor = self._model(
            input_ids=ids,
            attention_mask=attended,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        return logits[:, -1].float()


def _draw(logits_RV: torch.Tensor, uniform_R: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first token at which the cumulated probability passes u, and its log-probability; both (R,).

    Cumulated in float64: over a large vocabulary a float32 sum loses the rare tokens.
    """
    logprob_RV = torch.log_softmax(logits_RV, dim=-1)
    cumulated_RV = logprob_RV.double().exp().cumsum(-1)
    total_R = cumulated_RV[:, -1]
    if bool(total_R.isnan().any()):
        raise FloatingPointError("the model's logits are not numbers: its weights have diverged")
    token_R = torch.searchsorted(cumulated_RV, (uniform_R * total_R)[:, None], right=True)[:, 0]
    token_R = token_R.clamp(max=logits_RV.shape[1] - 1)
    return token_R, logprob_RV.gather(1, token_R[:, None])[:, 0]


def _left_padded(prompts: Iterable[list[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and where there are any, both (K, P). What stands in the padding is never looked at."""
    prompts = list(prompts)
    width = max(map(len, prompts))
    ids_KP = torch.tensor([[0] * (width - len(ids)) + ids for ids in prompts], device=device)
    attended_KP = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts], device=device)
    return ids_KP, attended_KP


def _uniforms(seed: int, ticket: Ticket, num_tokens: int) -> np.ndarray:
    """(G, T) in [0, 1). Row g is the same for any group size."""
    digest = hashlib.blake2b(f"{seed}:{identity(ticket.ticket)}".encode(), digest_size=KEY_BYTES).digest()
    rng = np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
    return rng.random((ticket.group_size, num_tokens))


def read_model(folder: Path | None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model and tokenizer in a folder of transformers' format, in float32 on the accelerator if there is one.

    None: the small learner that is shipped. Raises InvalidRequest where there is no model.
    """
    if folder is None:
        model, tokenizer = load_learner()
    elif not (folder / "config.json").is_file():
        raise InvalidRequest(f"{folder} holds no model in transformers' format: it has no config.json")
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), tokenizer
