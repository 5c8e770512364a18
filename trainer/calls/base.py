"""What all calls share: a connection, how requests become bodies, how answers become values of the contract.

The other modules of this package build on it; nothing here knows a route.
"""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from api import schemas
from trainer.connection import Connection, Query, parsed
from trainer.errors import InvalidRequest
from trainer.reports import in_words

Policy = str | Mapping[str, object] | schemas.PolicyRequest  # a preset's name, or a preset with parts overridden
Columns = dict[str, list[Any]]
AnswerT = TypeVar("AnswerT")


class Calls:
    """A connection, and the three forms that most calls have."""

    _connection: Connection

    def _get(self, answer: type[AnswerT], path: str, query: Query | None = None) -> AnswerT:
        return parsed(answer, self._connection.call("GET", path, query=query))

    def _items(self, item: type[AnswerT], path: str) -> list[AnswerT]:
        return parsed(Items[item], self._connection.call("GET", path)).items  # type: ignore[valid-type]

    def _post(self, answer: type[AnswerT], path: str, body: bytes) -> AnswerT:
        return parsed(answer, self._connection.call("POST", path, body=body))


class Items(BaseModel, Generic[AnswerT]):
    """How the contract wraps a list."""

    items: list[AnswerT]


def request_body(model: type[schemas.Body], values: Mapping[str, object]) -> bytes:
    """The body of a request with only what the caller gave: what is left out stays the service's to choose."""
    try:
        return model.model_validate(values).model_dump_json(exclude_unset=True).encode()
    except ValidationError as error:
        raise InvalidRequest(in_words(error)) from error


def with_policy(values: dict[str, object], policy: Policy | None) -> dict[str, object]:
    if policy is None:
        return values
    return {**values, "policy": {"preset": policy} if isinstance(policy, str) else policy}
