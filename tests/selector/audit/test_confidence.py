"""Confidence sequences: a second, slow implementation, exact checks of the inequality, and looking at every time."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.audit.confidence import (
    GRID_RATIO,
    GRID_SPAN,
    GRID_TILT,
    GRID_TOP,
    MIN_SCALE_SHARE,
    Floats,
    lower_limit,
    mean_sequence,
    upper_limit,
)

NORMAL_95 = 1.959964


def slow_psi(rate: float, reach: float) -> float:
    if reach * rate < 1e-5:
        return rate**2 / 2
    return (-math.log(1 - reach * rate) - reach * rate) / reach**2


def slow_grid() -> list[tuple[float, float]]:
    u = [GRID_TOP]
    while u[-1] / GRID_RATIO >= GRID_TOP / GRID_SPAN:
        u.append(u[-1] / GRID_RATIO)
    total = sum(v**GRID_TILT for v in u)
    return [(v, v**GRID_TILT / total) for v in u]


def slow_lower(columns: list[list[float]], level: float) -> float:
    """The last lower limit by its definition, one observation, one component and one halving at a time."""
    x, low, high, guess = columns
    num = len(x)
    first = next((i for i in range(num) if high[i] > low[i]), None)
    floor, ceiling = sum(low) / num, sum(high) / num
    if first is None:
        return floor
    predictions = []
    for i in range(num):
        past = sum(x[k] - guess[k] for k in range(i)) / (i + 1)
        predictions.append(min(max(guess[i] + past, low[i]), high[i]))
    scale = max(predictions[first] - low[first], MIN_SCALE_SHARE * (high[first] - low[first]))
    components = []
    for u, prior in slow_grid():
        rate, penalty, alive = u / scale, 0.0, True
        for i in range(num):
            reach = predictions[i] - low[i]
            alive = alive and rate * reach < 1
            if alive:
                penalty += slow_psi(rate, reach) * (x[i] - predictions[i]) ** 2
        if alive:
            components.append((rate, math.log(prior) - penalty))
    if not components:
        return floor
    a, b = -1e6, 1e6
    for _ in range(100):
        middle = (a + b) / 2
        exponents = [rate * middle + offset for rate, offset in components]
        top = max(exponents)
        log_wealth = top + math.log(sum(math.exp(e - top) for e in exponents))
        a, b = (a, middle) if log_wealth >= math.log(2 / (1 - level)) else (middle, b)
    return min(max((sum(x) - b) / num, floor), ceiling)


def misses(
    make: Callable[[np.random.Generator], tuple[Floats, Floats, Floats, Floats]],
    interval: Callable[[Floats, Floats, Floats], tuple[Floats, Floats]],
    num_runs: int,
) -> int:
    """Runs in which the running mean of the conditional means was outside the interval at any time."""
    rng = np.random.default_rng(20210501)
    count = 0
    for _ in range(num_runs):
        x_T, mean_T, low_T, high_T = make(rng)
        target_T = np.cumsum(mean_T) / np.arange(1, x_T.size + 1)
        below_T, above_T = interval(x_T, low_T, high_T)
        count += bool(np.any((target_T < below_T - 1e-12) | (target_T > above_T + 1e-12)))
    return count


def most_misses(num_runs: int, alpha: float) -> int:
    """The largest count that a one-sided binomial test at 1 in 1,000 does not reject as more than alpha."""
    tail, k = 1.0, 0
    while tail > 0.001:
        tail -= math.comb(num_runs, k) * alpha**k * (1 - alpha) ** (num_runs - k)
        k += 1
    return k - 1


def coin_flips(rng: np.random.Generator) -> tuple[Floats, Floats, Floats, Floats]:
    x = (rng.random(250) < 0.1).astype(np.float64)
    return x, np.full(250, 0.1), np.zeros(250), np.ones(250)


def drifting_batches(rng: np.random.Generator) -> tuple[Floats, Floats, Floats, Floats]:
    mean = 0.5 + 0.4 * np.sin(np.arange(250) / 40)
    return np.asarray(rng.binomial(6, mean) / 6, dtype=np.float64), mean, np.zeros(250), np.ones(250)


def ranges_that_follow_the_past(rng: np.random.Generator) -> tuple[Floats, Floats, Floats, Floats]:
    """Each range and mean depend on the observation before, as those of an adaptive design do."""
    x, mean, low, high = np.zeros(250), np.zeros(250), np.zeros(250), np.zeros(250)
    last = 0.0
    for i in range(250):
        width = 1.0 + 2.0 * (last > 0) + i / 100
        p = 0.05 + 0.3 * (last <= 0)
        low[i], high[i] = -p * width, (1 - p) * width
        mean[i] = 0.1 * (last > 0)
        high[i], low[i] = high[i] + mean[i], low[i] + mean[i]
        last = x[i] = high[i] if rng.random() < p else low[i]
    return x, mean, low, high


def heavy_weights(rng: np.random.Generator) -> tuple[Floats, Floats, Floats, Floats]:
    """A rare prompt of weight 20 that passes seven times in ten: mostly 0, seldom 20."""
    x = np.where(rng.random(250) < 0.02 * 0.7, 20.0, 0.0)
    return x, np.full(250, 20 * 0.02 * 0.7), np.zeros(250), np.full(250, 20.0)


SCENARIOS = [coin_flips, drifting_batches, ranges_that_follow_the_past, heavy_weights]


def test_the_margin_of_constant_observations_is_between_its_largest_component_and_the_whole_mixture() -> None:
    # All x equal the guess, so nothing is spent: the margin d solves Σ w_j exp(λ_j d) = 40 with λ_1 = 0.95/0.5 = 1.9.
    # If all weight were on λ_1, d = ln 40 / 1.9 = 1.9415. Its weight is at least 1 − 1.5^(−1/2) = 0.1835, so
    # d <= (ln 40 + ln(1/0.1835)) / 1.9 = 2.834.
    sequence = mean_sequence(np.full(1000, 0.5), 0, 1)
    margin = (sequence.estimate_T - sequence.low_T)[-1] * 1000
    assert 1.9415 <= margin <= 2.834
    assert sequence.high_T[-1] - 0.5 == pytest.approx(margin / 1000, rel=1e-9)


def test_observations_known_exactly_have_intervals_of_no_width() -> None:
    x = np.array([0.2, 0.4, 0.3])
    sequence = mean_sequence(x, x, x)
    assert sequence.low_T == pytest.approx([0.2, 0.3, 0.3], abs=1e-15)
    assert sequence.high_T == pytest.approx([0.2, 0.3, 0.3], abs=1e-15)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 120),
    st.sampled_from([0.5, 0.95]),
    st.sampled_from([0.0, 0.3, 3.0]),
    st.sampled_from([0.0, 0.05, 3.0]),
)
def test_limits_equal_those_of_the_slow_definition(
    seed: int, num: int, level: float, range_spread: float, guess_spread: float
) -> None:
    rng = np.random.default_rng(seed)
    low = -range_spread * rng.random(num)
    high = 1 + range_spread * rng.random(num)
    high[: rng.integers(0, 3)] = low[0]
    low = np.minimum(low, high)
    x = low + (high - low) * rng.beta(2, 5, num)
    guess = 0.3 + guess_spread * rng.normal(size=num)
    sequence = mean_sequence(x, low, high, level, guess_T=guess)
    for t in {1, num // 3 + 1, num}:
        rows = [column[:t].tolist() for column in (x, low, high, guess)]
        mirrored = [[-v for v in rows[i]] for i in (0, 2, 1, 3)]
        assert sequence.low_T[t - 1] == pytest.approx(slow_lower(rows, level), abs=1e-7)
        assert sequence.high_T[t - 1] == pytest.approx(-slow_lower(mirrored, level), abs=1e-7)


def test_one_step_of_the_process_never_gains_on_any_two_point_distribution() -> None:
    # Exact, for the slow definition above: over ranges, means, predictions and λ up to the last that is allowed.
    for high in (0.3, 1.0, 7.0):
        for p in (0.001, 0.1, 0.5, 0.9, 0.999):
            for place in (0.0, 0.01, 0.3, 0.7, 1.0):
                prediction, mean = place * high, p * high
                for share in (0.05, 0.5, 0.95, 0.999):
                    rate = share / max(prediction, 0.05 * high)
                    gain = sum(
                        chance * math.exp(rate * (x - mean) - slow_psi(rate, prediction) * (x - prediction) ** 2)
                        for x, chance in ((0.0, 1 - p), (high, p))
                    )
                    assert gain <= 1 + 1e-12


@pytest.mark.parametrize("make", SCENARIOS)
@pytest.mark.parametrize("level", [0.95, 0.6])
def test_looking_at_every_time_misses_no_more_often_than_stated(
    make: Callable[[np.random.Generator], tuple[Floats, Floats, Floats, Floats]], level: float
) -> None:
    def interval(x: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        sequence = mean_sequence(x, low, high, level)
        return sequence.low_T, sequence.high_T

    assert misses(make, interval, 300) <= most_misses(300, 1 - level)


def test_a_normal_interval_looked_at_every_time_fails_the_same_test() -> None:
    def interval(x: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        t = np.arange(1, x.size + 1)
        mean = np.cumsum(x) / t
        half = NORMAL_95 * np.sqrt(np.maximum(np.cumsum(x**2) / t - mean**2, 1e-3) / t)
        return mean - half, mean + half

    assert misses(drifting_batches, interval, 300) > most_misses(300, 0.05)


@pytest.mark.parametrize(("num", "most"), [(20, 4.0), (100, 2.6), (1000, 2.0), (5000, 2.0)])
def test_intervals_of_batch_means_cost_a_small_multiple_of_the_normal_ones(num: int, most: float) -> None:
    x = np.random.default_rng(5).binomial(6, 0.25, num) / 6
    half = (upper_limit(x, 0, 1) - lower_limit(x, 0, 1)) / 2
    assert half <= most * NORMAL_95 * math.sqrt(0.25 * 0.75 / 6 / num)


@pytest.mark.parametrize("scale", [0.01, 3.0, 100.0])
def test_scaling_and_shifting_the_data_scales_and_shifts_the_limits(scale: float) -> None:
    x = np.random.default_rng(6).beta(2, 5, 300)
    plain = mean_sequence(x, 0, 1, guess_T=0.3)
    moved = mean_sequence(scale * (x - 4), scale * -4, scale * -3, guess_T=scale * -3.7)
    assert moved.low_T / scale + 4 == pytest.approx(plain.low_T, abs=1e-9)
    assert moved.high_T / scale + 4 == pytest.approx(plain.high_T, abs=1e-9)


def test_the_last_limits_equal_those_of_the_whole_sequence() -> None:
    rng = np.random.default_rng(7)
    x, low, high, guess = rng.random(200), -rng.random(200), 1 + 3 * rng.random(200), rng.random(200)
    sequence = mean_sequence(x, low, high, 0.9, guess_T=guess)
    assert lower_limit(x, low, high, 0.9, guess_T=guess) == pytest.approx(sequence.low_T[-1], abs=1e-12)
    assert upper_limit(x, low, high, 0.9, guess_T=guess) == pytest.approx(sequence.high_T[-1], abs=1e-12)


def test_a_later_interval_may_lie_beside_an_earlier_one_when_the_mean_moves() -> None:
    x = np.concatenate((np.zeros(300), np.ones(700)))
    sequence = mean_sequence(x, 0, 1)
    assert sequence.low_T[-1] > sequence.high_T[299]
    assert sequence.low_T[-1] <= 0.7 <= sequence.high_T[-1]


def test_a_higher_level_gives_a_wider_interval() -> None:
    x = np.random.default_rng(8).random(100)
    wide, narrow = mean_sequence(x, 0, 1, 0.99), mean_sequence(x, 0, 1, 0.9)
    assert np.all(wide.low_T <= narrow.low_T)
    assert np.all(wide.high_T >= narrow.high_T)
    assert np.any(wide.low_T < narrow.low_T)


def test_a_good_guess_narrows_the_interval_and_a_bad_one_does_not_break_it() -> None:
    base = np.linspace(0.1, 0.9, 400)
    x = base + np.random.default_rng(9).normal(0, 0.02, 400)
    low, high = base - 0.5, base + 0.5
    good = mean_sequence(x, low, high, guess_T=base)
    none = mean_sequence(x, low, high)
    bad = mean_sequence(x, low, high, guess_T=50.0)
    assert good.high_T[-1] - good.low_T[-1] < none.high_T[-1] - none.low_T[-1]
    assert bad.low_T[-1] <= base.mean() <= bad.high_T[-1]


def test_a_range_that_outgrows_the_grid_leaves_only_the_range() -> None:
    x = np.zeros(50)
    high = np.ones(50)
    high[20:] = 4 * GRID_SPAN
    sequence = mean_sequence(x, -high, high)
    assert sequence.low_T[19] > -1
    assert sequence.low_T[20:] == pytest.approx((np.cumsum(-high) / np.arange(1, 51))[20:])
    assert sequence.high_T[20:] == pytest.approx((np.cumsum(high) / np.arange(1, 51))[20:])


def test_one_observation_gives_an_interval_within_its_range() -> None:
    sequence = mean_sequence([0.7], 0, 1)
    assert (sequence.low_T[0], sequence.estimate_T[0], sequence.high_T[0]) == (0.0, 0.7, 1.0)


@pytest.mark.parametrize(
    ("x", "low", "high", "level", "words"),
    [
        ([], 0, 1, 0.95, "at least one observation"),
        ([[0.5]], 0, 1, 0.95, "one-dimensional"),
        ([0.5, 2.0], 0, 1, 0.95, r"observation 1 is 2\.0, outside its range \[0\.0, 1\.0\]"),
        ([0.5], 1, 0, 0.95, "outside its range"),
        ([float("nan")], 0, 1, 0.95, "finite"),
        ([0.5], 0, float("inf"), 0.95, "finite"),
        ([0.5, 0.5], [0.0, 0.0, 0.0], 1, 0.95, r"low_T must be a scalar or have shape \(2,\)"),
        ([0.5], 0, 1, 95.0, r"level must be in \(0, 1\)"),
    ],
)
def test_what_cannot_be_bounded_is_refused_by_name(
    x: list[float], low: float, high: float, level: float, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        mean_sequence(x, low, high, level)
