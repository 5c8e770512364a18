"""What came of an arm: the service's audit and costs over its API, the trainer's metrics, and what follows from both.

Read once the arms have ended; table, pictures and words are made of it. Axes: S steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from api.schemas import AuditInfo
from trainer.client import Client
from trainer.demo.beliefs import BeliefHistogram
from trainer.training.config import TrainConfig
from trainer.training.evaluate import Evaluation
from trainer.training.metrics import Metrics

TRAINED_ON = ("train", "audit")  # sources of spending that a step learns from


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArmResult:
    """One training, as service and trainer recorded it."""

    name: str  # of the arm and of its run
    preset: str  # of its policy
    tokens: int  # generated for training, by the service's ledger
    rollouts: int  # the same
    seconds: Mapping[str, float]  # of its steps by phase, by the same; none of a look at the held-out split
    audit: AuditInfo
    informative_S: NDArray[np.int64]  # groups of each step that differed, by the service's verdict
    groups_S: NDArray[np.int64]  # groups of each step that counted
    tokens_S: NDArray[np.int64]  # generated for training up to the end of each step
    looks: Sequence[Evaluation]  # at the held-out split, the first before the first step
    beliefs: Sequence[BeliefHistogram]  # one at each look

    @classmethod
    def read(cls, client: Client, config: TrainConfig) -> Self:
        run = config.run.name
        costs = client.costs(run)
        metrics = Metrics(config.output / "metrics.jsonl")
        steps = metrics.lines("step")
        return cls(
            name=run,
            preset=config.run.policy.preset,
            tokens=sum(costs.tokens[source] for source in TRAINED_ON),
            rollouts=sum(costs.rollouts[source] for source in TRAINED_ON),
            seconds=costs.seconds,
            audit=client.audit(run),
            informative_S=np.array([line["informative"] for line in steps], dtype=np.int64),
            groups_S=np.array([line["judged"] for line in steps], dtype=np.int64),
            tokens_S=np.array([line["tokens"] for line in steps], dtype=np.int64),
            looks=[Evaluation.from_json(line) for line in metrics.lines("evaluation")],
            beliefs=BeliefHistogram.read_all(config.output),
        )

    @property
    def num_informative(self) -> int:
        return int(self.informative_S.sum())

    @property
    def informative_per_100_rollouts(self) -> float:
        """NaN without a rollout."""
        return 100 * self.num_informative / self.rollouts if self.rollouts else float("nan")

    @property
    def informative_share(self) -> float:
        """Of all groups; NaN without any."""
        groups = int(self.groups_S.sum())
        return self.num_informative / groups if groups else float("nan")

    @property
    def wall_s(self) -> float:
        """Of all steps together."""
        return sum(self.seconds.values())

    def first_look_at(self, quality: float) -> Evaluation | None:
        """The first look with a held-out pass rate of at least this; None: there is none."""
        return next((look for look in self.looks if (look.overall.estimate or 0.0) >= quality), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Where each arm first has the held-out pass rate that uniform ended with."""

    quality: float
    looks: Mapping[str, Evaluation | None]  # by arm

    @classmethod
    def of(cls, uniform: ArmResult, results: Sequence[ArmResult]) -> Self | None:
        """None if uniform ended no better than it began, or was not looked at: there is nothing to reach."""
        if not uniform.looks:
            return None
        first, last = uniform.looks[0].overall.estimate, uniform.looks[-1].overall.estimate
        if first is None or last is None or last <= first:
            return None
        return cls(quality=last, looks={result.name: result.first_look_at(last) for result in results})
