import math
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from trainer.learner import tasks
from trainer.learner.tasks import (
    LENGTHS,
    LOGIT_EASIEST,
    LOGIT_HARDEST,
    LOGIT_PER_DIGIT,
    LOGIT_PER_FIRST_DIGIT,
    MAX_ANSWER_TOKENS,
    NEVER_SHOWN,
    OPERATIONS,
    RESERVED_EVERY,
    RULES,
    PoolName,
    draw_puzzle,
    pool_rows,
    puzzle,
    stratum,
)

POOLS: list[PoolName] = ["mild", "wasteful"]


@pytest.mark.parametrize(
    ("rule", "result"),
    [
        ("ascending", "01479"),
        ("backwards", "71904"),
        ("one more", "51028"),
        ("rotated right", "74091"),
        ("pairs swapped", "04197"),
        ("unchanged", "40917"),
        ("descending", "97410"),
        ("nines complement", "59082"),
        ("one less", "39806"),
        ("rotated left", "09174"),
        ("five more", "95462"),
        ("ends swapped", "70914"),
        ("sums so far", "44341"),
        ("gaps", "46926"),
        ("times the first", "60648"),
    ],
)
def test_each_rule_does_what_its_name_says(rule: str, result: str) -> None:
    concerned = [one for one in OPERATIONS if rule in (one.right, one.wrong)]
    assert concerned
    for operation in concerned:
        made = puzzle(operation, [4, 0, 9, 1, 7])
        assert made.content == f"{operation.name} 40917="
        assert result == (made.answer if rule == operation.right else made.wrong)


def test_no_operation_tells_what_another_one_s_letter_stands_for() -> None:
    learnable = [one for one in OPERATIONS if one.logit_right is not None]
    hopeless = [one for one in OPERATIONS if one.logit_right is None]
    assert (len(learnable), len(hopeless)) == (24, 12)
    assert len({one.name for one in OPERATIONS}) == len(OPERATIONS)
    for rules in ([one.right for one in learnable], [one.wrong for one in learnable]):
        assert Counter(rules) == dict.fromkeys(RULES, 2)
    pairs = {(one.right, one.wrong) for one in learnable}
    assert {(wrong, right) for right, wrong in pairs} == pairs
    assert Counter(one.right for one in hopeless) == dict.fromkeys(NEVER_SHOWN, 4)
    assert Counter(one.wrong for one in hopeless) == dict.fromkeys(RULES, 1)


def test_learnable_operations_are_spread_evenly_and_hopeless_ones_are_never_shown_right() -> None:
    logits = sorted(one.logit_right for one in OPERATIONS if one.logit_right is not None)
    assert (logits[0], logits[-1]) == pytest.approx((LOGIT_HARDEST, LOGIT_EASIEST))
    assert len({round(after - before, 9) for before, after in pairwise(logits)}) == 1
    assert {one.share_right(3, 9) for one in OPERATIONS if one.right in NEVER_SHOWN} == {0.0}


def test_the_right_rule_is_shown_less_at_greater_length_and_smaller_first_digit() -> None:
    operation = replace(OPERATIONS[0], logit_right=1.0)
    assert operation.share_right() == pytest.approx(1 / (1 + math.exp(-1)))
    logit = 1 + 1.5 * LOGIT_PER_DIGIT - 4.5 * LOGIT_PER_FIRST_DIGIT
    assert operation.share_right(6, 0) == pytest.approx(1 / (1 + math.exp(-logit)))
    assert operation.share_right(6, 0) < operation.share_right(6, 9) < operation.share_right(3, 9)
    assert puzzle(operation, [0, 1, 2, 3, 4, 5]).share_right == operation.share_right(6, 0)


def test_strata_are_named_from_hopeless_to_easy() -> None:
    assert [stratum(p) for p in (0, 1e-9, 0.0499, 0.05, 0.4999, 0.5, 1)] == [
        "hopeless", "hard", "hard", "middling", "middling", "easy", "easy",
    ]  # fmt: skip


def test_a_drawn_puzzle_tells_the_two_rules_apart() -> None:
    rng = random.Random(0)
    for operation in OPERATIONS:
        drawn = [draw_puzzle(operation, rng, heldout=heldout) for heldout in (False, True) for _ in range(20)]
        assert all(one.answer != one.wrong for one in drawn)
        assert [one.heldout for one in drawn] == [False] * 20 + [True] * 20
        assert all(len(one.answer) == len(one.wrong) < MAX_ANSWER_TOKENS for one in drawn)
        assert {len(one.answer) for one in drawn} == set(LENGTHS)


def test_the_reserved_share_of_texts_is_held_out() -> None:
    num = 4_000
    kept = sum(puzzle(OPERATIONS[0], [int(digit) for digit in f"{n:06d}"]).heldout for n in range(num))
    # Four standard errors.
    assert abs(kept - num / RESERVED_EVERY) < 4 * math.sqrt(num / RESERVED_EVERY * (1 - 1 / RESERVED_EVERY))


@pytest.mark.parametrize("name", POOLS)
def test_a_pool_has_what_was_asked_for_in_two_splits_of_like_mixture(name: PoolName) -> None:
    rows = pool_rows(name, num_train=2_000, num_heldout=500, seed=0)
    by_split = {split: [row for row in rows if row["split"] == split] for split in ("train", "heldout")}
    assert {split: len(found) for split, found in by_split.items()} == {"train": 2_000, "heldout": 500}
    assert len({row["key"] for row in rows}) == len({row["content"] for row in rows}) == len(rows)
    train, heldout = (Counter(row["category"] for row in by_split[split]) for split in ("train", "heldout"))
    assert set(train) == {f"{operation.name}-{length}" for operation in OPERATIONS for length in LENGTHS}
    by_operation = [Counter(name[0] for name in found.elements()) for found in (train, heldout)]
    assert all(abs(by_operation[0][one.name] / 4 - by_operation[1][one.name]) <= 1 for one in OPERATIONS)
    assert {row["split"] for row in rows[:100]} == {"train", "heldout"}  # shuffled


def test_rows_are_a_function_of_their_arguments() -> None:
    def rows(seed: int) -> list[dict[str, Any]]:
        return pool_rows("wasteful", num_train=60, num_heldout=30, seed=seed)

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)


def test_a_row_says_what_the_service_and_a_table_need() -> None:
    for row in pool_rows("wasteful", num_train=90, num_heldout=30, seed=0):
        name, digits = row["content"].rstrip("=").split(" ")
        made = puzzle(next(one for one in OPERATIONS if one.name == name), [int(digit) for digit in digits])
        assert row == {
            "key": f"{name}-{digits}",
            "content": made.content,
            "answer": made.answer,
            "category": f"{name}-{len(digits)}",
            "split": "heldout" if made.heldout else "train",
            "meta": {"share_right": round(made.share_right, 4), "stratum": stratum(made.share_right)},
        }


@pytest.mark.parametrize("group_size", [8])
def test_the_pools_waste_what_their_names_say(group_size: int) -> None:
    degenerate = {}
    for name in POOLS:
        rows = pool_rows(name, num_train=4_000, num_heldout=0, seed=0)
        shares = [row["meta"]["share_right"] for row in rows]
        degenerate[name] = sum(p**group_size + (1 - p) ** group_size for p in shares) / len(shares)
    assert 0.55 < degenerate["mild"] < 0.7
    assert 0.8 < degenerate["wasteful"] < 0.9


def test_more_prompts_than_there_are_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "LENGTHS", (2,))
    with pytest.raises(ValueError, match=r"a has about \d+ held-out prompts, got 20: ask for fewer"):
        pool_rows("mild", num_train=0, num_heldout=20 * len(OPERATIONS), seed=0)


def test_an_unknown_pool_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no pool is called 'wild': there are mild, wasteful"):
        pool_rows("wild", num_train=1, num_heldout=1, seed=0)  # type: ignore[arg-type]
