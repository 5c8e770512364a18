"""Rollouts from any server that speaks OpenAI's HTTP interface: one of vLLM, SGLang, llama.cpp, a hosted one.

The prober uses it. A ticket is one request for all its samples; requests run side by side, up to a bound. Text goes to
`/completions`, chat messages to `/chat/completions`. What fails is tried again with growing pauses for as long as the
caller is patient; what still fails is `error` rollouts, never a zero.

The seed of a request comes from the engine's seed, the ticket and the number of its first rollout, so the same wave is
asked for with the same seed; whether a server then repeats itself is its affair, as is how n samples share one seed.
"""

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import httpx

from api.schemas import Ticket
from trainer.errors import InvalidRequest
from trainer.graders import Grader
from trainer.graders.pool import Grade, GraderPool
from trainer.reports import Status
from trainer.retry import Backoff
from trainer.rollout.base import FinishReason, Rollout, RolloutEngine, RolloutGroup

logger = logging.getLogger(__name__)

CONCURRENCY = 16  # requests at a time; servers batch them
TIMEOUT_S = 600.0  # of one request: all its samples, generated
SEED_BITS = 31  # some servers take a signed 32-bit number
BUSY = frozenset({408, 409, 425, 429})  # beside 5xx, what may pass
NO_USE = frozenset({401, 403, 404, 405})  # what no other prompt would mend
FINISHED: dict[str, FinishReason] = {"stop": "stop", "eos": "stop", "length": "length"}


class OpenAIEngine(RolloutEngine):
    """Samples from `model` at `base_url`, which ends with the version, as `http://127.0.0.1:8000/v1`.

    Recorded log-probabilities are the server's, of the tokens that it sampled; a server that gives none leaves them and
    the token counts of several samples out. Close it, or use it with `with`.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        grader: Grader,
        *,
        max_new_tokens: int,
        temperature: float = 1.0,
        seed: int = 0,
        key: str | None = None,
        concurrency: int = CONCURRENCY,
        timeout_s: float = TIMEOUT_S,
        backoff: Backoff | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if max_new_tokens < 1 or concurrency < 1:
            raise InvalidRequest(f"max_new_tokens and concurrency must be >= 1, got {max_new_tokens} and {concurrency}")
        if not 0 < temperature < float("inf"):
            raise InvalidRequest(f"temperature must be a number > 0, got {temperature}")
        if httpx.URL(base_url).scheme not in ("http", "https"):
            raise InvalidRequest(f"the engine's URL must begin with http:// or https://, got {base_url!r}")
        self._model, self._grader, self._seed = model, grader, seed
        self._max_new_tokens, self._temperature = max_new_tokens, temperature
        self._backoff = backoff or Backoff()
        self._failures: Counter[str] = Counter()
        self._http = httpx.Client(
            base_url=base_url.rstrip("/") + "/",
            timeout=timeout_s,
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
            limits=httpx.Limits(max_connections=concurrency),
            transport=transport,
        )
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="rollouts")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Waits for requests under way and lets go of the connections."""
        self._threads.shutdown(cancel_futures=True)
        self._http.close()

    @property
    def failures(self) -> Counter[str]:
        """Requests that failed for good, by reason."""
        return self._failures

    def generate(self, tickets: Sequence[Ticket], *, policy_version: int) -> list[RolloutGroup]:
        """Groups by the weights that the server has; `policy_version` is the caller's word for them."""
        spans = [range(ticket.group_size) for ticket in tickets]
        return self.generate_part(tickets, spans, policy_version=policy_version)

    def generate_part(
        self, tickets: Sequence[Ticket], spans: Sequence[range], *, policy_version: int
    ) -> list[RolloutGroup]:
        """A wave is a request of its own: its samples are no part of a longer group's. Raises InvalidRequest for a
        ticket without content, and where the server knows no such model or wants another key.
        """
        for ticket in tickets:
            if ticket.content is None:
                raise InvalidRequest(
                    f"ticket {ticket.ticket} came without its prompt's text: draw with include=['content', 'answer']"
                )
        began_s = time.perf_counter()
        groups = list(self._threads.map(self._group, tickets, spans))
        return _with_seconds(groups, time.perf_counter() - began_s)

    def _group(self, ticket: Ticket, span: range) -> RolloutGroup:
        choices, usage = self._ask(ticket, span)
        rollouts = [self._rollout(choice, ticket, usage) for choice in choices[: len(span)]]
        rollouts += [Rollout(outcome=None, status="error")] * (len(span) - len(rollouts))
        return RolloutGroup(ticket=ticket, rollouts=tuple(rollouts), start=span.start)

    def _ask(self, ticket: Ticket, span: range) -> tuple[list[dict[str, Any]], int | None]:
        """The samples, and the tokens of a single one; no samples where the request failed for good."""
        is_text = isinstance(ticket.content, str)
        body: dict[str, object] = {
            "model": self._model,
            "n": len(span),
            "max_tokens": self._max_new_tokens,
            "temperature": self._temperature,
            "seed": self._seed_of(ticket, span),
            **(
                {"prompt": ticket.content, "logprobs": 0} if is_text else {"messages": ticket.content, "logprobs": True}
            ),
        }
        path, wait = "completions" if is_text else "chat/completions", self._backoff.start()
        while True:
            problem, at_least_s, status = "", 0.0, 0
            try:
                response = self._http.post(path, json=body)
                if response.status_code == httpx.codes.OK:
                    answer = response.json()
                    tokens = (answer.get("usage") or {}).get("completion_tokens")
                    return list(answer["choices"]), tokens if len(span) == 1 else None
                problem = f"status {response.status_code}"
                at_least_s = _seconds(response.headers.get("retry-after"))
                status = response.status_code
            except httpx.TransportError as error:
                problem = type(error).__name__
            except (ValueError, KeyError, TypeError, AttributeError):
                return self._failed(ticket, "an answer that cannot be read")
            if status in NO_USE:
                raise InvalidRequest(
                    f"the engine's server answers {problem} to {path} for model {self._model!r}: check the URL (it "
                    "ends with the version, as in http://127.0.0.1:8000/v1), the model's name and the key"
                )
            # Else the fault is this prompt's own, which may be too long.
            may_pass = status == 0 or status >= 500 or status in BUSY
            if not may_pass or not wait.pause(at_least_s):
                return self._failed(ticket, problem)

    def _failed(self, ticket: Ticket, problem: str) -> tuple[list[dict[str, Any]], None]:
        logger.warning("ticket %s: %s; its rollouts are errors", ticket.ticket, problem)
        self._failures[problem] += 1
        return [], None

    def _seed_of(self, ticket: Ticket, span: range) -> int:
        digest = hashlib.blake2b(f"{self._seed}:{ticket.ticket}:{span.start}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") % (1 << SEED_BITS)

    def _rollout(self, choice: dict[str, Any], ticket: Ticket, usage: int | None) -> Rollout:
        text = choice.get("text")
        if text is None:
            text = (choice.get("message") or {}).get("content")
        reason = FINISHED.get(str(choice.get("finish_reason")))
        logprobs = _logprobs(choice.get("logprobs"))
        tokens = len(logprobs) if logprobs else usage
        if not isinstance(text, str) or reason is None:  # filtered, aborted, or no text at all
            return Rollout(outcome=None, status="error", tokens=tokens)
        grade = self._graded(ticket, text)
        status: Status = "unscored" if grade.outcome is None else "ok" if reason == "stop" else "truncated"
        return Rollout(
            outcome=grade.outcome,
            reward=grade.reward,
            tokens=tokens,
            status=status,
            text=text,
            completion_ids=choice.get("token_ids") or (),
            logprobs=logprobs,
            finish_reason=reason,
        )

    def _graded(self, ticket: Ticket, text: str) -> Grade:
        if isinstance(self._grader, GraderPool):
            return self._grader.grade(text, ticket.answer)
        try:
            return Grade(outcome=self._grader(text, ticket.answer))
        except Exception as error:
            # A grader meets whatever a model writes; its message may quote that, so the kind alone is told.
            logger.warning("ticket %s: the grader raised %s", ticket.ticket, type(error).__name__)
            return Grade(outcome=None, problem=f"raised {type(error).__name__}")


def _with_seconds(groups: Sequence[RolloutGroup], took_s: float) -> list[RolloutGroup]:
    """The seconds of all requests together, shared among what they brought by its tokens, or evenly without these.

    Requests overlap and each makes several samples: added up as they are, their times would be many times the clock's.
    """
    made = [rollout for group in groups for rollout in group.rollouts if rollout.text is not None]
    num_tokens = sum(rollout.tokens or 0 for rollout in made)

    def timed(rollout: Rollout) -> Rollout:
        if rollout.text is None:
            return rollout
        share = (rollout.tokens or 0) / num_tokens if num_tokens else 1 / len(made)
        return replace(rollout, seconds=took_s * share)

    return [replace(group, rollouts=tuple(map(timed, group.rollouts))) for group in groups]


def _logprobs(found: Any) -> list[float]:
    """Of each token, from either of the two shapes; empty where the server gave none."""
    if not isinstance(found, dict):
        return []
    if isinstance(found.get("content"), list):
        return [float(token["logprob"]) for token in found["content"]]
    return [float(value) for value in found.get("token_logprobs") or () if value is not None]


def _seconds(text: str | None) -> float:
    """A Retry-After in seconds; 0 without one, and for a date."""
    try:
        return max(float(text or 0.0), 0.0)
    except ValueError:
        return 0.0
