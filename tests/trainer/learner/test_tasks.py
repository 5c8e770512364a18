import math
import random
from collections import Counter
from typing import Any

import pytest

from trainer.learner.tasks import (
    KINDS,
    MAX_ANSWER_TOKENS,
    RESERVED_EVERY,
    Kind,
    PoolName,
    draw_puzzle,
    pool_rows,
    puzzle,
    stratum,
)

POOLS: list[PoolName] = ["mild", "wasteful"]


@pytest.mark.parametrize(
    ("family", "right", "wrong"),
    [
        ("sort", "01479", "97410"),
        ("flip", "71904", "40917"),
        ("next", "51028", "39806"),
        ("roll", "09174", "74091"),
        ("add", "17684", "84351"),
    ],
)
def test_each_family_has_a_right_and_a_wrong_rule(family: str, right: str, wrong: str) -> None:
    made = puzzle(Kind(family, 5), [4, 0, 9, 1, 7])
    assert (made.content, made.answer, made.wrong) == (f"{family} 40917=", right, wrong)


def test_the_right_rule_is_shown_less_at_greater_length_and_smaller_first_digit() -> None:
    # roll starts at log-odds 1 with three digits; two more cost 2.6, and a first digit of 0 another 4.5 · 0.35.
    assert Kind("roll", 5).share_right() == pytest.approx(1 / (1 + math.exp(1.6)))
    assert Kind("roll", 5).share_right(0) == pytest.approx(1 / (1 + math.exp(3.175)))
    for kind in KINDS:
        shares = [kind.share_right(digit) for digit in range(10)]
        assert shares == sorted(shares)
        assert 0 < shares[0] < shares[-1] < 1
    assert [Kind("add", length).share_right() for length in range(3, 9)] == sorted(
        (Kind("add", length).share_right() for length in range(3, 9)), reverse=True
    )


def test_strata_are_named_from_hopeless_to_mastered() -> None:
    assert [stratum(p) for p in (0, 0.0299, 0.03, 0.2, 0.8, 0.97, 1)] == [
        "hopeless", "hopeless", "hard", "middling", "easy", "mastered", "mastered",
    ]  # fmt: skip


def test_a_drawn_puzzle_tells_the_two_rules_apart() -> None:
    rng = random.Random(0)
    for kind in KINDS:
        drawn = [draw_puzzle(kind, rng, heldout=heldout) for heldout in (False, True) for _ in range(20)]
        assert all(one.answer != one.wrong for one in drawn)
        assert [one.heldout for one in drawn] == [False] * 20 + [True] * 20
        assert all(len(one.answer) == len(one.wrong) == kind.length < MAX_ANSWER_TOKENS for one in drawn)


def test_the_reserved_share_of_texts_is_held_out() -> None:
    num = 4_000
    kept = sum(puzzle(Kind("next", 6), [int(digit) for digit in f"{n:06d}"]).heldout for n in range(num))
    # Four standard errors.
    assert abs(kept - num / RESERVED_EVERY) < 4 * math.sqrt(num / RESERVED_EVERY * (1 - 1 / RESERVED_EVERY))


@pytest.mark.parametrize("name", POOLS)
def test_a_pool_has_what_was_asked_for_in_two_splits_of_like_mixture(name: PoolName) -> None:
    rows = pool_rows(name, num_train=2_000, num_heldout=500, seed=0)
    by_split = {split: [row for row in rows if row["split"] == split] for split in ("train", "heldout")}
    assert {split: len(found) for split, found in by_split.items()} == {"train": 2_000, "heldout": 500}
    assert len({row["key"] for row in rows}) == len({row["content"] for row in rows}) == len(rows)
    train, heldout = (Counter(row["category"] for row in by_split[split]) for split in ("train", "heldout"))
    assert set(train) == {kind.name for kind in KINDS}
    assert all(abs(train[kind] / 4 - heldout[kind]) < 1 for kind in train)
    assert {row["split"] for row in rows[:100]} == {"train", "heldout"}  # shuffled


def test_rows_are_a_function_of_their_arguments() -> None:
    def rows(seed: int) -> list[dict[str, Any]]:
        return pool_rows("wasteful", num_train=60, num_heldout=30, seed=seed)

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)


def test_a_row_says_what_the_service_and_a_table_need() -> None:
    (row,) = (row for row in pool_rows("mild", num_train=30, num_heldout=0, seed=0) if row["category"] == "flip-5")
    digits = row["content"][len("flip ") : -1]
    assert row == {
        "key": f"flip-{digits}",
        "content": f"flip {digits}=",
        "answer": digits[::-1],
        "category": "flip-5",
        "split": "train",
        "meta": row["meta"],
    }
    assert row["meta"]["share_right"] == pytest.approx(Kind("flip", 5).share_right(int(digits[0])), abs=1e-4)
    assert row["meta"]["stratum"] == stratum(row["meta"]["share_right"])


def test_more_prompts_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sort-3 has hardly more than \d+ held-out prompts, got 200: ask for fewer"):
        pool_rows("mild", num_train=0, num_heldout=200 * len(KINDS), seed=0)


def test_an_unknown_pool_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no pool is called 'wild': there are mild, wasteful"):
        pool_rows("wild", num_train=1, num_heldout=1, seed=0)  # type: ignore[arg-type]
