"""Designs whose size varies: their chances against brute force, against the walk they stand for, and over many draws.

Bounds as in `test_draw_statistics`.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.batches.observations import observation_ranges
from selector.config import Sampler
from selector.sampling import random_size
from selector.sampling.draw import draw
from selector.sampling.draw_plan import DrawFrame, DrawPlan, ShortReason
from selector.sampling.random_size import LEVELS, SMALL, Sizes, count_law, expected_without, keep_chance
from tests.selector.draw_cases import make_frame, make_plan, mask, random_cases
from tests.selector.engine_cases import Session, make_config, make_policy, make_pool, redraw
from tests.selector.sampling.test_draw_statistics import CREDIT, SKEWED, assert_within, simulate

SAMPLERS: tuple[Sampler, ...] = ("poisson", "bernoulli", "categorical")
Z = 4.0
FRAMES = {
    "plain": make_frame(30),
    "in flight, owed and due": make_frame(
        30, blocked_N=mask(30, 1, 9, 19, 20), credit_N=CREDIT, due_N=mask(30, 2, 9, 28)
    ),
}


def counts_by_brute_force(keep_N: np.ndarray) -> np.ndarray:
    """(N + 1,) chances of 0..N kept rows, row by row."""
    law = np.ones(1)
    for keep in keep_N.tolist():
        law = np.convolve(law, [1.0 - keep, keep])
    return law


# The law of counts


chances = st.one_of(
    st.sampled_from([0.0, 0.01, 0.0625, 0.5, 1.0]),
    st.floats(0.0, SMALL, exclude_max=True, allow_subnormal=False),
    st.integers(int(SMALL * LEVELS), LEVELS).map(lambda k: k / LEVELS),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(chances, min_size=1, max_size=60))
def test_the_law_of_counts_is_that_of_a_convolution_with_and_without_each_row(values: list[float]) -> None:
    keep_N = np.array(values)
    law = count_law(keep_N)
    brute = counts_by_brute_force(keep_N)
    inside = brute[law.first : law.first + len(law.chance_M)]
    np.testing.assert_allclose(law.chance_M[: len(inside)], inside, atol=1e-14)
    assert inside.sum() == pytest.approx(1.0, abs=1e-14)

    (found_N,) = expected_without(keep_N, (lambda n: 1.0 / (1.0 + n),))

    expected = [
        float(counts_by_brute_force(np.delete(keep_N, i)) @ (1.0 / (1.0 + np.arange(len(values)))))
        for i in range(len(values))
    ]
    np.testing.assert_allclose(found_N, expected, atol=1e-12)


def test_the_law_of_counts_of_a_large_pool_has_its_mean_and_variance() -> None:
    keep_N = np.random.default_rng(0).random(50_000) ** 6
    keep_N = np.where(keep_N < SMALL, keep_N, np.round(keep_N * LEVELS) / LEVELS)
    law = count_law(keep_N)

    mean = float(law.chance_M @ law.count())
    assert law.chance_M.sum() == pytest.approx(1.0, abs=1e-11)
    assert mean == pytest.approx(keep_N.sum(), rel=1e-10)
    variance = float(law.chance_M @ (law.count() - mean) ** 2)
    assert variance == pytest.approx(float((keep_N * (1 - keep_N)).sum()), rel=1e-8)


# Chances by hand and by enumeration


def test_two_rows_for_one_place_by_hand() -> None:
    # k = (1, 1/2): the first stays for sure when it is alone, else with 1/2; the second is kept with 1/2 and then stays
    # with 1/2.
    plan = make_plan(1, sampler="bernoulli", floor=0.01)
    drawn = draw(make_frame(2), np.array([1.0, 0.5]), plan)

    np.testing.assert_allclose(drawn.inclusion_N, [0.75, 0.25], atol=1e-14)
    np.testing.assert_allclose(drawn.selected_inclusion_N, [0.75, 0.25], atol=1e-14)


def test_three_rows_with_an_audit_by_hand() -> None:
    # One place each for the sample and the audit. Sizes 2:1:1 and floor 0 in effect: k = (1/2, 1/4, 1/4), multiples of
    # 2^-12 all of them.
    keep = [0.5, 0.25, 0.25]
    expected_N, total = np.zeros(3), 0.0
    for kept in product([0, 1], repeat=3):
        chance = float(np.prod([k if one else 1 - k for one, k in zip(kept, keep, strict=True)]))
        inside = [i for i in range(3) if kept[i]]
        for sample in [[i] for i in inside] or [[]]:
            share = chance / max(len(inside), 1)
            outside = [i for i in range(3) if i not in sample]
            total += share * (len(sample) + 1)
            expected_N[sample] += share
            expected_N[outside] += share / len(outside)
    plan = make_plan(2, sampler="poisson", floor=1e-15, audit_share=0.5)
    drawn = draw(make_frame(3), np.array([2.0, 1.0, 1.0]), plan)

    np.testing.assert_allclose(drawn.inclusion_N, expected_N, atol=1e-12)
    assert drawn.inclusion_N.sum() == pytest.approx(total, abs=1e-12)


def test_draws_with_replacement_by_hand() -> None:
    # q = (3/4, 1/4), two draws: 1 − (1 − q)².
    drawn = draw(make_frame(2), np.array([3.0, 1.0]), make_plan(2, sampler="categorical", floor=1e-15))

    np.testing.assert_allclose(drawn.inclusion_N, [15 / 16, 7 / 16], atol=1e-12)


def test_the_bernoulli_design_is_the_walk_that_keeps_until_the_places_are_full() -> None:
    # The method as it is told: through a random permutation, each kept with its chance, until four are kept.
    rng = np.random.default_rng(5)
    keep_N = np.array([1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.125, 0.0625, 0.01, 0.01])
    num, kept_N = 40_000, np.zeros(10)
    for _ in range(num):
        order = rng.permutation(10)
        kept_N[order[rng.random(10) < keep_N[order]][:4]] += 1
    drawn = draw(make_frame(10), keep_N, make_plan(4, sampler="bernoulli", floor=0.01))

    expected_N = drawn.inclusion_N
    assert_within(kept_N - num * expected_N, num * expected_N * (1 - expected_N))


def test_keep_chances_are_relative_to_the_largest_utility_and_never_below_the_floor() -> None:
    gain_N = np.array([1.0, 1.0, 3.0, 0.0, 1.0])
    keep_N = keep_chance("bernoulli", np.array([8.0, 2.0, 1.0, 9.0, 0.0]), gain_N, 2, 0.01)

    assert keep_N.tolist() == [1.0, 0.25, 0.375, 0.0, 0.01]


def test_utilities_that_are_all_zero_prefer_nothing() -> None:
    for sampler in SAMPLERS:
        drawn = draw(make_frame(12), np.zeros(12), make_plan(3, sampler=sampler))
        np.testing.assert_allclose(drawn.inclusion_N, drawn.inclusion_N[0], rtol=1e-12)


# What holds for every draw


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_batches_hold_to_their_size_divisor_floor_and_due_rows_in_any_frame(sampler: Sampler) -> None:
    for seed, frame, utility_N, plan in random_cases(250):
        plan = replace(
            plan,
            top=False,
            candidates=None,
            sampler=sampler,
            floor=max(plan.floor, 0.01),
            divisor=1 if sampler == "categorical" else plan.divisor,
            exact_uniform=False,
            allow_repeat=False,
        )
        eligible_N = frame.frame_N & ~frame.blocked_N
        drawn = draw(frame, utility_N, plan)
        num_tickets = len(drawn.rows_K)
        assert num_tickets <= drawn.most <= plan.size, seed
        assert num_tickets * plan.group_size % plan.divisor == 0, seed
        assert (drawn.reason is None) == (num_tickets == plan.size), seed
        assert (drawn.reason is ShortReason.QUOTA) == (num_tickets < drawn.most), seed
        assert (num_tickets == 0) == (drawn.most == 0), seed
        if plan.short == "fill" and sampler != "categorical":
            assert num_tickets == drawn.most, seed
            assert drawn.inclusion_N.sum() == pytest.approx(num_tickets, rel=1e-10), seed
        assert len(set(drawn.rows_K.tolist())) == num_tickets, seed
        assert eligible_N[drawn.rows_K].all(), seed
        assert drawn.audit_K.sum() == drawn.num_audit, seed
        if drawn.most:
            assert (drawn.inclusion_N[eligible_N] > 0.0).all(), seed
        assert not drawn.inclusion_N[~eligible_N].any(), seed
        assert drawn.inclusion_N.max(initial=0.0) <= 1.0, seed
        sure = np.flatnonzero(drawn.inclusion_N == 1.0)
        assert np.isin(sure, drawn.rows_K).all(), seed
        due_N = eligible_N & frame.due_N
        assert drawn.due_unplaced == np.count_nonzero(drawn.inclusion_N[due_N] < 1.0), seed
        if drawn.num_audit and due_N.sum() <= drawn.most - drawn.num_audit:
            assert not drawn.due_unplaced, seed


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_draw_made_again_is_the_same_to_the_bit(sampler: Sampler) -> None:
    frame, plan = FRAMES["in flight, owed and due"], make_plan(8, sampler=sampler, audit_share=0.2)
    one, two = draw(frame, SKEWED, plan), draw(frame, SKEWED.copy(), plan)

    assert one.rows_K.tobytes() == two.rows_K.tobytes()
    assert one.inclusion_N.tobytes() == two.inclusion_N.tobytes()
    assert one.weight_K.tobytes() == two.weight_K.tobytes()


def test_draws_with_replacement_cannot_be_brought_to_a_multiple() -> None:
    with pytest.raises(ValueError, match="multiple of 2: draw with divisor 1"):
        draw(make_frame(30), SKEWED, make_plan(8, sampler="categorical", group_size=4, divisor=8))


# Many draws


@pytest.fixture
def worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chances that are the same in every draw of a test are worked out at the first."""
    known: dict[tuple[bytes, bytes, Sizes], tuple[np.ndarray, np.ndarray]] = {}
    work_out = random_size._inclusion

    def look_up(keep_N: np.ndarray, other_N: np.ndarray, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
        key = keep_N.tobytes(), other_N.tobytes(), sizes
        if key not in known:
            known[key] = work_out(keep_N, other_N, sizes)
        selected_N, inclusion_N = known[key]
        return selected_N.copy(), inclusion_N.copy()

    monkeypatch.setattr(random_size, "_inclusion", look_up)


def many(frame: DrawFrame, plan: DrawPlan, num_draws: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(T, N) whether each row was drawn, (T,) tickets, and π, which is the same in every draw."""
    drawn_TN = np.zeros((num_draws, len(SKEWED)))
    pi_N = draw(frame, SKEWED, plan).inclusion_N
    for index in range(num_draws):
        drawn = draw(frame, SKEWED, replace(plan, index=index))
        np.testing.assert_array_equal(drawn.inclusion_N, pi_N)
        drawn_TN[index, drawn.rows_K] = 1.0
    return drawn_TN, drawn_TN.sum(axis=1), pi_N


def assert_squares_follow_their_law(drawn_TN: np.ndarray, pi_N: np.ndarray) -> None:
    """Σz² of the second half of the draws, within the central 99.9 % of its law by simulation.

    z_N is normal with the correlations of the design, which the first half tells; a chi-squared law would take the
    rows for independent, and a fixed size makes them depend on each other.
    """
    varies_N = (pi_N > 1e-9) & (pi_N < 1.0 - 1e-9)
    half = len(drawn_TN) // 2
    scale_N = np.sqrt(pi_N * (1.0 - pi_N))[varies_N]
    known, looked_at = (part[:, varies_N] for part in (drawn_TN[:half], drawn_TN[half:]))
    root = np.linalg.cholesky(np.cov(known / scale_N, rowvar=False) + 1e-9 * np.eye(len(scale_N)))
    simulated = ((np.random.default_rng(0).standard_normal((20_000, len(scale_N))) @ root.T) ** 2).sum(axis=1)
    z_N = (looked_at.sum(axis=0) - len(looked_at) * pi_N[varies_N]) / (np.sqrt(len(looked_at)) * scale_N)
    low, high = np.quantile(simulated, [0.0005, 0.9995])
    assert low < float((z_N**2).sum()) < high


@pytest.mark.usefixtures("worked_out_once")
@pytest.mark.parametrize("num_draws", [1_000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("frame", "plan"),
    [
        (FRAMES["plain"], make_plan(8, audit_share=0.25)),
        (FRAMES["plain"], make_plan(8, audit_share=0.25, sampler="poisson")),
        (FRAMES["in flight, owed and due"], make_plan(9, sampler="poisson", divisor=24)),
        (FRAMES["plain"], make_plan(8, audit_share=0.25, sampler="bernoulli")),
        (FRAMES["in flight, owed and due"], make_plan(10, audit_share=0.2, sampler="bernoulli", short="fill")),
        (FRAMES["plain"], make_plan(8, audit_share=0.25, sampler="categorical")),
        (FRAMES["in flight, owed and due"], make_plan(9, sampler="categorical")),
    ],
    ids=[
        "systematic",
        "poisson with an audit",
        "poisson in threes",
        "bernoulli with an audit",
        "bernoulli filled up",
        "categorical with an audit",
        "categorical",
    ],
)
def test_prompts_are_drawn_as_often_as_their_chances_say(frame: DrawFrame, plan: DrawPlan, num_draws: int) -> None:
    drawn_TN, tickets_T, pi_N = many(frame, plan, num_draws)

    assert_within((drawn_TN - pi_N).sum(axis=0), num_draws * pi_N * (1.0 - pi_N))
    assert_squares_follow_their_law(drawn_TN, pi_N)
    # Σπ is the expected number of tickets.
    error = tickets_T.std(ddof=1) / np.sqrt(num_draws)
    assert abs(tickets_T.mean() - pi_N.sum()) <= Z * error + 1e-9


@pytest.mark.parametrize("lag", [0, 1, 4])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_weighted_sums_over_draws_are_unbiased_at_any_lag(sampler: Sampler, lag: int) -> None:
    plan = make_plan(6, audit_share=0.2, review_share=0.1, sampler=sampler)
    runs = [simulate(seed, lag, plan) for seed in range(20)]

    for run in runs:
        assert run.expected + run.open_credit == pytest.approx(run.exact, rel=1e-12)
    error = np.array([run.weighted + run.open_credit - run.exact for run in runs])
    standard_error = error.std(ddof=1) / np.sqrt(len(runs))
    assert abs(error.mean()) < Z * standard_error
    assert Z * standard_error < np.mean([run.exact for run in runs]) / 4


@pytest.mark.usefixtures("worked_out_once")
@pytest.mark.parametrize("sampler", [None, "poisson", "bernoulli"])
def test_the_second_moment_of_the_weighted_step_is_as_predicted(sampler: Sampler | None) -> None:
    # A ticket's step is normal with the size of its prompt; E (1/K) Σ (weight·g)² = (K/N²) Σ g²/π.
    rng = np.random.default_rng(4)
    size_N = np.sqrt(rng.beta(0.5, 0.5, 200) * 0.9 + 0.05)
    plan = make_plan(24, audit_share=0.125, floor=0.1, sampler=sampler, short="fill")
    frame, num_draws = make_frame(200), 300
    moment_T = np.empty(num_draws)
    pi_N = draw(frame, size_N, plan).inclusion_N
    for index in range(num_draws):
        drawn = draw(frame, size_N, replace(plan, index=index))
        step_K = drawn.ht_weight_K * size_N[drawn.rows_K] * rng.standard_normal(len(drawn.rows_K))
        moment_T[index] = float(step_K @ step_K) / len(step_K)
    predicted = 24 / 200**2 * float((size_N**2 / pi_N).sum())

    assert abs(moment_T.mean() - predicted) < Z * moment_T.std(ddof=1) / np.sqrt(num_draws)
    if sampler != "bernoulli":
        # In proportion to the size it is near its least, (E size)², and below uniform's E size².
        assert predicted < float((size_N**2).mean())


def test_the_worst_case_of_an_observation_is_over_all_sizes_that_the_design_can_have() -> None:
    policy = make_policy(design="poisson")
    session = Session(make_config(policy, audit_share=0.0, seed=1), make_pool(40))
    short = 0
    for index in range(6):
        request = session.request(index, 12)
        event = session.engine.draw(request, now=0.0)
        assert event is not None
        drawn = redraw(session.state, request, event.revisit_draws)
        beliefs = session.state.beliefs()
        expected, _ = observation_ranges(
            inclusion=drawn.expected,
            credit_N=session.state.rows["credit_N"],
            pass_rate_N=beliefs.mean_N,
            informative_N=beliefs.mean_N,
            eligible_N=drawn.inclusion_N > 0,
            num_tickets=12,
            num_audit=0,
            frame=40,
        )
        assert event.ranges["pass"] == list(expected.reweighted)
        short += len(event.row_K) < 12
        session.apply(event)
        session.answer_batch(session.state.batches[-1], lambda row, _, n: float(n < row % 5))
    assert short > 0
