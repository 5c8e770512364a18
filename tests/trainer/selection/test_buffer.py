"""Single rollouts reach the service once, whatever becomes of the calls between."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import midband
from trainer.client import Client
from trainer.errors import InvalidRequest, ReportsRefused, ServiceUnavailable
from trainer.selection.buffer import ReportBuffer

ROWS = [{"key": f"p{n:02d}", "content": f"question {n}"} for n in range(20)]


@pytest.fixture(scope="module")
def service() -> Iterator[Client]:
    with midband.in_process() as client:
        client.create_pool("p")
        client.put_prompts("p", ROWS)
        yield client


class Watched:
    """A client that counts reports, and fails while told to."""

    def __init__(self, client: Client) -> None:
        self.client, self.sizes, self.failing = client, list[int](), False

    def report(self, run: str, groups: Any, **options: Any) -> Any:
        if self.failing:
            raise ServiceUnavailable("the service is away")
        self.sizes.append(sum(len(group["rollouts"]) for group in groups))
        return self.client.report(run, groups, **options)


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_rollouts_of_many_threads_share_reports_and_count_once(service: Client) -> None:
    service.create_run("many", pool="p", group_size=8)
    batch = service.draw("many", 0, 10, 0)
    watched = Watched(service)
    with ReportBuffer(watched, "many", most_rollouts=20, longest_wait_s=60) as buffer:  # type: ignore[arg-type]

        def work(n: int) -> None:
            for ticket in batch.tickets:
                buffer.add(ticket, {"n": n, "outcome": float(n % 2), "tokens": 5}, policy_version=0)

        workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert sum(watched.sizes) == 80
    assert len(watched.sizes) <= 10
    info = service.run("many")
    assert (info.tickets.reported, info.rollouts.scored) == (10, 80)


def test_what_waits_goes_out_by_itself(service: Client) -> None:
    service.create_run("old", pool="p", group_size=2)
    ticket = service.draw("old", 0, 1, 0).tickets[0]
    watched = Watched(service)
    with ReportBuffer(watched, "old", longest_wait_s=0.01) as buffer:  # type: ignore[arg-type]
        buffer.add(ticket, {"n": 0, "outcome": 1.0})
        wait_until(lambda: watched.sizes == [1])
        buffer.add(ticket, {"n": 1, "outcome": 0.0})
        wait_until(lambda: watched.sizes == [1, 1])


def test_a_failure_in_the_background_is_told_and_nothing_is_lost(service: Client) -> None:
    service.create_run("away", pool="p", group_size=2)
    ticket = service.draw("away", 0, 1, 0).tickets[0]
    watched = Watched(service)
    watched.failing = True
    buffer = ReportBuffer(watched, "away", longest_wait_s=0.01)  # type: ignore[arg-type]
    buffer.add(ticket, {"n": 0, "outcome": 1.0})
    wait_until(lambda: buffer._failure is not None)
    with pytest.raises(ServiceUnavailable):
        buffer.add(ticket, {"n": 1, "outcome": 0.0})
    watched.failing = False
    buffer.add(ticket, {"n": 1, "outcome": 0.0})
    buffer.close()
    buffer.close()
    assert service.run("away").rollouts.scored == 2
    with pytest.raises(InvalidRequest, match="closed"):
        buffer.add(ticket, {"n": 1, "outcome": 0.0})


def test_a_refused_rollout_is_an_error_and_the_others_count(service: Client) -> None:
    service.create_run("refused", pool="p", group_size=2)
    ticket = service.draw("refused", 0, 1, 0).tickets[0]
    buffer = ReportBuffer(service, "refused", longest_wait_s=60)
    for n in (0, 1, 2):
        buffer.add(ticket, {"n": n, "outcome": 1.0})
    with pytest.raises(ReportsRefused, match="too_many_rollouts"):
        buffer.flush()
    buffer.close()
    assert service.run("refused").rollouts.scored == 2


def test_a_rollout_without_number_or_id_is_refused_at_the_door(service: Client) -> None:
    with ReportBuffer(service, "any") as buffer, pytest.raises(InvalidRequest, match="number n or an id"):
        buffer.add("t", {"outcome": 1.0})
    with pytest.raises(InvalidRequest, match="most_rollouts"):
        ReportBuffer(service, "any", most_rollouts=0)
