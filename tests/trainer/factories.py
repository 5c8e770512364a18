"""Values the trainer's tests are made of."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from api.schemas import Predicted, Ticket
from trainer.client import Client
from trainer.retry import Backoff

CLAIM = {"type": "modified", "objective": "any", "conditions": []}


def make_ticket(prompt: str = "a", *, group_size: int = 8, **changed: Any) -> Ticket:
    values: dict[str, Any] = {
        "ticket": f"t-{prompt}",
        "prompt": prompt,
        "purpose": "train",
        "group_size": group_size,
        "first_wave": group_size,
        "inclusion_probability": 0.5,
        "weight": 1.0,
        "predicted": Predicted(pass_rate=0.5, pass_rate_sd=0.2, informative=0.9),
    }
    return Ticket(**{**values, **changed})


def batch_body(*prompts: str) -> dict[str, Any]:
    """A batch as the service answers it."""
    return {
        "run": "r", "branch": 0, "purpose": "train", "index": 0, "refill": 0, "requested": len(prompts),
        "returned": len(prompts), "reason": None, "claim": CLAIM, "predicted_yield": 0.5, "policy_version": 0,
        "digest": "d", "frame": 4, "eligible": 4, "blocked": 0,
        "tickets": [make_ticket(prompt).model_dump() for prompt in prompts],
    }  # fmt: skip


class Clock:
    """A clock that only sleeping moves; keeps the sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.sleeps: list[float] = []

    def time(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now_s += seconds

    def backoff(self, **changed: Any) -> Backoff:
        return Backoff(clock=self.time, sleep=self.sleep, **changed)


Answer = httpx.Response | Exception


class Script:
    """A stand-in for the network: gives the answers listed, the last one for ever, and keeps the requests."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.bodies: list[bytes] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.bodies.append(request.read())
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def sent(self, place: int = -1) -> Any:
        """The JSON of a request's body."""
        return json.loads(self.bodies[place])


def make_client(
    handler: Callable[[httpx.Request], httpx.Response], clock: Clock | None = None, **backoff: Any
) -> Client:
    """A client on a stand-in for the network, with a clock of its own, so that no test waits."""
    return Client(
        "http://midband", transport=httpx.MockTransport(handler), backoff=(clock or Clock()).backoff(**backoff)
    )


def ok(body: Any) -> httpx.Response:
    return httpx.Response(200, json=body)


def refused(
    status: int, code: str, *, retryable: bool = False, owner: str | None = None, **headers: str
) -> httpx.Response:
    body = {"code": code, "detail": f"the reason for {code}", "retryable": retryable, "request_id": "q1"}
    if owner is not None:
        body["owner"] = owner
    return httpx.Response(status, json=body, headers={name.replace("_", "-"): value for name, value in headers.items()})
