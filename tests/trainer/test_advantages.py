"""Advantages: by hand, against a slow version that a person can check, and at the edges."""

import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="advantages need the trainer extra")

from trainer.advantages import STD_EPS, Advantage, group_advantages  # noqa: E402

KINDS: tuple[Advantage, ...] = get_args(Advantage)


def advantages(rows: list[list[float | None]], kind: Advantage, **options: float) -> list[list[float]]:
    """From rewards, None where there is none."""
    scored = torch.tensor([[reward is not None for reward in row] for row in rows], dtype=torch.bool)
    values = [[math.nan if reward is None else reward for reward in row] for row in rows]
    reward = torch.tensor(values, dtype=torch.float64)
    found: list[list[float]] = group_advantages(reward, scored, kind, **options).tolist()
    return found


def slow(row: list[float | None], kind: Advantage) -> list[float]:
    """One group, one rollout at a time, as the papers put it."""
    known = [reward for reward in row if reward is not None]
    if len(known) < 2 or max(known) - min(known) <= 1e-6:
        return [0.0] * len(row)
    mean = sum(known) / len(known)
    std = math.sqrt(sum((reward - mean) ** 2 for reward in known) / (len(known) - 1))
    found = []
    for reward in row:
        if reward is None:
            found.append(0.0)
        elif kind == "grpo":
            found.append((reward - mean) / (std + 1e-4))
        elif kind == "dr_grpo":
            found.append(reward - mean)
        else:
            found.append(reward - (sum(known) - reward) / (len(known) - 1))
    return found


def test_one_success_in_four_by_hand() -> None:
    # mean 1/4, std² = (9/16 + 3·1/16) / 3 = 1/4.
    (grpo,) = advantages([[1, 0, 0, 0]], "grpo")
    assert grpo == pytest.approx([0.75 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001], rel=1e-12)
    assert advantages([[1, 0, 0, 0]], "dr_grpo") == [[0.75, -0.25, -0.25, -0.25]]
    # The others' mean is 0 for the success and 1/3 for each failure.
    (rloo,) = advantages([[1, 0, 0, 0]], "rloo")
    assert rloo == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])


def test_an_unscored_rollout_counts_nowhere() -> None:
    # Two left, 1 and 0: mean 1/2, std² = 1/2.
    (grpo,) = advantages([[1, None, 0, None]], "grpo")
    half = 0.5 / (math.sqrt(0.5) + STD_EPS)
    assert grpo == pytest.approx([half, 0, -half, 0])
    assert advantages([[1, None, 0, None]], "rloo") == [[1, 0, -1, 0]]


@given(
    rows=st.integers(1, 9).flatmap(
        lambda size: st.lists(
            st.lists(st.none() | st.floats(-5, 5, width=32), min_size=size, max_size=size), min_size=1, max_size=4
        )
    ),
    kind=st.sampled_from(KINDS),
)
def test_it_agrees_with_the_slow_version(rows: list[list[float | None]], kind: Advantage) -> None:
    for found, row in zip(advantages(rows, kind), rows, strict=True):
        # Where rewards hardly differ the deviation cancels digits, and its reciprocal spreads what is left.
        assert found == pytest.approx(slow(row, kind), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "row", [[0.1] * 8, [1.0] * 3, [0.0, None, None], [None, None], [0.3, 0.3 + 5e-7], [], [0.7]], ids=str
)
def test_a_group_without_a_difference_gives_exact_zeros(kind: Advantage, row: list[float | None]) -> None:
    assert advantages([row], kind) == [[0.0] * len(row)]


def test_the_tolerance_says_what_differs() -> None:
    assert advantages([[0.5, 0.6]], "dr_grpo", tolerance=0.2) == [[0, 0]]
    assert advantages([[0.5, 0.6]], "rloo", tolerance=0.05)[0] == pytest.approx([-0.1, 0.1])


@pytest.mark.parametrize("kind", KINDS)
def test_advantages_of_a_group_sum_to_nothing(kind: Advantage) -> None:
    (found,) = advantages([[0.2, 0.9, 0.4, None, 1.0]], kind)
    assert sum(found) == pytest.approx(0, abs=1e-12)


def test_rloo_is_dr_grpo_without_the_bias_of_counting_oneself() -> None:
    rows: list[list[float | None]] = [[1, 0, 0, 1, 0.5, 0, 0, 1]]
    rloo, dr_grpo = torch.tensor(advantages(rows, "rloo")), torch.tensor(advantages(rows, "dr_grpo"))
    assert rloo.tolist()[0] == pytest.approx((dr_grpo * 8 / 7).tolist()[0])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_scored_reward_that_is_no_number_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="NaN or infinite"):
        group_advantages(torch.tensor([[1.0, bad]]), torch.tensor([[True, True]]), "grpo")


def test_other_shapes_and_other_kinds_are_refused() -> None:
    scored = torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"\(K, G\)"):
        group_advantages(torch.zeros(3, 2), scored, "grpo")
    with pytest.raises(ValueError, match=r"\(K, G\)"):
        group_advantages(torch.zeros(3), torch.ones(3, dtype=torch.bool), "grpo")
    kind: Any = "ppo"
    with pytest.raises(ValueError, match="grpo, dr_grpo, rloo, got 'ppo'"):
        group_advantages(torch.zeros(2, 3), scored, kind)
