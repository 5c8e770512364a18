"""Errors of the service and the one shape in which they are answered.

ServiceError
├── StartRefused             the service cannot start; the message is for the person at the terminal
│   ├── DatabaseUnusable     the database is missing, read-only, foreign, damaged or too new
│   └── DatabaseLocked       another server has the SQLite file open
└── ApiError                 a request that is refused: code, status, whether to try again, detail
    ├── Unauthenticated                                                                401
    ├── MissingScope · ForeignOrigin                                                   403
    ├── UnknownPool · UnknownPrompt · UnknownRun · UnknownRollout                      404
    ├── BodyTooSlow                                                                    408
    ├── PoolConflict · PoolArchived · RunConflict · NotOwner · StoreOff                409
    ├── Expired                                                                        410
    ├── BodyTooLarge                                                                   413
    ├── UnsupportedFormat                                                              415
    ├── InvalidRequest · InvalidCursor · UnreadableBody                                422
    ├── DamagedData · OutcomeUnknown                                                   500
    ├── NotAvailable                                                                   501
    └── Busy                                                                           503

To add one: a subclass with `code`, `status` and a sentence on when it is raised. Errors of the selection core get their
status in CORE_STATUS. Every answer is {"code", "detail", "retryable", "request_id"}, and `owner` where a caller is sent
elsewhere; no other module writes one.
"""

import logging
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, ClassVar

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DataError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import Request

from api.request_ids import HEADER, RequestIds, request_id_of
from api.response_headers import SECURITY_HEADERS
from selector import errors as core

logger = logging.getLogger("midband.api")

SHOWN_PROBLEMS = 5  # of one refused request
SHOWN_CHARACTERS = 64  # of a refused value
RETRY_AFTER_S = 1
# Fields that hold prompts, answers or completions: their values are described, never repeated.
PRIVATE_FIELDS = frozenset({"answer", "completion", "content", "description", "reason", "text"})
HTTP_CODES = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large", 415: "unsupported_format"}


class ServiceError(Exception):
    """Root of the tree; the message names the value and the remedy."""


class StartRefused(ServiceError):
    """The service does not start."""


class DatabaseUnusable(StartRefused):
    """The database cannot be opened, is not ours, is damaged, or is newer than this version."""


class DatabaseLocked(StartRefused):
    """Another server has the SQLite file open."""


class ApiError(ServiceError):
    """A request is refused; nothing of it was applied."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False


class Unauthenticated(ApiError):
    """The call has no key, or one that is unknown, expired or revoked."""

    code, status = "unauthenticated", 401


class MissingScope(ApiError):
    """The key does not have the scope that this call asks for."""

    code, status = "missing_scope", 403


class ForeignOrigin(ApiError):
    """A page of another website sent the call, and while there are no keys nothing else would stop it."""

    code, status = "foreign_origin", 403


class UnknownPool(ApiError):
    """No pool has this name."""

    code, status = "unknown_pool", 404


class UnknownPrompt(ApiError):
    """The pool has no prompt of this key."""

    code, status = "unknown_prompt", 404


class UnknownRun(ApiError):
    """No run has this name."""

    code, status = "unknown_run", 404


class UnknownRollout(ApiError):
    """The run has no rollout of this id."""

    code, status = "unknown_rollout", 404


class BodyTooSlow(ApiError):
    """The body of the request did not arrive in time."""

    code, status = "body_too_slow", 408


class PoolConflict(ApiError):
    """A pool of this name exists with another description."""

    code, status = "pool_conflict", 409


class PoolArchived(ApiError):
    """The pool was archived: it can be read and no longer changed."""

    code, status = "pool_archived", 409


class RunConflict(ApiError):
    """A run of this name exists with another configuration; the detail has the difference."""

    code, status = "run_conflict", 409


class NotOwner(ApiError):
    """Another server writes this run; `owner` is its address, if it is known."""

    code, status, retryable = "not_owner", 409, True

    def __init__(self, detail: str, *, owner: str | None = None) -> None:
        super().__init__(detail)
        self.owner = owner


class StoreOff(ApiError):
    """The run was begun without a rollout store."""

    code, status = "store_off", 409


class Expired(ApiError):
    """What rollouts say is not kept any more, or is of weights that are too old by now: generate afresh."""

    code, status = "expired", 410


class BodyTooLarge(ApiError):
    """The body of the request passes the limit in the settings, or that of the answer would."""

    code, status = "body_too_large", 413


class UnsupportedFormat(ApiError):
    """The body's declared format or encoding is not one that is read here."""

    code, status = "unsupported_format", 415


class InvalidRequest(ApiError):
    """A field or parameter that is missing, unknown, of the wrong type or out of range."""

    code, status = "invalid_request", 422


class InvalidCursor(ApiError):
    """The cursor was not made by this list, with these filters and this order."""

    code, status = "invalid_cursor", 422


class UnreadableBody(ApiError):
    """The body is not in the format that it declares."""

    code, status = "unreadable_body", 422


class DamagedData(ApiError):
    """What is stored fails its checksum."""

    code, status = "damaged_data", 500


class OutcomeUnknown(ApiError):
    """The run's process ended before it answered a call that must not be carried out twice."""

    code, status = "outcome_unknown", 500


class NotAvailable(ApiError):
    """Part of the contract, and not built yet."""

    code, status = "not_available", 501


class Busy(ApiError):
    """The service or its database has no room at the moment; nothing was stored, so send it again."""

    code, status, retryable = "busy", 503, True


def no_pool(name: str) -> UnknownPool:
    """For a pool that is not there and for one that is hidden from the caller, in the same words."""
    return UnknownPool(
        f"there is no pool {shown(name)}; GET /v1/pools lists those that exist, POST /v1/pools makes one"
    )


def no_run(name: str) -> UnknownRun:
    """For a run that is not there and for one that is hidden from the caller, in the same words."""
    return UnknownRun(f"no run is called {shown(name)}; GET /v1/runs lists those that exist")


# By code, as the core's classes may come and go while a code is for ever.
CORE_STATUS: Mapping[str, int] = {
    "invalid_config": 422,
    "batch_conflict": 409,
    "branch_superseded": 409,
    "unknown_branch": 422,
    "bad_policy_version": 422,
    "revisit_impossible": 409,
    "unknown_checkpoint": 404,
    "unknown_batch": 404,
    "step_conflict": 409,
    "invalid_report": 422,
    "estimator_fixed": 409,
    "run_complete": 409,
    "snapshot_damaged": 500,
}


def error_response(error: ApiError, scope: MutableMapping[str, Any]) -> JSONResponse:
    """The answer to a refused request."""
    headers = None
    if isinstance(error, Busy):
        headers = {"Retry-After": str(RETRY_AFTER_S)}
    elif isinstance(error, Unauthenticated):
        headers = {"WWW-Authenticate": "Bearer"}
    owner = error.owner if isinstance(error, NotOwner) else None
    return _answer(scope, error.status, error.code, str(error), retryable=error.retryable, headers=headers, owner=owner)


def install_error_handlers(app: FastAPI) -> None:
    """Every error of `app` is answered in the one shape, and every answer carries the request's id."""
    app.add_middleware(RequestIds)

    @app.exception_handler(ApiError)
    async def _refused(request: Request, error: ApiError) -> JSONResponse:
        return error_response(error, request.scope)

    @app.exception_handler(core.SelectorError)
    async def _core(request: Request, error: core.SelectorError) -> JSONResponse:
        return _answer(request.scope, CORE_STATUS.get(error.code, 500), error.code, str(error))

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return error_response(InvalidRequest(describe_problems(error.errors())), request.scope)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 400:  # the framework's word for a body that it cannot even decode
            return error_response(InvalidRequest("body: not JSON in UTF-8, or nested too deeply"), request.scope)
        code = HTTP_CODES.get(error.status_code, "invalid_request" if error.status_code < 500 else "internal_error")
        detail = _where(request, error) or str(error.detail)
        return _answer(request.scope, error.status_code, code, detail, headers=error.headers)

    @app.exception_handler(OperationalError)
    async def _database(request: Request, error: OperationalError) -> JSONResponse:
        # Of the driver's message the first line only: what follows may quote the statement and its values.
        reason = (str(error.orig).splitlines() or [""])[0]
        logger.error("request %s: the database failed: %s", request_id_of(request.scope), reason)
        return error_response(Busy(f"the database did not answer: {reason}"), request.scope)

    @app.exception_handler(DataError)
    async def _unstorable(request: Request, error: DataError) -> JSONResponse:
        # Nothing of it was stored. PostgreSQL's texts cannot hold the NUL character, and SQLite's can.
        return error_response(InvalidRequest("a text holds a character that the database cannot store"), request.scope)

    @app.exception_handler(PoolTimeout)
    async def _no_connection(request: Request, error: PoolTimeout) -> JSONResponse:
        return error_response(Busy("all connections to the database are in use"), request.scope)

    @app.exception_handler(Exception)
    async def _bug(request: Request, error: Exception) -> JSONResponse:
        request_id = request_id_of(request.scope)
        logger.error("request %s failed: %s", request_id, type(error).__name__)
        detail = "an error inside the service; its log has the details under this request id"
        return _answer(request.scope, 500, "internal_error", detail)


def describe_problems(problems: Iterable[Mapping[str, Any]]) -> str:
    """Pydantic's list of problems as one text: field, what is wrong, and the value if it is safe to show."""
    listed = list(problems)
    texts = [_describe(problem) for problem in listed[:SHOWN_PROBLEMS]]
    if len(listed) > SHOWN_PROBLEMS:
        texts.append(f"and {len(listed) - SHOWN_PROBLEMS} more")
    return "; ".join(texts)


def shown(value: object) -> str:
    """A value for an error message, cut to a sane length; containers and bytes by their size only."""
    if isinstance(value, str):
        return repr(value if len(value) <= SHOWN_CHARACTERS else value[: SHOWN_CHARACTERS - 1] + "…")
    if value is None or isinstance(value, bool | int | float):
        return repr(value)[:SHOWN_CHARACTERS]
    if isinstance(value, Mapping):
        return f"an object with {len(value)} fields"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return f"a value of type {type(value).__name__}"


def _describe(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "json_invalid":
        place = problem["loc"][-1]
        where = f" at character {place}" if isinstance(place, int) else ""
        return f"body: not JSON: {problem['ctx']['error']}{where}"
    path = [str(part) for part in problem["loc"]]
    # The first part says only that it was in the body; it helps where the body itself is the problem.
    where = ".".join(path[1:] if len(path) > 1 and path[0] == "body" else path)[:200]
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] in ("missing", "extra_forbidden"):
        return f"{where}: {message}"
    value = problem.get("input")
    private = isinstance(value, str) and not PRIVATE_FIELDS.isdisjoint(path)
    return f"{where}: {message}, got {f'a text of {len(str(value))} characters' if private else shown(value)}"


def _where(request: Request, error: HTTPException) -> str | None:
    """For an unknown route or a wrong method: what was asked for, as the framework's own words name neither."""
    path = shown(request.url.path)
    if error.status_code == 404 and error.detail == "Not Found":
        return f"there is nothing at {path}"
    if error.status_code == 405:
        return f"{request.method} is not possible at {path}"
    return None


def _answer(
    scope: MutableMapping[str, Any],
    status: int,
    code: str,
    detail: str,
    *,
    retryable: bool = False,
    headers: Mapping[str, str] | None = None,
    owner: str | None = None,
) -> JSONResponse:
    request_id = request_id_of(scope)
    body = {"code": code, "detail": detail, "retryable": retryable, "request_id": request_id}
    if owner is not None:
        body["owner"] = owner
    # A failure inside the service is answered past every middleware, so what they would add is added here.
    headers = {**SECURITY_HEADERS, **(headers or {}), HEADER: request_id}
    return JSONResponse(body, status_code=status, headers=headers)
