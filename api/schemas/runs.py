"""Runs and their settings on the wire."""

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.base import MAX_GROUP_SIZE, Answer, Count, Finite, Name, Request, Share


class LifecycleRequest(Request):
    """When prompts go to rest; `{}` takes the defaults, and without it none ever does."""

    level: Annotated[float, Field(allow_inf_nan=False, ge=0.5, lt=1)] | None = None
    sure: Annotated[float, Field(allow_inf_nan=False, gt=0.5, lt=1)] | None = None
    hopeless: Annotated[float, Field(allow_inf_nan=False, ge=0, lt=1)] | None = None
    groups: int | None = Field(default=None, ge=1, le=1_000_000)


class BudgetRequest(Request):
    """How the rollouts of a batch, size times group_size, are spread over its train tickets."""

    rule: Literal["fixed", "neyman", "knapsack"]
    low: int = Field(ge=1, le=MAX_GROUP_SIZE)
    high: int = Field(ge=1, le=MAX_GROUP_SIZE)


class WaveRequest(Request):
    """A rule that says after a part of a group whether its ticket goes on; each needs its own numbers and no other."""

    rule: Literal["screen", "pilot", "until_success", "balanced", "rescue"]
    first: int = Field(ge=1, le=MAX_GROUP_SIZE)
    step: int | None = Field(default=None, ge=1, le=MAX_GROUP_SIZE)
    low: Share | None = None
    high: Share | None = None
    keep: int | None = Field(default=None, ge=2, le=MAX_GROUP_SIZE)
    ceiling: Annotated[float, Field(allow_inf_nan=False, ge=0, lt=1)] | None = None


class RefillRequest(Request):
    """Dynamic sampling: bounds on the draws that replace degenerate groups; `{}` takes the defaults."""

    rounds: int | None = Field(default=None, ge=2, le=10_000)
    largest: Annotated[float, Field(allow_inf_nan=False, gt=0, le=1_000)] | None = None
    cancel_yield: bool | None = None


class ControllerRequest(Request):
    """What moves numbers of the policy while the run goes on; options left out have their defaults."""

    name: str
    options: dict[str, Finite] = Field(default={})


class ProbingRequest(Request):
    """Bounds of what probes may cost: tokens between two train draws, and their share of the tokens of training."""

    tokens: Annotated[float, Field(allow_inf_nan=False, gt=0, le=1e15)] | None = None
    share: Annotated[float, Field(allow_inf_nan=False, gt=0, le=1_000)] | None = None


class PolicyRequest(Request):
    """A preset and the parts of it to override; parts left out keep the preset's value.

    Where the preset's estimator is `mixture` and none is named, a run on a pool with features begins with `features`.
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
            "keep",
            "progress",
            "difficulty",
            "shortfall",
            "staleness",
            "insight",
            "prompt_replay",
        ]
        | None
    ) = None
    power: Annotated[float, Field(allow_inf_nan=False, gt=0, le=32)] | None = None
    floor: Share | None = None
    target: Share | None = None
    low: Share | None = None
    high: Share | None = None
    reads: Literal["belief", "mean", "draw", "shuffled"] | None = None
    design: Literal["proportional", "top", "poisson", "bernoulli", "categorical"] | None = None
    candidates: Annotated[float, Field(allow_inf_nan=False, ge=1, le=1_000_000)] | None = None
    lifecycle: LifecycleRequest | None = None
    easy_keep: Share | None = None
    hard_keep: Share | None = None
    quotas: dict[str, Share] | None = None
    budget: BudgetRequest | None = None
    wave: WaveRequest | None = None
    refill: RefillRequest | None = None
    feature: str | None = None
    staleness: Share | None = None
    easy_weight: Share | None = None
    hard_weight: Share | None = None
    controller: ControllerRequest | None = None
    per: Literal["token", "second"] | None = None
    probing: ProbingRequest | None = None


class RunSettings(Request):
    """The parts of a run's configuration that a later change may touch."""

    policy: PolicyRequest = PolicyRequest()
    audit_share: Share = 0.1
    weights: Literal["none", "horvitz_thompson", "clipped"] = "none"
    max_lag: Count | None = None


class RolloutStoreRequest(Request):
    """Keeps what probes have generated, for train tickets to begin with; `{}` takes the defaults.

    `max_lag`: versions that the run may be ahead of a rollout; 0, the default: it is of the weights of now.
    """

    max_rollouts: int | None = Field(default=None, ge=1, le=1_000_000)
    max_bytes: int | None = Field(default=None, ge=1, le=2**40)
    max_lag: Count | None = None


class StartFrom(Request):
    """Another run on the pool whose beliefs warm this one's."""

    run: Name
    step: Count | None = None
    discount: Share | None = None


class RunRequest(RunSettings):
    name: Name
    pool: Name
    group_size: int | None = Field(default=None, ge=1, le=MAX_GROUP_SIZE)  # the preset's, 8 for most
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
    rollout_store: RolloutStoreRequest | None = None


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
    """Groups of the purposes train, audit and probe; held-out and control groups are counted nowhere here."""

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
    refill: dict[str, object] | None = None  # of the batch drawn last, where the policy has `refill`
    states: dict[str, int]
    alarms: list[dict[str, object]]
    suspects: list[dict[str, object]]
    controlled: dict[str, float] = Field(default={})
    started_from: dict[str, object] | None = None  # run, step, position and discount of what it began with
    rollout_store: dict[str, int] | None = None  # rollouts held, their bytes, and how many no ticket has begun with
