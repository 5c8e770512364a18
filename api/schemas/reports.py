"""Reports of rollouts and their answers on the wire."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from api.schemas.base import MAX_GROUP_SIZE, MAX_GROUPS_PER_REPORT, Answer, Body, Count, Finite, Seconds, VoidName


class Completion(Body):
    text: str | None = None
    token_ids: list[int] | None = None
    logprobs: list[Finite] | None = None

    @model_validator(mode="after")
    def _has_a_probability_for_each_token(self) -> "Completion":
        if self.token_ids is not None and self.logprobs is not None and len(self.token_ids) != len(self.logprobs):
            raise ValueError(f"{len(self.token_ids)} token_ids and {len(self.logprobs)} logprobs: one for each token")
        return self


class RolloutReport(Body):
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


class GroupReport(Body):
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


class ReportRequest(Body):
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
    dropped: bool = False  # the wave's rule ended the group, and its method does not train on it


class RefillInfo(Answer):
    """Where a batch under dynamic sampling stands. `kept`, `surplus` are informative; `offered` is of the one before.

    `refill` and `size` are what to draw next: null while tickets are open, once the batch is full, and when its rounds
    are spent. The lists are empty while tickets are open. `factor` is what to multiply the loss over the kept with.
    """

    index: int
    target: int
    waves: int
    open: int
    judged: int
    informative: int
    inverse_yield: float | None
    factor: float
    refill: int | None
    size: int | None
    kept: list[str]
    surplus: list[str]
    offered: list[str]


class ReportAnswer(Answer):
    applied: int
    duplicate: int
    late: int
    rejected: list[Rejection]
    groups: list[GroupAnswer]
    kept: int = 0  # completions that the run's rollout store took
    not_kept: list[Rejection] = Field(default=[])  # those that it did not take; their rollouts count
    refills: list[RefillInfo] = Field(default=[])  # of the batches reported on, where the policy has `refill`
