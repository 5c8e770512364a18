"""Steps and their costs, signals, checkpoints and restores: a run kept in step with its trainer."""

import uuid
from collections.abc import Mapping
from typing import Literal, Unpack

from api import schemas
from api.schemas import CheckpointInfo, RestoreAnswer, SignalsAnswer, StepAnswer
from trainer.calls.base import Calls, request_body
from trainer.connection import path_of
from trainer.environment import environment
from trainer.options import StepOptions


class ProgressCalls(Calls):
    """What a trainer says of its own way."""

    def step(self, run: str, step: int, *, policy_version: int, **options: Unpack[StepOptions]) -> StepAnswer:
        """Record an update of the weights: which tickets it used, and what it cost.

        With costs goes what this process runs on, as far as it can tell; what `costs["environment"]` says is added to
        it and counts where both speak, such as the model and its length limits.
        """
        given = {name: value for name, value in options.items() if value is not None}
        values: dict[str, object] = {"step": step, "policy_version": policy_version, **given}
        if (trained := options.get("trained")) is not None:
            values["trained"] = list(trained)
        if (costs := options.get("costs")) is not None:
            values["costs"] = _with_environment(costs)
        return self._post(StepAnswer, path_of("/v1/runs", run, "steps"), request_body(schemas.StepRequest, values))

    def push_signals(
        self, run: str, features: Mapping[str, Mapping[str, float]], *, policy_version: int
    ) -> SignalsAnswer:
        """Hand in numbers about prompts that only the trainer can compute, by key and name. Sent twice, they count
        once.

        `value` is a belief of the pass rate at this version; other names are features. Single numbers may be
        `rejected` in the answer while the others count. Many prompts go out in several calls, whose answers are added
        up.
        """
        keys = list(features)
        answers = []
        for start in range(0, max(len(keys), 1), schemas.MAX_PROMPTS_PER_PUSH):
            part = {key: dict(features[key]) for key in keys[start : start + schemas.MAX_PROMPTS_PER_PUSH]}
            body = request_body(schemas.SignalsRequest, {"policy_version": policy_version, "features": part})
            answers.append(self._post(SignalsAnswer, path_of("/v1/runs", run, "signals"), body))
        return SignalsAnswer(
            policy_version=policy_version,
            applied=sum(answer.applied for answer in answers),
            duplicate=sum(answer.duplicate for answer in answers),
            late=sum(answer.late for answer in answers),
            rejected=[refused for answer in answers for refused in answer.rejected],
        )

    def checkpoint(self, run: str, step: int) -> CheckpointInfo:
        """Remember this point of the run under the trainer's step; call it before the trainer writes its own file."""
        body = request_body(schemas.CheckpointRequest, {"step": step})
        return self._post(CheckpointInfo, path_of("/v1/runs", run, "checkpoints"), body)

    def checkpoints(self, run: str) -> list[CheckpointInfo]:
        return self._items(CheckpointInfo, path_of("/v1/runs", run, "checkpoints"))

    def restore(
        self,
        run: str,
        step: int,
        *,
        beliefs: Literal["rewind", "keep"] = "rewind",
        in_flight: Literal["reissue", "void"] = "reissue",
        restore_id: str | None = None,
    ) -> RestoreAnswer:
        """Go back to a checkpoint; later tickets are lost, and a new branch begins if that discards anything.

        Every rank that restores must give the same `restore_id`, or each of them restores anew; without one it is made
        here, so that a call sent twice for want of an answer counts once.
        """
        values = {
            "step": step,
            "beliefs": beliefs,
            "in_flight": in_flight,
            "restore_id": restore_id or uuid.uuid4().hex,
        }
        return self._post(
            RestoreAnswer, path_of("/v1/runs", run, "restore"), request_body(schemas.RestoreRequest, values)
        )


def _with_environment(costs: schemas.StepCosts | Mapping[str, object]) -> dict[str, object]:
    said = dict(costs) if isinstance(costs, Mapping) else costs.model_dump(exclude_unset=True)
    facts = said.get("environment")
    return said | {"environment": environment() | (facts if isinstance(facts, dict) else {})}
