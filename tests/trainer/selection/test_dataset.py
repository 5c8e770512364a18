"""What a data loader is handed: whole batches in order, or an error that says what to set."""

from collections.abc import Iterator

import pytest

import midband
from trainer.client import Client
from trainer.errors import InvalidRequest, RanksDisagree, ShortBatch
from trainer.selection.dataset import SelectionDataset, SelectionSampler
from trainer.selection.draws import Draws
from trainer.selection.ranks import refuse_differences

ROWS = [{"key": f"p{n:02d}", "content": f"question {n}", "answer": str(n), "category": "ab"[n % 2]} for n in range(20)]


@pytest.fixture(scope="module")
def service() -> Iterator[Client]:
    with midband.in_process() as client:
        client.create_pool("p")
        client.put_prompts("p", ROWS)
        yield client


def draws(service: Client, run: str, *, size: int = 4, contents: bool = True) -> Draws:
    service.create_run(run, pool="p", group_size=2)
    return Draws(client=service, run=run, size=size, group_size=2, policy_version=lambda: 0, contents=contents)


def num_tickets(service: Client, run: str) -> int:
    counts = service.run(run).tickets
    return counts.open + counts.reported + counts.void


def test_items_are_the_tickets_of_one_batch_after_the_other(service: Client) -> None:
    dataset = SelectionDataset(draws(service, "items"), 3)
    items = [dataset[i] for i in range(len(dataset))]
    assert len(items) == 12
    batches = [service.batch("items", index) for index in range(3)]
    assert [item["ticket"] for item in items] == [t.ticket for batch in batches for t in batch.tickets]
    assert all(item["content"] == f"question {int(item['answer'])}" for item in items)
    assert {item["group_size"] for item in items} == {2}


def test_reading_again_draws_nothing_anew(service: Client) -> None:
    dataset = SelectionDataset(draws(service, "again"), 2)
    first = [dict(dataset[i]) for i in range(8)]
    again = SelectionDataset(draws(service, "again"), 2)
    assert [dict(again[i]) for i in range(8)] == [dict(dataset[i]) for i in range(8)] == first
    assert num_tickets(service, "again") == 8


def test_a_loader_that_shuffles_is_refused_before_it_draws_ahead(service: Client) -> None:
    dataset = SelectionDataset(draws(service, "shuffled"), 3)
    with pytest.raises(InvalidRequest, match="item 9 lies in batch 2, and batch 0 was not read yet"):
        dataset[9]
    assert num_tickets(service, "shuffled") == 0
    with pytest.raises(IndexError):
        dataset[12]


def test_a_short_batch_is_an_error_with_the_reason_of_the_service(service: Client) -> None:
    with pytest.raises(ShortBatch, match="20 of 21 tickets") as caught:
        draws(service, "short", size=21)[0]
    assert caught.value.reason == "pool_exhausted"


def test_a_worker_process_of_a_data_loader_is_refused(service: Client) -> None:
    torch = pytest.importorskip("torch", reason="data loaders need the trainer extra")
    dataset = SelectionDataset(draws(service, "workers"), 2)
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=1)
    with pytest.raises(InvalidRequest, match="num_workers=0"):
        next(iter(loader))
    assert num_tickets(service, "workers") == 0
    read = list(torch.utils.data.DataLoader(dataset, batch_size=4, collate_fn=list))
    assert [len(batch) for batch in read] == [4, 4]


def test_the_sampler_repeats_prompts_for_their_group_and_batches_for_their_updates(service: Client) -> None:
    rows = {f"p{n:02d}": 100 + n for n in range(20)}
    sampler = SelectionSampler(draws(service, "sampler"), rows, num_batches=2, repeats=3)
    positions = list(sampler)
    assert len(positions) == len(sampler) == 2 * 3 * 4 * 2
    wanted = [[rows[t.prompt] for t in service.batch("sampler", index).tickets for _ in range(2)] for index in (0, 1)]
    assert positions == wanted[0] * 3 + wanted[1] * 3
    assert sampler.next_index == 2
    next(iter(sampler))
    assert sampler.next_index == 3, "the next epoch goes on behind the last batch"


def test_a_prompt_that_the_trainer_does_not_have_is_refused(service: Client) -> None:
    sampler = SelectionSampler(draws(service, "strange"), {}, num_batches=1)
    with pytest.raises(InvalidRequest, match="this trainer's data has no such row"):
        next(iter(sampler))


def test_ranks_that_differ_are_named() -> None:
    refuse_differences(["a", "a"], what="the batch")
    with pytest.raises(RanksDisagree, match=r"the batch is not the same on all ranks: \[1, 3\] of 4 differ"):
        refuse_differences(["a", "b", "a", "c"], what="the batch")


@pytest.mark.parametrize("wrong", [{"num_batches": 0}, {"num_batches": 1, "start": -1}])
def test_numbers_that_cannot_be_are_refused(service: Client, wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest, match="must be >= "):
        SelectionDataset(draws(service, "numbers"), **wrong)
    with pytest.raises(InvalidRequest, match="must be >= "):
        SelectionSampler(draws(service, "numbers"), {}, **wrong)
    with pytest.raises(InvalidRequest, match="contents=True"):
        SelectionDataset(draws(service, "numbers", contents=False), 1)
    with pytest.raises(InvalidRequest, match="size and group_size"):
        draws(service, "numbers", size=0)
