"""Whether draws happen as often as they say, and whether weighted sums over draws come out right at any lag.

Bounds: `Z` standard errors of what is summed, with Bonferroni where many rows are looked at. The seeds are fixed, so
a failure is a change of the design and not bad luck.
"""

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import pytest

from selector.sampling.draw import draw, draw_uniform
from selector.sampling.draw_plan import DrawFrame, DrawPlan
from tests.selector.draw_cases import make_frame, make_plan, mask

Z = 4.0  # one in 16,000 for a single look
FAMILY_ERROR = 1e-3  # over all rows of one test


def assert_frequencies_match(frame: DrawFrame, utility_N: np.ndarray, plan: DrawPlan, num_draws: int) -> None:
    """Per row, tickets minus expected tickets over many indices, in standard errors; the audit's tickets as well."""
    num_rows = len(utility_N)
    excess_N, variance_N = np.zeros(num_rows), np.zeros(num_rows)
    audit_N, audit_expected = np.zeros(num_rows), 0.0
    for index in range(num_draws):
        drawn = draw(frame, utility_N, replace(plan, index=index))
        excess_N += np.bincount(drawn.rows_K, minlength=num_rows) - drawn.expected_N
        fraction_N = drawn.expected_N % 1.0
        variance_N += fraction_N * (1.0 - fraction_N)
        audit_N += np.bincount(drawn.rows_K[drawn.audit_K], minlength=num_rows)
        audit_expected += drawn.num_audit / drawn.eligible
    assert_within(excess_N, variance_N)
    eligible_N = drawn.expected_N > 0
    share = audit_expected / num_draws
    assert_within((audit_N - audit_expected)[eligible_N], np.full(eligible_N.sum(), num_draws * share * (1.0 - share)))


def assert_within(excess_N: np.ndarray, variance_N: np.ndarray) -> None:
    """Rows without variance exactly as expected, the others within the two-sided normal bound for all at once."""
    sure_N = variance_N < 1e-9
    np.testing.assert_allclose(excess_N[sure_N], 0.0, atol=1e-6)
    if sure_N.all():
        return
    z_N = excess_N[~sure_N] / np.sqrt(variance_N[~sure_N])
    assert np.abs(z_N).max() < NormalDist().inv_cdf(1.0 - FAMILY_ERROR / (2 * len(z_N)))


SKEWED = np.array([0.0, 1e-3, 0.02, 0.1, 0.3, 0.5, 1.0, 1.0, 2.0, 40.0] * 3)
CREDIT = np.tile([0, 0, 0, 1, 4], 6)
RESTING = np.repeat([0, 1, 2], [20, 6, 4])


@pytest.mark.parametrize(
    ("frame", "plan"),
    [
        (make_frame(30), make_plan(8, audit_share=0.25)),
        (make_frame(30), make_plan(8, audit_share=0.0, floor=0.05)),
        (make_frame(30), make_plan(25, audit_share=0.4)),
        (make_frame(30), make_plan(8, audit_share=0.05, refill=1)),
        (make_frame(30, blocked_N=mask(30, 3, 9, 19, 20), credit_N=CREDIT), make_plan(7, audit_share=0.15)),
        (make_frame(30, resting_code_N=RESTING), make_plan(9, audit_share=0.1, review_share=0.15)),
        (
            make_frame(30, resting_code_N=RESTING, due_N=mask(30, 22, 29), credit_N=CREDIT),
            make_plan(9, audit_share=0.1, review_share=0.15, divisor=16),
        ),
        (make_frame(30, resting_code_N=RESTING, due_N=mask(30, 22, 23, 24, 29)), make_plan(3)),
        (make_frame(30, resting_code_N=RESTING), make_plan(26, audit_share=0.2, short="fill")),
        (make_frame(30, credit_N=CREDIT), make_plan(6, audit_share=0.3, exact_uniform=True)),
        (make_frame(30, credit_N=CREDIT), make_plan(70, audit_share=0.1, allow_repeat=True)),
    ],
    ids=[
        "skewed",
        "no audit",
        "mostly overlap",
        "refill",
        "in flight with credit",
        "resting",
        "due",
        "due without audit",
        "fill",
        "exact",
        "repeats",
    ],
)
def test_prompts_are_drawn_as_often_as_their_chances_say(frame: DrawFrame, plan: DrawPlan) -> None:
    assert_frequencies_match(frame, SKEWED, plan, 800)


def test_prompts_of_a_pool_in_blocks_are_drawn_as_often_as_their_chances_say() -> None:
    # Above 2^14 rows neighbours stay together; groups of rows are looked at, as single ones are drawn too rarely.
    num_rows, num_groups, num_draws = 20_001, 40, 250
    rng = np.random.default_rng(3)
    utility_N = rng.random(num_rows) ** 5
    group_N = rng.integers(0, num_groups, num_rows)
    plan = make_plan(256, audit_share=0.1)
    excess, variance = np.zeros(num_groups), np.zeros(num_groups)
    for index in range(num_draws):
        drawn = draw(make_frame(num_rows), utility_N, replace(plan, index=index))
        pi_G = np.bincount(group_N, weights=drawn.inclusion_N, minlength=num_groups)
        excess += np.bincount(group_N[drawn.rows_K], minlength=num_groups) - pi_G
        # Poisson sampling of the same chances: systematic sampling of shuffled groups is at most about as variable.
        variance += np.bincount(group_N, weights=drawn.inclusion_N * (1 - drawn.inclusion_N), minlength=num_groups)

    assert_within(excess, variance)


def test_uniform_draws_take_every_eligible_prompt_alike_and_every_pair() -> None:
    frame, plan = make_frame(12, blocked_N=mask(12, 0, 1)), make_plan(3)
    num_draws = 2500
    pairs = np.zeros((12, 12))
    for index in range(num_draws):
        chosen_N = mask(12, *draw_uniform(frame, replace(plan, index=index)).rows_K.tolist())
        pairs += np.outer(chosen_N, chosen_N)

    singles, both = 3 / 10, 3 * 2 / (10 * 9)
    assert_within(np.diag(pairs)[2:] - num_draws * singles, np.full(10, num_draws * singles * (1 - singles)))
    upper = pairs[2:, 2:][np.triu_indices(10, 1)]
    assert_within(upper - num_draws * both, np.full(45, num_draws * both * (1 - both)))


def test_small_pools_draw_every_pair_sooner_or_later() -> None:
    # A fixed order would draw rows 5 apart together for ever: 2 of 10 with equal chances.
    pairs = {
        tuple(sorted(draw(make_frame(10), np.ones(10), make_plan(2, index=index)).rows_K.tolist()))
        for index in range(600)
    }

    assert len(pairs) == 45


# Sums over draws, with prompts in flight


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Over one simulated run, for a fixed quantity x of each prompt."""

    weighted: float  # Σ_t (1/K) Σ weight·x over tickets
    expected: float  # Σ_t of its expectation given what happened before t
    open_credit: float  # (1/N) Σ_blocked c·x after the last draw
    exact: float  # draws times the mean of x


def simulate(seed: int, lag: int, plan: DrawPlan, *, num_rows: int = 40, num_draws: int = 16) -> Sums:
    """Prompts drawn at t are blocked for the next `lag` draws. Utilities follow x and what was drawn."""
    rng = np.random.default_rng(seed)
    x_N = rng.random(num_rows) ** 2
    utility_N = x_N + 0.05
    credit_N = np.zeros(num_rows, np.int32)
    free_from_N = np.zeros(num_rows, np.int64)
    resting_N = rng.random(num_rows) < 0.2
    weighted = expected = 0.0
    for t in range(num_draws):
        blocked_N = free_from_N > t
        frame = make_frame(
            num_rows,
            blocked_N=blocked_N,
            credit_N=credit_N,
            resting_code_N=resting_N & (plan.review_share > 0),
            due_N=resting_N & (np.arange(num_rows) % 10 == t % 10) & (plan.review_share > 0),
        )
        drawn = draw(frame, utility_N, replace(plan, seed=seed, index=t))
        weighted += float(drawn.ht_weight_K @ x_N[drawn.rows_K]) / len(drawn.rows_K)
        expected += float(((1 + credit_N) * x_N)[~blocked_N].sum()) / num_rows
        credit_N = np.where(blocked_N, credit_N + 1, 0).astype(np.int32)
        free_from_N[drawn.rows_K] = t + 1 + lag
        utility_N = utility_N * np.where(np.isin(np.arange(num_rows), drawn.rows_K), 0.5 + x_N, 1.05)
    return Sums(
        weighted=weighted,
        expected=expected,
        open_credit=float(credit_N @ x_N) / num_rows,
        exact=num_draws * float(x_N.mean()),
    )


@pytest.mark.parametrize("lag", [0, 1, 4])
@pytest.mark.parametrize(
    "plan",
    [
        make_plan(6, audit_share=0.2),
        make_plan(6, audit_share=0.0),
        make_plan(6, audit_share=0.2, review_share=0.1),
        make_plan(6, audit_share=0.2, exact_uniform=True),
        make_plan(6, audit_share=0.1, refill=1, divisor=32),
    ],
    ids=["audit", "no audit", "revisits", "exact", "refills cut to four"],
)
def test_weighted_sums_over_draws_are_unbiased_at_any_lag(lag: int, plan: DrawPlan) -> None:
    runs = [simulate(seed, lag, plan) for seed in range(30)]

    # The part that is known before each draw needs no statistics.
    for run in runs:
        assert run.expected + run.open_credit == pytest.approx(run.exact, rel=1e-12)
    error = np.array([run.weighted + run.open_credit - run.exact for run in runs])
    standard_error = error.std(ddof=1) / np.sqrt(len(runs))
    assert abs(error.mean()) < Z * standard_error
    # The test can see a bias: an error of a twelfth of the sum would be noticed.
    assert Z * standard_error < np.mean([run.exact for run in runs]) / 12


@pytest.mark.parametrize("lag", [1, 4])
def test_uniform_draws_are_unbiased_at_any_lag(lag: int) -> None:
    num_rows, num_draws = 40, 24
    errors = []
    for seed in range(80):
        x_N = np.random.default_rng(seed).random(num_rows)
        credit_N, free_from_N = np.zeros(num_rows, np.int32), np.zeros(num_rows, np.int64)
        total = 0.0
        for t in range(num_draws):
            blocked_N = free_from_N > t
            frame = make_frame(num_rows, blocked_N=blocked_N, credit_N=credit_N)
            drawn = draw_uniform(frame, make_plan(6, seed=seed, index=t))
            total += float(drawn.weight_K @ x_N[drawn.rows_K]) / len(drawn.rows_K)
            credit_N = np.where(blocked_N, credit_N + 1, 0).astype(np.int32)
            free_from_N[drawn.rows_K] = t + 1 + lag
        errors.append(total + float(credit_N @ x_N) / num_rows - num_draws * float(x_N.mean()))

    assert abs(np.mean(errors)) < Z * np.std(errors, ddof=1) / np.sqrt(len(errors))


def test_an_exact_run_in_a_steady_state_needs_no_weights() -> None:
    # Once as many prompts come back each draw as go out, K(1+c)/(N·π) is 1 for every ticket, as handed out.
    num_rows, lag = 40, 3
    credit_N, free_from_N = np.zeros(num_rows, np.int32), np.zeros(num_rows, np.int64)
    for t in range(30):
        blocked_N = free_from_N > t
        frame = make_frame(num_rows, blocked_N=blocked_N, credit_N=credit_N)
        drawn = draw(frame, np.ones(num_rows), make_plan(5, audit_share=0.2, exact_uniform=True, index=t))
        if t > lag:
            np.testing.assert_allclose(drawn.ht_weight_K, 1.0, atol=1e-9)
        credit_N = np.where(blocked_N, credit_N + 1, 0).astype(np.int32)
        free_from_N[drawn.rows_K] = t + 1 + lag


def test_a_second_look_at_stored_chances_agrees_to_the_bit() -> None:
    rng = np.random.default_rng(9)
    frame = make_frame(3000, blocked_N=rng.random(3000) < 0.1, credit_N=rng.integers(0, 4, 3000))
    utility_N = rng.random(3000) ** 4
    plan = make_plan(512, audit_share=0.1)

    one, two = (draw(frame, utility_N.copy(), plan) for _ in range(2))

    assert one.rows_K.tobytes() == two.rows_K.tobytes()
    assert one.inclusion_N.tobytes() == two.inclusion_N.tobytes()
    assert one.weight_K.tobytes() == two.weight_K.tobytes()
