"""Rollouts from vLLM's offline engine in this process, by its CUDA build or its CPU build.

`midband train` uses it with a model that learns beside it, a prober with the folder of a checkpoint. Its weights are a
copy: they follow by `sync` or `load`, in place, and after each the log-probabilities of a few sequences are compared
with the model that they came from. An engine that would go on with other weights than it was given refuses to sample:
vLLM says of some weights that it did not take in its log only, and generates on.

Randomness is keyed by the engine's seed, by which ticket of which draw it is, and by the rollout's number, as far as
vLLM's kernels go: in another batch, sums in another order may very rarely draw another token.

Needs vLLM, and on a CPU none of torchvision, torchaudio and torchcodec beside it: docs/engines.md.
"""

import hashlib
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

# vLLM reads these when it is loaded. In this process: weights are handed over without copies, and start in seconds.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # bound threads wait for each other beside other load
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; without it, most of the machine's memory
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel
from vllm import LLM, SamplingParams

from api.schemas import Ticket
from trainer.errors import InvalidRequest, MidbandError, WeightsRefused
from trainer.graders import Grader
from trainer.rollout.base import FinishReason, Rollout, RolloutEngine, RolloutGroup
from trainer.rollout.texts import Answer, end_ids, graded, identity, prompts_of

logger = logging.getLogger(__name__)

Precision = Literal["float32", "bfloat16", "float16"]

FINISHED: tuple[FinishReason, ...] = get_args(FinishReason)
SEED_BYTES = 8
COLDEST = 0.01  # vLLM takes a lower temperature for this one
NUM_COMPARED, LENGTH_COMPARED = 4, 16  # sequences, and tokens of each
# Mean difference of the compared log-probabilities. On random tokens, of which each is unlikely, kernels of another
# library move single ones by up to 4e-4 in float32 and 0.5 in bfloat16 (a model of 135 million parameters); an output
# layer that stayed behind moves all of them, by 1 and more.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.3, torch.float16: 0.05}


class VllmEngine(RolloutEngine):
    """Samples from the model in `folder`, in transformers' format; or from `follows`, which is of the same shape.

    With `follows` it takes that model's weights at each `sync`, and refuses to generate before the first. `precision`:
    of its own copy, by default that of the folder. `memory_share`: of the accelerator, for weights and cache. On a CPU
    the cache has VLLM_CPU_KVCACHE_SPACE GiB. Other arguments as in `TorchEngine`.
    """

    def __init__(
        self,
        folder: Path,
        grader: Grader,
        *,
        max_new_tokens: int,
        temperature: float = 1.0,
        seed: int = 0,
        follows: PreTrainedModel | None = None,
        precision: Precision | None = None,
        memory_share: float = 0.9,
    ) -> None:
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be >= 1, got {max_new_tokens}")
        if not COLDEST <= temperature < float("inf"):
            raise ValueError(f"temperature must be a number >= {COLDEST}, got {temperature}")
        if not (folder / "config.json").is_file():
            raise InvalidRequest(f"{folder} holds no model in transformers' format: it has no config.json")
        self._grader = grader
        self._max_new_tokens = max_new_tokens
        self._temperature = temperature
        self._seed = seed
        self._follows = follows
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        with _without_llvmlite():
            self._llm = LLM(
                str(folder),
                dtype=precision or "auto",
                skip_tokenizer_init=True,  # ids go in and out
                max_model_len=-1,  # the model's own, or what the cache has room for
                logprobs_mode="processed_logprobs",  # of the distribution that is sampled, temperature included
                enforce_eager=not torch.cuda.is_available(),
                # The CPU build fails on a prompt that it reads in pieces where samples have seeds (vLLM 0.32).
                enable_chunked_prefill=None if torch.cuda.is_available() else False,
                gpu_memory_utilization=memory_share,
                seed=seed % 2**32,
            )
        config = self._llm.model_config
        generation = GenerationConfig.from_pretrained(folder) if (folder / "generation_config.json").exists() else None
        self._end_ids = end_ids(config.hf_config, generation, self._tokenizer)
        self._limit: int = config.max_model_len
        self._version: int | None = None  # of the weights; None: those of the folder, whatever the caller calls them
        self._doubt = None if follows is None else "it has not taken the weights of the model that it follows: sync it"
        self._failed_last = False

    def generate(self, tickets: Sequence[Ticket], *, policy_version: int) -> list[RolloutGroup]:
        """Groups under the weights of the last `sync` or `load`, which must have had this version."""
        spans = [range(ticket.group_size) for ticket in tickets]
        return self.generate_part(tickets, spans, policy_version=policy_version)

    def generate_part(
        self, tickets: Sequence[Ticket], spans: Sequence[range], *, policy_version: int
    ) -> list[RolloutGroup]:
        """Rollout n of a ticket is the same whether it is made with the whole group or with some of it.

        The seconds of a batch are shared among its rollouts by their tokens. Raises InvalidRequest for a ticket
        without content or too long for the model, WeightsRefused where the weights are in doubt. If vLLM itself fails,
        the batch's rollouts are errors; if it fails on the next batch too, that is raised.
        """
        self._refuse_other_weights(policy_version)
        prompts = prompts_of(tickets, self._tokenizer, max_new_tokens=self._max_new_tokens, limit=self._limit)
        if not tickets:
            return []
        asked = [(place, number) for place, span in enumerate(spans) for number in span]
        started_s = time.perf_counter()
        answers = self._write(
            [prompts[place] for place, _ in asked],
            [self._sampling(tickets[place], number) for place, number in asked],
        )
        num_tokens = sum(len(answer.ids) for answer in answers if answer is not None)
        seconds_per_token = (time.perf_counter() - started_s) / max(num_tokens, 1)
        texts = self._tokenizer.batch_decode(
            [[] if answer is None else answer.ids for answer in answers], skip_special_tokens=True
        )
        rollouts: list[list[Rollout]] = [[] for _ in tickets]
        for (place, _), answer, text in zip(asked, answers, texts, strict=True):
            rollouts[place].append(
                Rollout(outcome=None, status="error")
                if answer is None
                else graded(
                    self._grader, tickets[place], prompts[place], answer, text, seconds_per_token=seconds_per_token
                )
            )
        return [
            RolloutGroup(ticket=ticket, rollouts=tuple(made), start=span.start)
            for ticket, made, span in zip(tickets, rollouts, spans, strict=True)
        ]

    def sync(self, *, policy_version: int) -> None:
        """Take the weights of `follows` as they are now. Raises WeightsRefused if they did not arrive."""
        if self._follows is not None:
            self._take(self._follows, policy_version)

    def load(self, folder: Path, *, policy_version: int) -> None:
        """Take the weights of a folder in transformers' format. Raises WeightsRefused if they did not arrive."""
        self._take(AutoModelForCausalLM.from_pretrained(folder).eval(), policy_version)

    def _take(self, model: PreTrainedModel, policy_version: int) -> None:
        self._doubt = f"the weights of version {policy_version} did not arrive"
        # The state names a tensor under each of its names: vLLM drops an output layer that is tied, unless it is named.
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(model.state_dict().items())})
        # Kept keys and values are those of other weights.
        if not self._llm.reset_prefix_cache():
            raise MidbandError("vLLM did not empty its cache of prompts: something else generates with this engine")
        difference = self._difference(model)
        tolerance = TOLERANCE[self._llm.model_config.dtype]
        if not difference <= tolerance:
            tied = " its embeddings are tied;" if model.config.get_text_config().tie_word_embeddings else ""
            self._doubt = (
                f"after taking version {policy_version}, vLLM's log-probabilities differ from the model's by "
                f"{difference:.2g} on average, where {tolerance:g} is allowed:{tied} this vLLM does not take this "
                "model's weights while it runs, so train with another engine or another release of vLLM"
            )
            raise WeightsRefused(self._doubt)
        self._version, self._doubt = policy_version, None

    def _difference(self, model: PreTrainedModel) -> float:
        """Mean difference of a log-probability between vLLM and the model, over a few sequences; NaN if any is."""
        vocabulary = model.get_input_embeddings().weight.shape[0]
        length = min(LENGTH_COMPARED, self._limit - 1)
        ids_ST = np.random.default_rng(0).integers(vocabulary, size=(NUM_COMPARED, length))
        with torch.no_grad():
            logp_STV = model(torch.from_numpy(ids_ST).to(model.device)).logits.float().log_softmax(-1)
        outputs = self._llm.generate(
            [{"prompt_token_ids": row} for row in ids_ST.tolist()],
            SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False),
            use_tqdm=False,
        )
        differences = [
            abs(output.prompt_logprobs[t][token].logprob - float(logp_TV[t - 1, token]))
            for output, row, logp_TV in zip(outputs, ids_ST.tolist(), logp_STV, strict=True)
            for t, token in enumerate(row)
            if t > 0
        ]
        return float(np.mean(differences))

    def _refuse_other_weights(self, policy_version: int) -> None:
        if self._doubt is not None:
            raise WeightsRefused(f"vLLM is not sampled from: {self._doubt}")
        if self._version is not None and policy_version != self._version:
            raise InvalidRequest(
                f"asked for rollouts of version {policy_version}, but the engine has the weights of version "
                f"{self._version}: sync or load them first"
            )

    def _sampling(self, ticket: Ticket, number: int) -> Any:
        key = f"{self._seed}:{identity(ticket.ticket)}:{number}".encode()
        digest = hashlib.blake2b(key, digest_size=SEED_BYTES).digest()
        return SamplingParams(
            temperature=self._temperature,
            max_tokens=self._max_new_tokens,
            seed=int.from_bytes(digest, "little") % 2**63,
            stop_token_ids=self._end_ids,
            logprobs=0,  # of the token that was drawn alone
            detokenize=False,
        )

    def _write(self, prompts: Sequence[list[int]], sampling: Sequence[Any]) -> list[Answer | None]:
        """One answer a prompt; None where vLLM gave none."""
        try:
            outputs = self._llm.generate([{"prompt_token_ids": ids} for ids in prompts], list(sampling), use_tqdm=False)
        except Exception:
            left = list(self._llm.llm_engine.output_processor.request_states)
            self._llm.llm_engine.abort_request(left, internal=True)
            if self._failed_last:
                raise
            logger.warning("vLLM failed on a batch: its %d rollouts are errors", len(prompts), exc_info=True)
            self._failed_last = True
            return [None] * len(prompts)
        self._failed_last = False
        return [_answer(output.outputs[0]) for output in outputs]


@contextmanager
def _without_llvmlite() -> Iterator[None]:
    """Takes llvmlite, which numba brings, out of the list of loaded modules.

    vLLM's CPU build, when it starts, looks through the attributes of everything in that list, and stumbles over
    llvmlite's, whose library has an answer to any name (vLLM 0.32, llvmlite 0.47). The modules stay as they are.
    """
    hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "llvmlite"}
    for name in hidden:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.modules.update(hidden)


def _answer(completion: Any) -> Answer | None:
    """None for a request that vLLM gave up."""
    if completion.finish_reason not in FINISHED:
        logger.warning("vLLM ended a request with %r: the rollout is an error", completion.finish_reason)
        return None
    ids = list(completion.token_ids)
    logprobs = [place[token].logprob for place, token in zip(completion.logprobs, ids, strict=True)]
    return Answer(ids=ids, logprobs=logprobs, finish_reason=completion.finish_reason)
