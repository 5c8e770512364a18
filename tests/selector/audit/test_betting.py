"""The bet against a mean of zero: by hand, how often it is wrong, and where such a bet does not hold."""

import math

import numpy as np
import pytest

from selector.audit.asymptotic import MIN_OBSERVATIONS, asymptotic_margin
from selector.audit.betting import NUM_SHARES, SHARE_RATIO, TILT, TOP_SHARE, Floats, bet_against_zero
from selector.audit.confidence import mean_sequence
from tests.selector.audit.test_confidence import most_misses

NUM_RUNS, NUM_STEPS = 1_000, 200
FOLLOWED = 20  # observations by which a bettor that follows the policy sets its stake


def same(value: float, count: int) -> Floats:
    return np.full(count, value)


def slow_log_capital(x: list[float], low: list[float], high: list[float]) -> float:
    """One stake and one side at a time."""
    shares = [TOP_SHARE / SHARE_RATIO**j for j in range(NUM_SHARES)]
    whole, capital = sum(share**TILT for share in shares), 0.0
    for share in shares:
        for side in (1.0, -1.0):
            part = share**TILT / whole / 2
            for value, least, most in zip(x, low, high, strict=True):
                if least < 0 < most:
                    part *= 1 + side * share * value / (-least if side > 0 else most)
            capital += part
    return math.log(capital)


def test_capital_equals_that_of_the_slow_definition() -> None:
    rng = np.random.default_rng(3)
    low, high = -rng.random(40) * (rng.random(40) < 0.9), rng.random(40)
    x = np.where(low < 0, low + (high - low) * rng.random(40), 0.0)
    found = bet_against_zero(x, low, high)
    for t in (1, 7, 40):
        assert found.log_T[t - 1] == pytest.approx(slow_log_capital(*(list(part[:t]) for part in (x, low, high))))


def test_a_value_at_the_end_of_its_range_ruins_no_side() -> None:
    found = bet_against_zero(np.array([-1.0, 1.0]), same(-1.0, 2), same(1.0, 2))
    assert np.isfinite(found.log_T).all()


def test_nothing_is_staked_where_nothing_can_differ() -> None:
    assert bet_against_zero(np.zeros(3), np.zeros(3), np.zeros(3)).log_T.tolist() == pytest.approx([0.0, 0.0, 0.0])
    assert bet_against_zero(np.zeros(0), np.zeros(0), np.zeros(0)).log_T.size == 0


@pytest.mark.parametrize(
    ("x", "low", "high", "words"),
    [
        (np.array([2.0]), np.array([-1.0]), np.array([1.0]), "outside its range"),
        (np.array([np.nan]), np.array([-1.0]), np.array([1.0]), "finite"),
        (np.zeros(2), np.zeros(1), np.zeros(2), "alike"),
    ],
)
def test_what_cannot_be_bet_on_is_refused(x: Floats, low: Floats, high: Floats, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bet_against_zero(x, low, high)


def lopsided(rng: np.random.Generator, num_steps: int) -> tuple[Floats, Floats, Floats]:
    """Mean zero, ranges and spread that follow what came before."""
    x, low, high = np.zeros(num_steps), np.zeros(num_steps), np.zeros(num_steps)
    for i in range(num_steps):
        p = 0.1 if i and x[i - 1] > 0 else 0.4
        low[i], high[i] = -p * (1 + i / 50), (1 - p) * (1 + i / 50)
        x[i] = high[i] if rng.random() < p else low[i]
    return x, low, high


def test_a_null_that_holds_falls_no_more_often_than_stated() -> None:
    rng = np.random.default_rng(11)
    most = [bet_against_zero(*lopsided(rng, NUM_STEPS)).log_T.max() for _ in range(NUM_RUNS)]
    fallen = np.count_nonzero(np.array(most) >= math.log(1 / 0.1))
    assert fallen <= most_misses(NUM_RUNS, 0.1)


# A mean that moves: what the empirical-Bernstein sequence covers, and what a bet across policy steps does not.


def drifting(num_runs: int, num_steps: int) -> tuple[Floats, Floats]:
    """Batch means of 16 groups, (R, T), and the pool's mean at each step, (T,), as training goes."""
    mean_T = 0.15 + 0.7 / (1 + np.exp(-(np.arange(num_steps) - num_steps / 2) / (num_steps / 12)))
    x_RT = np.random.default_rng(20240601).binomial(16, mean_T, (num_runs, num_steps)) / 16
    return x_RT, mean_T


def betting_misses(x_RT: Floats, mean_T: Floats, alpha: float) -> int:
    """Runs in which a betting sequence excludes the running mean at some time.

    The candidate m is excluded when Π (1 + λ_i·(x_i − m)) reaches 1/α, with λ_i = (mean − m) / (variance + (mean − m)²)
    (Waudby-Smith and Ramdas, section 4.3), cut to half of what the range allows, where mean and variance are those of
    the FOLLOWED observations before: predictable, and so valid for a mean that stays. All runs at once; the candidate
    of time t is the truth then.
    """
    num_steps = x_RT.shape[1]
    truth_T = np.cumsum(mean_T) / np.arange(1, num_steps + 1)
    padded = np.concatenate([np.tile([0.0, 1.0], (x_RT.shape[0], FOLLOWED // 2)), x_RT[:, :-1]], axis=1)
    past_RTF = np.lib.stride_tricks.sliding_window_view(padded, FOLLOWED, axis=1)
    first_RT, second_RT = past_RTF.mean(axis=2), past_RTF.var(axis=2) + 1e-3
    missed_R = np.zeros(x_RT.shape[0], bool)
    for t in range(9, num_steps, 10):
        m = truth_T[t]
        away = first_RT[:, : t + 1] - m
        stake = np.clip(away / (second_RT[:, : t + 1] + away**2), -0.5 / (1 - m), 0.5 / m)
        missed_R |= np.log1p(stake * (x_RT[:, : t + 1] - m)).sum(axis=1) >= math.log(1 / alpha)
    return int(missed_R.sum())


def bernstein_misses(x_RT: Floats, mean_T: Floats, level: float) -> int:
    truth_T = np.cumsum(mean_T) / np.arange(1, mean_T.size + 1)
    found = (mean_sequence(x_T, 0.0, 1.0, level) for x_T in x_RT)
    return sum(bool(((truth_T < one.low_T) | (truth_T > one.high_T)).any()) for one in found)


def test_the_sequence_of_a_drifting_policy_holds_in_a_thousand_runs_looked_at_after_every_step() -> None:
    x_RT, mean_T = drifting(NUM_RUNS, NUM_STEPS)
    assert bernstein_misses(x_RT, mean_T, 0.95) <= most_misses(NUM_RUNS, 0.05)


def test_a_betting_sequence_across_policy_steps_fails_the_same_test() -> None:
    x_RT, mean_T = drifting(NUM_RUNS, NUM_STEPS)
    assert betting_misses(x_RT, mean_T, 0.05) > most_misses(NUM_RUNS, 0.05)


def test_that_betting_sequence_holds_while_the_policy_stands_still() -> None:
    x_RT = np.random.default_rng(5).binomial(16, 0.4, (NUM_RUNS, NUM_STEPS)) / 16
    assert betting_misses(x_RT, same(0.4, NUM_STEPS), 0.05) <= most_misses(NUM_RUNS, 0.05)


@pytest.mark.slow
def test_the_long_form_holds_too() -> None:
    x_RT, mean_T = drifting(NUM_RUNS, 1_500)
    assert bernstein_misses(x_RT, mean_T, 0.95) <= most_misses(NUM_RUNS, 0.05)


# The asymptotic sequence, which claims less


def test_the_asymptotic_margin_by_hand() -> None:
    x = np.tile([0.0, 1.0], 50)
    rho = math.sqrt((-2 * math.log(0.05) + math.log(-2 * math.log(0.05) + 1)) / 200)
    spread = 100 * rho**2 + 1
    expected = 0.5 * math.sqrt(2 * spread / (100**2 * rho**2) * math.log(math.sqrt(spread) / 0.05))
    assert asymptotic_margin(x, 0.5, 0.95) == pytest.approx(expected)
    assert asymptotic_margin(x[: MIN_OBSERVATIONS - 1], 0.5, 0.95) is None
    assert asymptotic_margin(same(0.5, 40), 0.5, 0.95) == 0.0


def test_the_asymptotic_sequence_of_a_drifting_policy_is_not_rejected_from_its_first_look_on() -> None:
    x_RT, mean_T = drifting(NUM_RUNS, NUM_STEPS)
    missed_R = np.zeros(NUM_RUNS, bool)
    for t in range(MIN_OBSERVATIONS, NUM_STEPS + 1, 5):
        truth = mean_T[:t].mean()
        margins = [asymptotic_margin(x_T[:t], 0.5, 0.95) for x_T in x_RT]
        missed_R |= np.abs(x_RT[:, :t].mean(axis=1) - truth) > np.array(margins, float)
    assert missed_R.sum() <= most_misses(NUM_RUNS, 0.05)
