"""Fewer candidates than asked for: a partial answer with its reason, nothing thrown away, nothing repeated unasked."""

from collections import Counter

import pytest

from tests.api.harness import Http, group, ids_of, keys_of, letters, prompts


def summary(batch: dict[str, object]) -> tuple[object, object, object]:
    return batch["requested"], batch["returned"], batch["reason"]


def test_prompts_in_flight_leave_a_short_batch_that_says_so(http: Http) -> None:
    http.pool(letters())
    http.run()
    first = http.draw(0, 3)
    second = http.draw(1, 4)
    third = http.draw(2, 4)
    assert summary(first) == (3, 3, None)
    assert summary(second) == (4, 1, "all_in_flight")
    assert summary(third) == (4, 0, "all_in_flight")
    assert Counter(keys_of(first) + keys_of(second)) == Counter("abcd")
    assert (second["frame"], second["eligible"], second["blocked"]) == (4, 1, 3)
    # What was handed out before stays open and counts in full.
    answer = http.report(*(group(ticket, [1.0] * 8) for ticket in first["tickets"] + second["tickets"]))
    assert answer["applied"] == 32
    assert http.info()["tickets"] == {"open": 0, "reported": 4, "void": 0}


def test_a_pool_smaller_than_the_batch_is_exhausted(http: Http) -> None:
    http.pool(letters("abc"))
    http.run()
    batch = http.draw(0, 4)
    assert summary(batch) == (4, 3, "pool_exhausted")
    assert sorted(keys_of(batch)) == ["a", "b", "c"]


def test_seven_groups_of_eight_are_kept_when_the_eighth_cannot_be_found(http: Http) -> None:
    http.pool(prompts(7))
    http.run()
    batch = http.draw(0, 8)
    assert summary(batch) == (8, 7, "pool_exhausted")
    refill = http.draw(0, 1, refill=1)
    assert summary(refill) == (1, 0, "all_in_flight")
    answer = http.report(*(group(ticket, [1.0, 0.0] * 4) for ticket in batch["tickets"]))
    assert [g["state"] for g in answer["groups"]] == ["reported"] * 7
    assert http.info()["informative"]["groups"] == 7


def test_a_short_batch_stays_as_it_was_answered(http: Http) -> None:
    http.pool(letters())
    http.run()
    first = http.draw(0, 3)
    short = http.draw(1, 4)
    http.report(*(group(ticket, [0.0] * 8) for ticket in first["tickets"]))
    assert http.draw(1, 4) == short
    assert http.draw(2, 4)["returned"] == 3


@pytest.mark.parametrize("purpose", ["heldout", "probe", "audit", "control"])
def test_every_purpose_answers_short_and_says_why(http: Http, purpose: str) -> None:
    http.pool([{**row, "split": "heldout" if purpose == "heldout" else "train"} for row in letters("abc")])
    http.run()
    first = http.draw(0, 2, purpose=purpose)
    assert summary(http.draw(1, 3, purpose=purpose)) == (3, 1, "all_in_flight")
    assert summary(http.draw(2, 4, purpose=purpose)) == (4, 0, "all_in_flight")
    assert len(set(ids_of(first))) == 2


def test_a_prompt_is_repeated_only_when_the_caller_asks(http: Http) -> None:
    http.pool(letters("abc"))
    http.run(weights="horvitz_thompson")
    batch = http.draw(0, 5, allow_repeat=True)
    counts = Counter(keys_of(batch))
    assert summary(batch) == (5, 5, None)
    assert sorted(counts.values()) == [1, 2, 2]
    assert len(set(ids_of(batch))) == 5
    for ticket in batch["tickets"]:
        assert ticket["inclusion_probability"] == 1.0
        # K / (N · expected tickets), where 1 <= expected <= 2
        assert 5 / (3 * 2) <= ticket["weight"] <= 5 / 3
    # Asked for again without leave to repeat, the batch is another one.
    assert http.draw(1, 5)["returned"] == 0
    assert http.draw(1, 5)["reason"] == "all_in_flight"


def test_repeats_are_left_out_while_enough_prompts_are_there(http: Http) -> None:
    http.pool(prompts(10))
    http.run()
    http.draw(0, 6, allow_repeat=True)
    batch = http.draw(1, 8, allow_repeat=True)
    assert (batch["eligible"], batch["blocked"]) == (10, 0)
    assert len(set(keys_of(batch))) == 8


def test_fill_answers_what_there_is(http: Http) -> None:
    http.pool(letters("abc"))
    http.run()
    assert summary(http.draw(0, 4, short="fill")) == (4, 3, "pool_exhausted")


def test_an_empty_pool_has_nothing_to_draw(http: Http) -> None:
    http.post("/v1/pools", {"name": "p"})
    http.run()
    for purpose in ("train", "heldout", "probe", "audit", "control"):
        for options in ({}, {"short": "fill"}, {"allow_repeat": True}):
            index = len(options) + (2 if options.get("allow_repeat") else 0)
            batch = http.draw(index, 4, purpose=purpose, **options)
            assert summary(batch) == (4, 0, "pool_empty")
            assert batch["predicted_yield"] is None
            assert batch["tickets"] == []
    assert http.info()["tickets"] == {"open": 0, "reported": 0, "void": 0}


def test_a_pool_of_held_out_prompts_has_none_to_train_on(http: Http) -> None:
    http.pool(prompts(3, split="heldout"))
    http.run()
    assert summary(http.draw(0, 2)) == (2, 0, "pool_empty")
    assert http.draw(0, 2, purpose="heldout")["returned"] == 2


def test_a_pool_of_one_prompt_can_be_trained_on(http: Http) -> None:
    http.pool(letters("a"))
    http.run()
    for index in range(5):
        batch = http.draw(index, 1, index)
        assert summary(batch) == (1, 1, None)
        assert batch["tickets"][0]["inclusion_probability"] == 1.0
        http.report(group(batch["tickets"][0], [1.0, 0.0] * 4))
    assert http.info()["informative"]["groups"] == 5
