"""Rollouts a second of the prober and of the bare engine under it, on the same prompts, sampled by vLLM.

`tests/gpu/run.sh` runs it on an accelerator; without a model it takes the small learner that is shipped and its
puzzles, which a CPU can do. The prober draws tickets, reports in waves and hears which to go on with; the bare engine
makes rollouts of the same prompts with none of that.
"""

import argparse
import tempfile
import time
from pathlib import Path

import midband
from api.schemas import Ticket
from tests.gpu.train import pool
from trainer.graders import GRADERS
from trainer.learner.model import WEIGHTS
from trainer.probing.prober import probe
from trainer.rollout.base import RolloutEngine
from trainer.training.command import fill_pool
from trainer.training.config import PoolSettings

GROUP_SIZE = 8
TICKETS = 256  # of a batch


def bare(engine: RolloutEngine, tickets: list[Ticket], spans: list[range]) -> tuple[int, float]:
    """Rollouts and seconds of the engine alone."""
    began_s = time.perf_counter()
    groups = engine.generate_part(tickets, spans, policy_version=0)
    return sum(len(group.rollouts) for group in groups), time.perf_counter() - began_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?", help="folder in transformers' format, with a chat template")
    parser.add_argument("--tickets", type=int, default=TICKETS, help="of a batch")
    parser.add_argument("--tokens", type=int, default=200_000, help="for the prober to spend")
    parser.add_argument("--memory-share", type=float, default=0.5)
    arguments = parser.parse_args()
    from trainer.rollout.vllm import VllmEngine

    engine = VllmEngine(
        arguments.model or WEIGHTS,
        GRADERS["numeric" if arguments.model else "exact"],
        max_new_tokens=32 if arguments.model else 16,
        precision="float32",
        memory_share=arguments.memory_share,
    )
    with tempfile.TemporaryDirectory(prefix="midband-gpu-") as name, midband.in_process() as client:
        file = Path(name) / "pool.jsonl"
        pool(file)
        fill_pool(client, PoolSettings(name="pool", **({"file": file} if arguments.model else {"learner": "mild"})))
        client.create_run("bare", pool="pool", group_size=GROUP_SIZE)
        client.create_run("probed", pool="pool", group_size=GROUP_SIZE)
        tickets = client.draw("bare", 0, arguments.tickets, 0, include=["content", "answer"]).tickets
        bare(engine, tickets[:8], [range(2)] * 8)  # warm
        whole, whole_s = bare(engine, tickets, [range(GROUP_SIZE)] * len(tickets))
        # As many at a time as the prober asks for: it goes on by twos.
        waves, waves_s = bare(engine, tickets, [range(2)] * len(tickets))
        began_s = time.perf_counter()
        probed = probe(
            client, "probed", engine, version=lambda: 0, batch_size=arguments.tickets, budget_tokens=arguments.tokens
        )
        probed_s = time.perf_counter() - began_s
    rate = probed.rollouts / probed_s
    print(f"bare engine, groups of {GROUP_SIZE}: {whole / whole_s:10,.0f} rollouts/s ({whole:,} in {whole_s:.2f} s)")
    print(f"bare engine, waves of 2:  {waves / waves_s:10,.0f} rollouts/s ({waves:,} in {waves_s:.2f} s)")
    print(f"prober:                   {rate:10,.0f} rollouts/s ({probed.rollouts:,} in {probed_s:.2f} s)")
    of_groups, of_waves = rate / (whole / whole_s), rate / (waves / waves_s)
    print(f"prober to bare engine: {of_groups:.2f} of its rate in groups, {of_waves:.2f} of its rate in waves")


if __name__ == "__main__":
    main()
