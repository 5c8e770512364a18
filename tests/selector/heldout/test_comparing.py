"""Configurations over seeds: equal grids, first passages, what is never reached, pairs, controls."""

from collections.abc import Sequence
from math import sqrt

import pytest

from selector.heldout.comparing import Arm, Comparison, SeedRun, common_indices, compare
from selector.heldout.looks import Look
from tests.selector.looks_cases import even_look


def run(name: str, seed: int, passes: Sequence[int], *, step: float = 100, every: int = 1) -> SeedRun:
    """A run with looks of 10 prompts at every so many indices, `step` tokens an index."""
    looks = [
        even_look(count, 10, index=i * every, tokens=step * i * every, accelerator_s=float(i))
        for i, count in enumerate(passes)
    ]
    return SeedRun(run=name, seed=seed, looks=looks)


def arm(name: str, *runs: SeedRun, control_of: str | None = None) -> Arm:
    return Arm(name=name, runs=runs, control_of=control_of)


SLOW = arm("uniform", *(run(f"u{seed}", seed, (1, 2, 3, 4, 5)) for seed in range(3)))
FAST = arm("midband", *(run(f"m{seed}", seed, (1, 3, 5, 6, 7)) for seed in range(3)))


def test_cost_to_reach_and_quality_at_the_same_cost() -> None:
    found = compare([SLOW, FAST], target=0.5)
    slow, fast = found.arms

    assert found.indices == [0, 1, 2, 3, 4]
    assert (slow.reached, slow.median_cost, slow.mean_cost) == (3, 400, 400)
    assert (fast.reached, fast.median_cost, fast.mean_cost) == (3, 200, 200)
    assert found.matched_cost == 400
    assert [slow.matched_quality, fast.matched_quality] == pytest.approx([0.5, 0.7])
    (contrast,) = found.contrasts
    assert (contrast.arm, contrast.against, contrast.paired) == ("midband", "uniform", True)
    assert contrast.quality.estimate == pytest.approx(0.2)
    assert contrast.cost_ratio.estimate == pytest.approx(0.5)
    assert (contrast.first, contrast.last, contrast.neither) == (3, 0, 0)


def test_who_looks_more_often_gains_nothing_by_it() -> None:
    """Looks at every index would see the target at 300, every second one at 400."""
    often = arm("often", run("a", 0, (1, 2, 3, 5, 5)))
    seldom = arm("seldom", run("b", 0, (1, 3, 5), every=2))
    found = compare([often, seldom], target=0.5)

    assert found.indices == [0, 2, 4]
    assert [one.median_cost for one in found.arms] == [400, 400]


def test_a_run_that_ended_early_does_not_cut_the_others_short() -> None:
    long, short = run("a", 0, (1, 2, 3, 4, 5)), run("b", 1, (1, 2))
    assert common_indices([long.looks, short.looks]) == [0, 1, 2, 3, 4]
    odd_end = [*short.looks, even_look(3, 10, index=17, tokens=1700)]
    assert common_indices([odd_end, long.looks]) == [0, 1, 17], "the other did not go so far"
    assert common_indices([odd_end, run("d", 3, (1, 2), every=30).looks]) == [0, 30]
    assert common_indices([run("e", 4, (1,)).looks]) is None
    assert common_indices([]) is None


def test_runs_without_looks_in_common_are_shown_at_their_own_and_it_is_said() -> None:
    found = compare(
        [arm("a", SeedRun(run="a", seed=0, looks=[even_look(1, 2, index=1, tokens=5)])), arm("b", run("b", 0, (1, 2)))],
        target=0.2,
    )
    assert found.indices == []
    assert any("fewer than two looks" in warning for warning in found.warnings)


def test_never_reached_is_infinite_in_the_median_counted_in_the_pairs_and_in_no_mean() -> None:
    mixed = arm("mixed", run("x0", 0, (1, 5, 5)), run("x1", 1, (1, 5, 5)), run("x2", 2, (1, 1, 1)))
    base = arm("base", *(run(f"y{seed}", seed, (1, 1, 5)) for seed in range(3)))
    found = compare([base, mixed], target=0.5)
    (contrast,) = found.contrasts

    assert (found.arms[1].reached, found.arms[1].median_cost, found.arms[1].mean_cost) == (2, 100, None)
    assert (contrast.first, contrast.last, contrast.neither) == (2, 1, 0)
    assert contrast.cost_ratio.estimate is None, "the pair that never got there cannot be averaged and is not dropped"
    assert contrast.cost_ratio.pairs == 2
    assert "in 1 only one had it" in contrast.statement
    (turned,) = compare([mixed, base], target=0.5).contrasts
    assert (turned.first, turned.last, turned.neither) == (1, 2, 0), "first, as the other never got there"
    nobody = compare([base, mixed], target=0.9)
    assert [one.median_cost for one in nobody.arms] == [None, None]
    assert nobody.contrasts[0].neither == 3
    most = compare([arm("few", run("x0", 0, (1, 5, 5)), run("x2", 2, (1, 1, 1)))], target=0.5)
    assert most.arms[0].median_cost is None, "half of them never: no finite middle"


def test_pairs_are_of_equal_seeds_and_others_are_named() -> None:
    """Seeds differ by 0.3 each, the arms by 0.1 within a seed: pairs see it, the unpaired spread would not."""
    base = arm("base", *(run(f"b{s}", s, (0, 3 * s)) for s in range(3)))
    better = arm("better", *(run(f"c{s}", s, (0, 3 * s + 1)) for s in (2, 0, 1)))
    (contrast,) = compare([base, better], target=1.0).contrasts
    assert contrast.paired
    assert contrast.quality.interval == pytest.approx((0.1, 0.1))
    assert "better is better than base at the same cost" in contrast.statement
    more = arm("more", *better.runs, run("c7", 7, (0, 1)))
    assert "1 seeds that only one of them has" in compare([base, more], target=1.0).contrasts[0].statement

    other = arm("other", *(run(f"d{s}", s + 10, (0, 3 * s + 1)) for s in range(3)))
    (apart,) = compare([base, other], target=1.0).contrasts
    assert not apart.paired
    assert apart.quality.interval == pytest.approx((0.1 - 2.77645 * sqrt(0.06), 0.1 + 2.77645 * sqrt(0.06)), rel=1e-4)
    assert "no seed in common" in apart.statement


def test_a_control_stands_beside_its_arm_and_is_measured_against_it() -> None:
    control = arm("control of midband", *(run(f"k{s}", s, (1, 2, 2, 3, 3)) for s in range(3)), control_of="midband")
    found = compare([SLOW, FAST, control], target=0.5)

    assert [(one.arm, one.against) for one in found.contrasts] == [
        ("midband", "uniform"), ("control of midband", "midband"),
    ]  # fmt: skip
    assert found.contrasts[1].quality.estimate == pytest.approx(-0.4)


def test_a_band_has_the_smallest_and_the_largest_run_and_says_how_many() -> None:
    found = compare([arm("a", run("a0", 0, (1, 4, 6)), run("a1", 1, (3, 2)))], target=0.5)
    assert [(p.index, p.runs, p.low, p.mean, p.high) for p in found.arms[0].band] == [
        (0, 2, 0.1, pytest.approx(0.2), 0.3), (1, 2, 0.2, pytest.approx(0.3), 0.4), (2, 1, 0.6, 0.6, 0.6),
    ]  # fmt: skip
    assert found.arms[0].spread == pytest.approx(0.2 / sqrt(2)), "0.4 and 0.2 within the 100 tokens both spent"


def test_another_unit_is_used_when_every_run_has_it_and_refused_by_name_when_not() -> None:
    found = compare([SLOW, FAST], target=0.5, unit="accelerator_s")
    assert found.units == ["tokens", "rollouts", "accelerator_s"]
    assert [one.median_cost for one in found.arms] == [4, 2]
    with pytest.raises(ValueError, match=r"m0, m1, m2, u0, u1, u2 told energy_j; all runs have tokens, rollouts"):
        compare([SLOW, FAST], target=0.5, unit="energy_j")


def test_too_few_seeds_are_said_and_get_no_interval() -> None:
    found: Comparison = compare([arm("a", run("a", 0, (1, 2))), arm("b", run("b", 0, (1, 3)))], target=0.3)
    assert found.contrasts[0].quality.interval is None
    assert "too few for an interval" in found.contrasts[0].statement
    assert any("1 seed: no interval" in warning for warning in found.warnings)


def test_a_run_that_was_never_looked_at_is_named_and_never_gets_there() -> None:
    looks: list[Look] = []
    found = compare([SLOW, arm("blind", SeedRun(run="z", seed=0, looks=looks))], target=0.1)
    assert found.arms[1].reached == 0
    assert any("no held-out look to be used: z" in warning for warning in found.warnings)
    assert found.contrasts[0].last == 1
