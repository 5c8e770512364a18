"""Trains a language model on sums for some minutes, sampled by vLLM, and prints what each phase took.

`tests/gpu/run.sh` runs it on an accelerator, once with rollouts and updates one after the other and once with rollouts
that run ahead. Without a model it trains the small learner that is shipped on its puzzles, which a CPU can do.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import midband
from trainer.training.command import run_command
from trainer.training.config import TrainConfig
from trainer.training.metrics import Line, Metrics

PHASES = ("generation_s", "scoring_s", "update_s", "weight_sync_s", "idle_s")
ASKED = "What is {}? Answer with the number alone."
UNTRUSTED_ABOVE = 0.01  # mean |log-ratio| of a step: float32 kernels of two libraries stay far below


def pool(file: Path, *, num_train: int = 4_000, num_heldout: int = 256) -> None:
    """Different sums of two to four numbers of one to three digits."""
    rng = np.random.default_rng(0)
    sums: dict[str, dict[str, object]] = {}
    while len(sums) < num_train + num_heldout:
        count, digits = int(rng.integers(2, 5)), int(rng.integers(1, 4))
        numbers = [int(number) for number in rng.integers(10**digits, size=count)]
        asked = ASKED.format(" + ".join(map(str, numbers)))
        sums[asked] = {
            "content": [{"role": "user", "content": asked}],
            "answer": str(sum(numbers)),
            "category": f"{count}x{digits}",
        }
    with file.open("w", encoding="utf-8") as out:
        for n, row in enumerate(sums.values()):
            split = "train" if n < num_train else "heldout"
            out.write(json.dumps({"key": f"sum-{n}", "split": split, **row}) + "\n")


def config(folder: Path, arguments: argparse.Namespace) -> TrainConfig:
    steps = arguments.steps
    is_language = arguments.model is not None
    return TrainConfig.model_validate(
        {
            "output": folder / "out",
            "pool": {"name": "pool"} | ({"file": folder / "pool.jsonl"} if is_language else {"learner": "mild"}),
            "run": {"name": "gpu"},
            "model": {
                "path": arguments.model,
                "engine": arguments.engine,
                "grader": "numeric" if is_language else "exact",
                "max_new_tokens": 32 if is_language else 16,
                "precision": arguments.precision,
            },
            "batch": {"size": arguments.batch_size, "group_size": 8},
            # Rollouts that run ahead are of older weights; kernels and precision of another library count as well.
            "loss": {"importance_cap": 2.0} if arguments.depth or arguments.precision != "float32" else {},
            "optimizer": {"learning_rate": 1e-6 if is_language else 1e-4, "microbatch": 64},
            "evaluation": {"every": max(1, steps // 2), "size": 4 * arguments.batch_size, "group_size": 2},
            "checkpoints": {"every": steps},
            "asynchrony": {"depth": arguments.depth},
            "stop": {"steps": steps},
        }
    )


@contextmanager
def comparisons() -> Iterator[list[float]]:
    """How far vLLM's log-probabilities were from the trainer's after each update that it took."""
    from trainer.rollout.vllm import VllmEngine

    found: list[float] = []
    compare = VllmEngine._difference

    def noted(engine: VllmEngine, model: Any) -> float:
        found.append(compare(engine, model))
        return found[-1]

    with patch.object(VllmEngine, "_difference", noted):
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?", help="folder in transformers' format, with a chat template")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--engine", choices=["vllm", "torch"], default="vllm")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--depth", type=int, default=0, help="batches that are begun before the one trained on")
    parser.add_argument("--batch-size", type=int, default=64, help="tickets of a step, 8 rollouts each")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="midband-gpu-") as name, midband.in_process() as client:
        folder = Path(name)
        pool(folder / "pool.jsonl")
        wanted = config(folder, arguments)
        if arguments.engine == "torch":
            run_command(wanted, client)
        else:
            with comparisons() as found:
                run_command(wanted, client)
            # At the start or before the first batch, and after each update that anything was sampled with.
            if len(found) < arguments.steps - arguments.depth:
                raise SystemExit(f"{arguments.steps} updates, and {len(found)} comparisons of log-probabilities")
            print(
                f"log-probabilities compared with the trainer's after {len(found)} updates of the sampler: mean "
                f"difference of {np.mean(found):.2g}, at most {max(found):.2g}"
            )
        show(Metrics(folder / "out" / "metrics.jsonl").lines("step"), wanted)


def show(lines: list[Line], config: TrainConfig) -> None:
    """Tokens per second by phase, the first step apart, and how far the sampler was from the trainer."""
    num_tokens = lines[-1]["tokens"] - lines[0]["tokens"]
    depth, last = config.asynchrony.depth, lines[-1]
    took_s = sum(sum(line["seconds"][phase] for phase in PHASES) for line in lines[1:])
    print(f"depth {depth}: {len(lines)} steps, {num_tokens:,} tokens after the first of them")
    for phase in PHASES:
        first_s, *others = [line["seconds"][phase] for line in lines]
        rate = f"{num_tokens / sum(others):12,.0f} tokens/s" if sum(others) > 0.01 else ""
        print(f"{phase:14} {first_s:8.2f} s first, {sum(others):8.2f} s then {rate}")
    if depth == 0:  # else generation and updates overlap, and their seconds are no time of the clock
        print(f"{'all of it':14} {'':16} {took_s:8.2f} s then {num_tokens / took_s:12,.0f} tokens/s")
    for name, value in last["measured"].items():
        print(f"{name} of the last step: {value}")
    if not any(line["gradient_norm"] for line in lines):
        raise SystemExit("no group was informative, so no weight has changed: this shows nothing")
    if config.loss.importance_cap is not None:
        ratios, capped = ([line[name] for line in lines] for name in ("importance", "capped"))
        print(
            f"ratio of trainer's to sampler's probability of a token: mean of a step {min(ratios):.4f} to "
            f"{max(ratios):.4f}; at most {max(capped):.2%} of the tokens cut at {config.loss.importance_cap:g}"
        )
        return
    worst = max(abs(line["log_ratio"]) for line in lines)
    print(f"largest mean log-ratio of a step between sampler and trainer: {worst:.2g}")
    if worst > UNTRUSTED_ABOVE:
        raise SystemExit(f"above {UNTRUSTED_ABOVE}: what was sampled is not what was trained")


if __name__ == "__main__":
    main()
