"""What every request and answer shares: limits, the types of single fields, errors. Imports pydantic only."""

from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError

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


class Body(BaseModel):
    """What a caller sends: unknown fields are a mistake, and said so."""

    # With any bound on texts pydantic sees to it that they are Unicode: half a surrogate pair can be neither stored nor
    # repeated in an answer.
    model_config = ConfigDict(extra="forbid", frozen=True, str_min_length=0)


class Request(Body):
    """A body of which every field is of its own type. Reports, which have thousands of fields, are read strictly
    instead, in one go.
    """

    @field_validator("*", mode="before")
    @classmethod
    def _is_of_its_type(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic would take true for 1, "12" for 12 and 0.0 for false; the document allows none of them."""
        _check(value, _shape(cls, str(info.field_name)))
        return value


class _Shape(NamedTuple):
    """Python's types of the scalars that a field may hold, and what its lists and objects hold."""

    scalars: frozenset[type]
    inside: "_Shape | None"


_SCALARS = frozenset({bool, float, int, str})
_PROBLEMS: dict[type, Literal["int_type", "float_type", "bool_type"]] = {
    float: "float_type",
    int: "int_type",
    bool: "bool_type",
}


@cache
def _shape(model: type[Request], name: str) -> _Shape:
    return _shape_of(model.model_fields[name].annotation)


def _shape_of(annotation: object) -> _Shape:
    """An integer may stand for a number, and 3.0 for an integer, as in JSON Schema."""
    found, inside, left = set[type](), None, [annotation]
    while left:
        kind = left.pop()
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Literal:
            found.update(type(value) for value in arguments)
        elif origin is Annotated:
            left.append(arguments[0])
        elif origin in (Union, UnionType):
            left += arguments
        elif origin is not None and arguments:
            inside = _shape_of(arguments[-1])
        elif isinstance(kind, type):
            found.add(kind)
    return _Shape(frozenset(found | {int, float}) if {int, float} & found else frozenset(found), inside)


def _check(value: Any, shape: _Shape) -> None:
    kind = type(value)
    if kind in _SCALARS:
        problem = next((name for known, name in _PROBLEMS.items() if known in shape.scalars), None)
        if kind not in shape.scalars and problem is not None:
            raise PydanticKnownError(problem)
    elif shape.inside is not None and kind in (dict, list):
        for item in value.values() if kind is dict else value:
            _check(item, shape.inside)


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
