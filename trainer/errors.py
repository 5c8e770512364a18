"""What can go wrong on the caller's side; every error of this package is in this tree.

MidbandError
├── InvalidRequest         nothing was sent: a value cannot go on the wire (also a ValueError)
│   └── InvalidRecord      a file of recorded outcomes that cannot be read
├── ServiceUnavailable     no usable answer within the caller's patience: no connection, 5xx, or 429 to the end
├── UnreadableAnswer       an answer came, and it is not of this contract
├── MissingExtra           an optional library is not installed
├── ShortBatch             a draw gave fewer tickets than the trainer can do with
├── RanksDisagree          processes of one trainer hold different batches
├── WeightsRefused         an engine did not take over the weights that it was given
├── ReportsRefused         the service did not take groups that an adapter reported
└── RequestRefused         the service answered 4xx or 501: `code`, `detail`, `status`, `request_id`
    ├── NotAllowed         401, 403: the key is missing or lacks the scope
    ├── NotFound           404: no such pool, run, prompt or batch, or outside the key's scope
    │   └── UnknownCheckpoint   no checkpoint has this step
    ├── InvalidBody        422: the request is malformed; nothing of it was applied
    ├── Expired            410: the body asked for is no longer kept
    ├── NotAvailable       501: this service does not offer it
    └── Conflict           409: it contradicts what the service already has
        ├── BatchConflict       the batch exists and was drawn with other parameters
        ├── StepConflict        the step was recorded with other values
        ├── BranchSuperseded    a restore began a new branch
        ├── RevisitImpossible   `revisit_draws` is smaller than the batches allow
        ├── NotOwner            another server writes the run, and could not be followed to
        └── RunComplete         the run has ended

Whether to try again is decided in one place, `trainer.connection`: by the time a caller sees an error, trying again
at once would not help. All of them pickle, as trainers pass errors between processes.
"""

from collections.abc import Callable
from typing import ClassVar


class MidbandError(Exception):
    """Root of the tree."""


class InvalidRequest(MidbandError, ValueError):
    """A value that cannot go on the wire; nothing was sent. The message names the value and the remedy."""


class InvalidRecord(InvalidRequest):
    """A file of recorded outcomes that cannot be read; the message names file, line and remedy."""


class ServiceUnavailable(MidbandError):
    """The service gave no usable answer for as long as the caller was willing to wait.

    Every call is idempotent, so the same call may be made again later, also from a new process.
    """

    def __init__(self, detail: str, *, status: int | None = None, request_id: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status  # of the last answer; None where there was none
        self.request_id = request_id

    def __reduce__(self) -> tuple[object, ...]:
        return _revive, (type(self), self.detail, {"status": self.status, "request_id": self.request_id})


class UnreadableAnswer(MidbandError):
    """Something answered, but not in this contract: another program on that port, a proxy, or a newer service."""


class MissingExtra(MidbandError):
    """A part of midband needs a library that is not installed; the message names the extra that brings it."""


class ShortBatch(MidbandError):
    """A draw gave fewer tickets than a trainer of fixed shapes can do with; `reason` is the service's."""

    def __init__(self, detail: str, *, reason: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return _revive, (type(self), self.detail, {"reason": self.reason})


class RanksDisagree(MidbandError):
    """Processes of one trainer hold different batches; nothing of this batch may be trained on."""


class WeightsRefused(MidbandError):
    """An engine has other weights than it was given, by its log-probabilities; nothing may be sampled from it."""


class ReportsRefused(MidbandError):
    """The service did not take groups that an adapter reported: tickets closed or unknown, values that contradict."""


class RequestRefused(MidbandError):
    """The service understood the call and says no. `code` is stable; `detail` names the field or value."""

    codes: ClassVar[tuple[str, ...]] = ()
    statuses: ClassVar[tuple[int, ...]] = ()

    def __init__(self, detail: str, *, code: str, status: int, request_id: str | None = None) -> None:
        where = f", request {request_id}" if request_id else ""
        super().__init__(f"{detail} ({code}{where})")
        self.detail = detail
        self.code = code
        self.status = status
        self.request_id = request_id

    def __reduce__(self) -> tuple[object, ...]:
        values = {"code": self.code, "status": self.status, "request_id": self.request_id}
        return _revive, (type(self), self.detail, values)


class NotAllowed(RequestRefused):
    """The key is missing, unknown, expired or revoked (401), or lacks the scope for this call (403).

    Give `Client` a `key`, or set MIDBAND_KEY.
    """

    statuses = (401, 403)


class NotFound(RequestRefused):
    """No such pool, run, prompt or batch; or it lies outside the key's scope, which looks the same on purpose."""

    statuses = (404,)


class UnknownCheckpoint(NotFound):
    """A restore to a step that no surviving checkpoint has; `detail` lists those that exist."""

    codes = ("unknown_checkpoint",)


class InvalidBody(RequestRefused):
    """The request is malformed: an unknown field, a wrong type, a number out of range. Nothing was applied."""

    statuses = (422,)


class Expired(RequestRefused):
    """The service no longer keeps what was asked for; generate afresh."""

    statuses = (410,)


class NotAvailable(RequestRefused):
    """This service does not offer what was asked for; `Client.version().capabilities` says what it does."""

    statuses = (501,)


class Conflict(RequestRefused):
    """The call contradicts what the service already has; what it has stands."""

    statuses = (409,)


class BatchConflict(Conflict):
    """The batch was drawn before with another size, group size, divisor, `short` or `allow_repeat`.

    Two ranks of one trainer that disagree show up here. Read the stored batch with `Client.batch`.
    """

    codes = ("batch_conflict",)


class StepConflict(Conflict):
    """The step was recorded before with other values in this branch."""

    codes = ("step_conflict",)


class BranchSuperseded(Conflict):
    """A restore began a new branch: this process works on a past that was discarded, and must stop or reload."""

    codes = ("branch_superseded",)


class RevisitImpossible(Conflict):
    """`revisit_draws` asks for more revisits than batches of this size have room for."""

    codes = ("revisit_impossible",)


class NotOwner(Conflict):
    """Another server of the same database writes the run, and it could not be reached within the caller's patience."""

    codes = ("not_owner",)


class RunComplete(Conflict):
    """The run has ended; a restore reopens it."""

    codes = ("run_complete",)


def refusal(status: int, code: str, detail: str, request_id: str | None = None) -> RequestRefused:
    """The error for an answer of the service: the class that names its code, else the one for its status."""
    return _class_for(status, code)(detail, code=code, status=status, request_id=request_id)


def _class_for(status: int, code: str) -> type[RequestRefused]:
    classes = list(_descendants(RequestRefused))
    for kind in classes:
        if code in kind.codes:
            return kind
    for kind in classes:
        if status in kind.statuses:
            return kind
    return RequestRefused


def _descendants(kind: type[RequestRefused]) -> list[type[RequestRefused]]:
    return [kind, *(found for child in kind.__subclasses__() for found in _descendants(child))]


def _revive(kind: Callable[..., MidbandError], detail: str, values: dict[str, object]) -> MidbandError:
    return kind(detail, **values)
