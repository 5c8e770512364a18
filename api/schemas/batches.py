"""Draws, tickets and batches on the wire."""

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.base import MAX_BATCH_SIZE, MAX_GROUP_SIZE, Answer, Count, PurposeName, Request
from api.schemas.reports import Completion
from api.schemas.runs import ClaimInfo

MAX_FETCHED = 10_000  # rollouts in one call


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
    include: list[Literal["content", "answer"]] = Field(default=[])
    branch: Count | None = None


class Predicted(Answer):
    pass_rate: float
    pass_rate_sd: float
    informative: float
    tokens: float | None = None


class PriorRollout(Answer):
    """A rollout of a probe that a train ticket begins with; its body is at `/rollouts/fetch`."""

    id: str
    policy_version: int


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
    prior_rollouts: list[PriorRollout] = Field(default=[])  # left out where there are none
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
    suggested_size: int | None = None
    tickets: list[Ticket]


class FetchRequest(Request):
    ids: list[Annotated[str, Field(min_length=1, max_length=400)]] = Field(min_length=1, max_length=MAX_FETCHED)


class FetchedRollout(Answer):
    """What a probe reported of a rollout, with its completion as it was sent."""

    id: str
    prompt: str
    policy_version: int
    outcome: float
    reward: float | None
    status: Literal["ok", "truncated"]
    tokens: int
    completion: Completion


class FetchAnswer(Answer):
    rollouts: list[FetchedRollout]


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
