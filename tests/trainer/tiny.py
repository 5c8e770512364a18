"""A training run small enough for a test: a model of some ten thousand parameters, and prompts it can get right.

A prompt is answered right by beginning with a character of the kind it asks for. A model that knows nothing does so
with a letter more often than not, with a digit one time in eight, and never with what is not in its alphabet.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import midband
from tests.trainer.factories import make_ticket
from trainer.client import Client
from trainer.grpo import Result, train
from trainer.learner.tokenizer import END, PAD, UNKNOWN, VOCABULARY, character_tokenizer
from trainer.policy import Policy
from trainer.rollout.ahead import Ahead
from trainer.rollout.base import Rollout, RolloutGroup
from trainer.rollout.torch import TorchEngine
from trainer.training.config import TrainConfig
from trainer.training.metrics import Line, Metrics

WANTED: dict[str, Callable[[str], bool]] = {"letter": str.isalpha, "digit": str.isdigit, "never": "~".__eq__}
MAX_NEW_TOKENS = 3


def grade(text: str, answer: str | None) -> float:
    return float(WANTED[str(answer)](text[:1]))


def fill(client: Client, *, num_train: int = 40, num_heldout: int = 12) -> None:
    """The pool `tiny`."""
    kinds = list(WANTED)
    rows = [
        {
            "key": f"p{n:03d}",
            "content": f"{n} {kinds[n % 3]}",
            "answer": kinds[n % 3],
            "category": kinds[n % 3],
            "split": "train" if n < num_train else "heldout",
            "meta": {"stratum": "hopeless" if kinds[n % 3] == "never" else "possible"},
        }
        for n in range(num_train + num_heldout)
    ]
    client.create_pool("tiny")
    client.put_prompts("tiny", rows)


def make_config(output: Path, **tables: dict[str, Any]) -> TrainConfig:
    """A configuration of a dozen steps; `tables` are laid over it."""
    values: dict[str, dict[str, Any]] = {
        "pool": {"name": "tiny"},
        "run": {"name": "tiny"},
        "model": {"max_new_tokens": MAX_NEW_TOKENS, "generation_batch": 16},
        "batch": {"size": 8, "group_size": 4},
        "optimizer": {"learning_rate": 5e-3, "warmup_steps": 2, "microbatch": 6},
        "evaluation": {"every": 5, "size": 6, "group_size": 2},
        "checkpoints": {"every": 3},
        "stop": {"steps": 11},
    }
    for name, table in tables.items():
        values[name] = {**values.get(name, {}), **table}
    return TrainConfig.model_validate({"output": output, "seed": 3, **values})


def make_tokenizer() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=character_tokenizer(),
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def make_model(*, seed: int = 0, **changed: Any) -> LlamaForCausalLM:
    config: dict[str, Any] = {
        "vocab_size": len(VOCABULARY), "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 32,
        "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": VOCABULARY[END],
        "pad_token_id": VOCABULARY[PAD], "dtype": "float32",
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(**{**config, **changed}))


def make_model_of_places(*, seed: int = 0) -> GPT2LMHeadModel:
    """A model that learns a vector for each place: unlike the other, it sees how a prompt is padded."""
    config = GPT2Config(
        vocab_size=len(VOCABULARY), n_positions=32, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=VOCABULARY[END], eos_token_id=VOCABULARY[END], pad_token_id=VOCABULARY[PAD],
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPT2LMHeadModel(config)


def make_policy(config: TrainConfig, *, model: Any = None, **changed: Any) -> tuple[Policy, TorchEngine]:
    """Model and optimizer as at the start of a run, and the engine that samples from it."""
    policy = Policy(model or make_model(**changed), make_tokenizer(), config)
    return policy, engine_of(config, policy.model)


def engine_of(config: TrainConfig, model: Any) -> TorchEngine:
    return TorchEngine(
        model,
        make_tokenizer(),
        grade,
        max_new_tokens=MAX_NEW_TOKENS,
        temperature=config.model.temperature,
        seed=config.seed,
        batch_size=config.model.generation_batch,
    )


def make_groups(
    config: TrainConfig, policy: Policy, engine: TorchEngine, *, size: int = 6, group_sizes: Sequence[int] = ()
) -> list[RolloutGroup]:
    """Groups of this policy's own rollouts; their rewards are made up, every third group's are alike."""
    tickets = [
        make_ticket(
            f"p{k}", ticket=f"r:0:train:0:0:{k}", content=f"{10**k} letter", answer="letter",
            group_size=group_sizes[k] if group_sizes else config.batch.group_size, weight=0.5 + k / 4,
        )
        for k in range(size)
    ]  # fmt: skip
    groups = engine.generate(tickets, policy_version=0)
    return [
        RolloutGroup(
            ticket=group.ticket,
            rollouts=tuple(
                _with_outcome(rollout, 1.0 if k % 3 == 0 else (g * (k + 1) % 4) / 3)
                for g, rollout in enumerate(group.rollouts)
            ),
        )
        for k, group in enumerate(groups)
    ]


def _with_outcome(rollout: Rollout, outcome: float) -> Rollout:
    return Rollout(
        outcome=outcome,
        tokens=rollout.tokens,
        prompt_ids=rollout.prompt_ids,
        completion_ids=rollout.completion_ids,
        logprobs=rollout.logprobs,
    )


class Killed(Exception):
    """The process ends here."""


@contextmanager
def service(folder: Path) -> Iterator[Client]:
    """A service whose database outlives it."""
    folder.mkdir(parents=True, exist_ok=True)
    with midband.in_process(f"sqlite:///{folder / 'midband.db'}") as client:
        yield client


def run(
    config: TrainConfig, watch: Callable[[Line], None] | None = None, prepare: Callable[[Policy], None] | None = None
) -> tuple[Result, Policy]:
    """One process's life: a service, a model as at the start, training to the end."""
    with service(config.output) as client:
        fill(client)
        policy, engine = make_policy(config)
        if prepare is not None:
            prepare(policy)
        if not config.asynchrony.depth:
            return train(config, client, policy, engine, watch=watch), policy
        twin = policy.twin()
        with Ahead(engine_of(config, twin), lambda: policy.snapshot(twin)) as ahead:
            return train(config, client, policy, engine, watch=watch, ahead=ahead), policy


def killed_in(step: int) -> Callable[[Line], None]:
    """Ends the process after the report and the update of this step, before anything is kept."""

    def watch(line: Line) -> None:
        if line["kind"] == "step" and line["step"] == step:
            raise Killed

    return watch


OF_THE_CLOCK = ("seconds", "measured", "branch")


def told(config: TrainConfig) -> list[Line]:
    """The lines of the metrics without what a clock or a restore put into them."""
    lines = Metrics(config.output / "metrics.jsonl").lines()
    return [{name: value for name, value in line.items() if name not in OF_THE_CLOCK} for line in lines]


HORVITZ_THOMPSON = {"run": {"policy": "midband", "weights": "horvitz_thompson", "audit_share": 0.2}}


def same_state(one: Policy, other: Policy) -> bool:
    """Whether weights and optimizer are equal to the bit."""
    pairs = [(one.parameters[name], other.parameters[name]) for name in one.parameters]
    return all(torch.equal(a, b) for a, b in pairs) and all(
        torch.equal(one.optimizer.state[a][key], other.optimizer.state[b][key])
        for a, b in pairs
        for key in ("step", "exp_avg", "exp_avg_sq")
    )
