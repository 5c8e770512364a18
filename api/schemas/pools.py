"""Pools and their prompts on the wire."""

from pydantic import Field

from api.schemas.base import Answer, Name, PromptKey, Request


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
    states: dict[str, int] = Field(default={})


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
