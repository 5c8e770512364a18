"""The demo: a made-up pool, replayed under uniform sampling and under midband, in under a minute.

There is no model and no learner in it. The pass rates drift by themselves, alike under both policies, so the demo shows
how many groups would have taught something and what the audit sees, and nothing about learning faster.
"""

from pathlib import Path

from rich.console import Console

from trainer.client import Client
from trainer.replay.arms import PolicyArm
from trainer.replay.command import progress, show, write_files
from trainer.replay.loop import replay
from trainer.replay.result import ReplayResult
from trainer.rollout.recorded import RecordedOutcomes
from trainer.rollout.synthetic import drifting_pool, write_record

NUM_PROMPTS = 600
VISITS = 24
BATCH_SIZE = 64  # 225 rounds: enough to see the curves, short enough to wait for
POLICIES = ("uniform", "midband")


def run_demo(
    client: Client,
    out_dir: Path,
    *,
    num_prompts: int = NUM_PROMPTS,
    visits: int = VISITS,
    batch_size: int = BATCH_SIZE,
    seed: int = 0,
    console: Console | None = None,
) -> list[ReplayResult]:
    """Make the pool, replay it, print table and next steps; pool, `replay.png` and `replay.jsonl` go into `out_dir`."""
    console = console or Console()
    file = write_record(drifting_pool(num_prompts, visits=visits, seed=seed), out_dir / "made-up-pool.jsonl")
    console.print(
        f"{num_prompts} made-up prompts in five categories; their pass rates drift over {visits} visits. No model is "
        "run and nothing is trained: outcomes are drawn from those rates, the same for both policies.",
        markup=False,
    )
    arms = [PolicyArm.parse(text) for text in POLICIES]
    with progress(arms) as watch:
        results = replay(client, RecordedOutcomes.load(file), arms, batch_size=batch_size, seed=seed, watch=watch)
    show(results, console)
    _say_what_it_means(results, console)
    write_files(results, out_dir, console)
    console.print(f"pool     {file}", markup=False, soft_wrap=True)
    return results


def _say_what_it_means(results: list[ReplayResult], console: Console) -> None:
    uniform, chosen = results
    console.print(
        f"\nWhat to look at: with the same {uniform.num_rollouts:,} rollouts, {chosen.arm.name} found "
        f"{chosen.num_informative:,} informative groups, uniform {uniform.num_informative:,}. In the picture's right "
        "panel the groups that were drawn show another pass rate than the pool has; re-weighted by their inclusion "
        "probabilities they agree with it.\nWhat it does not show: whether training on them is better. That needs a "
        "learner.\n",
        markup=False,
    )
