"""Several servers, one owner of a run: calls follow to it with the key, a bounded number of times, and come back."""

from typing import Any

import httpx
import pytest

from tests.trainer.factories import Clock, Script, batch_body, make_client, ok, refused
from trainer import errors
from trainer.client import Client

A, B, C = "http://a.example:1", "http://b.example:2", "http://c.example:3/prefix"


def elsewhere(owner: str | None) -> httpx.Response:
    return refused(409, "not_owner", retryable=True, owner=owner)


def addresses(network: Script) -> list[str]:
    return [f"{request.url.scheme}://{request.url.netloc.decode()}" for request in network.requests]


def client_of(network: Script, url: str = A, *, clock: Clock | None = None, **options: Any) -> Client:
    backoff = (clock or Clock()).backoff()
    return Client(url, transport=httpx.MockTransport(network), backoff=backoff, **options)


def draw(client: Client, run: str = "r") -> None:
    client.draw(run, index=0, size=1, policy_version=0)


def test_a_call_follows_to_the_owner_at_once_with_body_and_key() -> None:
    clock, network = Clock(), Script(elsewhere(C), ok(batch_body("a")))
    draw(client_of(network, clock=clock, key="secret"))
    assert [str(request.url) for request in network.requests] == [
        f"{A}/v1/runs/r/batches", f"{C}/v1/runs/r/batches"
    ]  # fmt: skip
    assert network.bodies[0] == network.bodies[1]
    assert [request.headers["authorization"] for request in network.requests] == ["Bearer secret"] * 2
    assert clock.sleeps == []


def test_a_password_in_the_address_goes_along_too() -> None:
    network = Script(elsewhere(B), ok(batch_body("a")))
    draw(client_of(network, "http://user:word@a.example:1"))
    first, second = (request.headers["authorization"] for request in network.requests)
    assert first == second
    assert first.startswith("Basic ")


def test_the_owner_of_a_run_is_remembered_and_of_no_other_run() -> None:
    network = Script(elsewhere(B), ok(batch_body("a")))
    client = client_of(network)
    draw(client)
    draw(client)
    draw(client, "other")
    assert addresses(network) == [A, B, B, A]


@pytest.mark.parametrize("lost", [httpx.ConnectError("refused"), refused(503, "busy", retryable=True)])
def test_an_owner_that_is_gone_sends_the_call_back_to_the_first_address(lost: Any) -> None:
    network = Script(elsewhere(B), lost, elsewhere(C), ok(batch_body("a")))
    draw(client_of(network))
    assert addresses(network) == [A, B, A, "http://c.example:3"]


def test_owners_in_a_circle_are_followed_a_bounded_number_of_times_between_pauses() -> None:
    clock, network = Clock(), Script(elsewhere(B))
    with pytest.raises(errors.NotOwner) as caught:
        draw(client_of(network, clock=clock))
    assert caught.value.code == "not_owner"
    assert sum(clock.sleeps) == pytest.approx(60.0)
    assert len(network.requests) == 4 * (len(clock.sleeps) + 1)
    assert addresses(network)[:5] == [A, B, B, B, A]


def test_a_run_between_two_owners_is_asked_for_again_after_a_pause() -> None:
    clock, network = Clock(), Script(elsewhere(None), ok(batch_body("a")))
    draw(client_of(network, clock=clock))
    assert (addresses(network), clock.sleeps) == ([A, A], [0.1])


@pytest.mark.parametrize(
    "owner", ["ftp://b.example", "file:///etc/passwd", "b.example:2", "http://", "http://x:y@b", "h\n"]
)
def test_an_address_that_no_call_may_be_sent_to_is_not_followed(owner: str) -> None:
    network = Script(elsewhere(owner), ok(batch_body("a")))
    draw(client_of(network, key="secret"))
    assert addresses(network) == [A, A]


def test_a_key_never_goes_from_an_encrypted_connection_to_an_open_one() -> None:
    network = Script(elsewhere(B), ok(batch_body("a")))
    draw(client_of(network, "https://a.example", key="secret"))
    assert addresses(network) == ["https://a.example"] * 2
    network = Script(elsewhere("https://b.example"), ok(batch_body("a")))
    draw(client_of(network, key="secret"))
    assert addresses(network) == [A, "https://b.example"]


def test_another_refusal_of_the_owner_is_no_reason_to_leave_it() -> None:
    network = Script(elsewhere(B), refused(409, "batch_conflict"), ok(batch_body("a")))
    client = client_of(network)
    with pytest.raises(errors.BatchConflict):
        draw(client)
    draw(client)
    assert addresses(network) == [A, B, B]


def test_without_several_servers_nothing_is_followed() -> None:
    network = Script(ok(batch_body("a")))
    draw(make_client(network))
    assert addresses(network) == ["http://midband"]
