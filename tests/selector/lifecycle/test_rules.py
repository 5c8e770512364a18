"""Which prompts rest: the rules by hand, by a slow obvious version and at their edges."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors.base import Beliefs
from predictors.beta import quantile
from predictors.value import informative_probability
from selector.config import LifecycleConfig
from selector.lifecycle.rules import (
    Touched,
    failures_in_a_row,
    find_cohorts,
    is_slip,
    least_passes,
    next_stage,
    review_rate,
    waking_rows,
)
from selector.types import Lifecycle

NEW, ACTIVE, MASTERED, DEFERRED = Lifecycle
RULES = LifecycleConfig()
SEEN = st.tuples(st.integers(0, 60), st.integers(0, 60))


def flat(*seen: tuple[int, int]) -> Beliefs:
    """Beliefs of a flat Beta prior after (passes, failures) of each row."""
    alpha, beta = 1.0 + np.array(seen, np.float64).reshape(-1, 2).T
    total = alpha + beta
    return Beliefs(
        mean_N=alpha / total,
        variance_N=alpha * beta / total**2 / (total + 1),
        n_eff_N=total - 2,
        lag_N=np.zeros(len(total), np.int64),
        source_N=np.ones(len(total), np.uint8),
    )


def moved(
    seen: tuple[int, int],
    stage: Lifecycle = ACTIVE,
    *,
    groups: int = 3,
    failed: int = 0,
    passed: bool = False,
    slipped: bool = False,
    rules: LifecycleConfig = RULES,
) -> Lifecycle:
    """The stage of one prompt after a report."""
    touched = Touched(
        stage_U=np.array([stage], np.uint8),
        groups_U=np.array([groups]),
        failed_U=np.array([failed]),
        passed_U=np.array([passed]),
        slipped_U=np.array([slipped]),
    )
    return Lifecycle(int(next_stage(touched, flat(seen), group_size=8, config=rules)[0]))


def test_mastery_by_hand() -> None:
    # P(p >= 0.9) under Beta(1 + k, 1) is 1 - 0.9^(1+k): 0.901 at k = 21, 0.891 at k = 20.
    assert moved((21, 0)) is MASTERED
    assert moved((20, 0)) is ACTIVE
    assert moved((20, 0), rules=replace(RULES, sure=0.89)) is MASTERED
    assert moved((21, 0), groups=2) is ACTIVE


def test_a_deferral_by_hand() -> None:
    # Under Beta(1, 1 + n) a group of 8 without a pass has the chance (1+n)/(9+n): 25/33 at n = 24, 23/31 at n = 22.
    assert moved((0, 24), failed=3) is DEFERRED
    assert moved((0, 22), failed=3) is ACTIVE
    assert moved((0, 24), failed=2) is ACTIVE
    # As sure of few passes, but there was one.
    assert moved((1, 400), groups=50, failed=0) is ACTIVE


def test_one_slip_or_a_belief_below_the_level_ends_mastery() -> None:
    assert moved((90, 4), MASTERED) is MASTERED
    assert moved((90, 4), MASTERED, slipped=True) is ACTIVE
    assert moved((90, 12), MASTERED) is ACTIVE
    # One belief that neither lets a prompt in nor sends it back.
    assert moved((90, 8)) is ACTIVE
    assert moved((90, 8), MASTERED) is MASTERED


def test_any_pass_ends_a_deferral_and_nothing_else_does() -> None:
    assert moved((0, 30), DEFERRED, failed=9) is DEFERRED
    assert moved((1, 300), DEFERRED, passed=True) is ACTIVE
    assert moved((0, 3), DEFERRED, failed=1) is DEFERRED
    assert moved((0, 30), DEFERRED, failed=9, slipped=True) is DEFERRED


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            SEEN, st.sampled_from([ACTIVE, MASTERED, DEFERRED]), st.integers(1, 6), st.integers(0, 6), st.booleans()
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([RULES, LifecycleConfig(level=0.6, sure=0.7, hopeless=0.4, groups=2)]),
)
def test_stages_agree_with_a_loop_over_prompts(
    prompts: list[tuple[tuple[int, int], Lifecycle, int, int, bool]], rules: LifecycleConfig
) -> None:
    seen, stages, groups, failed, slipped = zip(*prompts, strict=True)
    beliefs = flat(*seen)
    passed = [f == 0 for f in failed]
    lowest, median = (quantile(beliefs.mean_N, beliefs.variance_N, q) for q in (1 - rules.sure, 0.5))
    informative = informative_probability(beliefs.mean_N, beliefs.variance_N, 8)
    expected = []
    for u, stage in enumerate(stages):
        if stage is MASTERED:
            after = ACTIVE if slipped[u] or median[u] < rules.level else MASTERED
        elif stage is DEFERRED:
            after = ACTIVE if passed[u] else DEFERRED
        elif failed[u] >= rules.groups and informative[u] <= rules.hopeless:
            after = DEFERRED
        else:
            after = MASTERED if groups[u] >= rules.groups and not failed[u] and lowest[u] >= rules.level else ACTIVE
        expected.append(after)

    found = next_stage(
        Touched(
            stage_U=np.array(stages, np.uint8),
            groups_U=np.array(groups),
            failed_U=np.array(failed),
            passed_U=np.array(passed),
            slipped_U=np.array(slipped),
        ),
        beliefs,
        group_size=8,
        config=rules,
    )

    assert found.dtype == np.uint8
    assert [Lifecycle(int(stage)) for stage in found] == expected


def test_a_report_that_touches_nothing_moves_nothing() -> None:
    none = np.zeros(0, np.int64)
    touched = Touched(stage_U=none, groups_U=none, failed_U=none, passed_U=none > 0, slipped_U=none > 0)

    assert len(next_stage(touched, flat(), group_size=8, config=RULES)) == 0


# By age alone


def test_mastered_prompts_wake_by_hand() -> None:
    # P(p < 0.9) after 89 to 91 of 100 on a flat prior, 0.69, 0.57 and 0.44, and after 20 of 100.
    beliefs = flat((89, 11), (90, 10), (91, 9), (20, 80))

    assert waking_rows(np.full(4, MASTERED), beliefs, RULES).tolist() == [0, 1, 3]
    assert waking_rows(np.full(4, DEFERRED), beliefs, RULES).tolist() == []


@settings(max_examples=25, deadline=None)
@given(st.lists(SEEN, min_size=1, max_size=12), st.sampled_from([0.5, 0.75, 0.9]))
def test_mastered_prompts_wake_when_the_median_falls_below_the_level(seen: list[tuple[int, int]], level: float) -> None:
    beliefs = flat(*seen)
    stage_N = np.where(np.arange(len(seen)) % 3 == 2, ACTIVE, MASTERED)
    below_N = quantile(beliefs.mean_N, beliefs.variance_N, 0.5) < level - 1e-9

    found = waking_rows(stage_N, beliefs, replace(RULES, level=level))

    assert found.tolist() == np.flatnonzero((stage_N == MASTERED) & below_N).tolist()


@settings(max_examples=25, deadline=None)
@given(st.floats(0.01, 50), st.floats(0.01, 50))
def test_the_median_of_a_belief_lies_outside_its_mean(alpha: float, beta: float) -> None:
    """What spares `waking_rows` a closer look: a mean of at least one half is never above the median."""
    alpha, beta = max(alpha, beta), min(alpha, beta)
    total = alpha + beta
    mean, variance = np.array([alpha / total]), np.array([alpha * beta / total**2 / (total + 1)])

    assert quantile(mean, variance, 0.5)[0] >= mean[0] - 1e-9


# Reviews


def test_least_passes_by_hand() -> None:
    # P(Binomial(8, 0.9) < 6) = 0.038, < 7: 0.187. One rollout fails by chance in a tenth of reviews.
    assert [least_passes(n, 0.9) for n in (1, 2, 4, 8, 16)] == [0, 1, 2, 6, 12]
    assert least_passes(2, 0.5) == 0
    assert 3600 < least_passes(4096, 0.9) < 4096 * 0.9


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.999])
def test_least_passes_agree_with_sums_of_the_distribution(level: float) -> None:
    for size in range(1, 30):
        below = [
            sum(comb(size, k) * level**k * (1 - level) ** (size - k) for k in range(count)) for count in range(size + 1)
        ]
        assert least_passes(size, level) == max(count for count in range(size + 1) if below[count] <= 0.05)


def test_a_slip_is_a_review_with_too_few_passes_for_its_size() -> None:
    passes, scored = np.array([5.0, 6.0, 5.5, 0.0, 1.0, 0.5]), np.array([8, 8, 8, 1, 2, 2])

    assert is_slip(passes, scored, 0.9).tolist() == [True, False, True, False, False, True]
    assert is_slip(passes[:0], scored[:0], 0.9).tolist() == []


def test_each_review_that_leaves_a_prompt_at_rest_halves_its_share_down_to_a_floor() -> None:
    stage_N = np.array([NEW, ACTIVE, MASTERED, MASTERED, DEFERRED, DEFERRED])

    found = review_rate(stage_N, np.array([9, 9, 0, 1, 6, 1000]))

    assert found.tolist() == [1.0, 1.0, 1.0, 0.5, 1 / 64, 1 / 64]


def test_failures_in_a_row_by_hand() -> None:
    # Row 0: quiet, quiet. Row 1: quiet, then a pass. Row 2: a pass, then quiet. Row 3: nothing came.
    place_B = np.array([0, 1, 2, 0, 1, 2])
    quiet_B = np.array([True, True, False, True, False, True])

    assert failures_in_a_row(np.array([5, 5, 5, 5]), place_B, quiet_B).tolist() == [7, 0, 1, 5]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=20))
def test_failures_in_a_row_agree_with_a_loop(groups: list[tuple[int, bool]]) -> None:
    expected = list(range(5))
    for place, quiet in groups:
        expected[place] = expected[place] + 1 if quiet else 0
    places, quiets = np.array([g[0] for g in groups], np.int64), np.array([g[1] for g in groups], bool)

    assert failures_in_a_row(np.arange(5), places, quiets).tolist() == expected


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"level": 0.49}, r"lifecycle.level must be in \[0.5, 1\), got 0.49"),
        ({"level": 1.0}, "lifecycle.level"),
        ({"level": np.nan}, "lifecycle.level"),
        ({"sure": 0.5}, r"lifecycle.sure must be in \(0.5, 1\), got 0.5"),
        ({"hopeless": 1.0}, "lifecycle.hopeless"),
        ({"groups": 0}, "lifecycle.groups must be >= 1, got 0"),
    ],
)
def test_rules_that_cannot_be_are_refused(values: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LifecycleConfig(**values)  # type: ignore[arg-type]


# Cohorts


def test_cohorts_by_hand() -> None:
    category_N = np.array([0, 1, -1, 0, 0, 1])
    mastered_draw_N = np.array([1, 100, 101, 201, 3, 50])
    could_N = np.array([True, True, True, True, True, False])

    found = find_cohorts(category_N, mastered_draw_N, could_N, np.array([4, 5, 2, 0]))

    assert found == [
        {"category": 0, "block": 0, "members": 2, "places": [0, 3]},
        {"category": 1, "block": 0, "members": 1, "places": []},
        {"category": -1, "block": 1, "members": 1, "places": [2]},
        {"category": 0, "block": 2, "members": 1, "places": []},
    ]
    assert find_cohorts(category_N, mastered_draw_N, could_N & False, np.array([4])) == []


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(1, 350), st.booleans()), min_size=1, max_size=15))
def test_cohorts_agree_with_a_loop(prompts: list[tuple[int, int, bool]]) -> None:
    category, mastered, could = (np.array(values) for values in zip(*prompts, strict=True))
    rows_K = np.arange(0, len(prompts), 2)

    found = {(c["category"], c["block"]): c for c in find_cohorts(category, mastered, could, rows_K)}

    names = [(int(c), (int(d) - 1) // 100) if can else None for c, d, can in prompts]
    assert set(found) == set(names) - {None}
    for name, cohort in found.items():
        assert cohort["members"] == names.count(name)
        assert cohort["places"] == [k for k, row in enumerate(rows_K.tolist()) if names[row] == name]
