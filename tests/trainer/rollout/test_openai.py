"""Rollouts over HTTP from a small server that answers as OpenAI's interface does, and fails in all the usual ways."""

import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from api.schemas import Ticket
from trainer.errors import InvalidRequest
from trainer.graders.pool import GraderPool
from trainer.retry import Backoff
from trainer.rollout.openai import OpenAIEngine

QUICK = Backoff(patience_s=0.5, first_s=0.01, longest_s=0.02)
NEVER_AGAIN = Backoff(patience_s=0.0)


@dataclass
class Fake:
    """What the server was asked, and how it is to answer."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    failures: list[int | str] = field(default_factory=list)  # of the next requests, in order
    choices: list[dict[str, Any]] | None = None  # instead of n right ones
    with_logprobs: bool = True
    delay_s: float = 0.0
    busy: int = 0
    most_busy: int = 0
    headers: list[str | None] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Handler(BaseHTTPRequestHandler):
    fake: Fake

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        fake = self.fake
        with fake.lock:
            fake.asked.append({"path": self.path, **body})
            fake.headers.append(self.headers.get("authorization"))
            failure = fake.failures.pop(0) if fake.failures else None
            fake.busy += 1
            fake.most_busy = max(fake.busy, fake.most_busy)
        time.sleep(fake.delay_s)
        with fake.lock:
            fake.busy -= 1
        if failure == "drop":
            self.close_connection = True
            return
        if failure == "garbage":
            return self._answer(200, b"<html>")
        if failure is not None:
            return self._answer(int(failure), b'{"error": {"message": "secret prompt"}}')
        is_chat = self.path.endswith("chat/completions")
        choices = fake.choices or [{"text": "7", "finish_reason": "stop"} for _ in range(body["n"])]
        shaped = []
        for choice in choices:
            shape: dict[str, Any] = {"finish_reason": choice["finish_reason"]}
            shape |= {"message": {"content": choice["text"]}} if is_chat else {"text": choice["text"]}
            if fake.with_logprobs:
                values = [-0.5, -0.25]
                shape["logprobs"] = (
                    {"content": [{"logprob": value} for value in values]} if is_chat else {"token_logprobs": values}
                )
            shaped.append(shape)
        answer = {"choices": shaped, "usage": {"completion_tokens": 9}}
        self._answer(200, json.dumps(answer).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if status == 429:
            self.send_header("retry-after", "0.05")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the test says what went wrong."""


@pytest.fixture
def fake() -> Iterator[Fake]:
    fake = Fake()
    handler = type("Bound", (Handler,), {"fake": fake})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    fake.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield fake
    server.shutdown()
    thread.join()
    server.server_close()


def ticket(number: int = 0, content: object = "secret prompt", group_size: int = 3) -> Ticket:
    return Ticket(
        ticket=f"r:0:probe:0:0:{number}",
        prompt=f"p{number}",
        purpose="probe",
        group_size=group_size,
        first_wave=2,
        inclusion_probability=1.0,
        weight=None,
        predicted={"pass_rate": 0.5, "pass_rate_sd": 0.1, "informative": 0.5},
        content=content,
        answer="7",
    )


def exact(text: str, answer: str | None) -> float | None:
    return float(text == answer)


def engine(fake: Fake, **changes: Any) -> OpenAIEngine:
    given: dict[str, Any] = {"max_new_tokens": 5, "backoff": QUICK, "grader": exact}
    grader = (given | changes).pop("grader")
    return OpenAIEngine(fake.url, "m", grader, **{k: v for k, v in (given | changes).items() if k != "grader"})


def test_a_ticket_is_one_request_for_all_its_samples(fake: Fake) -> None:
    with engine(fake, temperature=0.7, key="k") as made:
        (group,) = made.generate([ticket()], policy_version=3)
    (asked,) = fake.asked
    assert asked["path"] == "/v1/completions"
    assert (asked["model"], asked["n"], asked["max_tokens"], asked["temperature"]) == ("m", 3, 5, 0.7)
    assert asked["prompt"] == "secret prompt"
    assert fake.headers == ["Bearer k"]
    assert [r.outcome for r in group.rollouts] == [1.0] * 3
    first = group.rollouts[0]
    assert (first.text, first.tokens, list(first.logprobs), first.finish_reason) == ("7", 2, [-0.5, -0.25], "stop")
    assert first.status == "ok"
    assert (first.seconds or 0) > 0


def test_the_seconds_of_requests_that_overlap_add_up_to_the_clock(fake: Fake) -> None:
    with engine(fake) as made:
        began_s = time.perf_counter()
        groups = made.generate([ticket(n) for n in range(6)], policy_version=3)
        took_s = time.perf_counter() - began_s
    seconds = [rollout.seconds or 0.0 for group in groups for rollout in group.rollouts]
    assert len(seconds) == 18
    assert min(seconds) > 0
    assert sum(seconds) <= took_s


def test_chat_messages_go_to_the_chat_interface(fake: Fake) -> None:
    messages = [{"role": "user", "content": "3 + 4?"}]
    with engine(fake) as made:
        (group,) = made.generate([ticket(content=messages)], policy_version=0)
    (asked,) = fake.asked
    assert asked["path"] == "/v1/chat/completions"
    assert asked["messages"] == messages
    assert asked["logprobs"] is True
    assert group.rollouts[0].logprobs == [-0.5, -0.25]


def test_a_wave_asks_for_its_own_rollouts_with_a_seed_of_its_own(fake: Fake) -> None:
    with engine(fake) as made:
        (one,) = made.generate_part([ticket()], [range(2)], policy_version=0)
        (two,) = made.generate_part([ticket()], [range(2, 3)], policy_version=0)
        made.generate_part([ticket()], [range(2)], policy_version=0)
    assert (one.start, len(one.rollouts), two.start, len(two.rollouts)) == (0, 2, 2, 1)
    seeds = [asked["seed"] for asked in fake.asked]
    assert seeds[0] == seeds[2] != seeds[1]


def test_what_a_limit_cut_is_truncated_and_graded_all_the_same(fake: Fake) -> None:
    fake.choices = [{"text": "7", "finish_reason": "length"}, {"text": "8", "finish_reason": "length"}]
    with engine(fake) as made:
        (group,) = made.generate([ticket(group_size=2)], policy_version=0)
    assert [(r.outcome, r.status, r.finish_reason) for r in group.rollouts] == [
        (1.0, "truncated", "length"),
        (0.0, "truncated", "length"),
    ]


@pytest.mark.parametrize("failure", [500, 503, 429, "drop"])
def test_what_may_pass_is_tried_again(fake: Fake, failure: int | str) -> None:
    fake.failures = [failure, failure]
    with engine(fake) as made:
        (group,) = made.generate([ticket()], policy_version=0)
    assert len(fake.asked) == 3
    assert [r.status for r in group.rollouts] == ["ok"] * 3


@pytest.mark.parametrize(("failure", "reason"), [(400, "status 400"), ("garbage", "an answer that cannot be read")])
def test_what_will_not_pass_is_an_error_at_once_and_never_a_zero(fake: Fake, failure: int | str, reason: str) -> None:
    fake.failures = [failure]
    with engine(fake) as made:
        bad, good = made.generate([ticket(0), ticket(1)], policy_version=0)
        statuses = sorted([bad.rollouts[0].status, good.rollouts[0].status])
    assert len(fake.asked) == 2
    assert statuses == ["error", "ok"]
    failed = bad if bad.rollouts[0].status == "error" else good
    assert [r.outcome for r in failed.rollouts] == [None] * 3
    assert [r["status"] for r in failed.report().model_dump()["rollouts"]] == ["error"] * 3
    assert made.failures == {reason: 1}


def test_patience_ends_in_errors_that_name_no_text(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    fake.failures = [500] * 1000
    with caplog.at_level(logging.DEBUG, logger="trainer"), engine(fake) as made:
        (group,) = made.generate([ticket()], policy_version=0)
    assert [r.status for r in group.rollouts] == ["error"] * 3
    assert "status 500" in caplog.text
    assert "secret" not in caplog.text


def test_a_server_that_is_away_gives_errors() -> None:
    with OpenAIEngine("http://127.0.0.1:9/v1", "m", exact, max_new_tokens=1, backoff=NEVER_AGAIN) as made:
        (group,) = made.generate([ticket()], policy_version=0)
    assert [r.status for r in group.rollouts] == ["error"] * 3
    assert made.failures == {"ConnectError": 1}


def test_a_request_that_takes_too_long_is_an_error(fake: Fake) -> None:
    fake.delay_s = 0.5
    with engine(fake, timeout_s=0.05, backoff=NEVER_AGAIN) as made:
        (group,) = made.generate([ticket()], policy_version=0)
    assert [r.status for r in group.rollouts] == ["error"] * 3
    assert made.failures == {"ReadTimeout": 1}


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_model_ends_the_work_with_the_remedy(fake: Fake, status: int) -> None:
    fake.failures = [status]
    with engine(fake) as made, pytest.raises(InvalidRequest, match=f"status {status}.*model's name and the key"):
        made.generate([ticket()], policy_version=0)


def test_samples_that_are_missing_or_filtered_are_errors(fake: Fake) -> None:
    fake.choices = [{"text": "7", "finish_reason": "stop"}, {"text": "7", "finish_reason": "content_filter"}]
    with engine(fake) as made:
        (group,) = made.generate([ticket()], policy_version=0)
    assert [r.status for r in group.rollouts] == ["ok", "error", "error"]


def test_without_log_probabilities_only_a_single_sample_has_a_token_count(fake: Fake) -> None:
    fake.with_logprobs = False
    with engine(fake) as made:
        several, one = made.generate([ticket(0), ticket(1, group_size=1)], policy_version=0)
    assert [r.tokens for r in several.rollouts] == [None] * 3
    assert [r.tokens for r in one.rollouts] == [9]


def test_requests_run_side_by_side_up_to_the_bound(fake: Fake) -> None:
    fake.delay_s = 0.05
    with engine(fake, concurrency=3) as made:
        groups = made.generate([ticket(n) for n in range(9)], policy_version=0)
    assert [group.ticket.prompt for group in groups] == [f"p{n}" for n in range(9)]
    assert 1 < fake.most_busy <= 3


def test_a_grader_that_fails_leaves_the_rollout_unscored(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    def broken(text: str, answer: str | None) -> float | None:
        raise RuntimeError(f"cannot read {answer} secret")

    with engine(fake, grader=broken) as made:
        (group,) = made.generate([ticket()], policy_version=0)
    assert [(r.outcome, r.status) for r in group.rollouts] == [(None, "unscored")] * 3
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


def test_a_pool_of_graders_gives_rewards_too(fake: Fake) -> None:
    with GraderPool("trl:tests.trainer.graders.foreign:reward") as pool, engine(fake, grader=pool) as made:
        (group,) = made.generate([ticket()], policy_version=0)
    assert [(r.outcome, r.reward) for r in group.rollouts] == [(1.0, 1.0)] * 3


def test_a_ticket_without_its_text_is_refused(fake: Fake) -> None:
    with engine(fake) as made, pytest.raises(InvalidRequest, match="came without its prompt's text"):
        made.generate([ticket(content=None)], policy_version=0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"max_new_tokens": 0}, "max_new_tokens"), ({"temperature": 0.0}, "temperature"), ({"concurrency": 0}, "0")],
)
def test_settings_that_cannot_be_are_refused(fake: Fake, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        engine(fake, **changes)


def test_a_url_without_a_scheme_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="must begin with http:// or https://, got 'localhost/v1'"):
        OpenAIEngine("localhost/v1", "m", exact, max_new_tokens=1)
