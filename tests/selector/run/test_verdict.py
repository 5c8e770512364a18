"""The informative rule and the closing of groups, on hand-worked groups."""

from collections.abc import Sequence
from itertools import permutations

import pytest

from selector.run.events import Closing
from selector.run.verdict import is_informative, judge
from selector.types import RolloutStatus, VoidReason
from tests.selector.engine_cases import Outcome, make_config

OK, UNSCORED, ERROR, TRUNCATED, REWARDED = RolloutStatus


def closing(
    outcomes: Sequence[Outcome],
    rewards: Sequence[Outcome] | None = None,
    statuses: Sequence[RolloutStatus] | None = None,
    *,
    signal: str = "reward",
    min_rollouts: int = 2,
    void: VoidReason | None = None,
    expired: bool = False,
) -> Closing:
    config = make_config(group_size=8, signal=signal, min_rollouts=min_rollouts)
    statuses = statuses if statuses is not None else [OK] * len(outcomes)
    rewards = rewards if rewards is not None else outcomes
    return judge(outcomes, rewards, statuses, config=config, void=void, expired=expired)


@pytest.mark.parametrize(
    ("signal", "tolerance", "expected"),
    [
        ([], 0.0, False),
        ([1.0], 0.0, False),
        ([1.0, 1.0], 0.0, False),
        ([1.0, 0.0], 0.0, True),
        ([None, 1.0, None], 0.0, False),
        ([None, 1.0, 0.0], 0.0, True),
        ([0.5, 0.5 + 1e-7], 1e-6, False),
        ([0.25, 0.75], 0.5, False),  # equal to the tolerance is not more than it
        ([0.25, 0.75], 0.49, True),
        ([-3.0, -3.0, -1.0], 1e-6, True),
    ],
)
def test_a_signal_is_informative_when_known_values_differ_by_more_than_the_tolerance(
    signal: list[Outcome], tolerance: float, expected: bool
) -> None:
    assert is_informative(signal, tolerance) is expected


@pytest.mark.parametrize(
    ("outcomes", "scored", "passes", "informative"),
    [
        ([1.0, None, 0.0, 1.0], 3, 2.0, True),
        ([None, 1.0, 1.0, 1.0], 3, 3.0, False),
        ([0.5, 0.25, 0.25], 3, 1.0, True),
    ],
)
def test_what_has_no_score_is_left_out_and_never_a_zero(
    outcomes: list[Outcome], scored: int, passes: float, informative: bool
) -> None:
    assert closing(outcomes) == Closing(
        reported=True, reason=VoidReason.NONE, scored=scored, passes=passes, informative=informative
    )


def test_a_group_without_any_score_is_void() -> None:
    assert closing([None] * 4) == Closing(
        reported=False, reason=VoidReason.TOO_FEW, scored=0, passes=0.0, informative=None
    )


def test_a_shaped_reward_decides_informativeness_and_the_outcome_the_pass_rate() -> None:
    wrong, right = [0.0] * 3, [1.0] * 3
    penalty = [-0.10, -0.22, -0.31]

    assert (closing(wrong, penalty).passes, closing(wrong, penalty).informative) == (0.0, True)
    assert (closing(right, penalty).passes, closing(right, penalty).informative) == (3.0, True)
    assert closing(wrong, penalty, signal="outcome").informative is False
    assert closing([1.0, 0.0, 1.0], [2.0] * 3).informative is False
    assert closing([1.0, 0.0, 1.0], [2.0] * 3, signal="outcome").informative is True


@pytest.mark.parametrize(
    ("outcomes", "rewards", "disagrees"),
    [
        ([0.0, 0.0], [-0.1, -0.2], True),
        ([1.0, 0.0], [2.0, 2.0], True),
        ([1.0, 0.0], [0.4, 0.2], False),
        ([1.0, 1.0], [0.4, 0.4], False),
    ],
)
@pytest.mark.parametrize("signal", ["reward", "outcome"])
def test_a_group_says_when_rewards_and_outcomes_disagree(
    outcomes: list[Outcome], rewards: list[Outcome], disagrees: bool, signal: str
) -> None:
    assert closing(outcomes, rewards, signal=signal).disagrees is disagrees
    assert closing(outcomes, rewards, signal=signal, void=VoidReason.SURPLUS).disagrees is False


def test_errors_and_unscored_rollouts_have_no_say_and_truncated_ones_do() -> None:
    statuses = [OK, ERROR, TRUNCATED, UNSCORED]

    found = closing([1.0, 0.0, 1.0, 0.0], statuses=statuses)

    assert (found.scored, found.passes, found.informative) == (2, 2.0, False)


@pytest.mark.parametrize(("expired", "reason"), [(False, VoidReason.TOO_FEW), (True, VoidReason.EXPIRED)])
def test_a_group_below_the_minimum_is_void_and_says_why(expired: bool, reason: VoidReason) -> None:
    below = closing([1.0, 0.0], min_rollouts=3, expired=expired)
    enough = closing([1.0, 0.0, 0.0], min_rollouts=3, expired=expired)

    assert (below.reported, below.reason, below.scored, below.informative) == (False, reason, 2, None)
    assert (enough.reported, enough.reason, enough.informative) == (True, VoidReason.NONE, True)


@pytest.mark.parametrize("expired", [False, True])
def test_a_group_of_errors_alone_is_void_for_that_reason(expired: bool) -> None:
    assert closing([0.0, 0.0], statuses=[ERROR, ERROR], expired=expired).reason is VoidReason.ERROR
    assert closing([], expired=expired).reason is (VoidReason.EXPIRED if expired else VoidReason.TOO_FEW)


@pytest.mark.parametrize("reason", [VoidReason.SURPLUS, VoidReason.STALE, VoidReason.NEVER_STARTED])
def test_a_void_group_counts_for_nothing_however_good_it_is(reason: VoidReason) -> None:
    found = closing([1.0, 0.0, 1.0], void=reason)

    assert (found.reported, found.reason, found.informative) == (False, reason, None)


def test_the_order_of_arrival_changes_no_bit_of_a_group() -> None:
    graded = [0.1, 0.2, 0.3, 1e-17, 0.7]

    assert len({closing([graded[i] for i in order]).passes for order in permutations(range(5))}) == 1
