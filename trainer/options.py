"""What a run, a change of it, a draw and a step may be given beside their names: keyword arguments of `trainer.client`.

The contract, `api.schemas`, says what each means and checks the values; these types tell an editor and a type checker
which exist. A test holds the two together.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from api.schemas import PurposeName, RolloutStoreRequest, StartFrom, StepCosts


class RunOptions(TypedDict, total=False):
    """What a run may be given beside name, pool and policy; the contract says what each means."""

    group_size: int
    audit_share: float
    weights: Literal["none", "horvitz_thompson", "clipped"]
    seed: int
    max_lag: int | None
    signal: Literal["reward", "outcome"]
    tolerance: float
    min_rollouts: int
    feed: Literal["all", "informative_only"]
    ticket_ttl_s: float | None
    review_share: float
    revisit_draws: int | None
    max_weight: float
    loss_aggregation: Literal["per_prompt", "per_sequence", "per_token"]
    advantage: Literal["grpo", "dr_grpo", "rloo"]
    start_from: StartFrom | Mapping[str, object] | None
    rollout_store: RolloutStoreRequest | Mapping[str, object] | None


class ConfigOptions(TypedDict, total=False):
    """What may change in the middle of a run, beside the policy."""

    audit_share: float
    weights: Literal["none", "horvitz_thompson", "clipped"]
    max_lag: int | None


class DrawOptions(TypedDict, total=False):
    """What a draw may be given beside index, size and policy version."""

    group_size: int
    purpose: PurposeName
    refill: int
    divisor: int
    short: Literal["partial", "fill"]
    allow_repeat: bool
    include: list[Literal["content", "answer"]]
    branch: int


class StepOptions(TypedDict, total=False):
    """What a step may be given beside its number and the policy version. None says nothing, as leaving it out does."""

    trained: Sequence[str] | None
    weights_applied: bool | None
    update_size: float | None
    costs: StepCosts | Mapping[str, object] | None
