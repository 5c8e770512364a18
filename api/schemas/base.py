"""What every request and answer shares: limits, the types of single fields, errors. Imports pydantic only."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

CONTRACT = 1
MAX_BATCH_SIZE = 1_000_000  # tickets in one draw
MAX_GROUP_SIZE = 4_096  # rollouts of one prompt
MAX_GROUPS_PER_REPORT = 100_000
MAX_KEY_LENGTH = 512  # characters

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]
PromptKey = Annotated[str, StringConstraints(min_length=1, max_length=MAX_KEY_LENGTH)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(allow_inf_nan=False, ge=0, le=1)]
Seconds = Annotated[float, Field(allow_inf_nan=False, ge=0, le=1e9)]  # 31 years, so that no sum leaves the doubles
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
    owner: str | None = None  # with `not_owner`: the address of the server that writes the run


class VersionInfo(Answer):
    version: str
    contract: int
    capabilities: list[str]
