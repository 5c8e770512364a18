"""E-values of regression: by hand, by a slow obvious version, at the edges, and what they promise by simulation.

Bounds of simulations: `Z` standard errors of the mean of what is counted; the seeds are fixed.
"""

from math import ceil, comb, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.lifecycle.evidence import BETS, alternatives, cohort_log_e, e_bh, follow, log_factors

Z = 3.0
REVIEW = st.tuples(st.integers(0, 3), st.integers(0, 8))  # prompt, passes of 8


def one_prompt(passes: list[float], size: int = 8, level: float = 0.9) -> tuple[float, float]:
    """Log e-value and log peak of the detector."""
    found = follow(np.zeros(len(passes), np.int64), np.array(passes), np.full(len(passes), size), level, 1)
    return float(found.log_e_M[0]), float(found.log_peak_M[0])


def kl(p: float, level: float) -> float:
    """Nats per rollout that tell pass rate p from the level."""
    return p * log(p / level) + (1 - p) * log((1 - p) / (1 - level))


# One prompt


def test_factors_by_hand() -> None:
    # Odds of failing 1 at level 1/2: alternatives 1/3, 1/5, 1/9, 1/17, 1/33.
    np.testing.assert_allclose(alternatives(0.5), [1 / 3, 1 / 5, 1 / 9, 1 / 17, 1 / 33])
    found = np.exp(log_factors(np.array([2.0, 0.0]), np.array([2, 1]), 0.5))
    np.testing.assert_allclose(found[0], (2 * alternatives(0.5)) ** 2)
    np.testing.assert_allclose(found[1], 2 * (1 - alternatives(0.5)))


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_a_factor_has_mean_one_at_the_level_and_less_above(level: float) -> None:
    counts = np.arange(9)
    factor = np.exp(log_factors(counts.astype(float), np.full(9, 8), level))
    for p, bound in ((level, 1.0), ((1 + level) / 2, 0.999), (1 - 1e-9, 0.999)):
        chance = np.array([_binomial(8, int(k), p) for k in counts])
        assert (chance @ factor <= bound + 1e-12).all()
    assert np.allclose(np.array([_binomial(8, int(k), level) for k in counts]) @ factor, 1.0)


def test_a_graded_outcome_is_never_worth_more_than_a_bet_on_it() -> None:
    level, graded = 0.8, np.linspace(0.0, 1.0, 101)
    passed_J, failed_J = alternatives(level) / level, (1 - alternatives(level)) / (1 - level)

    factor = np.exp(log_factors(graded, np.ones(101, np.int64), level))

    # A bet pays by a straight line between the two.
    assert (factor <= failed_J + np.multiply.outer(graded, passed_J - failed_J) + 1e-12).all()
    np.testing.assert_allclose(factor[[0, -1]], [failed_J, passed_J])


def test_a_single_review_by_hand() -> None:
    # E_1 = (1/2)·mean e + 1/2 and R_1 = mean e.
    mean = np.exp(log_factors(np.array([5.0]), np.array([8]), 0.9)).mean()

    log_e, peak = one_prompt([5])

    assert np.exp(log_e) == pytest.approx(0.5 * mean + 0.5)
    assert np.exp(peak) == pytest.approx(mean)


@settings(max_examples=60)
@given(st.lists(REVIEW, max_size=30), st.sampled_from([0.6, 0.9]))
def test_prompts_agree_with_sums_over_where_a_change_may_have_begun(
    reviews: list[tuple[int, int]], level: float
) -> None:
    place, passes = np.array([r[0] for r in reviews], np.int64), np.array([float(r[1]) for r in reviews])

    found = follow(place, passes, np.full(len(reviews), 8), level, 4)

    for prompt in range(4):
        own = passes[place == prompt]
        factors = np.exp(log_factors(own, np.full(len(own), 8), level))
        n = len(own)
        products = np.array([factors[start:].prod(axis=0).mean() for start in range(n)])
        bets = 1.0 / (np.arange(1, n + 1) * np.arange(2, n + 2))
        peaks = [sum(factors[start:end].prod(axis=0).mean() for start in range(end)) for end in range(1, n + 1)]
        assert found.reviews_M[prompt] == n
        np.testing.assert_allclose(np.exp(found.log_e_M[prompt]), bets @ products + 1 / (n + 1), rtol=1e-9)
        np.testing.assert_allclose(np.exp(found.log_peak_M[prompt]), max(peaks, default=0.0), rtol=1e-9)


def test_prompts_without_reviews_say_nothing_and_endless_ones_stay_finite() -> None:
    none = follow(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64), 0.9, 3)
    assert none.log_e_M.tolist() == [0.0] * 3
    assert none.log_peak_M.tolist() == [-np.inf] * 3
    assert none.reviews_M.tolist() == [0] * 3
    assert one_prompt([0.0] * 400)[0] > 1_000
    assert np.isfinite(one_prompt([8.0] * 400)).all()
    for level in (0.0, 1.0):
        with pytest.raises(ValueError, match="level must be in"):
            log_factors(np.zeros(1), np.ones(1, np.int64), level)


@pytest.mark.parametrize("threshold", [20.0, 200.0])
@pytest.mark.parametrize(("level", "size"), [(0.9, 8), (0.8, 1)])
def test_false_alarms_come_as_rarely_as_stated(threshold: float, level: float, size: int) -> None:
    """Average run length of the detector at the level itself, the worst case, cut off at five times the threshold."""
    num_runs, length = 400, int(5 * threshold)
    passes = np.random.default_rng(4).binomial(size, level, (length, num_runs)).astype(float)

    runs = np.minimum(first_alarms(passes, size, level, threshold), length)

    # Cutting off can only shorten the mean.
    assert runs.mean() >= threshold - Z * runs.std() / np.sqrt(num_runs)


@pytest.mark.parametrize("good", [0, 20])
@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("level", [0.8, 0.9, 0.95])
def test_a_change_is_found_about_as_fast_as_can_be_also_after_many_good_reviews(
    level: float, size: int, good: int
) -> None:
    """Median delay <= 1.5·ln(threshold)/KL reviews, in whole reviews."""
    threshold, num_runs = 1_000.0, 101
    rng = np.random.default_rng(7)
    for p in (0.05, 0.2, 0.4, 0.6, 0.9 * level):
        bound = 1.5 * log(threshold) / (size * kl(p, level))
        passes = rng.binomial(size, p, (int(2 * bound) + 3, num_runs)).astype(float)
        before = np.full((good, num_runs), float(size))

        delay = first_alarms(np.concatenate([before, passes]), size, level, threshold) - good

        assert (delay > 0).all()
        assert np.median(delay) <= ceil(bound)


def first_alarms(passes_TR: np.ndarray, size: int, level: float, threshold: float) -> np.ndarray:
    """(R,) the review, from 1, at which the detector of each run is at the threshold for the first time; inf: never.

    Every prefix of a run is a prompt of its own as far as it is not yet known to have crossed.
    """
    num_reviews, num_runs = passes_TR.shape
    low, high = np.zeros(num_runs, np.int64), np.full(num_runs, num_reviews + 1)
    while (low + 1 < high).any():
        middle = (low + high) // 2
        place = np.repeat(np.arange(num_runs), middle)
        when = np.concatenate([np.arange(count) for count in middle])
        passes = passes_TR[when, place]
        found = follow(place, passes, np.full(len(place), size), level, num_runs)
        crossed = (found.log_peak_M >= np.log(threshold)) & (middle > 0)
        high = np.where(crossed, middle, high)
        low = np.where(crossed, low, middle)
    return np.where(high > num_reviews, np.inf, high)


# Many prompts


def test_e_bh_by_hand() -> None:
    # Four hypotheses at 0.1: the largest must be at least 40, the two largest 20, three 13.3, all four 10.
    assert e_bh(np.log([39.0, 1, 1, 1]), 0.1).tolist() == [False] * 4
    assert e_bh(np.log([1.0, 41, 1, 1]), 0.1).tolist() == [False, True, False, False]
    assert e_bh(np.log([21.0, 1, 25, 1]), 0.1).tolist() == [True, False, True, False]
    assert e_bh(np.log([10.0, 11, 12, 13]), 0.1).tolist() == [True] * 4
    assert e_bh(np.zeros(0), 0.1).tolist() == []
    with pytest.raises(ValueError, match="alpha must be in"):
        e_bh(np.zeros(1), 0.0)


@given(st.lists(st.floats(0.01, 1e4), max_size=20), st.sampled_from([0.05, 0.3]))
def test_e_bh_agrees_with_trying_every_number(e_values: list[float], alpha: float) -> None:
    num = len(e_values)
    best = max((k for k in range(1, num + 1) if sum(e >= num / (k * alpha) for e in e_values) >= k), default=0)
    rejected = e_bh(np.log(np.array(e_values)), alpha)

    assert rejected.sum() == best
    if 0 < best < num:
        assert np.array(e_values)[rejected].min() >= np.array(e_values)[~rejected].max()


def test_few_of_the_listed_prompts_are_listed_wrongly_whenever_one_looks() -> None:
    """False share after 5, 10, … reviews: nine in ten prompts at the level exactly, the others below after a while."""
    num_prompts, num_reviews, alpha, runs = 200, 25, 0.1, 40
    shares, found = [], []
    for run in range(runs):
        rng = np.random.default_rng([11, run])
        changed_M = np.arange(num_prompts) % 10 == 0
        p = np.where(changed_M & (np.arange(num_reviews)[:, None] >= 5), 0.5, 0.9)
        passes = rng.binomial(8, p).astype(float)
        for look in range(5, num_reviews + 1, 5):
            place = np.tile(np.arange(num_prompts), look)
            followed = follow(place, passes[:look].ravel(), np.full(place.size, 8), 0.9, num_prompts)
            listed = e_bh(followed.log_e_M, alpha)
            shares.append(float((listed & ~changed_M).sum()) / max(int(listed.sum()), 1))
            if look == num_reviews:
                found.append(float(listed[changed_M].mean()))
    by_look = np.array(shares).reshape(runs, -1)

    assert (by_look.mean(axis=0) <= alpha + Z * by_look.std(axis=0) / np.sqrt(runs)).all()
    assert np.mean(found) > 0.9


# Cohorts


def test_a_cohort_by_hand() -> None:
    # Two draws at level 1/2: no failure, then twice what is allowed. (1 − b)·(1 + b·(1/(1/2) − 1)) = 1 − b².
    assert np.exp(cohort_log_e(np.array([0.0, 1.0]), 0.5)) == pytest.approx((1 - BETS**2).mean())
    assert cohort_log_e(np.zeros(0), 0.9) == 0.0


@pytest.mark.parametrize(
    ("failure", "level", "words"),
    [([-0.1], 0.9, ">= 0"), ([np.nan], 0.9, "finite"), ([np.inf], 0.9, "finite"), ([0.1], 1.0, "level")],
)
def test_cohorts_out_of_range_are_refused(failure: list[float], level: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        cohort_log_e(np.array(failure), level)


def test_a_cohort_at_the_level_is_rarely_listed_at_any_look_and_one_below_it_soon() -> None:
    """Members of unlike pass rates, drawn with unlike chances: their mean counts, and weights make up for the draw."""
    rng = np.random.default_rng(2)
    pass_N, pi_N = np.array([1.0, 1.0, 0.9, 0.7]), np.array([0.1, 0.4, 0.2, 0.05])
    level, runs, draws = 0.9, 300, 60
    assert pass_N.mean() == pytest.approx(level)

    def ever(passes: np.ndarray, threshold: float) -> float:
        crossed = 0
        for _ in range(runs):
            drawn = rng.random((draws, 4)) < pi_N
            failed = 1 - rng.binomial(8, passes, (draws, 4)) / 8
            failure_T = (drawn * failed / pi_N).mean(axis=1)
            crossed += any(cohort_log_e(failure_T[:n], level) >= log(threshold) for n in range(5, draws + 1, 5))
        return crossed / runs

    assert ever(pass_N, 10.0) <= 0.1 + Z * np.sqrt(0.1 * 0.9 / runs)
    assert ever(pass_N - 0.4 * np.array([1, 1, 1, 0]), 10.0) > 0.9


def _binomial(size: int, count: int, p: float) -> float:
    return comb(size, count) * p**count * (1 - p) ** (size - count)
