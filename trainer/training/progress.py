"""How far a training run has come, and what a step of it took: counters to be kept, seconds and figures to be told.

`trainer.grpo` counts with it, `checkpoints` keeps it. Knows groups of rollouts, no tensors and no files.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from trainer.rollout.base import RolloutGroup
from trainer.selection.away import drawn_here
from trainer.training.config import TrainConfig
from trainer.training.metrics import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run has come on the branch that survives."""

    step: int = 0  # updates made; the index of the next draw and the version of the weights
    tokens: int = 0  # generated for training batches
    rollouts: int = 0
    metrics_bytes: int = 0  # of the lines written so far
    branch: int = 0  # of the run on the service, when this was written
    away: int = 0  # updates whose prompts were drawn here, as the service was away

    def after(self, groups: Sequence[RolloutGroup]) -> "Progress":
        """One update further, on these groups; what they began with was paid for before."""
        rollouts = [rollout for group in groups for rollout in group.rollouts if rollout.made_by is None]
        return replace(
            self,
            step=self.step + 1,
            tokens=self.tokens + sum(rollout.tokens or 0 for rollout in rollouts),
            rollouts=self.rollouts + len(rollouts),
            away=self.away + any(drawn_here(group.ticket.ticket) for group in groups),
        )


class Laps:
    """How long the parts of a step took, each from the end of the one before; parts of one name together."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since_s = time.perf_counter()

    def end(self, name: str) -> None:
        now_s = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now_s - self._since_s
        self._since_s = now_s


def step_costs(groups: Sequence[RolloutGroup], laps: Laps) -> dict[str, float]:
    """A step's seconds by phase, as the service books them; what an evaluation took is in none of them.

    Grading is what is left of the rollouts' time once the engine has said how long it generated; an engine that does
    not say leaves all of it to generation. Idle is the wait for the service and, where rollouts run ahead on a worker,
    for that; its own time is generation and lies beside the step's, not within it.
    """
    said_s = sum(rollout.seconds or 0.0 for group in groups for rollout in group.rollouts)
    rollouts_s = laps.seconds.get("rollouts", said_s)
    generation_s = min(said_s, rollouts_s) if said_s else rollouts_s
    return {
        "accelerators": 1.0,
        "generation_s": generation_s,
        "scoring_s": rollouts_s - generation_s,
        "update_s": laps.seconds["update"],
        "weight_sync_s": laps.seconds["weight_sync"],
        "idle_s": laps.seconds["draw"] + laps.seconds["report"] + laps.seconds.get("waiting", 0.0),
    }


def environment_of(config: TrainConfig) -> dict[str, str]:
    """What the client cannot tell of this training by itself: the model and how it may answer."""
    return {
        "model": str(config.model.path or "the small learner"),
        "engine": config.model.engine,
        "max_new_tokens": str(config.model.max_new_tokens),
        "temperature": f"{config.model.temperature:g}",
    }


def step_line(at: Progress, groups: Sequence[RolloutGroup], judged: Sequence[bool]) -> Line:
    """The line of a step: `at` is after it; `judged` says of each group that counted whether it was informative."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    outcomes = [rollout.outcome for rollout in rollouts if rollout.outcome is not None]
    return {
        "kind": "step",
        "step": at.step,
        "tokens": at.tokens,
        "rollouts": at.rollouts,
        "branch": at.branch,
        "away": at.away,
        "tickets": len(groups),
        "judged": len(judged),
        "informative": sum(judged),
        "inverse_yield": len(judged) / sum(judged) if any(judged) else None,
        "pass_rate": fmean(outcomes) if outcomes else None,  # of what was drawn, which is not the pool's
        "answer_tokens": fmean(rollout.tokens or 0 for rollout in rollouts),
        "truncated": fmean(rollout.status == "truncated" for rollout in rollouts),
        **({"prior": prior} if (prior := sum(rollout.made_by is not None for rollout in rollouts)) else {}),
    }
