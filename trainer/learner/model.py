"""The learner: a Llama of a third of a million parameters with untied embeddings, and its tokenizer.

The warm start makes a fresh one; trainers load the shipped one. Untied embeddings, as an engine that is handed new
weights while it runs may keep the old output layer when it is tied. Heads of 32, the smallest that all engines know.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file, save
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from trainer.learner.tokenizer import END, PAD, UNKNOWN, VOCABULARY, character_tokenizer

WEIGHTS = Path(__file__).parent / "weights"
WEIGHTS_FILE = "model.safetensors"
MAX_TOKENS = 64  # of prompt and answer
# Rotations slow enough to tell apart two dozen places; the usual base of 10,000 spends most of them on thousands.
ROPE_BASE = 100.0


def new_learner(*, seed: int) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """An untrained model and its tokenizer; the same seed, the same weights."""
    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=3,
        head_dim=32,
        max_position_embeddings=MAX_TOKENS,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_BASE},
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=VOCABULARY[END],
        pad_token_id=VOCABULARY[PAD],
        dtype="float32",
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=character_tokenizer(),
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        padding_side="left",
        model_max_length=MAX_TOKENS,
        clean_up_tokenization_spaces=False,
    )
    return _build(config, seed), tokenizer


def load_learner() -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """The shipped model, in float32 and evaluation mode, and its tokenizer."""
    model = _build(LlamaConfig.from_pretrained(WEIGHTS, local_files_only=True), seed=0)
    model.load_state_dict(load_file(WEIGHTS / WEIGHTS_FILE))
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS, local_files_only=True)
    return model, tokenizer


def save_learner(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Weights as safetensors, configuration and tokenizer, as every engine that reads transformers' format expects."""
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    (folder / WEIGHTS_FILE).write_bytes(save(weights, metadata={"format": "pt"}))  # as readable as any other file


def _build(config: LlamaConfig, seed: int) -> LlamaForCausalLM:
    """A model with random weights, in float32 and evaluation mode; the generator of the process is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).float().eval()
