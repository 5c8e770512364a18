"""Rules that stop a group: each by hand, against a slow version, at its edges, and the bias that stopping leaves."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.waves import PARTS, Seen, Verdict, WaveConfig, decide, wave_ends, wave_from_dict

SCREEN = WaveConfig(rule="screen", first=4)
PILOT = WaveConfig(rule="pilot", first=16, low=0.125, high=0.75)
UNTIL = WaveConfig(rule="until_success", first=2, step=3)
BALANCED = WaveConfig(rule="balanced", first=8, step=8, keep=4)
RESCUE = WaveConfig(rule="rescue", first=4, step=2, ceiling=0.25)


def seen(right: int, scored: int, right_first: int | None = None, scored_first: int | None = None) -> Seen:
    """Outcomes of 0 and 1; by default all of the first wave."""
    return Seen(
        right=right,
        scored=scored,
        right_first=right if right_first is None else right_first,
        scored_first=scored if scored_first is None else scored_first,
        informative=0 < right < scored,
    )


@pytest.mark.parametrize(
    ("config", "group_size", "ends"),
    [
        (None, 8, (8,)),
        (SCREEN, 24, (4, 24)),
        (SCREEN, 4, (4,)),
        (SCREEN, 3, (3,)),
        (UNTIL, 8, (2, 5, 8)),
        (UNTIL, 7, (2, 5, 7)),
        (UNTIL, 5, (2, 5)),
        (BALANCED, 32, (8, 16, 24, 32)),
    ],
)
def test_waves_end_where_the_rule_says_and_the_last_with_the_group(
    config: WaveConfig | None, group_size: int, ends: tuple[int, ...]
) -> None:
    assert wave_ends(config, group_size) == ends


def test_a_screen_lets_mixed_groups_on() -> None:
    assert [decide(SCREEN, seen(k, 4)).name for k in range(5)] == ["STOP", "CONTINUE", "CONTINUE", "CONTINUE", "STOP"]


def test_a_pilot_defers_below_an_eighth_and_skips_above_three_quarters() -> None:
    verdicts = [decide(PILOT, seen(k, 16)) for k in range(17)]

    assert verdicts == [Verdict.DEFER] * 2 + [Verdict.CONTINUE] * 11 + [Verdict.SKIP] * 4


def test_until_success_stops_at_the_first_that_is_right() -> None:
    assert [decide(UNTIL, seen(k, 2)) for k in range(3)] == [Verdict.CONTINUE, Verdict.STOP, Verdict.STOP]


def test_a_balanced_exit_needs_two_of_each_kind() -> None:
    assert [decide(BALANCED, seen(k, 8)) is Verdict.STOP for k in range(9)] == [False] * 2 + [True] * 5 + [False] * 2


def test_a_rescue_goes_on_until_a_later_rollout_is_right() -> None:
    assert [decide(RESCUE, seen(k, 4)) is Verdict.CONTINUE for k in range(5)] == [True, True, False, False, False]
    assert decide(RESCUE, seen(1, 6, 1, 4)) is Verdict.CONTINUE
    assert decide(RESCUE, seen(2, 6, 1, 4)) is Verdict.STOP


@pytest.mark.parametrize("config", [SCREEN, PILOT, UNTIL, BALANCED, RESCUE], ids=lambda config: config.rule)
def test_a_wave_without_a_score_stops(config: WaveConfig) -> None:
    assert decide(config, seen(0, 0)) is Verdict.STOP


@pytest.mark.parametrize("config", [SCREEN, PILOT, UNTIL, BALANCED, RESCUE], ids=lambda config: config.rule)
def test_a_rule_is_stored_as_plain_values(config: WaveConfig) -> None:
    assert wave_from_dict(asdict(config)) == config


GOOD: dict[str, dict[str, Any]] = {
    "screen": {"first": 4},
    "pilot": {"first": 4, "low": 0.1, "high": 0.9},
    "until_success": {"first": 1, "step": 1},
    "balanced": {"first": 4, "step": 1, "keep": 2},
    "rescue": {"first": 4, "step": 1, "ceiling": 0.0},
    "settle": {"first": 2, "step": 2, "low": 0.5},
}


@pytest.mark.parametrize("rule", PARTS)
def test_each_rule_needs_its_numbers_and_refuses_others(rule: Any) -> None:
    WaveConfig(rule=rule, **GOOD[rule])
    for name in PARTS[rule]:
        with pytest.raises(ValueError, match=f"wave.{name} is needed"):
            WaveConfig(rule=rule, **{**GOOD[rule], name: None})
    idle = next(name for name in ("keep", "low") if name not in PARTS[rule])
    with pytest.raises(ValueError, match=f"wave.{idle} .* has no effect"):
        WaveConfig(rule=rule, **{**GOOD[rule], idle: 2})


@pytest.mark.parametrize(
    ("rule", "changed", "words"),
    [
        ("screen", {"first": 1}, "wave.first must be >= 2"),
        ("pilot", {"first": 0}, "wave.first must be >= 1"),
        ("balanced", {"keep": 3}, "wave.keep must be even"),
        ("balanced", {"step": 0}, "wave.step must be >= 1"),
        ("pilot", {"low": 0.95}, "in order"),
        ("rescue", {"ceiling": 1.0}, "wave.ceiling must be in"),
        ("never", {}, "wave.rule must be one of"),
    ],
)
def test_numbers_that_cannot_be_are_refused_by_name(rule: Any, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        WaveConfig(rule=rule, **{**GOOD.get(rule, {"first": 2}), **changed})


@given(outcomes=st.lists(st.booleans(), min_size=12, max_size=12), order=st.permutations(range(4)))
def test_a_decision_does_not_depend_on_the_order_within_the_wave(outcomes: list[bool], order: list[int]) -> None:
    shuffled = [outcomes[place] for place in order] + outcomes[4:]
    for config in (SCREEN, RESCUE):
        for end in (4, 6):
            one, other = (decide(config, seen(sum(of[:end]), end, sum(of[:4]), 4)) for of in (outcomes, shuffled))
            assert one is other


def balanced_exits(pass_rate: float, num: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """k, n and whether the group let go before or at its end, of `num` groups under Reinforce-Ada's exit."""
    outcomes = rng.random((num, 32)) < pass_rate
    right, scored, exited = np.zeros(num, np.int64), np.zeros(num, np.int64), np.zeros(num, bool)
    going = np.ones(num, bool)
    for end in wave_ends(BALANCED, 32):
        right[going], scored[going] = outcomes[going, :end].sum(axis=1), end
        stops = [decide(BALANCED, seen(int(k), end)) is Verdict.STOP for k in right[going]]
        exited[np.flatnonzero(going)[stops]] = True
        going &= ~exited
    return right, scored, exited


@pytest.mark.parametrize(
    ("pass_rate", "given_exit", "overall", "rollouts"),
    [(0.5, None, None, 8.6), (0.1, None, None, 21.0), (0.05, 0.117, 0.066, 27.0), (0.02, 0.10, None, None)],
)
def test_a_balanced_exit_biases_the_share_and_not_the_first_wave(
    pass_rate: float, given_exit: float | None, overall: float | None, rollouts: float | None
) -> None:
    num = 20_000
    right, scored, exited = balanced_exits(pass_rate, num, np.random.default_rng(7))
    share = right / scored

    # Published to two or three digits; beside that, four standard errors of the simulation.
    if given_exit is not None:
        error = 4 * share[exited].std() / np.sqrt(exited.sum())
        assert share[exited].mean() == pytest.approx(given_exit, abs=error + (0.0005 if given_exit > 0.11 else 0.005))
    if overall is not None:
        assert share.mean() == pytest.approx(overall, abs=4 * share.std() / np.sqrt(num) + 0.0005)
    if rollouts is not None:
        assert scored.mean() == pytest.approx(rollouts, abs=4 * scored.std() / np.sqrt(num) + 0.5)


@given(pass_rate=st.floats(0.05, 0.95), seed=st.integers(0, 100))
def test_the_score_of_a_stopped_sequence_has_mean_zero(pass_rate: float, seed: int) -> None:
    """The likelihood from (k, n) stands under stopping: the mean of its derivative, (k − n·p)/(p(1 − p)), is 0."""
    num = 400
    right, scored, _ = balanced_exits(pass_rate, num, np.random.default_rng(seed))
    score = right - scored * pass_rate

    assert abs(score.mean()) <= 5 * np.sqrt(scored.max() * pass_rate * (1 - pass_rate) / num)
