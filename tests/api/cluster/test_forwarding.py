"""An edge and the app behind it, in one process: who answers what, and when a call is sent twice."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.cluster.forwarding import OF_A_RUN, Answer, Call, Gone, OneName, answer_of, is_repeatable, until_answered
from api.errors import Busy, OutcomeUnknown
from api.request_ids import HEADER
from api.settings import Settings
from tests.api.cluster.cases import conversation
from tests.api.harness import LIMIT_S, POLL_S, Http, in_process, letters, refused
from tests.api.key_cases import made_key
from trainer.transport import InProcessTransport

RUN = "/v1/runs/r"
AGE = "midband-state-age"
DONE = Answer(status=200, headers=[], body=b"done", route=None)


def call_of(method: str, path: str, body: object = None) -> Call:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Call(run="r", scope={"method": method, "path": path}, body=content)


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("POST", f"{RUN}/batches", {"index": 0}, True),
        ("POST", f"{RUN}/reports", {"groups": []}, True),
        ("POST", f"{RUN}/steps", {}, True),
        ("POST", f"{RUN}/complete", None, True),
        ("GET", f"{RUN}/restore", None, True),
        ("POST", f"{RUN}/restore", {"step": 0, "restore_id": "a"}, True),
        ("POST", f"{RUN}/restore", {"step": 0}, False),
        ("POST", f"{RUN}/restore/", {"step": 0}, False),
        ("POST", f"{RUN}/restore", {"step": 0, "restore_id": None}, False),
        ("POST", f"{RUN}/restore", b"{", False),
        ("POST", f"{RUN}/restore", [], False),
    ],
)
def test_every_call_but_a_restore_without_an_id_may_be_carried_out_twice(
    method: str, path: str, body: object, expected: bool
) -> None:
    assert is_repeatable(call_of(method, path, body)) is expected


@pytest.mark.parametrize(
    ("path", "run"),
    [
        (RUN, "r"),
        (f"{RUN}/", "r"),
        (f"{RUN}/batches/0", "r"),
        (f"{RUN}/eventsome", "r"),
        ("/v1/runs/events", "events"),
        ("/v1/runs/events/events", None),
        (f"{RUN}/events", None),
        (f"{RUN}/events/", None),
        ("/v1/runs", None),
        ("/v1/runs/", None),
        ("/v1/pools/r", None),
        ("/v1/runsome/r", None),
    ],
)
def test_calls_about_one_run_go_to_its_process_but_its_log_is_read_at_the_edge(path: str, run: str | None) -> None:
    found = OF_A_RUN.fullmatch(path)
    assert (None if found is None else found["run"]) == run


def answered(call: Call, *failures: int | None, **limits: float) -> tuple[Answer, int]:
    """The answer after these failures, each a process that ended or, for None, one that says nothing; and the tries."""
    tries = 0

    async def send(call: Call) -> Answer:
        nonlocal tries
        tries += 1
        if tries <= len(failures):
            if failures[tries - 1] is None:
                await asyncio.Event().wait()
            raise Gone
        return DONE

    limits = {"pause_s": 0.0, "answer_s": 30.0, "patience_s": 30.0, **limits}
    try:
        return asyncio.run(until_answered(send, call, **limits)), tries
    except (Busy, OutcomeUnknown) as error:
        error.add_note(str(tries))
        raise


def test_a_call_whose_process_ended_is_sent_again_until_patience_ends() -> None:
    call = call_of("POST", f"{RUN}/reports", {})
    assert answered(call, 1, 1, 1) == (DONE, 4)
    with pytest.raises(Busy, match="run 'r' ended and is not there again") as caught:
        answered(call, 1, 1, patience_s=0.0)
    assert caught.value.__notes__ == ["1"]


def test_a_call_that_must_not_be_carried_out_twice_is_sent_once() -> None:
    call = call_of("POST", f"{RUN}/restore", {"step": 0})
    for failure, words in ((1, "ended before"), (None, "has not answered for 0.01 s")):
        with pytest.raises(OutcomeUnknown, match=rf"{words}.*give a `restore_id`") as caught:
            answered(call, failure, answer_s=0.01)
        assert caught.value.__notes__ == ["1"]
    assert not OutcomeUnknown.retryable


def test_a_process_that_says_nothing_keeps_nobody_waiting_for_ever() -> None:
    with pytest.raises(Busy, match=r"has not answered for 0\.01 s"):
        answered(call_of("GET", RUN), None, answer_s=0.01)


def test_the_name_of_a_request_is_left_to_the_server_in_front() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"x-request-id", b"ours"), (b"a", b"b")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def go() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(OneName(app)), base_url="http://a") as client:
            return await client.get("/")

    assert dict(asyncio.run(go()).headers) == {"a": "b"}


# An edge


@dataclass
class Cluster:
    """An edge, and the app that stands for every run's process."""

    http: Http
    sent: list[Call] = field(default_factory=list)  # to the app behind it
    troubles: list[Callable[[], None]] = field(default_factory=list)  # of the next sends, after they were carried out


@contextmanager
def edge(url: str, **options: Any) -> Iterator[Cluster]:
    settings = Settings(database_url=url, **options)
    behind, found = create_app(settings), Cluster(Http(httpx.Client()))

    async def send_on(call: Call) -> Answer:
        found.sent.append(call)
        answer = await answer_of(behind, call)
        if found.troubles:
            found.troubles.pop(0)()
        return answer

    front = create_app(settings, send_on=send_on)
    alone = front.router.lifespan_context

    @asynccontextmanager
    async def both(app: Any) -> AsyncIterator[Any]:
        async with behind.router.lifespan_context(behind), alone(app):
            yield

    front.router.lifespan_context = both
    with httpx.Client(transport=InProcessTransport(front), base_url="http://midband") as client:
        found.http = Http(client)
        yield found


@pytest.mark.postgres
def test_an_edge_answers_what_the_service_answers_to_the_byte(
    postgres_server: Any, postgres_url: str, tmp_path: Any
) -> None:
    with postgres_server.fresh_database() as other, in_process(other) as http:
        expected = conversation(http)
    with edge(postgres_url) as cluster:
        assert conversation(cluster.http) == expected
        assert {call.run for call in cluster.sent} == {"r"}
    assert {status for status, *_ in expected} >= {200, 201, 307, 404, 405, 409, 422, 501}


@pytest.mark.postgres
def test_a_call_carried_out_by_a_process_that_then_ends_counts_once(postgres_url: str) -> None:
    def ended() -> None:
        raise Gone

    with edge(postgres_url) as cluster:
        http = cluster.http
        http.pool(letters())
        http.run(group_size=2)
        cluster.troubles = [ended]
        batch = http.draw(0, 2)
        cluster.troubles = [ended]
        groups = [{"ticket": t["ticket"], "rollouts": [{"outcome": 1.0}, {"outcome": 0.0}]} for t in batch["tickets"]]
        assert http.post(f"{RUN}/reports", {"groups": groups})["duplicate"] == 4
        assert http.info()["rollouts"]["reported"] == 4
        http.post(f"{RUN}/checkpoints", {"step": 0})
        cluster.troubles = [ended]
        refused(http.send("POST", f"{RUN}/restore", {"step": 0}), 500, "outcome_unknown", "restore_id")
        assert [call.body for call in cluster.sent].count(b'{"step": 0}') == 2  # the checkpoint, the restore


@pytest.mark.postgres
def test_the_edge_owns_no_run_and_reads_from_a_copy_what_it_answers_itself(postgres_url: str) -> None:
    with edge(postgres_url) as cluster:
        http = cluster.http
        http.pool(letters())
        http.run()
        http.run("second")
        seen = http.send("GET", "/v1/pools/p/prompts/a", params={"run": "r"})  # before anybody owns it
        assert seen.json()["state"] == "new"
        assert 0 <= float(seen.headers[AGE]) < 5
        assert cluster.sent == []
        http.draw(0, 2)
        http.quarantine(["a"])
        http.put([{"key": "new", "content": "new"}])
        assert len(http.events()) > 2
        body = {"runs": [["r"], ["second"]], "quality": {"target": 0.5}}
        assert http.post("/v1/comparisons", body)["configurations"]
        assert AGE not in http.send("GET", RUN).headers
        assert len(cluster.sent) == 2  # the draw and the look
        assert http.draw(1, 4)["frame"] == 4  # its process has seen what the edge did to the pool
        figures = http.send("GET", "/metrics").text
        assert 'midband_requests_total{method="POST",route="/v1/runs/{run}/batches",status="200"} 2.0' in figures


@pytest.mark.postgres
def test_no_process_is_asked_about_a_run_that_is_not_there_or_for_a_caller_without_a_key(postgres_url: str) -> None:
    with edge(postgres_url, max_body_bytes=2_000) as cluster:
        http = cluster.http
        http.pool(letters())
        http.run()
        refused(http.send("POST", "/v1/runs/none/batches", {}), 422, "invalid_request")
        refused(http.send("GET", "/v1/runs/none"), 404, "unknown_run", "no run is called 'none'")
        refused(http.send("POST", f"{RUN}/reports", b"x" * 3_000), 413, "body_too_large")
        key = made_key(postgres_url)
        limit_s, sent = time.monotonic() + LIMIT_S, -1
        while len(cluster.sent) != sent:  # the edge itself knows of the key within 2 s
            assert time.monotonic() < limit_s
            time.sleep(POLL_S)
            sent = len(cluster.sent)
            answer = http.send("GET", RUN)
        refused(answer, 401, "unauthenticated")
        assert http.holding(key).info()["run"] == "r"
        named = http.holding(key).send("GET", f"{RUN}/batches/7", headers={HEADER: "mine"})
        assert (named.headers[HEADER], named.json()["request_id"]) == ("mine", "mine")
