"""The client against the real service, in process: what a training script may rely on."""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import midband
from api.schemas import Batch, GroupReport
from trainer.client import Client
from trainer.errors import BatchConflict, BranchSuperseded, Conflict, InvalidBody, NotFound, UnknownCheckpoint

ROWS = [{"key": f"p{n:03d}", "category": "ab"[n % 2], "content": f"question {n}", "answer": str(n)} for n in range(40)]


@pytest.fixture(scope="module")
def service() -> Iterator[Client]:
    """One service for all tests of this file; each test has a run of its own, most of them on the pool `p`."""
    with midband.in_process() as client:
        client.create_pool("p")
        client.put_prompts("p", ROWS)
        yield client


def groups_of(batch: Batch, passes: int = 3) -> list[GroupReport]:
    """Each ticket with this many passes."""
    return [midband.group(t, [1.0] * passes + [0.0] * (t.group_size - passes)) for t in batch.tickets]


def test_the_loop_of_the_readme_runs(service: Client) -> None:
    service.create_run("loop", pool="p")
    for step in range(5):
        batch = service.draw("loop", index=step, size=8, policy_version=step)
        groups = [midband.group(t, outcomes=[1, 0] * 4) for t in batch.tickets]
        answer = service.report("loop", groups, policy_version=step)
        assert (answer.applied, answer.rejected) == (64, [])
    info = service.run("loop")
    assert (info.tickets.reported, info.tickets.open, info.rollouts.scored) == (40, 0, 320)
    assert info.informative.rate == 1.0
    assert service.audit("loop").pass_rate.uniform.estimate == pytest.approx(0.5, abs=0.1)
    assert sum(service.costs("loop").rollouts.values()) == 320
    assert [entry["run"] for entry in service.runs()].count("loop") == 1


def test_asking_again_gives_the_same_batch_and_other_parameters_a_typed_conflict(service: Client) -> None:
    service.create_run("again", pool="p")
    batch = service.draw("again", 0, 4, 0)
    service.report("again", groups_of(batch))
    assert service.draw("again", 0, 4, 5) == batch == service.batch("again", 0)
    with pytest.raises(BatchConflict, match="size") as caught:
        service.draw("again", 0, 5, 0)
    assert (caught.value.status, caught.value.code) == (409, "batch_conflict")
    assert caught.value.request_id


def test_all_ranks_get_one_batch(service: Client) -> None:
    service.create_run("ranks", pool="p")
    with ThreadPoolExecutor(8) as ranks:
        batches = list(ranks.map(lambda _: service.draw("ranks", 7, 4, 0), range(8)))
    assert all(batch == batches[0] for batch in batches)
    assert service.run("ranks").tickets.open == 4


def test_a_report_sent_twice_counts_once(service: Client) -> None:
    service.create_run("twice", pool="p")
    groups = groups_of(service.draw("twice", 0, 4, 0))
    first, second = service.report("twice", groups), service.report("twice", groups)
    assert (first.applied, second.applied, second.duplicate) == (32, 0, 32)
    assert first.groups == second.groups
    other = service.report("twice", [midband.group(groups[0].ticket, [1] * 8)])
    assert {rejection.code for rejection in other.rejected} == {"report_conflict"}
    assert service.run("twice").rollouts.scored == 32


def test_no_score_is_neither_a_pass_nor_a_failure(service: Client) -> None:
    service.create_run("unscored", pool="p", group_size=4)
    tickets = service.draw("unscored", 0, 3, 0).tickets
    scores = ([1, math.nan, 0, 1], [math.nan, 1, 1, 1], [math.nan] * 4)
    answer = service.report("unscored", [midband.group(t, one) for t, one in zip(tickets, scores, strict=True)])
    assert [(group.scored, group.passes, group.informative) for group in answer.groups] == [
        (3, 2.0, True),
        (3, 3.0, False),
        (0, 0.0, None),
    ]
    assert answer.groups[2].state == "void"


def test_a_reward_without_a_score_does_not_fall_back_on_the_outcome(service: Client) -> None:
    service.create_run("rewards", pool="p", group_size=2, signal="reward")
    first, second = service.draw("rewards", 0, 2, 0).tickets
    answer = service.report(
        "rewards",
        [midband.group(first, [1, 0], rewards=[0.5, 0.5]), midband.group(second, [1, 0], rewards=[0.5, math.nan])],
    )
    # The outcomes differ; the rewards that were given do not.
    assert [group.informative for group in answer.groups] == [False, False]


def test_look_ahead_works_and_the_end_of_the_run_leaves_nothing_open(service: Client) -> None:
    service.create_run("ahead", pool="p")
    batches = [service.draw("ahead", index, 4, 0) for index in range(6)]
    prompts = [ticket.prompt for batch in batches for ticket in batch.tickets]
    assert len(set(prompts)) == len(prompts)  # none in flight is drawn again
    for index, batch in enumerate(batches[:5]):
        service.report("ahead", groups_of(batch), policy_version=0)
        service.step("ahead", index, policy_version=index + 1, trained=[ticket.ticket for ticket in batch.tickets])
    service.complete("ahead")
    info = service.run("ahead")
    assert (info.tickets.open, info.tickets.reported, info.tickets.void) == (0, 20, 4)
    assert info.rollouts.reported == 160
    page = service.tickets("ahead", state="void", limit=3)
    assert len(page.items) == 3
    assert len(service.tickets("ahead", state="void", cursor=page.next_cursor).items) == 1


def test_a_batch_divides_as_asked(service: Client) -> None:
    service.create_run("divide", pool="p", group_size=4)
    batch = service.draw("divide", 0, 6, 0, divisor=5)
    assert batch.returned * 4 % 5 == 0
    assert (batch.returned, batch.requested, batch.reason) == (5, 6, "divisor")


def test_going_back_begins_a_branch_that_replaces_the_old_one(service: Client) -> None:
    service.create_run("back", pool="p")
    service.report("back", groups_of(service.draw("back", 0, 4, 0)))
    assert service.checkpoint("back", 40).created
    assert not service.checkpoint("back", 40).created
    later = service.draw("back", 1, 4, 1)
    answer = service.restore("back", 40)
    assert (answer.branch, answer.next_index, answer.lost) == (1, 1, 4)
    with pytest.raises(BranchSuperseded):
        service.draw("back", 2, 4, 1, branch=later.branch)
    with pytest.raises(UnknownCheckpoint, match="40"):
        service.restore("back", 41)
    assert [checkpoint.step for checkpoint in service.checkpoints("back")] == [40]


def test_a_run_is_made_once_and_changed_in_the_open(service: Client) -> None:
    made = service.create_run("config", pool="p", policy={"preset": "midband", "power": 2})
    assert service.create_run("config", pool="p", policy={"preset": "midband", "power": 2}) == made
    with pytest.raises(Conflict, match="seed"):
        service.create_run("config", pool="p", policy={"preset": "midband", "power": 2}, seed=1)
    changed = service.configure("config", audit_share=0.5)
    assert changed.config_hash != made.config_hash
    assert changed.config["audit_share"] == 0.5


def test_what_does_not_exist_is_named(service: Client) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        service.pool("nowhere")
    with pytest.raises(NotFound, match="nobody"):
        service.run("nobody")
    with pytest.raises(NotFound, match="nowhere"):
        service.create_run("r", pool="nowhere")


def test_a_report_the_service_cannot_read_is_a_typed_refusal(service: Client) -> None:
    service.create_run("partial", pool="p")
    ticket = service.draw("partial", 0, 1, 0).tickets[0]
    with pytest.raises(InvalidBody):
        service.report("partial", [midband.group(ticket, [1, 0], final=False)])  # which of the eight?


def test_keys_of_any_text_are_found(service: Client) -> None:
    keys = ["a/b", "..", "../x", "50 % ä?#", "a\u2028b", " ", "%2F", "-"]
    service.create_pool("odd")
    assert service.put_prompts("odd", [{"key": key, "answer": str(n)} for n, key in enumerate(keys)]).created == len(
        keys
    )
    for key in keys:
        assert service.prompt("odd", key)["key"] == key
    page = service.prompts("odd", limit=5)
    rest = service.prompts("odd", limit=5, cursor=page["next_cursor"])
    assert sorted(item["key"] for item in [*page["items"], *rest["items"]]) == sorted(keys)
    assert service.quarantine("odd", ["a/b"], reason="broken").changed == 1
    service.create_run("odd", pool="odd")
    drawn = {ticket.prompt for ticket in service.draw("odd", 0, 8, 0).tickets}
    assert drawn == set(keys) - {"a/b"}
    assert set(service.beliefs("odd")["key"]) == set(keys)


def test_an_import_says_what_became_of_each_row(service: Client) -> None:
    service.create_pool("rows", description="for rows")
    service.create_pool("rows", description="for rows")
    bad: list[dict[str, object]] = [
        {"key": "a"},
        {"key": "b", "features": {"x": math.nan}},
        {"key": "c", "oops": 1},
        {"key": "a"},
    ]
    report = service.put_prompts("rows", bad)
    assert (report.received, report.created, report.rejected) == (4, 1, 2)
    assert [error.row for error in report.errors] == [1, 2]
    assert service.put_prompts("rows", [{"key": "d"}], mode="replace").absent == 1
    assert "rows" in [pool.name for pool in service.pools()]
    service.archive_pool("rows")
    assert "rows" not in [pool.name for pool in service.pools()]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_what_was_exported_can_be_imported_again(service: Client, tmp_path: Path, form: str) -> None:
    file = service.export_prompts("p", tmp_path / f"pool.{form}")
    service.create_pool(f"copy-{form}")
    assert service.put_prompts(f"copy-{form}", file).created == len(ROWS)
    assert service.put_prompts("p", file).unchanged == len(ROWS)


def test_a_page_of_prompts_can_be_jumped_to(service: Client) -> None:
    items = service.prompts("p", sort="key", offset=17, limit=2)["items"]
    assert [item["key"] for item in items] == ["p017", "p018"]


def test_texts_come_with_the_tickets_when_asked_for(service: Client) -> None:
    service.create_run("texts", pool="p")
    for ticket in service.draw("texts", 0, 3, 0, include=["content", "answer"]).tickets:
        assert (ticket.content, ticket.answer) == (f"question {int(ticket.prompt[1:])}", str(int(ticket.prompt[1:])))


def test_beliefs_and_the_log_are_read_whole(service: Client) -> None:
    service.create_run("read", pool="p")
    batch = service.draw("read", 0, 4, 0)
    service.report("read", groups_of(batch, passes=8))
    columns = service.beliefs("read")
    assert {len(column) for column in columns.values()} == {len(ROWS)}
    rates = dict(zip(columns["key"], columns["pass_rate"], strict=True))
    drawn = {ticket.prompt for ticket in batch.tickets}
    assert min(rates[key] for key in drawn) > max(rate for key, rate in rates.items() if key not in drawn)
    events = list(service.events("read"))
    assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
    assert [event["seq"] for event in service.events("read", after=events[-2]["seq"])] == [events[-1]["seq"]]


def test_the_service_says_what_it_is(service: Client) -> None:
    assert service.version().contract == 1
    assert {"uniform", "midband"} <= {preset["preset"] for preset in service.presets()}
