"""The tables that people query say at every moment what the log says, whatever happened, on both databases."""

import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from api import projections
from api.db.projections import projected_seq
from api.db.runs import find_run
from api.db.session import create_database, read
from api.doctor import examine, rebuild
from api.settings import Settings
from api.store import RunStore
from tests.api.harness import ROOT, Http, group, in_process, prompts, stored

RUN = "/v1/runs/r"
TABLES = ("ended_groups", "drawn_batches", "run_costs")


def asked(url: str, query: str, **values: object) -> list[tuple[Any, ...]]:
    with stored(url) as connection:
        return [tuple(row) for row in connection.execute(text(query), values)]


def differing(url: str, run: str = "r") -> list[str]:
    """Tables that are not what the run's log says, replayed by another process's means."""
    database = create_database(url)
    try:
        with read(database) as connection:
            found = find_run(connection, run)
            assert found is not None
            store = RunStore(database)
            state = store.replay_alone(found, lambda engine: None).state
            assert projected_seq(connection, found.id) == state.seq
            return projections.differing(connection, found.id, state)
    finally:
        database.dispose()


def complaints(settings: Settings) -> list[str]:
    return [line for line in examine(settings).lines if line.startswith("WRONG")]


@pytest.fixture
def furnished(database_url: str) -> Iterator[tuple[Http, str]]:
    with in_process(database_url) as http:
        rows = [{**row, "category": "algebra" if i % 2 else "logic"} for i, row in enumerate(prompts(40))]
        http.pool(rows)
        http.run(group_size=2)
        yield http, database_url


def test_rows_are_what_was_drawn_and_reported(furnished: tuple[Http, str]) -> None:
    http, url = furnished
    first = http.draw(0, 4)["tickets"]
    rollouts = [{"outcome": 1.0, "reward": 3.5, "tokens": 7}, {"outcome": 0.0, "reward": -1.0, "tokens": 5}]
    http.report({"ticket": first[0]["ticket"], "rollouts": [{**r, "seconds": 0.25} for r in rollouts]})
    http.report(group(first[1], [1.0, 1.0]))
    http.report({"ticket": first[2]["ticket"], "void": "surplus"})
    http.report({"ticket": first[3]["ticket"], "rollouts": [{"n": 1, **rollouts[0]}]})  # open: one rollout is to come
    columns = "ticket, batch, attempt, void_reason, rollouts, n, k, reward_sum, informative, tokens, seconds"
    found = asked(url, f"SELECT {columns} FROM ended_groups ORDER BY ticket")
    assert found[0] == (0, 0, 1, None, 2, 2, 1.0, 2.5, 1, 12, 0.5)
    assert found[1][:7] == (1, 0, 1, None, 2, 2, 2.0)
    assert found[1][8:] == (0, 20, 0.0)
    assert found[2] == (2, 0, 1, "surplus", 0, 0, 0.0, None, None, 0, 0.0)
    assert len(found) == 3
    batches = asked(url, "SELECT draw_index, survives, tickets, open, reported, void, informative FROM drawn_batches")
    assert batches == [(0, True, 4, 1, 2, 1, 1)]
    key = "SELECT p.key FROM ended_groups g JOIN prompts p ON p.row = g.prompt_row AND p.pool_id = 1 WHERE g.ticket = 1"
    assert asked(url, key) == [(first[1]["prompt"],)]
    spent = dict(asked(url, "SELECT source, tokens FROM run_costs"))
    assert sum(spent.values()) == 12 + 20 + 7
    assert spent == http.get(f"{RUN}/costs")["tokens"]
    assert differing(url) == []


def test_a_report_of_one_rollout_that_ends_nothing_leaves_groups_and_batches_alone(furnished: tuple[Http, str]) -> None:
    http, url = furnished
    ticket = http.draw(0, 2)["tickets"][0]["ticket"]
    before = [asked(url, f"SELECT * FROM {table}") for table in TABLES[:2]]
    http.report({"ticket": ticket, "rollouts": [{"n": 1, "outcome": 1.0, "tokens": 7}]})
    assert [asked(url, f"SELECT * FROM {table}") for table in TABLES[:2]] == before
    assert differing(url) == []


@pytest.mark.parametrize("in_flight", ["reissue", "void"])
def test_restores_take_back_rows_and_batches_that_they_discard(furnished: tuple[Http, str], in_flight: str) -> None:
    http, url = furnished
    kept, half = http.draw(0, 3)["tickets"], http.draw(1, 3)["tickets"]
    http.report(*(group(ticket, [1.0, 0.0]) for ticket in kept), group(half[0], [1.0, 1.0]))
    http.report({"ticket": half[1]["ticket"], "void": "error"})
    http.post(f"{RUN}/checkpoints", {"step": 1})
    for _ in range(2):  # twice from the same checkpoint
        late = http.draw(2, 3)["tickets"]
        http.report(*(group(ticket, [0.0, 1.0]) for ticket in (*late[:2], half[1])))  # an error is tried again
        assert differing(url) == []
        http.post(f"{RUN}/restore", {"step": 1, "in_flight": in_flight})
        assert differing(url) == []
        lost = asked(url, "SELECT count(*) FROM ended_groups WHERE void_reason = 'lost'")[0][0]
        assert lost >= 3
        for ticket in http.tickets(state="open"):
            http.report(group(ticket["ticket"], [1.0, 0.0]))
        assert differing(url) == []
    survive = asked(url, "SELECT draw_index, survives FROM drawn_batches ORDER BY batch")
    assert survive == [(0, True), (1, True), (2, False), (2, False)]
    http.post(f"{RUN}/complete", {})
    assert differing(url) == []


def test_after_any_calls_in_any_order_the_tables_are_what_the_log_says(database_url: str) -> None:
    rng = np.random.default_rng(11)
    with in_process(database_url) as http:
        http.pool(prompts(25))
        http.run(group_size=2, ticket_ttl_s=0.2)
        index, step = 0, 0
        for move in range(60):
            kind = rng.choice(["draw", "whole", "part", "void", "checkpoint", "restore", "complete"],
                              p=[0.25, 0.3, 0.15, 0.1, 0.08, 0.1, 0.02])  # fmt: skip
            names = [t["ticket"] for t in http.tickets() if t["state"] != "reported"]
            some = [names[i] for i in rng.permutation(len(names))[:3]]
            if kind == "draw":
                purpose = str(rng.choice(["train", "probe"]))
                http.send(
                    "POST", f"{RUN}/batches", {"index": index, "size": 4, "policy_version": 0, "purpose": purpose}
                )
                index += 1
            elif kind == "whole" and some:
                body = {"groups": [group(t, rng.integers(0, 2, 2).astype(float).tolist()) for t in some]}
                http.send("POST", f"{RUN}/reports", body)
            elif kind == "part" and some:
                rollout = {"n": int(rng.integers(2)), "outcome": 1.0, "tokens": 3, "reward": 0.5}
                http.send("POST", f"{RUN}/reports", {"groups": [{"ticket": some[0], "rollouts": [rollout]}]})
            elif kind == "void" and some:
                void = str(rng.choice(["error", "lost", "stale", "surplus"]))
                http.send("POST", f"{RUN}/reports", {"groups": [{"ticket": some[0], "void": void}]})
            elif kind == "checkpoint":
                http.send("POST", f"{RUN}/checkpoints", {"step": step})
                step += 1
            elif kind == "restore" and step:
                back = {"step": int(rng.integers(step)), "in_flight": str(rng.choice(["reissue", "void"]))}
                http.send("POST", f"{RUN}/restore", back)
            elif kind == "complete":
                http.send("POST", f"{RUN}/complete", {})
            if move % 10 == 9:
                time.sleep(0.25)  # for tickets to expire
            if move % 4 == 3:
                assert differing(database_url) == [], (move, kind)
        assert differing(database_url) == []
        kinds = {event["kind"] for event in http.events()}
        assert {"restored", "tickets_expired", "rollouts_reported", "batch_drawn"} <= kinds


def test_a_run_from_before_the_tables_gets_them_with_its_next_event_and_doctor_does_not_mind(
    furnished: tuple[Http, str],
) -> None:
    http, url = furnished
    http.report(*(group(ticket, [1.0, 0.0]) for ticket in http.draw(0, 4)["tickets"]))
    with stored(url) as connection:
        for table in TABLES:
            connection.execute(text(f"DELETE FROM {table}"))
        connection.execute(text("UPDATE runs SET projected_seq = 0"))
    assert complaints(Settings(database_url=url)) == []
    http.draw(1, 2)
    assert differing(url) == []
    assert asked(url, "SELECT count(*) FROM ended_groups") == [(4,)]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ended_groups SET k = k + 1 WHERE ticket = 1",
        "DELETE FROM ended_groups WHERE ticket = 0",
        "UPDATE drawn_batches SET reported = 9",
        "UPDATE run_costs SET tokens = tokens + 1 WHERE source = 'train'",
        "UPDATE runs SET projected_seq = 999",
    ],
)
def test_doctor_finds_rows_that_the_log_does_not_say_and_rebuild_makes_them_anew(
    database_url: str, statement: str
) -> None:
    with in_process(database_url) as http:
        http.pool(prompts(20))
        http.run(group_size=2)
        http.report(*(group(ticket, [1.0, 0.0]) for ticket in http.draw(0, 4)["tickets"]))
    settings = Settings(database_url=database_url)
    before = [asked(database_url, f"SELECT * FROM {table}") for table in TABLES]
    assert complaints(settings) == []
    with stored(database_url) as connection:
        connection.execute(text(statement))
    (line,) = complaints(settings)
    assert "run 'r'" in line
    assert "doctor --rebuild" in line
    table = next((table for table in TABLES if table in statement), "event 999")
    assert table in line
    rebuild(settings, examine(settings))
    assert complaints(settings) == []
    assert [asked(database_url, f"SELECT * FROM {table}") for table in TABLES] == before


def queries_of_the_page() -> list[str]:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    return re.findall(r"```sql\n(.*?)```", page, flags=re.DOTALL)


def test_the_queries_of_the_page_on_operations_answer(database_url: str) -> None:
    with in_process(database_url) as http:
        http.pool([{**row, "category": "algebra" if i % 2 else "logic"} for i, row in enumerate(prompts(20))])
        http.run("first", group_size=2)
        for index in range(3):
            tickets = http.draw(index, 6, run="first")["tickets"]
            http.report(*(group(ticket, [1.0, 0.0]) for ticket in tickets[: 6 - index]), run="first")
        costs = http.get("/v1/runs/first/costs")["tokens"]
    by_category, by_batch = (asked(database_url, query) for query in queries_of_the_page())
    assert {row[0] for row in by_category} == {"algebra", "logic"}
    assert sum(row[1] for row in by_category) == 15
    assert sum(row[-1] for row in by_category) == 15 * 20 == costs["train"] + costs["audit"]
    assert [tuple(row[:2]) for row in by_batch] == [(1, 1), (2, 2)]
