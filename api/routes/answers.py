"""How routes answer: JSON rendered once, without a second validation of what the service made."""

from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import Request, Response

from api.errors import ApiError
from api.schemas import ErrorBody
from api.service import RunService


class Json(Response):
    """A value, or bytes that are JSON already."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def service_of(request: Request) -> RunService:
    service: RunService = request.app.state.service
    return service


def body_of(model: type[Any]) -> Mapping[str, Any]:
    """The OpenAPI part of a body that the endpoint parses by itself, in a thread."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def errors_of(*classes: type[ApiError]) -> dict[int | str, dict[str, Any]]:
    """The errors of an endpoint, for the OpenAPI document."""
    by_status: dict[int | str, dict[str, Any]] = {}
    for error in classes:
        text = f"`{error.code}`: {(error.__doc__ or '').strip()}"
        entry = by_status.setdefault(error.status, {"model": ErrorBody, "description": text})
        if entry["description"] != text:
            entry["description"] += f" {text}"
    return by_status
