"""Eight ranks ask for the same draw at the same time: one set of tickets, eight equal answers."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import orjson
import pytest

from tests.api.harness import caller, ids_of, prompts, refused

RANKS = 8


def ask_together(url: str, index: int, **changes: object) -> list[bytes]:
    """The answers to one draw that all ranks ask for at the same moment, each over a connection of its own."""
    barrier = Barrier(RANKS)

    def ask(rank: int) -> bytes:
        body = {"index": index, "size": 4, "policy_version": index, **changes}
        with caller(url) as http:
            http.get("/healthz")  # connected before all set off
            barrier.wait()
            response = http.send("POST", "/v1/runs/r/batches", body)
            assert response.status_code == 200, response.text
            return response.content

    with ThreadPoolExecutor(RANKS) as executor:
        return list(executor.map(ask, range(RANKS)))


@pytest.mark.parametrize("edit", ["rows", "replace", "quarantine", "reports"])
def test_all_ranks_get_the_same_bytes_before_and_after_a_change(url: str, edit: str) -> None:
    with caller(url) as http:
        http.pool(prompts(100))
        http.run()
        answers = ask_together(url, 7)
        assert len(set(answers)) == 1
        batch = orjson.loads(answers[0])
        assert len(http.tickets()) == 4
        drawn = batch["tickets"][0]["prompt"]
        match edit:
            case "rows":
                http.put([{"key": drawn, "content": "another question", "answer": "x"}, *prompts(120)[100:]])
            case "replace":
                http.put([row for row in prompts(100) if row["key"] != drawn], mode="replace")
            case "quarantine":
                http.quarantine([drawn])
            case "reports":
                http.report({"ticket": batch["tickets"][0]["ticket"], "rollouts": [{"outcome": 1.0}] * 8})
        assert set(ask_together(url, 7)) == {answers[0]}
        assert len(http.tickets()) == 4
        other = http.send("POST", "/v1/runs/r/batches", {"index": 7, "size": 5, "policy_version": 7})
        refused(other, 409, "batch_conflict", "size 4 then, 5 now")
        assert len(http.tickets()) == 4


def test_ranks_that_ask_with_different_sizes_at_once_get_one_batch_and_conflicts(url: str) -> None:
    with caller(url) as http:
        http.pool(prompts(100))
        http.run()
        barrier = Barrier(RANKS)

        def ask(rank: int) -> tuple[int, bytes]:
            with caller(url) as own:
                own.get("/healthz")
                barrier.wait()
                body = {"index": 0, "size": 4 + rank % 2, "policy_version": 0}
                response = own.send("POST", "/v1/runs/r/batches", body)
                return response.status_code, response.content

        with ThreadPoolExecutor(RANKS) as executor:
            answers = list(executor.map(ask, range(RANKS)))
        assert sorted(status for status, _ in answers) == [200] * 4 + [409] * 4
        assert len({content for status, content in answers if status == 200}) == 1
        assert len(http.tickets()) in (4, 5)


def test_ranks_at_different_indices_get_different_tickets_and_disjoint_prompts(url: str) -> None:
    with caller(url) as http:
        http.pool(prompts(100))
        http.run()
        barrier = Barrier(RANKS)

        def ask(rank: int) -> dict[str, object]:
            with caller(url) as own:
                own.get("/healthz")
                barrier.wait()
                return own.draw(rank, 10)

        with ThreadPoolExecutor(RANKS) as executor:
            batches = list(executor.map(ask, range(RANKS)))
        assert len({name for batch in batches for name in ids_of(batch)}) == 80
        assert len({ticket["prompt"] for ticket in http.tickets()}) == 80
        assert http.draw(RANKS, 40)["returned"] == 20
