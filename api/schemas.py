"""The wire contract, version 1: every request and answer body as a pydantic model.

The service parses requests with these models and the trainer's client types its answers with them, so this module
imports pydantic only. Unknown fields are refused; non-finite numbers are refused where they stand. Answers allow extra
fields, as a newer service may add some.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

CONTRACT = 1
MAX_BATCH_SIZE = 1_000_000  # tickets in one draw
MAX_GROUP_SIZE = 4_096  # rollouts of one prompt
MAX_GROUPS_PER_REPORT = 100_000
MAX_KEY_LENGTH = 512  # characters

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]
PromptKey = Annotated[str, StringConstraints(min_length=1, max_length=MAX_KEY_LENGTH)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(allow_inf_nan=False, ge=0, le=1)]
Seconds = Annotated[float, Field(allow_inf_nan=False, ge=0)]
Count = Annotated[int, Field(ge=0, le=2**53)]
PurposeName = Literal["train", "audit", "probe", "heldout", "control"]
VoidName = Literal["stale", "error", "surplus", "lost", "never_started"]


class Request(BaseModel):
    """What a caller sends: unknown fields are a mistake, and said so."""

    # With any bound on texts pydantic sees to it that they are Unicode: half a surrogate pair can be neither stored nor
    # repeated in an answer.
    model_config = ConfigDict(extra="forbid", frozen=True, str_min_length=0)


class Answer(BaseModel):
    """What the service answers: fields may be added over time."""

    model_config = ConfigDict(extra="allow", frozen=True)


class ErrorBody(Answer):
    """The one shape of every error answer."""

    code: str
    detail: str
    retryable: bool = False
    request_id: str | None = None


class VersionInfo(Answer):
    version: str
    contract: int
    capabilities: list[str]


# Pools


class PoolRequest(Request):
    name: Name
    description: str | None = Field(default=None, max_length=10_000)


class PoolInfo(Answer):
    name: str
    description: str | None = None
    revision: int
    archived: bool = False
    prompts: int
    splits: dict[str, int]
    categories: dict[str, int]
    states: dict[str, int] = {}


class RowError(Answer):
    row: int
    code: str
    detail: str


class ImportReport(Answer):
    received: int
    created: int
    updated: int
    unchanged: int
    merged: int
    rejected: int
    errors: list[RowError]
    warnings: list[str]
    matched: int | None = None
    linked: int | None = None
    absent: int | None = None


class QuarantineRequest(Request):
    keys: list[PromptKey] = Field(min_length=1, max_length=100_000)
    reason: str = Field(min_length=1, max_length=2_000)
    lift: bool = False


class QuarantineReport(Answer):
    changed: int
    unchanged: int
    unknown: list[str]


# Runs


class LifecycleRequest(Request):
    """When prompts go to rest; `{}` takes the defaults, and without it none ever does."""

    level: Annotated[float, Field(allow_inf_nan=False, ge=0.5, lt=1)] | None = None
    sure: Annotated[float, Field(allow_inf_nan=False, gt=0.5, lt=1)] | None = None
    hopeless: Annotated[float, Field(allow_inf_nan=False, ge=0, lt=1)] | None = None
    groups: int | None = Field(default=None, ge=1, le=1_000_000)


class PolicyRequest(Request):
    """A preset and the parts of it to override; parts left out keep the preset's value.

    A part that has no effect with the utility is refused.
    """

    preset: str = "midband"
    estimator: str | None = None
    estimator_options: dict[str, Finite] | None = None
    utility: (
        Literal[
            "uniform",
            "informative",
            "gradient",
            "variance",
            "band",
            "target",
            "advantage",
            "information",
            "knapsack",
            "pools",
        ]
        | None
    ) = None
    power: Annotated[float, Field(allow_inf_nan=False, gt=0, le=32)] | None = None
    floor: Share | None = None
    target: Share | None = None
    low: Share | None = None
    high: Share | None = None
    reads: Literal["belief", "mean", "draw", "shuffled"] | None = None
    design: Literal["proportional", "top"] | None = None
    candidates: Annotated[float, Field(allow_inf_nan=False, ge=1, le=1_000_000)] | None = None
    lifecycle: LifecycleRequest | None = None


class RunSettings(Request):
    """The parts of a run's configuration that a later change may touch."""

    policy: PolicyRequest = PolicyRequest()
    audit_share: Share = 0.1
    weights: Literal["none", "horvitz_thompson", "clipped"] = "none"
    max_lag: Count | None = None


class StartFrom(Request):
    """Another run on the pool whose beliefs warm this one's."""

    run: Name
    step: Count | None = None
    discount: Share | None = None


class RunRequest(RunSettings):
    name: Name
    pool: Name
    group_size: int = Field(default=8, ge=1, le=MAX_GROUP_SIZE)
    seed: int = Field(default=0, ge=0, lt=2**63)
    signal: Literal["reward", "outcome"] = "reward"
    tolerance: Annotated[float, Field(allow_inf_nan=False, ge=0)] = 1e-6
    min_rollouts: int = Field(default=2, ge=1, le=MAX_GROUP_SIZE)
    feed: Literal["all", "informative_only"] = "all"
    ticket_ttl_s: Annotated[float, Field(allow_inf_nan=False, gt=0)] | None = None
    review_share: Share = 0.05
    revisit_draws: int | None = Field(default=None, ge=1)
    max_weight: Annotated[float, Field(allow_inf_nan=False, gt=0)] = 10.0
    loss_aggregation: Literal["per_prompt", "per_sequence", "per_token"] = "per_prompt"
    advantage: Literal["grpo", "dr_grpo", "rloo"] = "grpo"
    start_from: StartFrom | None = None


class ConfigRequest(Request):
    """A change of a run's configuration in mid-run; a field left out stays as it is."""

    policy: PolicyRequest | None = None
    audit_share: Share | None = None
    weights: Literal["none", "horvitz_thompson", "clipped"] | None = None
    max_lag: Count | None = None


class ClaimInfo(Answer):
    type: Literal["exact", "unbiased", "modified", "empirical"]
    objective: str
    conditions: list[str]


class RunCreated(Answer):
    run: str
    config: dict[str, object]
    config_hash: str
    claim: ClaimInfo


class TicketCounts(Answer):
    open: int
    reported: int
    void: int


class RolloutCounts(Answer):
    issued: int
    reported: int
    scored: int
    unscored: int
    error: int
    truncated: int


class InformativeCounts(Answer):
    groups: int
    reported_groups: int
    rate: float | None


class RunInfo(Answer):
    run: str
    pool: str
    config: dict[str, object]
    config_hash: str
    claim: ClaimInfo
    branch: int
    policy_version: int
    step: int | None
    revisit_draws: int | None
    tickets: TicketCounts
    rollouts: RolloutCounts
    tokens: dict[str, int]
    informative: InformativeCounts
    states: dict[str, int]
    alarms: list[dict[str, object]]
    suspects: list[dict[str, object]]


# Batches


class BatchRequest(Request):
    index: Count
    size: int = Field(ge=1, le=MAX_BATCH_SIZE)
    policy_version: Count
    group_size: int | None = Field(default=None, ge=1, le=MAX_GROUP_SIZE)
    purpose: PurposeName = "train"
    refill: int = Field(default=0, ge=0, le=10_000)
    divisor: int = Field(default=1, ge=1, le=1_000_000)
    short: Literal["partial", "fill"] = "partial"
    allow_repeat: bool = False
    include: list[Literal["content", "answer"]] = []
    branch: Count | None = None


class Predicted(Answer):
    pass_rate: float
    pass_rate_sd: float
    informative: float
    tokens: float | None = None


class Ticket(Answer):
    ticket: str
    prompt: str
    purpose: PurposeName
    group_size: int
    first_wave: int
    inclusion_probability: float
    weight: float | None
    predicted: Predicted
    category: str | None = None
    content: object = None
    answer: str | None = None


class Batch(Answer):
    run: str
    branch: int
    purpose: PurposeName
    index: int
    refill: int
    requested: int
    returned: int
    reason: str | None
    claim: ClaimInfo
    predicted_yield: float | None
    policy_version: int
    digest: str
    frame: int
    eligible: int
    blocked: int
    tickets: list[Ticket]


class TicketStatus(Answer):
    ticket: str
    prompt: str
    purpose: PurposeName
    state: Literal["open", "reported", "void"]
    attempt: int
    deadline: float | None
    issued_version: int
    reported_version: int | None
    draws_between: int | None
    reason: str | None = None


class TicketPage(Answer):
    items: list[TicketStatus]
    next_cursor: str | None


# Reports


class Completion(Request):
    text: str | None = None
    token_ids: list[int] | None = None
    logprobs: list[Finite] | None = None


class RolloutReport(Request):
    """One rollout. `outcome` in [0, 1] drives the pass rate; `reward`, by default the same, is what is optimised."""

    n: int | None = Field(default=None, ge=0, lt=MAX_GROUP_SIZE)
    id: str | None = Field(default=None, min_length=1, max_length=200)
    outcome: Annotated[float, Field(allow_inf_nan=False, ge=0, le=1)] | None
    reward: Finite | None = None
    status: Literal["ok", "unscored", "error", "truncated"] = "ok"
    tokens: Count | None = None
    seconds: Seconds | None = None
    fragment: int = Field(default=0, ge=0, lt=100_000)
    rewards: dict[str, Finite | None] | None = Field(default=None, max_length=100)
    policy_version: int | list[int] | None = None
    completion: Completion | None = None


class GroupReport(Request):
    ticket: str = Field(min_length=1, max_length=400)
    attempt: int | None = Field(default=None, ge=1)
    final: bool = False
    void: VoidName | None = None
    policy_version: int | list[int] | None = None
    rollouts: list[RolloutReport] = Field(default=[], max_length=100_000)

    @model_validator(mode="after")
    def _has_something_to_say(self) -> "GroupReport":
        if not self.rollouts and self.void is None and not self.final:
            raise ValueError("a group needs rollouts, `void` or `final`")
        return self


class ReportRequest(Request):
    policy_version: int | None = None
    branch: Count | None = None
    groups: list[GroupReport] = Field(min_length=1, max_length=MAX_GROUPS_PER_REPORT)


class Rejection(Answer):
    ticket: str
    n: int | None = None
    code: str
    detail: str


class GroupAnswer(Answer):
    ticket: str
    attempt: int | None
    state: Literal["open", "reported", "void"] | None
    scored: int
    passes: float
    informative: bool | None
    next: Literal["wait", "continue", "stop"]
    more: int


class ReportAnswer(Answer):
    applied: int
    duplicate: int
    late: int
    rejected: list[Rejection]
    groups: list[GroupAnswer]


# Steps, checkpoints, restore


class StepCosts(Request):
    accelerators: Annotated[float, Field(allow_inf_nan=False, ge=0)] | None = None
    generation_s: Seconds | None = None
    scoring_s: Seconds | None = None
    update_s: Seconds | None = None
    weight_sync_s: Seconds | None = None
    idle_s: Seconds | None = None
    environment_s: dict[str, Seconds] | None = None
    energy_j: Annotated[float, Field(allow_inf_nan=False, ge=0)] | None = None
    peak_memory_bytes: dict[str, Count] | None = None


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


class SignalsRequest(Request):
    policy_version: Count
    features: Mapping[PromptKey, dict[str, Finite]]


# Reading


class Estimate(Answer):
    estimate: float | None
    interval: tuple[float, float] | None


class Streams(Answer):
    """The three curves: the uniform one tells the truth about the pool, the selected one does not."""

    uniform: Estimate
    selected: Estimate
    reweighted: Estimate


class AuditInfo(Answer):
    draws: tuple[int, int] | None
    level: float
    pass_rate: Streams
    degenerate: Streams
    selection_ratio: dict[str, object]
    claim: ClaimInfo
    claim_realised: ClaimInfo
    verdict: str | None
    warnings: list[str]
    regressions: dict[str, object] | None = None
    quarantined: list[dict[str, object]] = []


class CostsInfo(Answer):
    tokens: dict[str, int]
    rollouts: dict[str, int]
    seconds: dict[str, float]
