"""Draws while the service does not answer: an error, or where asked for a marked uniform draw, never silence."""

import logging
from collections import Counter
from typing import Any

import pytest

import midband
from api.schemas import Batch
from trainer.errors import InvalidRequest, ServiceUnavailable, ShortBatch
from trainer.selection.away import train_rows, uniform_batch
from trainer.selection.dataset import SelectionDataset
from trainer.selection.draws import Draws

ROWS: list[dict[str, Any]] = [
    {"key": f"p{n:02d}", "content": f"question {n}", "answer": str(n), "category": "ab"[n % 2]} for n in range(20)
]
HELDOUT = {"key": "h", "content": "never", "split": "heldout"}


class Away:
    """A client whose service does not answer while `away`."""

    def __init__(self, client: Any = None) -> None:
        self.client, self.away = client, True

    def draw(self, *args: Any, **options: Any) -> Any:
        if self.away:
            raise ServiceUnavailable("no answer from http://midband")
        return self.client.draw(*args, **options)


def draws(client: Any, **changed: Any) -> Draws:
    values: dict[str, Any] = {"size": 4, "group_size": 2, "policy_version": lambda: 3, "contents": True}
    return Draws(client=client, run="r", **{**values, **changed})


def test_without_being_told_so_a_draw_that_gets_no_answer_is_an_error() -> None:
    with pytest.raises(ServiceUnavailable, match="no answer from http://midband"):
        draws(Away())[0]


def test_batches_drawn_here_are_marked_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "midband")
    with midband.in_process() as service:
        service.create_pool("p")
        service.put_prompts("p", ROWS)
        service.create_run("r", pool="p", group_size=2)
        client = Away(service)
        taken = draws(client, when_away="uniform", own_prompts=[*ROWS, HELDOUT])
        here = [taken[0], taken[1], taken[0]]
        client.away = False
        back = taken[2]
        info = service.run("r")
    assert here[0] is here[2]
    assert taken.num_away == 2
    assert len(caplog.records) == 1
    assert "drawn uniformly from this process's own 20 prompts and never reported" in caplog.text
    for batch in here:
        assert {ticket.ticket for ticket in batch.tickets} == {""}
        assert (batch.reason, batch.claim.type, batch.policy_version) == ("service_away", "empirical", 3)
        assert {ticket.inclusion_probability for ticket in batch.tickets} == {4 / 20}
        assert all(ticket.content == f"question {ticket.answer}" for ticket in batch.tickets)
    assert all(ticket.ticket for ticket in back.tickets)
    assert info.tickets.open == 4


def test_what_was_drawn_here_cannot_be_reported() -> None:
    ticket = draws(Away(), when_away="uniform", own_prompts=ROWS)[0].tickets[0]
    with pytest.raises(InvalidRequest, match="this ticket has no id"):
        midband.group(ticket, [0, 1])


def test_a_data_set_goes_on_while_the_service_is_away() -> None:
    taken = draws(Away(), when_away="uniform", own_prompts=ROWS)
    items = [SelectionDataset(taken, 1)[i] for i in range(4)]
    assert [item["ticket"] for item in items] == [""] * 4


def batch(index: int, rows: list[Any] = ROWS, size: int = 5) -> Batch:
    return uniform_batch(
        train_rows(rows), run="r", index=index, size=size, group_size=2, policy_version=0, contents=False
    )


def test_processes_with_the_same_prompts_draw_the_same_whatever_order_they_hold_them_in() -> None:
    assert batch(4) == batch(4, rows=[*reversed(ROWS), HELDOUT])
    assert batch(4).digest != batch(5).digest


def test_every_prompt_is_drawn_alike_and_none_twice_in_a_batch() -> None:
    keys = [[ticket.prompt for ticket in batch(index).tickets] for index in range(2_000)]
    assert all(len(set(one)) == 5 for one in keys)
    counts = Counter(key for one in keys for key in one)
    # Each count is binomial with n = 2,000 and p = 1/4: mean 500, deviation 19.4. Five of those for all 20 at once.
    assert set(counts) == {row["key"] for row in ROWS}
    assert max(abs(count - 500) for count in counts.values()) < 97


def test_a_copy_that_cannot_serve_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="give both, or neither"):
        draws(Away(), when_away="uniform")
    with pytest.raises(InvalidRequest, match="give both, or neither"):
        draws(Away(), own_prompts=ROWS)
    with pytest.raises(InvalidRequest, match="needs a `key`, and none twice"):
        draws(Away(), when_away="uniform", own_prompts=[*ROWS, ROWS[0]])
    with pytest.raises(InvalidRequest, match="needs a `key`"):
        draws(Away(), when_away="uniform", own_prompts=[{"content": "x"}])
    with pytest.raises(ShortBatch, match="20 prompts of one's own, 21 wanted"):
        draws(Away(), size=21, when_away="uniform", own_prompts=ROWS)[0]
