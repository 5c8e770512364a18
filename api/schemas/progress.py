"""Steps, checkpoints, restores and signals on the wire."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from api.schemas.base import MAX_BATCH_SIZE, Answer, Count, Finite, PromptKey, Request, Seconds
from api.schemas.reports import Rejection

MAX_FACTS = 64  # of the environment
Fact = Annotated[str, StringConstraints(min_length=1, max_length=300)]


class StepCosts(Request):
    """What a step took, as the trainer says. `environment`: what it ran on and with, as names and words, such as
    accelerator, driver, versions, model, length limits; it is no part of what makes a step sent twice the same.
    """

    accelerators: Annotated[float, Field(allow_inf_nan=False, ge=0, le=1e9)] | None = None
    generation_s: Seconds | None = None
    scoring_s: Seconds | None = None
    update_s: Seconds | None = None
    weight_sync_s: Seconds | None = None
    idle_s: Seconds | None = None
    environment_s: dict[str, Seconds] | None = None
    energy_j: Annotated[float, Field(allow_inf_nan=False, ge=0, le=1e18)] | None = None
    peak_memory_bytes: dict[str, Count] | None = None
    replay_tokens: Count | None = None
    overhead_tokens: Count | None = None
    environment: Annotated[dict[Fact, Fact], Field(max_length=MAX_FACTS)] | None = None


class StepRequest(Request):
    step: Count
    policy_version: Count
    trained: list[str] | None = Field(default=None, max_length=MAX_BATCH_SIZE)
    weights_applied: bool | None = None
    update_size: Finite | None = None
    costs: StepCosts | None = None


class StepAnswer(Answer):
    step: int
    branch: int
    state: Literal["recorded", "duplicate"]
    rejected: list[Rejection]


class CheckpointRequest(Request):
    step: Count


class CheckpointInfo(Answer):
    step: int
    branch: int
    position: int
    created: bool = False


class RestoreRequest(Request):
    step: Count
    beliefs: Literal["rewind", "keep"] = "rewind"
    in_flight: Literal["reissue", "void"] = "reissue"
    restore_id: str | None = Field(default=None, min_length=1, max_length=200)


class RestoreAnswer(Answer):
    step: int
    branch: int
    next_index: int
    resume_from: int
    lost: int
    reissued: list[str]


SignalName = Annotated[str, StringConstraints(min_length=1, max_length=100)]
MAX_PROMPTS_PER_PUSH = 20_000


class SignalsRequest(Request):
    """Numbers that only the trainer can compute, by prompt and name, made at one version of the policy."""

    policy_version: Count
    features: Mapping[PromptKey, Annotated[dict[SignalName, Finite], Field(max_length=100)]] = Field(
        max_length=MAX_PROMPTS_PER_PUSH
    )


class SignalRejection(Answer):
    key: str
    name: str | None
    code: str
    detail: str


class SignalsAnswer(Answer):
    """`applied`, `duplicate` and `late` count numbers."""

    policy_version: int
    applied: int
    duplicate: int
    late: int
    rejected: list[SignalRejection]
