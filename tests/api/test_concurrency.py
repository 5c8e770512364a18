"""Many callers at once: each thing counts once, commits are shared, and no run waits for another's maths."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from api.app import create_app
from api.settings import Settings
from tests.api.harness import (
    FLAT_BETA,
    Http,
    Json,
    caller,
    group,
    ids_of,
    keys_of,
    letters,
    listening,
    prompts,
    refused,
)
from trainer.transport import InProcessTransport

WORKERS = 8


def at_once(url: str, work: Callable[[Http, int], Any], workers: int = WORKERS) -> list[Any]:
    """Each worker's result; all begin at the same moment, each over a connection of its own."""
    barrier = threading.Barrier(workers)

    def begin(worker: int) -> Any:
        with caller(url) as http:
            http.get("/healthz")
            barrier.wait()
            return work(http, worker)

    with ThreadPoolExecutor(workers) as executor:
        return list(executor.map(begin, range(workers)))


@pytest.fixture
def url(database_url: str) -> Iterator[str]:
    with listening(database_url) as url:
        yield url


@pytest.mark.slow
def test_single_rollouts_shuffled_and_repeated_count_exactly_once(url: str) -> None:
    with caller(url) as http:
        http.pool(prompts(60))
        http.run(policy=FLAT_BETA)
        tickets = ids_of(http.draw(0, 25))
        rng = np.random.default_rng(3)
        outcomes = {name: (rng.random(8) < 0.5).astype(float).tolist() for name in tickets}
        sent = [(name, n) for name in tickets for n in range(8)]
        # Every rollout once, and half of them a second time, by whoever it happens to be.
        order = [
            sent[i] for i in rng.permutation(np.concatenate([np.arange(len(sent)), rng.permutation(len(sent))[:100]]))
        ]

        def work(worker: Http, number: int) -> tuple[int, int]:
            applied = duplicate = 0
            for name, n in order[number::WORKERS]:
                rollout = {"n": n, "outcome": outcomes[name][n], "tokens": 3, "policy_version": 0}
                answer = worker.report({"ticket": name, "rollouts": [rollout]})
                assert answer["rejected"] == []
                applied, duplicate = applied + answer["applied"], duplicate + answer["duplicate"]
            return applied, duplicate

        counts = at_once(url, work)
        assert np.sum(counts, axis=0).tolist() == [200, 100]
        info, beliefs = http.info(), http.beliefs()
        assert info["tickets"] == {"open": 0, "reported": 25, "void": 0}
        assert (info["rollouts"]["reported"], sum(info["tokens"].values())) == (200, 600)
        for ticket in http.tickets():
            passes = sum(outcomes[ticket["ticket"]])
            assert beliefs[ticket["prompt"]]["pass_rate"] == (1 + passes) / 10


def test_draws_of_different_indices_at_once_share_out_the_pool(url: str) -> None:
    with caller(url) as http:
        http.pool(prompts(100))
        http.run()
        batches = at_once(url, lambda worker, number: worker.draw(number, 12))
        assert all(batch["returned"] == 12 for batch in batches)
        assert len({key for batch in batches for key in keys_of(batch)}) == 96
        assert len({name for batch in batches for name in ids_of(batch)}) == 96
        # Whoever came first, each draw saw all that were before it.
        assert sorted(batch["blocked"] for batch in batches) == [12 * i for i in range(8)]


def test_draws_reports_and_reads_at_once_balance(url: str) -> None:
    with caller(url) as http:
        http.pool(prompts(100))
        http.run()

        def work(worker: Http, number: int) -> int:
            applied = 0
            for round_ in range(4):
                batch = worker.draw(number * 10 + round_, 5, purpose="train" if number % 2 else "probe")
                groups = [group(t, [1.0, 0.0] * 4) for t in batch["tickets"][:-1]]
                applied += worker.report(*groups)["applied"] if groups else 0  # probes may be few, or none
                info = worker.info()
                tickets, rollouts = info["tickets"], info["rollouts"]
                assert sum(tickets.values()) * 8 == rollouts["issued"]
                assert rollouts["reported"] == tickets["reported"] * 8
                assert sum(info["tokens"].values()) == rollouts["reported"] * 10
            return applied

        assert sum(at_once(url, work)) == http.info()["rollouts"]["reported"]


def test_one_run_made_by_all_ranks_is_one_run(url: str) -> None:
    with caller(url) as http:
        http.pool(letters())

        def create(worker: Http, number: int) -> tuple[int, bytes]:
            response = worker.send("POST", "/v1/runs", {"name": "r", "pool": "p", "seed": number % 2})
            return response.status_code, response.content

        answers = at_once(url, create)
        statuses = sorted(status for status, _ in answers)
        assert statuses == [200, 200, 200, 201, 409, 409, 409, 409]
        assert len({content for status, content in answers if status < 300}) == 1
        assert len(http.get("/v1/runs")["items"]) == 1


def test_one_pool_filled_by_all_ranks_holds_each_prompt_once(url: str) -> None:
    with caller(url) as http:

        def fill(worker: Http, number: int) -> Json:
            return worker.pool(prompts(50))

        answers = at_once(url, fill)
        assert sum(answer["created"] for answer in answers) == 50
        assert all(sum(answer[name] for name in ("created", "unchanged", "merged")) == 50 for answer in answers)
        assert http.get("/v1/pools/p")["prompts"] == 50


def test_pool_edits_and_draws_at_once_keep_every_run_going(url: str) -> None:
    with caller(url) as http:
        http.pool(prompts(40))
        for run in ("r0", "r1", "r2", "r3"):
            http.run(run)

        def work(worker: Http, number: int) -> None:
            run = f"r{number % 4}"
            for round_ in range(4):
                if number < 4:
                    batch = worker.draw(round_, 4, run=run)
                    worker.report(*(group(t, [1.0, 0.0] * 4) for t in batch["tickets"]), run=run)
                else:
                    row = {"key": f"new-{number}-{round_}", "content": f"new question {number} {round_}"}
                    worker.put([row])
                    worker.quarantine([f"p{number:03}"], lift=bool(round_ % 2))

        at_once(url, work)
        for run in ("r0", "r1", "r2", "r3"):
            info = http.info(run)
            assert info["pool_revision"] == http.get("/v1/pools/p")["revision"]
            assert info["states"]["new"] + info["states"]["active"] == 40 + 16
            assert http.draw(9, 60, run=run)["frame"] == 56


def test_the_same_restore_sent_by_every_rank_happens_once(url: str) -> None:
    with caller(url) as http:
        http.pool(prompts(20))
        http.run()
        http.draw(0, 4)
        http.post("/v1/runs/r/checkpoints", {"step": 0})
        http.draw(1, 4)

        def restore(worker: Http, number: int) -> Json:
            return worker.post("/v1/runs/r/restore", {"step": 0, "restore_id": "crash"})

        answers = at_once(url, restore)
        assert all(answer == answers[0] for answer in answers)
        assert {ticket["attempt"] for ticket in http.tickets(state="open")} == {2}
        assert http.info()["branch"] == 1


def test_reports_that_wait_together_share_commits(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(Settings(database_url=sqlite_url))
    with httpx.Client(transport=InProcessTransport(app), base_url="http://midband") as client:
        http = Http(client)
        http.pool(prompts(40))
        http.run()
        tickets = http.draw(0, 32)["tickets"]
        store = app.state.service.store
        append, appended, begun, go = store.append, list[int](), threading.Event(), threading.Event()

        def slow_append(run: Any, engine: Any, events: Any, *others: Any, **token: int) -> None:
            begun.set()
            assert go.wait(60)
            appended.append(len(events))
            append(run, engine, events, *others, **token)

        monkeypatch.setattr(store, "append", slow_append)
        with ThreadPoolExecutor(32) as executor:
            first = executor.submit(http.report, group(tickets[0], [1.0, 0.0] * 4))
            assert begun.wait(60)
            # While the first one's commit is under way, the others queue up behind it.
            others = [executor.submit(http.report, group(ticket, [1.0, 0.0] * 4)) for ticket in tickets[1:]]
            host = app.state.service._hosts["r"]
            while len(host._waiting) < 31:
                assert not any(future.done() for future in others)
            go.set()
            assert [future.result()["applied"] for future in [first, *others]] == [8] * 32
        assert appended == [1, 31]
        assert http.info()["tickets"]["reported"] == 32


def test_a_refused_request_takes_neither_its_neighbours_nor_a_deadline_down(sqlite_url: str) -> None:
    app = create_app(Settings(database_url=sqlite_url))
    with httpx.Client(transport=InProcessTransport(app), base_url="http://midband") as client:
        http = Http(client)
        http.pool(prompts(10))
        http.run(ticket_ttl_s=1.0)
        expiring = http.draw(0, 1)["tickets"][0]["ticket"]
        host, go = app.state.service._hosts["r"], threading.Event()
        blocked = host.submit(lambda work: go.wait(60))
        bad = {"groups": [{"ticket": expiring, "rollouts": [{"outcome": 1.0}]}]}
        with ThreadPoolExecutor(2) as executor:
            refusal = executor.submit(http.send, "POST", "/v1/runs/r/reports", bad)
            while len(host._waiting) < 1:
                assert not refusal.done()
            good = executor.submit(http.draw, 1, 2)
            while len(host._waiting) < 2:
                assert not good.done()
            while not host.has_deadline_before(time.time()):
                time.sleep(0.01)
            go.set()
            refused(refusal.result(), 422, "invalid_report", expiring)
            assert good.result()["returned"] == 2
        blocked.result()
        assert http.ticket(expiring)["reason"] == "expired"
        assert http.events()[-2]["kind"] == "tickets_expired"


def test_a_slow_run_does_not_hold_up_another(sqlite_url: str) -> None:
    app = create_app(Settings(database_url=sqlite_url))
    with httpx.Client(transport=InProcessTransport(app), base_url="http://midband") as client:
        http = Http(client)
        http.pool(prompts(10))
        http.run("slow")
        http.run("quick")
        begun, go = threading.Event(), threading.Event()

        def wait(work: Any) -> None:
            begun.set()
            assert go.wait(60)

        http.info("slow")
        waiting = app.state.service._hosts["slow"].submit(wait)
        assert begun.wait(60)
        assert http.draw(0, 4, run="quick")["returned"] == 4
        assert http.get("/healthz")
        assert not waiting.done()
        go.set()
        waiting.result()
        assert http.draw(0, 4, run="slow")["returned"] == 4


def test_a_run_with_too_much_waiting_asks_callers_to_come_back(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.hosting.MAX_WAITING", 3)
    app = create_app(Settings(database_url=sqlite_url))
    with httpx.Client(transport=InProcessTransport(app), base_url="http://midband") as client:
        http = Http(client)
        http.pool(prompts(10))
        http.run()
        http.info()
        begun, go = threading.Event(), threading.Event()

        def wait(work: Any) -> None:
            begun.set()
            assert go.wait(60)

        host = app.state.service._hosts["r"]
        blocked = [host.submit(wait)]
        assert begun.wait(60)
        blocked += [host.submit(wait) for _ in range(3)]
        body = {"index": 0, "size": 2, "policy_version": 0}
        response = http.send("POST", "/v1/runs/r/batches", body)
        assert (response.status_code, response.json()["code"], response.json()["retryable"]) == (503, "busy", True)
        assert int(response.headers["retry-after"]) >= 1
        go.set()
        for future in blocked:
            future.result()
        assert http.draw(0, 2)["returned"] == 2
        assert len(http.tickets()) == 2
