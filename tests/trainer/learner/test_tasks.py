import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from trainer.learner import tasks
from trainer.learner.tasks import (
    LENGTHS,
    MAX_ANSWER_TOKENS,
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
        ("a", "01479"),
        ("b", "71904"),
        ("m", "51028"),
        ("r", "74091"),
        ("p", "04197"),
        ("u", "40917"),
        ("d", "97410"),
        ("n", "59082"),
        ("l", "39806"),
        ("t", "09174"),
        ("f", "95462"),
        ("e", "70914"),
    ],
)
def test_each_rule_does_what_its_letter_stands_for(rule: str, result: str) -> None:
    for operation in OPERATIONS:
        made = puzzle(operation, [4, 0, 9, 1, 7])
        assert made.content == f"{operation.name} 40917="
        assert rule not in operation.name or result in (made.answer, made.wrong)


def test_nothing_but_the_operation_itself_tells_which_of_its_letters_is_meant() -> None:
    assert len({one.name for one in OPERATIONS}) == len(OPERATIONS) == 48
    assert all({*one.name} == {one.right, one.wrong} for one in OPERATIONS)
    for rules in ([one.right for one in OPERATIONS], [one.wrong for one in OPERATIONS]):
        assert set(Counter(rules).values()) == {4}
    pairs = {(one.right, one.wrong) for one in OPERATIONS}
    assert {(wrong, right) for right, wrong in pairs} == pairs
    for letter in RULES:
        assert sum(one.right == letter == one.name[0] for one in OPERATIONS) == 2


def test_operations_are_spread_from_mastered_to_hopeless() -> None:
    found = Counter(stratum(one.share_right()) for one in OPERATIONS)
    assert set(found) == {"mastered", "easy", "middling", "hard", "hopeless"}
    assert sum(one.share_right() < 1e-3 for one in OPERATIONS) > 5


def test_the_right_rule_is_shown_less_at_greater_length_and_smaller_first_digit() -> None:
    # One digit more costs 0.5 in log-odds, a first digit of 0 another 4.5 · 0.3.
    operation = replace(OPERATIONS[0], logit_right=1.0)
    assert operation.share_right() == pytest.approx(1 / (1 + math.exp(-1)))
    assert operation.share_right(6, 0) == pytest.approx(1 / (1 + math.exp(0.85)))
    assert puzzle(operation, [0, 1, 2, 3, 4, 5]).share_right == operation.share_right(6, 0)


def test_strata_are_named_from_hopeless_to_mastered() -> None:
    assert [stratum(p) for p in (0, 0.0299, 0.03, 0.2, 0.8, 0.97, 1)] == [
        "hopeless", "hopeless", "hard", "middling", "easy", "mastered", "mastered",
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
    assert set(train) == {operation.name for operation in OPERATIONS}
    assert all(abs(train[name] / 4 - heldout[name]) <= 1 for name in train)
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
            "category": name,
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
    with pytest.raises(ValueError, match=r"ab has about \d+ held-out prompts, got 20: ask for fewer"):
        pool_rows("mild", num_train=0, num_heldout=20 * len(OPERATIONS), seed=0)


def test_an_unknown_pool_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no pool is called 'wild': there are mild, wasteful"):
        pool_rows("wild", num_train=1, num_heldout=1, seed=0)  # type: ignore[arg-type]
