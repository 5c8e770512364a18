"""The record that is made of a run: by hand from a log, and from a real run on the service."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import midband
from trainer.client import Client
from trainer.demo.recording import most_kept, passes_by_row, record, spread
from trainer.replay.arms import PolicyArm
from trainer.replay.loop import replay
from trainer.rollout.recorded import RecordedOutcomes

GROUP_SIZE = 4


def drawn(purpose: str, index: int, *rows: int) -> dict[str, Any]:
    return {"kind": "batch_drawn", "event": {"purpose": purpose, "index": index, "row_K": list(rows)}}


def reported(**outcomes: tuple[float | None, ...]) -> dict[str, Any]:
    """Groups by ticket, `t0` is the run's first; None is a rollout that failed."""
    groups = [
        {"ticket": int(name[1:]), "outcome": list(one), "status": [0 if outcome is not None else 2 for outcome in one]}
        for name, one in outcomes.items()
    ]
    return {"kind": "rollouts_reported", "event": {"groups": groups}}


def test_groups_are_found_by_row_in_the_order_of_the_draws() -> None:
    log = [
        {"kind": "run_begun", "event": {}},
        drawn("heldout", 0, 7, 8),
        reported(t0=(1, 1, 1, 1), t1=(1, 1, 1, 1)),
        drawn("train", 0, 3, 5),
        drawn("train", 1, 5, 3),
        reported(t4=(1, 1, 1, 0), t5=(0, 0, 0, 0)),
        reported(t2=(1, 0, 0, 0), t3=(1, 1, 0, 0)),
    ]
    assert passes_by_row(log, GROUP_SIZE) == {3: [1, 0], 5: [2, 3]}


def test_a_group_that_is_not_complete_does_not_count_and_one_that_was_cut_off_does() -> None:
    cut_off = {"ticket": 1, "outcome": [1, 0, 1, 1], "status": [3, 3, 0, 0]}
    log = [drawn("train", 0, 3, 5), reported(t0=(1, 0, None, 1))]
    log.append({"kind": "rollouts_reported", "event": {"groups": [cut_off]}})
    assert passes_by_row(log, GROUP_SIZE) == {5: [3]}


def test_a_batch_that_was_drawn_again_after_a_restore_counts_once() -> None:
    log = [
        drawn("train", 0, 3, 5),
        reported(t0=(1, 1, 1, 1), t1=(1, 0, 0, 0)),
        {"kind": "restored", "event": {}},
        drawn("train", 0, 3, 5),
        reported(t2=(1, 1, 1, 0), t3=(1, 0, 0, 0)),
    ]
    assert passes_by_row(log, GROUP_SIZE) == {3: [3], 5: [1]}


def test_visits_are_as_many_as_keep_the_most_groups() -> None:
    assert most_kept([5, 1, 1, 1]) == 5
    assert most_kept([3, 2, 2, 1]) == 2
    assert most_kept([4, 1, 1, 1, 1, 1]) == 4  # one visit is no history
    assert most_kept([1, 1]) == 1
    assert most_kept([]) == 1


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_no_other_number_of_visits_keeps_more(num_groups: list[int]) -> None:
    def kept(visits: int) -> int:
        return visits * sum(number >= visits for number in num_groups)

    most = max(kept(visits) for visits in range(2, 10)) or kept(1)
    assert kept(most_kept(num_groups)) == most


def test_groups_are_thinned_evenly() -> None:
    assert spread([0, 1, 2, 3, 4, 5], 3) == [0, 2, 4]
    assert spread([0, 1, 2, 3, 4], 3) == [0, 1, 3]
    assert spread([8], 1) == [8]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with midband.in_process() as one:
        yield one


def test_a_run_becomes_a_record_that_the_replay_reads(client: Client, tmp_path: Path) -> None:
    rows = [
        {"key": f"p{n}", "content": f"{n}?", "answer": "x", "category": "ab"[n % 2],
         "split": "train" if n < 10 else "heldout"}
        for n in range(14)
    ]  # fmt: skip
    client.create_pool("letters")
    client.put_prompts("letters", rows)
    client.create_run("r", pool="letters", policy="uniform", group_size=GROUP_SIZE)
    groups: dict[str, list[int]] = {}
    for index in range(6):
        batch = client.draw("r", index, 5, policy_version=index)
        passes = [int(ticket.prompt[1:]) % (GROUP_SIZE + 1) for ticket in batch.tickets]
        outcomes = [[1.0] * count + [0.0] * (GROUP_SIZE - count) for count in passes]
        client.report("r", [midband.group(*one) for one in zip(batch.tickets, outcomes, strict=True)])
        for ticket, count in zip(batch.tickets, passes, strict=True):
            groups.setdefault(ticket.prompt, []).append(count)
    made = record(client, "r", tmp_path / "outcomes.jsonl")
    assert made.num_reported == 30
    assert made.visits == most_kept([len(one) for one in groups.values()])
    enough = [key for key, one in groups.items() if len(one) >= made.visits]
    assert made.num_prompts == len(enough)
    assert made.num_groups == len(enough) * made.visits

    found = RecordedOutcomes.load(made.file)
    assert (found.group_size, found.num_visits, set(found.row_of)) == (GROUP_SIZE, made.visits, set(enough))
    assert found.successes_VN is not None
    assert all((found.successes_VN[:, n] == int(key[1:]) % 5).all() for key, n in found.row_of.items())
    assert found.prompts[0]["content"] == f"{str(found.prompts[0]['key'])[1:]}?"
    (result,) = replay(client, found, [PolicyArm.parse("midband")], batch_size=3)
    assert result.num_groups == made.num_groups // 3 * 3
