"""One call over HTTP: send, try again while that can help, and turn the answer into a value or an error.

`trainer.client` says which call; this module knows statuses, back-off and the envelope of errors, and no route.
Every call of the contract is idempotent, so every call may be sent again.

Several servers may share a database; each run is then written by one of them, and the others answer `not_owner` with
its address. Calls follow there, a bounded number of times, with the same key, and come back to the first address when
nobody answers.
"""

import copy
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from api.schemas import ErrorBody
from trainer.errors import InvalidRequest, MidbandError, NotOwner, ServiceUnavailable, UnreadableAnswer, refusal
from trainer.retry import Backoff, Wait

TRY_AGAIN = frozenset({429, 502, 503, 504})  # statuses that say: not now
KEY_VARIABLE = "MIDBAND_KEY"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
MAX_FOLLOWED = 3  # owners in a row before a pause: a run that moves faster is not settled yet
DETAIL_CHARS = 300  # of a body that is not of this contract; enough to recognise the program that sent it

T = TypeVar("T")
Body = bytes | Callable[[], Iterable[bytes]]  # what to send, or what makes it anew for each try
Query = Mapping[str, str | int | None]

logger = logging.getLogger("midband.client")


class Connection:
    """An httpx client with our rules of retry and refusal. Safe to share between threads, as httpx's client is."""

    def __init__(
        self,
        base_url: str,
        *,
        key: str | None,
        transport: httpx.BaseTransport | None,
        timeout_s: float,
        backoff: Backoff,
    ) -> None:
        url = httpx.URL(base_url)
        if url.scheme not in ("http", "https") or not url.host:
            raise InvalidRequest(f"base_url must look like http://127.0.0.1:8765, got {base_url!r}")
        headers = {"Accept": "application/json"}
        if key is not None and url.userinfo:
            raise InvalidRequest("a password in base_url and a key go into the same header: give one of them")
        if key is None and not url.userinfo:
            key = os.environ.get(KEY_VARIABLE) or None
        if key is not None:
            headers["Authorization"] = f"Bearer {_checked(key)}"
        self.where = str(url.copy_with(userinfo=b"")).rstrip("/")  # for messages: a password must not get into a log
        self._backoff = backoff
        self._base = url
        self._owners: dict[str, httpx.URL] = {}  # what a call is about -> the server that it was sent on to
        self._http = httpx.Client(
            base_url=url,
            headers=headers,
            transport=transport,
            timeout=timeout_s,
            # A proxy of the environment cannot reach a service on this machine, and clusters often set one.
            trust_env=url.host not in LOOPBACK,
        )

    def close(self) -> None:
        self._http.close()

    def waiting(self, patience_s: float) -> "Connection":
        """This connection with another patience; what is known of owners is shared, and closing one closes both."""
        twin = copy.copy(self)
        twin._backoff = replace(self._backoff, patience_s=patience_s)
        return twin

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Body = b"",
        content_type: str = "application/json",
        timeout_s: float | None = None,
        stream: bool = False,
    ) -> httpx.Response:
        """The answer to one call, of status 2xx; with `stream` its body is still to be read, and the caller closes it.

        Raises RequestRefused for an answer that says no, and ServiceUnavailable when there was none within the
        patience of this connection.
        """
        params = {name: str(value) for name, value in (query or {}).items() if value is not None}
        headers = {"Content-Type": content_type} if body else {}
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else httpx.Timeout(timeout_s)
        wait, about, followed = self._backoff.start(), _subject(path), 0
        while True:
            content = body() if callable(body) else body
            owner = self._owners.get(about)
            where = self.where if owner is None else str(owner.copy_with(userinfo=b""))
            try:
                request = self._http.build_request(
                    method,
                    path if owner is None else _under(owner, path),
                    params=params,
                    content=content,
                    headers=headers,
                    timeout=timeout,
                )
                response = self._http.send(request, stream=stream)
                if stream and not response.is_success:
                    response.read()
                    response.close()
            except (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL) as error:
                raise InvalidRequest(f"{method} {path} cannot be sent: {error}") from error
            except httpx.DecodingError as error:
                raise UnreadableAnswer(f"{where} answered {method} {path} with a damaged body: {error}") from error
            except httpx.TransportError as error:
                self._owners.pop(about, None)
                reason = str(error) or type(error).__name__
                self._wait_or_raise(
                    wait, ServiceUnavailable(f"no answer from {where} to {method} {path}: {reason}"), 0.0
                )
                continue
            if response.is_success:
                return response
            problem, again = self._judge(response, where)
            if not again:
                raise problem
            self._owners.pop(about, None)  # whatever is wrong there, the first address may know of another owner
            if isinstance(problem, NotOwner) and followed < MAX_FOLLOWED:
                followed += 1
                if self._follow(about, response):
                    continue
            self._wait_or_raise(wait, problem, _retry_after_s(response))
            followed = 0

    def _follow(self, about: str, response: httpx.Response) -> bool:
        """Notes the owner that an answer names; False if it names none, or one that must not be given the key."""
        try:
            owner = httpx.URL(ErrorBody.model_validate_json(response.content).owner or "")
        except httpx.InvalidURL:
            return False
        # Never from an encrypted connection to an open one: the key goes along.
        schemes = ("https",) if self._base.scheme == "https" else ("http", "https")
        if owner.scheme not in schemes or not owner.host or owner.userinfo:
            return False
        self._owners[about] = owner.copy_with(userinfo=self._base.userinfo)
        return True

    def _wait_or_raise(self, wait: Wait, problem: MidbandError, at_least_s: float) -> None:
        if wait.is_first and wait.left_s > 0:
            logger.warning("%s; trying again for up to %.0f s", problem, wait.left_s)
        if not wait.pause(at_least_s):
            raise problem

    def _judge(self, response: httpx.Response, where: str) -> tuple[MidbandError, bool]:
        """The error that an answer from `where` stands for, and whether the same call may fare better later."""
        call = f"{response.request.method} {response.request.url.path}"
        status = response.status_code
        if response.is_redirect:
            target = response.headers.get("location", "another address")
            return UnreadableAnswer(f"{where} sends {call} on to {target}: give that one as base_url"), False
        try:
            body = ErrorBody.model_validate_json(response.content)
        except ValidationError:
            body = ErrorBody(code=f"http_{status}", detail=response.text[:DETAIL_CHARS] or response.reason_phrase)
        again = status in TRY_AGAIN or body.retryable
        if status in TRY_AGAIN or (status >= 500 and status != httpx.codes.NOT_IMPLEMENTED):
            text = f"{where} answered {status} to {call}: {body.detail}"
            return ServiceUnavailable(text, status=status, request_id=body.request_id), again
        return refusal(status, body.code, body.detail, body.request_id), again


def _subject(path: str) -> str:
    """What a call is about: a collection and a name in it, as in /v1/runs/r. One server writes all of it."""
    return "/".join(path.split("/")[:4])


def _under(address: httpx.URL, path: str) -> httpx.URL:
    return address.copy_with(raw_path=address.raw_path.rstrip(b"/") + path.encode("ascii"))


def _checked(key: str) -> str:
    """The key without the line end that files have. What no header can hold is refused here, without showing it."""
    stripped = key.strip()
    if not stripped or not stripped.isascii() or not stripped.isprintable() or " " in stripped:
        raise InvalidRequest(f"the key (`key`, or {KEY_VARIABLE}) is empty or has characters that no key has")
    return stripped


def path_of(*parts: str) -> str:
    """A path of parts that may hold any text: slashes, blanks, dots. The first part stands as it is."""
    first, *rest = parts
    return "/".join([first, *(_quoted(part) for part in rest)])


def parsed(answer: type[T], response: httpx.Response) -> T:
    """The body as a value of the contract; raises UnreadableAnswer for anything else."""
    try:
        return TypeAdapter(answer).validate_json(response.content)
    except ValidationError as error:
        where = response.request.url.copy_with(userinfo=b"", query=None)
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "the body"
        raise UnreadableAnswer(
            f"{where} answered with something this client cannot read ({place}: {first['msg']}): another program on "
            f"that port, or another version of the service. It begins {response.text[:80]!r}"
        ) from error


def _quoted(part: str) -> str:
    text = quote(part, safe="")
    # A part of dots alone is a step upwards in a path, and quoting leaves dots as they are.
    return text.replace(".", "%2E") if text in (".", "..") else text


def _retry_after_s(response: httpx.Response) -> float:
    """Seconds the server asks us to wait: a number or a date; 0 if it says nothing that can be read."""
    text = response.headers.get("retry-after", "").strip()
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0.0
