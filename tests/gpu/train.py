"""Trains a language model on sums for some minutes, sampled by vLLM, and prints what each phase took.

`tests/gpu/run.sh` runs it on an accelerator; it runs on a CPU as well, with a model that is small enough.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

import midband
from trainer.training.command import run_command
from trainer.training.config import TrainConfig
from trainer.training.metrics import Line, Metrics

PHASES = ("generation_s", "scoring_s", "update_s", "weight_sync_s", "idle_s")
ASKED = "What is {}? Answer with the number alone."
UNTRUSTED_ABOVE = 0.01  # mean |log-ratio| of a step: float32 kernels of two libraries stay far below


def pool(file: Path, *, num_train: int = 4_000, num_heldout: int = 256) -> None:
    """Sums of two to four numbers of one to three digits."""
    rng = np.random.default_rng(0)
    with file.open("w", encoding="utf-8") as out:
        for n in range(num_train + num_heldout):
            count, digits = int(rng.integers(2, 5)), int(rng.integers(1, 4))
            numbers = [int(number) for number in rng.integers(10**digits, size=count)]
            row = {
                "key": f"sum-{n}",
                "content": [{"role": "user", "content": ASKED.format(" + ".join(map(str, numbers)))}],
                "answer": str(sum(numbers)),
                "category": f"{count}x{digits}",
                "split": "train" if n < num_train else "heldout",
            }
            out.write(json.dumps(row) + "\n")


def config(folder: Path, model: Path, *, steps: int, engine: str, batch_size: int) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "output": folder / "out",
            "pool": {"name": "sums", "file": folder / "pool.jsonl"},
            "run": {"name": "gpu"},
            "model": {"path": model, "engine": engine, "grader": "numeric", "max_new_tokens": 32},
            "batch": {"size": batch_size, "group_size": 8},
            "optimizer": {"learning_rate": 1e-6, "microbatch": 64},
            "evaluation": {"every": max(1, steps // 2), "size": 4 * batch_size, "group_size": 2},
            "checkpoints": {"every": steps},
            "stop": {"steps": steps},
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="folder in transformers' format, with a chat template")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--engine", choices=["vllm", "torch"], default="vllm")
    parser.add_argument("--batch-size", type=int, default=64, help="tickets of a step, 8 rollouts each")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="midband-gpu-") as name, midband.in_process() as client:
        folder = Path(name)
        pool(folder / "pool.jsonl")
        wanted = config(
            folder, arguments.model, steps=arguments.steps, engine=arguments.engine, batch_size=arguments.batch_size
        )
        run_command(wanted, client)
        show(Metrics(folder / "out" / "metrics.jsonl").lines("step"))


def show(lines: list[Line]) -> None:
    """Tokens per second by phase, the first step apart, and how far the sampler was from the trainer."""
    num_tokens = lines[-1]["tokens"] - lines[0]["tokens"]
    print(f"{len(lines)} steps, {num_tokens:,} tokens after the first of them")
    for phase in PHASES:
        first_s, *others = [line["seconds"][phase] for line in lines]
        rate = f"{num_tokens / sum(others):12,.0f} tokens/s" if sum(others) else ""
        print(f"{phase:14} {first_s:8.2f} s first, {sum(others):8.2f} s then {rate}")
    worst = max(abs(line["log_ratio"]) for line in lines)
    print(f"largest mean log-ratio of a step between sampler and trainer: {worst:.2g}")
    if worst > UNTRUSTED_ABOVE:
        raise SystemExit(f"above {UNTRUSTED_ABOVE}: what was sampled is not what was trained")


if __name__ == "__main__":
    main()
