"""The caller states what its batch must divide by: the answer honours it, and what is cut away is not drawn."""

from typing import Any

import pytest

from tests.api.harness import Http, group, prompts


def begin(http: Http, count: int = 100, **options: Any) -> None:
    http.pool(prompts(count))
    http.run(**options)


def test_six_groups_of_four_over_five_ranks_become_five(http: Http) -> None:
    begin(http, group_size=4)
    batch = http.draw(0, 6, divisor=5)
    assert (batch["requested"], batch["returned"], batch["reason"]) == (6, 5, "divisor")
    assert len(http.tickets()) == 5


@pytest.mark.parametrize(
    ("size", "group_size", "divisor", "returned"),
    [(8, 4, 8, 8), (7, 4, 8, 6), (7, 8, 8, 7), (6, 4, 7, 0), (20, 3, 9, 18), (5, 1, 1, 5), (100, 8, 64, 96)],
)
def test_rollouts_are_a_multiple_of_the_divisor(
    http: Http, size: int, group_size: int, divisor: int, returned: int
) -> None:
    begin(http, group_size=group_size, min_rollouts=1)
    batch = http.draw(0, size, divisor=divisor)
    assert batch["returned"] == len(batch["tickets"]) == returned
    assert returned * group_size % divisor == 0
    assert batch["reason"] == (None if returned == size else "divisor")
    assert http.info()["tickets"]["open"] == returned


@pytest.mark.parametrize("purpose", ["train", "probe", "audit", "control"])
def test_too_few_prompts_are_cut_to_a_multiple_too(http: Http, purpose: str) -> None:
    begin(http, 7, group_size=4)
    batch = http.draw(0, 8, divisor=8, purpose=purpose)
    assert (batch["returned"], batch["reason"]) == (6, "pool_exhausted")


def test_repeats_are_cut_to_a_multiple_too(http: Http) -> None:
    begin(http, 3, group_size=4)
    batch = http.draw(0, 8, divisor=5, allow_repeat=True)
    assert (batch["returned"], batch["reason"]) == (5, "divisor")


def test_groups_that_a_trainer_cannot_place_are_surplus_and_rows_it_adds_are_refused(http: Http) -> None:
    begin(http, group_size=4)
    batch = http.draw(0, 8, divisor=8)
    *kept, cut = batch["tickets"]
    padded = group(kept[0], [1.0, 0.0, 1.0, 0.0, 0.0])
    for n, rollout in enumerate(padded["rollouts"]):
        rollout["n"] = n
    groups = [padded, *(group(ticket, [1.0, 0.0, 1.0, 0.0]) for ticket in kept[1:])]
    answer = http.report(*groups, {"ticket": cut["ticket"], "void": "surplus"})
    assert [(r["n"], r["code"]) for r in answer["rejected"]] == [(4, "too_many_rollouts")]
    info = http.info()
    assert info["tickets"] == {"open": 0, "reported": 7, "void": 1}
    assert info["rollouts"]["scored"] == 28
    assert http.ticket(cut["ticket"])["reason"] == "surplus"
    assert info["tokens"]["train"] + info["tokens"]["audit"] == 280
    # Where a person divides the sum by: the K of the answer, whatever came back.
    assert batch["returned"] == 8
