import logging
import pickle

import httpx
import pytest

from tests.trainer.factories import Clock, Script, make_client, ok, refused
from trainer import errors
from trainer.client import Client
from trainer.connection import path_of
from trainer.retry import Backoff

VERSION = {"version": "1", "contract": 1, "capabilities": []}


def test_a_busy_service_is_asked_again_until_it_answers() -> None:
    clock, network = Clock(), Script(refused(503, "busy"), refused(502, "x"), refused(504, "x"), ok(VERSION))
    assert make_client(network, clock).version().contract == 1
    assert len(network.requests) == 4
    assert clock.sleeps == [0.1, 0.2, 0.4]


def test_a_lost_connection_is_tried_again_with_the_same_body() -> None:
    network = Script(httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), ok({"received": 2, **NO_ROWS}))
    rows = ({"key": name} for name in "ab")  # can be gone through once only
    assert make_client(network).put_prompts("p", rows).received == 2
    assert network.bodies == [b'{"key": "a"}\n{"key": "b"}\n'] * 3


NO_ROWS = {"created": 0, "updated": 0, "unchanged": 0, "merged": 0, "rejected": 0, "errors": [], "warnings": []}


def test_patience_ends_in_an_error_that_names_the_service_and_the_reason() -> None:
    clock, network = Clock(), Script(httpx.ConnectError("connection refused"))
    with pytest.raises(errors.ServiceUnavailable, match=r"http://midband to GET /version: connection refused"):
        make_client(network, clock, patience_s=2.0).version()
    # The last try falls on the end of the patience: 0.1 + 0.2 + 0.4 + 0.8 = 1.5, and the half second that is left.
    assert clock.sleeps == pytest.approx([0.1, 0.2, 0.4, 0.8, 0.5])
    assert len(network.requests) == 6


def test_no_delay_is_longer_than_the_longest() -> None:
    clock = Clock()
    with pytest.raises(errors.ServiceUnavailable):
        make_client(Script(refused(503, "busy")), clock, patience_s=30.0, longest_s=3.0).version()
    assert max(clock.sleeps) == 3.0
    assert sum(clock.sleeps) == pytest.approx(30.0)


def test_without_patience_a_call_is_made_once() -> None:
    clock, network = Clock(), Script(httpx.ConnectError("refused"))
    with pytest.raises(errors.ServiceUnavailable):
        make_client(network, clock, patience_s=0.0).version()
    assert (len(network.requests), clock.sleeps) == (1, [])


def test_the_service_may_ask_for_a_longer_wait() -> None:
    clock, network = Clock(), Script(refused(429, "busy", retry_after="7"), ok(VERSION))
    make_client(network, clock).version()
    assert clock.sleeps == [7.0]


def test_a_wait_beyond_the_patience_is_not_begun() -> None:
    clock, network = Clock(), Script(refused(503, "busy", retry_after="61"))
    with pytest.raises(errors.ServiceUnavailable) as caught:
        make_client(network, clock, patience_s=60.0).version()
    assert (clock.sleeps, caught.value.status, caught.value.request_id) == ([], 503, "q1")


@pytest.mark.parametrize("date", ["Wed, 21 Oct 2015 07:28:00 GMT", "soon", "²", ""])
def test_a_retry_after_in_the_past_or_unreadable_falls_back_on_the_own_delay(date: str) -> None:
    clock = Clock()
    answer = httpx.Response(503, headers=[(b"retry-after", date.encode("latin-1"))])
    make_client(Script(answer, ok(VERSION)), clock).version()
    assert clock.sleeps == [0.1]


def test_the_first_failure_is_said_and_the_others_are_not(caplog: pytest.LogCaptureFixture) -> None:
    network = Script(httpx.ConnectError("refused"), httpx.ConnectError("refused"), ok(VERSION))
    with caplog.at_level(logging.WARNING, logger="midband.client"):
        make_client(network).version()
    assert [record.getMessage() for record in caplog.records] == [
        "no answer from http://midband to GET /version: refused; trying again for up to 60 s"
    ]


def test_a_failure_inside_the_service_is_not_tried_again_unless_it_says_so() -> None:
    network = Script(refused(500, "internal_error"))
    with pytest.raises(errors.ServiceUnavailable, match="answered 500"):
        make_client(network).version()
    assert len(network.requests) == 1
    network = Script(
        refused(500, "internal_error", retryable=True), refused(409, "not_owner", retryable=True), ok(VERSION)
    )
    make_client(network).version()
    assert len(network.requests) == 3


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (409, "batch_conflict", errors.BatchConflict),
        (409, "branch_superseded", errors.BranchSuperseded),
        (409, "step_conflict", errors.StepConflict),
        (409, "run_complete", errors.RunComplete),
        (409, "some_new_conflict", errors.Conflict),
        (404, "unknown_run", errors.NotFound),
        (404, "unknown_checkpoint", errors.UnknownCheckpoint),
        (401, "unauthenticated", errors.NotAllowed),
        (410, "expired", errors.Expired),
        (422, "invalid_request", errors.InvalidBody),
        (501, "not_available", errors.NotAvailable),
        (413, "body_too_large", errors.RequestRefused),
    ],
)
def test_a_refusal_is_typed_and_comes_at_once(status: int, code: str, kind: type[errors.RequestRefused]) -> None:
    network = Script(refused(status, code))
    with pytest.raises(errors.RequestRefused) as caught:
        make_client(network).version()
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.code, error.detail, error.request_id) == (status, code, f"the reason for {code}", "q1")
    assert str(error) == f"the reason for {code} ({code}, request q1)"
    assert len(network.requests) == 1


def test_a_refusal_by_something_else_keeps_its_words() -> None:
    with pytest.raises(errors.NotFound, match=r"nginx.*\(http_404\)"):
        make_client(Script(httpx.Response(404, text="<html>nginx"))).version()


@pytest.mark.parametrize("answer", [httpx.Response(200, text="<html>hello"), httpx.Response(200, json={"ok": True})])
def test_an_answer_of_another_program_is_said_to_be_one(answer: httpx.Response) -> None:
    with pytest.raises(errors.UnreadableAnswer, match=r"http://midband/version.*another program"):
        make_client(Script(answer)).version()


def test_a_redirect_names_the_address_to_use() -> None:
    answer = httpx.Response(301, headers={"location": "https://midband/version"})
    with pytest.raises(errors.UnreadableAnswer, match="https://midband/version: give that one as base_url"):
        make_client(Script(answer)).version()


def test_the_key_is_sent() -> None:
    network = Script(ok(VERSION))
    client = Client("http://midband", key="secret\n", transport=httpx.MockTransport(network))
    client.version()
    assert network.requests[0].headers["authorization"] == "Bearer secret"
    assert repr(client) == "Client('http://midband')"


def test_the_key_of_the_environment_is_sent_unless_another_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(**options: str) -> str | None:
        network = Script(ok(VERSION))
        url = options.pop("url", "http://midband")
        Client(url, transport=httpx.MockTransport(network), **options).version()  # type: ignore[arg-type]
        return dict(network.requests[0].headers).get("authorization")

    monkeypatch.delenv("MIDBAND_KEY", raising=False)
    assert sent() is None
    monkeypatch.setenv("MIDBAND_KEY", "of-the-environment")
    assert sent() == "Bearer of-the-environment"
    assert sent(key="given") == "Bearer given"
    assert str(sent(url="http://user:secret@midband")).startswith("Basic ")
    monkeypatch.setenv("MIDBAND_KEY", "")
    assert sent() is None


@pytest.mark.parametrize("key", ["", " ", "two words", "secret\nX-Forged: 1", "s\u00e9cret"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="MIDBAND_KEY") as caught:
        Client("http://midband", key=key)
    assert not key.strip() or key not in str(caught.value)


@pytest.mark.parametrize("answer", [refused(401, "unauthenticated"), refused(403, "missing_scope"), refused(500, "x")])
def test_the_key_is_in_no_error_and_no_log(answer: httpx.Response, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    network = Script(httpx.ConnectError("refused"), answer)
    with caplog.at_level(logging.DEBUG):
        client = Client(
            "http://midband", key="tops3cret", transport=httpx.MockTransport(network), backoff=clock.backoff()
        )
        with pytest.raises(errors.MidbandError) as caught:
            client.version()
    shown = [repr(client), str(client), str(caught.value), repr(caught.value), repr(vars(caught.value)), caplog.text]
    assert not [text for text in shown if "tops3cret" in text]


def test_a_password_in_the_address_is_used_and_never_shown() -> None:
    network = Script(refused(500, "x"))
    client = Client("http://user:secret@midband/some/where", transport=httpx.MockTransport(network))
    assert repr(client) == "Client('http://midband/some/where')"
    with pytest.raises(errors.ServiceUnavailable) as caught:
        client.version()
    assert network.requests[0].headers["authorization"].startswith("Basic ")
    assert network.requests[0].url.path == "/some/where/version"
    assert "secret" not in str(caught.value)
    with pytest.raises(errors.InvalidRequest, match="same header"):
        Client("http://user:secret@midband", key="k")


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:1")
    with (
        Client("http://127.0.0.1:9", patience_s=0) as client,
        pytest.raises(errors.ServiceUnavailable, match="Connection refused"),
    ):
        client.version()


@pytest.mark.parametrize("url", ["127.0.0.1:8765", "localhost:8765", "ftp://x", "http://", ""])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="base_url must look like"):
        Client(url)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("a/b", "/p/a%2Fb"),
        ("..", "/p/%2E%2E"),
        (".", "/p/%2E"),
        ("../x", "/p/..%2Fx"),
        ("50 % ä?#", "/p/50%20%25%20%C3%A4%3F%23"),
    ],
)
def test_a_key_of_any_text_stays_one_part_of_the_path(key: str, path: str) -> None:
    assert path_of("/p", key) == path
    assert httpx.URL("http://midband" + path).raw_path == path.encode()


def test_errors_survive_the_way_between_processes() -> None:
    for error in (
        errors.refusal(409, "batch_conflict", "why", "q1"),
        errors.ServiceUnavailable("away", status=503, request_id="q1"),
        errors.InvalidRecord("line 3"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_every_error_is_in_the_tree_and_in_its_drawing() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    for kind in kinds:
        assert issubclass(kind, errors.MidbandError)
        assert kind.__doc__
        assert kind.__name__ in (errors.__doc__ or "")
    codes = [code for kind in kinds if issubclass(kind, errors.RequestRefused) for code in kind.codes]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    "values", [{"patience_s": -1.0}, {"patience_s": float("nan")}, {"factor": 0.5}, {"first_s": 0.0}]
)
def test_a_back_off_that_makes_no_sense_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="got"):
        Backoff(**values)  # type: ignore[arg-type]
