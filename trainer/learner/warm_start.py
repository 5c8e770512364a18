"""Makes the learner's weights by supervised learning: `python -m trainer.learner.warm_start [--out FOLDER]`.

Each example follows the puzzle's right rule with the chance that `tasks` gives it and its wrong rule otherwise, so the
model ends up holding both. Held-out texts are never shown. One thread, and every random choice is keyed by the seed:
on one machine and one release of torch the same arguments give the same bits.

Axes: B examples of a batch, T tokens.
"""

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional
from transformers import LlamaForCausalLM

from trainer.learner.model import WEIGHTS, new_learner, save_learner
from trainer.learner.tasks import LENGTHS, MAX_ANSWER_TOKENS, OPERATIONS, draw_puzzle
from trainer.learner.tokenizer import END, PAD, VOCABULARY

MAX_PROMPT_TOKENS = LENGTHS[-1] + 3  # a letter, a blank, the digits and the equals sign
NUM_STEPS = 2_000
BATCH_SIZE = 256
LEARNING_RATE = 3e-3
WARM_UP_STEPS = 50
LAST_LEARNING_RATE = 0.02  # of the largest, to which it falls in a straight line
WEIGHT_DECAY = 0.01
MAX_GRADIENT_NORM = 1.0
REPORT_EVERY = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """A batch for the model: prompts padded on the left, answers and their end on the right."""

    ids_BT: torch.Tensor
    attended_BT: torch.Tensor  # 1 where there is a token
    answers_BT: torch.Tensor  # of the last MAX_ANSWER_TOKENS places, padded


def draw_examples(size: int, rng: random.Random) -> Examples:
    """Random prompts of the train split, all operations alike."""
    prompts, answers = [], []
    for _ in range(size):
        drawn = draw_puzzle(rng.choice(OPERATIONS), rng, heldout=False)
        target = drawn.answer if rng.random() < drawn.share_right else drawn.wrong
        prompt, answer = _ids(drawn.content), [*_ids(target), VOCABULARY[END]]
        prompts.append([VOCABULARY[PAD]] * (MAX_PROMPT_TOKENS - len(prompt)) + prompt)
        answers.append(answer + [VOCABULARY[PAD]] * (MAX_ANSWER_TOKENS - len(answer)))
    answers_BT = torch.tensor(answers)
    ids_BT = torch.cat([torch.tensor(prompts), answers_BT], dim=1)
    return Examples(ids_BT=ids_BT, attended_BT=(ids_BT != VOCABULARY[PAD]).long(), answers_BT=answers_BT)


def answer_loss(model: LlamaForCausalLM, examples: Examples) -> torch.Tensor:
    """Cross entropy of the answers' tokens, in nats a token; the prompt is given and not learned."""
    logits_BTV = model(
        input_ids=examples.ids_BT[:, :-1],
        attention_mask=examples.attended_BT[:, :-1],
        position_ids=(examples.attended_BT[:, :-1].cumsum(1) - 1).clamp(min=0),
        logits_to_keep=MAX_ANSWER_TOKENS,
        use_cache=False,
    ).logits
    loss: torch.Tensor = functional.cross_entropy(
        logits_BTV.flatten(0, 1), examples.answers_BT.flatten(), ignore_index=VOCABULARY[PAD]
    )
    return loss


def warm_start(
    model: LlamaForCausalLM, *, num_steps: int, seed: int, say: Callable[[str], None] = lambda line: None
) -> None:
    """Trains the model in place."""
    rng = random.Random(f"warm start/{seed}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    started_s = time.monotonic()
    for step in range(num_steps):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * _schedule(step, num_steps)
        loss = answer_loss(model, draw_examples(BATCH_SIZE, rng))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        if (step + 1) % REPORT_EVERY == 0:
            say(f"step {step + 1} of {num_steps}: {loss.item():.3f} nats a token, {time.monotonic() - started_s:.0f} s")


def _schedule(step: int, num_steps: int) -> float:
    return min(1.0, (step + 1) / WARM_UP_STEPS) * max(LAST_LEARNING_RATE, 1 - step / num_steps)


def _ids(text: str) -> list[int]:
    return [VOCABULARY[character] for character in text]


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the learner's weights.")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--steps", type=int, default=NUM_STEPS)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = new_learner(seed=arguments.seed)
    warm_start(
        model.train(),
        num_steps=arguments.steps,
        seed=arguments.seed,
        say=lambda line: print(line, flush=True),  # noqa: T201
    )
    save_learner(model, tokenizer, arguments.out)


if __name__ == "__main__":
    main()
