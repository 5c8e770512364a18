"""How much of the time the updating and the generating device stand idle, by how far rollouts run ahead.

The loop, the worker, the service in this process and its reports are real. The two devices are stood in for by
sleeping: an update takes a fixed time, a batch of rollouts a log-normal one of the same mean, as the longest answer
decides. So what is measured is the schedule and its overhead, not the kernels of any machine.
"""

import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

import midband
from api.schemas import Ticket
from tests.benchmarks.language import Figure, arguments, show
from trainer.grpo import train
from trainer.policy import Policy
from trainer.rollout.ahead import Ahead
from trainer.rollout.base import Rollout, RolloutEngine, RolloutGroup
from trainer.training.config import TrainConfig
from trainer.training.metrics import Line

DEPTHS, QUICK_DEPTHS = (0, 1, 2, 4), (0, 1)
STEPS, QUICK_STEPS = 40, 4
DEVICE_S = 0.4  # mean time of either device in a step
SPREADS = (0.0, 0.6)  # deviation of the logarithm of a batch's time
NUM_PROMPTS = 2_000
BATCH, GROUP = 32, 4


class SleepingEngine(RolloutEngine):
    """Generates nothing, for as long as rollouts would take."""

    def __init__(self, spread: float) -> None:
        self.spread, self.busy_s = spread, 0.0
        self._rng = np.random.default_rng(0)

    def generate(self, tickets: Sequence[Ticket], *, policy_version: int) -> list[RolloutGroup]:
        seconds = DEVICE_S * math.exp(self.spread * self._rng.standard_normal() - self.spread**2 / 2)
        time.sleep(seconds)
        self.busy_s += seconds
        rollouts = tuple(Rollout(outcome=float(n % 2), tokens=8) for n in range(GROUP))
        return [RolloutGroup(ticket=ticket, rollouts=rollouts) for ticket in tickets]


class SleepingPolicy:
    """Learns nothing, for as long as an update would take."""

    busy_s = 0.0

    def update(self, groups: Sequence[RolloutGroup], *, step: int, factor: float = 1.0) -> dict[str, float]:
        time.sleep(DEVICE_S)
        self.busy_s += DEVICE_S
        return {}

    def save(self, folder: Path) -> None:
        """There is nothing to keep."""

    def load(self, folder: Path) -> None:
        """There is nothing to take up."""


def main() -> None:
    options = arguments("Idle share of the devices against how far rollouts run ahead.").parse_args()
    depths, steps = (QUICK_DEPTHS, QUICK_STEPS) if options.quick else (DEPTHS, STEPS)
    figures = []
    for spread in SPREADS:
        reference: dict[str, float] = {}
        for depth in depths:
            found = _shares(depth, steps, spread)
            reference = reference or found
            figures += [
                Figure(
                    benchmark="asynchrony",
                    case=f"depth {depth}, spread {spread:g}",
                    metric=metric,
                    value=value,
                    unit="s" if metric == "seconds_per_step" else "share",
                    reference_name="depth 0",
                    reference_value=reference[metric],
                    n=NUM_PROMPTS,
                    setting={"depth": depth, "steps": steps, "device_s": DEVICE_S, "spread": spread, "groups": BATCH},
                )
                for metric, value in found.items()
            ]
    show(figures, as_json=options.json)


def _shares(depth: int, steps: int, spread: float) -> dict[str, float]:
    policy, engine = SleepingPolicy(), SleepingEngine(spread)
    looked: list[tuple[float, float, float]] = []  # behind each step

    def watch(line: Line) -> None:
        looked.append((time.perf_counter(), policy.busy_s, engine.busy_s))

    with tempfile.TemporaryDirectory() as folder, midband.in_process() as client:
        client.create_pool("p")
        client.put_prompts("p", [{"key": f"p{n}"} for n in range(NUM_PROMPTS)])
        values: dict[str, Any] = {
            "output": folder, "pool": {"name": "p"}, "run": {"name": "r"}, "asynchrony": {"depth": depth},
            "batch": {"size": BATCH, "group_size": GROUP}, "evaluation": {"every": 10**6}, "stop": {"steps": steps},
            "checkpoints": {"every": 10**6},
        }  # fmt: skip
        config = TrainConfig.model_validate(values)
        if depth:
            with Ahead(engine, lambda: lambda: None) as ahead:
                train(config, client, cast(Policy, policy), engine, watch=watch, ahead=ahead)
        else:
            train(config, client, cast(Policy, policy), engine, watch=watch)
    wall_s, updating_s, generating_s = np.array(looked[-1]) - np.array(looked[0])
    return {
        "idle_share_of_updates": float(1 - updating_s / wall_s),
        "idle_share_of_rollouts": float(1 - generating_s / wall_s),
        "seconds_per_step": float(wall_s / (steps - 1)),
    }


if __name__ == "__main__":
    main()
