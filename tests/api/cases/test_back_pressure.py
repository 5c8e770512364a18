"""Reports come faster than they are stored: callers are told to come back, nothing acknowledged is lost."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.api.harness import caller, prompts, refused

CLIENTS, GROUPS = 16, 8
COMPLETION = "x" * 20_000  # of each of four rollouts: a group of 80 kB


def test_what_was_acknowledged_is_stored_and_draws_answer_meanwhile(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.hosting.MAX_WAITING", 4)
    with caller(url) as http:
        http.pool(prompts(CLIENTS * GROUPS + 8))
        http.run(group_size=4)
        tickets = http.draw(0, CLIENTS * GROUPS)["tickets"]

        def send(client: int) -> tuple[int, int]:
            """Each group until it is taken; how many were, and how often the service had no room."""
            taken = turned_away = 0
            with caller(url) as mine:
                for ticket in tickets[client::CLIENTS]:
                    rollouts = [{"outcome": 1.0, "tokens": 10, "completion": {"text": COMPLETION}} for _ in range(4)]
                    body = {"groups": [{"ticket": ticket["ticket"], "rollouts": rollouts}]}
                    while (answer := mine.send("POST", "/v1/runs/r/reports", body)).status_code == 503:
                        refused(answer, 503, "busy")
                        assert int(answer.headers["retry-after"]) >= 1
                        turned_away += 1
                    taken += answer.json()["applied"]
            return taken, turned_away

        with ThreadPoolExecutor(CLIENTS) as pool:
            sent = [pool.submit(send, client) for client in range(CLIENTS)]
            drawn, index = 0, 1
            while not all(future.done() for future in sent):
                body = {"index": index, "size": 1, "policy_version": 0}
                answer = http.send("POST", "/v1/runs/r/batches", body)
                if answer.status_code == 200:
                    drawn, index = drawn + answer.json()["returned"], index + 1
                else:
                    refused(answer, 503, "busy")
        counts = [future.result() for future in sent]
        info = http.info()

    assert sum(taken for taken, _ in counts) == info["rollouts"]["reported"] == CLIENTS * GROUPS * 4
    assert info["tickets"]["reported"] == CLIENTS * GROUPS
    assert drawn == info["tickets"]["open"] > 0
