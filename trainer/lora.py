"""Low-rank adapters by peft: what is trained in place of the weights themselves, and how it is kept.

`trainer.policy` calls it where the configuration asks for adapters; the only file that imports peft.
"""

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from trainer.errors import MidbandError, MissingExtra
from trainer.training.config import LoraSettings

FILE = "adapter_model.safetensors"  # peft's own name


def with_adapters(model: Any, settings: LoraSettings, *, seed: int) -> Any:
    """The model with an adapter on each target, trainable; everything else is held. The adapters change nothing yet.

    Their start is keyed by the seed. Raises MissingExtra without peft, ValueError (peft's) for targets that are none.
    """
    peft = _peft()
    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=settings.targets,
    )
    key = hashlib.blake2b(f"{seed}:lora".encode(), digest_size=8).digest()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int.from_bytes(key, "little", signed=True))
        return peft.get_peft_model(model, config)


def save_adapters(model: Any, folder: Path) -> None:
    """Write the adapters, without the weights they sit on, in the format that `PeftModel.from_pretrained` reads."""
    model.save_pretrained(folder)


def load_adapters(model: Any, folder: Path) -> None:
    """Take adapters up again. Raises MidbandError if the file is not of these adapters."""
    result = _peft().set_peft_model_state_dict(model, load_file(folder / FILE))
    if result.unexpected_keys:
        raise MidbandError(f"{folder / FILE} has adapters this model has not: {result.unexpected_keys[:3]}")


def _peft() -> Any:
    try:
        import peft
    except ModuleNotFoundError as error:
        raise MissingExtra(f"model.lora needs {error.name}: pip install 'midband[lora]'") from error
    return peft
