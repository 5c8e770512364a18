"""Which constraint binds, and the largest saving of each remedy."""

from itertools import combinations

import numpy as np
import pytest

from selector.diagnosis import Diagnosis, diagnose, memory_share, saving_of_small_groups
from selector.ledger import PHASES

SECONDS = {"generation": 50.0, "scoring": 5.0, "update": 20.0, "weight_sync": 5.0, "idle": 10.0, "environment": 10.0}


def saving(found: Diagnosis, remedy: str) -> float | None:
    return next(one.saving for one in found.remedies if one.remedy.startswith(remedy))


def test_every_saving_by_hand() -> None:
    found = diagnose(SECONDS, informative=40, judged=100, small_groups=0.25)

    assert found.shares == {"idle": 0.1, "low_signal": 0.6 * 0.85, "environment": 0.1, "memory": None}
    assert found.binding == "low_signal"
    assert found.statement == "what binds first is rollouts that teach nothing: 51 % of all seconds go there"
    assert saving(found, "perfect selection") == pytest.approx(0.6 * (50 + 5 + 10 + 20) / 100)
    assert saving(found, "perfect overlap") == pytest.approx(1 - max(65, 25) / 100)
    assert saving(found, "a better split") == pytest.approx(0.1)
    assert saving(found, "groups of 3") == pytest.approx(0.25 * 0.85)
    assert saving(found, "environments") == pytest.approx(0.1)
    savings = [one.saving for one in found.remedies]
    assert savings == sorted(savings, reverse=True), "the largest first"  # type: ignore[type-var]


@pytest.mark.parametrize("phase", ["idle", "environment"])
def test_what_takes_most_binds(phase: str) -> None:
    found = diagnose({**SECONDS, phase: 500.0}, informative=100, judged=100)
    assert found.binding == phase
    assert saving(found, "perfect selection") == 0


def test_memory_binds_when_it_is_full_and_little_else_does() -> None:
    told = {"peak_memory_bytes": {"accelerator": 96, "host": 500}, "environment": {"accelerator_memory_bytes": ["100"]}}
    quiet = {**SECONDS, "idle": 0.0}
    assert diagnose(quiet, informative=95, judged=100, **told).binding == "memory"  # type: ignore[arg-type]
    assert diagnose(quiet, informative=40, judged=100, **told).binding == "low_signal"  # type: ignore[arg-type]
    assert memory_share({"a": 3, "b": 5}, {"accelerator_memory_bytes": ["1", "10"]}) == 0.5
    nothing_told: list[tuple[dict[str, int], dict[str, list[str]]]] = [
        ({}, {"accelerator_memory_bytes": ["9"]}),
        ({"a": 1}, {}),
        ({"a": 1}, {"accelerator_memory_bytes": ["80 GB"]}),
    ]
    assert [memory_share(peak, facts) for peak, facts in nothing_told] == [None] * 3


def test_what_nobody_told_is_named_and_not_guessed() -> None:
    nothing = diagnose(dict.fromkeys(PHASES, 0.0), informative=0, judged=0)
    assert nothing.binding is None
    assert "nothing can be said" in nothing.statement
    assert [one.saving for one in nothing.remedies] == [None] * 5
    assert [part.split(":")[0] for part in nothing.missing] == ["seconds by phase", "judged groups", "memory"]
    with pytest.raises(ValueError, match="got 2"):
        diagnose(SECONDS, informative=2, judged=1)


def slow_mixed(passes: int, size: int, m: int) -> float:
    """Share of the subsets of m rollouts that hold both a pass and a failure."""
    rollouts = [1] * passes + [0] * (size - passes)
    mixed = [0 < sum(subset) < m for subset in combinations(rollouts, m)]
    return sum(mixed) / len(mixed)


@pytest.mark.parametrize("seed", range(5))
def test_groups_of_three_save_what_the_best_of_all_subsets_does(seed: int) -> None:
    size = 6
    passes = np.random.default_rng(seed).integers(0, size + 1, 12)
    cost = {m: m / np.mean([slow_mixed(k, size, m) for k in passes.tolist()]) for m in range(2, size + 1)}

    found = saving_of_small_groups(passes.astype(float), np.full(12, size))

    assert cost[3] == pytest.approx(min(cost.values()))
    assert found == pytest.approx(1 - min(cost.values()) / cost[size])


def test_rare_passes_gain_nothing_by_smaller_groups_and_even_ones_much() -> None:
    assert saving_of_small_groups(np.array([1.0] * 4), np.full(4, 4)) == pytest.approx(0.0)
    # 4 of 8: a pair is mixed with 4/7, so 3.5 rollouts for a mixed group in place of 8.
    assert saving_of_small_groups(np.array([4.0] * 3), np.full(3, 8)) == pytest.approx(1 - 3.5 / 8)
    # Groups of different sizes: pairs mixed with 1 and 1/2, 8/3 rollouts each; now 6 rollouts for 2.
    assert saving_of_small_groups(np.array([1.0, 1.0]), np.array([2, 4])) == pytest.approx(1 - (8 / 3) / 3)


@pytest.mark.parametrize(("passes", "scored"), [([], []), ([1.0], [1]), ([0.5], [4]), ([0.0, 4.0], [4, 4])])
def test_groups_that_say_nothing_about_smaller_ones(passes: list[float], scored: list[int]) -> None:
    assert saving_of_small_groups(np.array(passes), np.array(scored, np.int64)) is None


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="alike"):
        saving_of_small_groups(np.zeros(2), np.zeros(3, np.int64))
