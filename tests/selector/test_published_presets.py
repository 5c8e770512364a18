"""Presets of published methods: each makes the choice that its method documents, on a pool made by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from predictors.base import Observations
from predictors.hmm import Hmm
from predictors.registry import build_estimator
from predictors.value import expected_absolute_advantage
from selector.batches.drawing import due_revisits
from selector.policies import PRESETS, build_policy
from selector.sampling.designs import uniform_order_prefix
from selector.sampling.randomness import Stream, stream
from selector.types import PURPOSE_CODE, Purpose
from tests.predictors.hmm_states import chances
from tests.selector.engine_cases import Session, make_pool, redraw
from tests.selector.preset_cases import answered, config_of, passes_of, tried
from tests.selector.test_policies import make_beliefs


def test_band_keeps_groups_whose_share_passed_is_between_a_fifth_and_four_fifths() -> None:
    policy = build_policy(PRESETS["band"].config, weights="none", advantage="grpo")
    mean = [0.01, 0.05, 0.5]

    # 2 to 6 of 8 passes; 1, 2 and 3 of 4, as in PRIME.
    for group_size, kept in ((8, range(2, 7)), (4, range(1, 4))):
        expected = [sum(_binomial(group_size, k) * p**k * (1 - p) ** (group_size - k) for k in kept) for p in mean]
        np.testing.assert_allclose(policy.utility(make_beliefs(mean), group_size=group_size), expected, rtol=1e-9)


def test_mopps_has_the_posterior_of_the_groups_it_was_given() -> None:
    session = tried("mopps")
    beliefs, groups_N = session.state.beliefs(), session.state.rows["groups_N"]
    passes_N = np.array([passes_of(row) for row in range(60)])

    # Beta(1 + k, 1 + n - k) without forgetting: its mean and variance.
    alpha_N, beta_N = 1.0 + groups_N * passes_N, 1.0 + groups_N * (8 - passes_N)
    total_N = alpha_N + beta_N
    np.testing.assert_allclose(beliefs.mean_N, alpha_N / total_N)
    np.testing.assert_allclose(beliefs.variance_N, alpha_N * beta_N / total_N**2 / (total_N + 1))
    assert groups_N.max() >= 1
    assert groups_N.min() == 0


@pytest.mark.parametrize(("num_rows", "num_candidates"), [(400, 128), (60, 60)])
def test_mopps_takes_draws_from_the_posterior_nearest_to_a_half_among_candidates(
    num_rows: int, num_candidates: int
) -> None:
    session = tried("mopps", num_rows)
    state, key = session.state, (PURPOSE_CODE[Purpose.TRAIN], 4, 0)
    beliefs = state.beliefs()
    due = np.flatnonzero(due_revisits(state, state.revisit_draws)).tolist()
    concentration_N = beliefs.mean_N * (1 - beliefs.mean_N) / beliefs.variance_N - 1
    drawn_N = stream(0, Stream.BELIEF_DRAW, *key).beta(
        beliefs.mean_N * concentration_N, (1 - beliefs.mean_N) * concentration_N
    )
    # 16 for each of 8 places, or all there are.
    candidates = uniform_order_prefix(num_rows, num_candidates, stream(0, Stream.CANDIDATES, *key)).tolist()
    nearest = sorted((row for row in candidates if row not in due), key=lambda row: (drawn_N[row] - 0.5) ** 2)

    rows = session.draw(4, 8).event.row_K.tolist()

    assert sorted(rows) == sorted([*due, *nearest[: 8 - len(due)]])


def test_lilo_takes_what_was_never_tried_and_then_the_most_varied_last_groups() -> None:
    session = tried("lilo", num_rows=20)
    untried = 0
    while not session.state.rows["groups_N"].all():
        index = 4 + untried
        before_N = session.state.rows["groups_N"].copy()
        batch = session.draw(index, 8)
        # All but what is due comes from those never tried, as long as there are any.
        due = np.flatnonzero(due_revisits(session.state, session.state.revisit_draws))
        free = np.setdiff1d(batch.event.row_K, due)
        assert (before_N[free] == 0).sum() == min(len(free), int((before_N == 0).sum()) - len(due))
        answered(session, batch)
        untried += 1
    due = np.flatnonzero(due_revisits(session.state, session.state.revisit_draws))
    spread_N = np.array([passes_of(row) * (8 - passes_of(row)) for row in range(20)])
    chosen = np.setdiff1d(session.draw(30, 8).event.row_K, due)
    others = np.setdiff1d(np.arange(20), [*chosen.tolist(), *due.tolist()])

    # k(8 - k) of the last group; four times 8 candidates are the whole pool.
    assert spread_N[chosen].min() >= spread_N[others].max()


def test_kgps_takes_the_outcomes_expected_to_vary_most() -> None:
    session = tried("kgps", num_rows=40)
    beliefs = session.state.beliefs()
    due = np.flatnonzero(due_revisits(session.state, session.state.revisit_draws))
    expected_N = beliefs.mean_N * (1 - beliefs.mean_N) - beliefs.variance_N

    chosen = np.setdiff1d(session.draw(4, 8).event.row_K, due)
    others = np.setdiff1d(np.arange(40), [*chosen.tolist(), *due.tolist()])

    assert expected_N[chosen].min() >= expected_N[others].max() - 1e-12


def test_dps_takes_the_prompts_most_likely_to_be_partly_solved() -> None:
    session = tried("dps", num_rows=40, num_batches=8)
    estimator = session.state.estimator
    assert isinstance(estimator, Hmm)
    partial_N = chances(estimator, np.arange(40))[1]
    due = np.flatnonzero(due_revisits(session.state, session.state.revisit_draws))

    chosen = np.setdiff1d(session.draw(8, 8).event.row_K, due)
    others = np.setdiff1d(np.arange(40), [*chosen.tolist(), *due.tolist()])

    # 32 times 8 candidates are the whole pool.
    assert partial_N.std() > 0.05
    assert partial_N[chosen].min() >= partial_N[others].max() - 1e-9


def test_bots_takes_draws_from_its_belief_nearest_to_a_half() -> None:
    session = tried("bots", num_rows=40)
    beliefs = session.state.beliefs()
    due = np.flatnonzero(due_revisits(session.state, session.state.revisit_draws)).tolist()
    concentration_N = beliefs.mean_N * (1 - beliefs.mean_N) / beliefs.variance_N - 1
    drawn_N = stream(0, Stream.BELIEF_DRAW, PURPOSE_CODE[Purpose.TRAIN], 4, 0).beta(
        beliefs.mean_N * concentration_N, (1 - beliefs.mean_N) * concentration_N
    )
    nearest = [row for row in np.argsort(np.abs(drawn_N - 0.5)).tolist() if row not in due]

    assert sorted(session.draw(4, 8).event.row_K.tolist()) == sorted([*due, *nearest[: 8 - len(due)]])


def test_bots_has_confidence_without_evidence_as_published() -> None:
    session = Session(config_of("bots"), make_pool(60))
    for index in range(60):
        answered(session, session.draw(index, 4))
    session.step(60, 200)
    later = session.state.beliefs()

    # 2 + 0.2 · 16 / 0.2 pseudo-counts, at any pass rate, once what groups said has faded.
    concentration_N = later.mean_N * (1 - later.mean_N) / later.variance_N - 1
    np.testing.assert_allclose(concentration_N, 18.0, rtol=0.02)


def test_pcl_takes_the_pushed_values_nearest_to_one_half_whatever_came_back() -> None:
    """60 prompts, all of them candidates of 15 places; own groups are left out of its beliefs."""
    session = Session(config_of("pcl"), make_pool(60))
    answered(session, session.draw(0, 8))
    session.push(1, value={row: row / 59 for row in range(60)})

    batch = session.draw(1, 15, policy_version=1)

    nearest = np.argsort(np.abs(np.arange(60) / 59 - 0.5), kind="stable")[:15]
    in_flight = set(np.flatnonzero(session.state.in_flight_N > 0).tolist()) - set(batch.event.row_K.tolist())
    assert not in_flight
    assert set(batch.event.row_K.tolist()) == set(nearest.tolist())


def test_bots_reads_reference_rates_that_were_pushed() -> None:
    session = Session(config_of("bots"), make_pool(20))
    session.push(0, weak=dict.fromkeys(range(10), 0.1), strong=dict.fromkeys(range(10), 0.3))
    session.answer_batch(session.draw(0, 20, short="fill"), lambda row, _, n: float(n < 2))
    session.step(0, 3)
    before = session.state.beliefs().mean_N
    session.push(1, weak=dict.fromkeys(range(10), 0.8), strong=dict.fromkeys(range(10), 0.9))

    assert (session.state.beliefs().mean_N[:10] > before[:10]).all()
    assert (session.state.beliefs().mean_N[10:] == before[10:]).all()


def test_sec_draws_categories_by_the_advantages_expected_in_them() -> None:
    # Odd rows, one category, always pass; even rows pass half of the time.
    session = Session(config_of("sec", review_share=0.0), make_pool(60))
    for index in range(20):
        session.answer_batch(session.draw(index, 8), lambda row, _, n: float(row % 2 or n < 4))
    request = session.request(20, 8)
    period = session.state.revisit_draws
    drawn = redraw(session.state, request, period)
    due_N = due_revisits(session.state, period)
    beliefs = session.state.beliefs()
    worth = expected_absolute_advantage(beliefs.mean_N, beliefs.variance_N, 8, "grpo")

    even, odd = (drawn.inclusion_N[~due_N & (np.arange(60) % 2 == part)] for part in (0, 1))
    np.testing.assert_allclose(even, even[0])
    np.testing.assert_allclose(odd, odd[0])
    # A twentieth of the places is spread evenly, the rest in proportion.
    places, others = 8 - int(due_N.sum()), 60 - int(due_N.sum())
    expected_N = 0.95 * places * worth / worth[~due_N].sum() + 0.05 * places / others
    np.testing.assert_allclose(drawn.inclusion_N[~due_N], expected_N[~due_N], rtol=1e-6)
    assert even[0] > 1.5 * odd[0]


def test_pools_weigh_a_prompt_by_its_last_group_alone() -> None:
    policy = build_policy(PRESETS["pools"].config, weights="none", advantage="grpo")
    for group_size in (2, 4, 8, 16, 64):
        passes = np.arange(group_size + 1)
        estimator = build_estimator("last_mean", PRESETS["pools"].config.estimator_options)
        estimator.resize(np.zeros(group_size + 2, np.int32))
        for reports in (group_size - passes, passes):
            estimator.observe(
                Observations(
                    rows_B=passes,
                    passes_B=reports.astype(float),
                    scored_B=np.full(group_size + 1, group_size),
                    version_B=np.zeros(group_size + 1, np.int64),
                )
            )
        utility_N = policy.utility(estimator.beliefs(), group_size=group_size)

        # Hard up to a quarter, normal up to three quarters, easy above; one that was never tried is normal.
        share = passes / group_size
        assert utility_N.tolist() == [*np.where((share > 0.25) & (share <= 0.75), 1.0, 0.2).tolist(), 1.0]


def test_greso_keeps_prompts_by_their_runs_until_the_batch_is_full() -> None:
    session = tried("greso", num_rows=60, num_batches=12)
    run_N = session.state.estimator.beliefs().run_N
    assert run_N is not None
    assert {run_N.min() < 0, run_N.max() > 0} == {True}
    # Rows pass 0 to 8 of 8 times: those of 0 have a run of groups all wrong, those of 8 of groups all right.
    groups_N = session.state.rows["groups_N"]
    kind_N = np.select([np.arange(60) % 9 == 8, np.arange(60) % 9 == 0], [1, -1], 0)
    np.testing.assert_array_equal(run_N, kind_N * groups_N)
    request = session.request(12, 8)
    drawn = redraw(session.state, request, session.state.revisit_draws)
    due_N = due_revisits(session.state, session.state.revisit_draws)
    places = 8 - int(due_N.sum())
    # The method as it is told: through the prompts in random order, each kept with its chance, until the batch is full.
    keep_N = np.where(run_N == 0, 1.0, np.maximum(0.5 ** np.abs(run_N), 0.01))
    rng, num, kept_N = np.random.default_rng(1), 20_000, np.zeros(60)
    others = np.flatnonzero(~due_N)
    for _ in range(num):
        order = rng.permutation(others)
        kept_N[order[rng.random(len(order)) < keep_N[order]][:places]] += 1

    pi_N = drawn.inclusion_N
    assert (pi_N[due_N] == 1.0).all()
    error_N = np.sqrt(pi_N * (1 - pi_N) / num)[others]
    assert (np.abs(kept_N / num - pi_N)[others] < 4.5 * error_N + 1e-12).all()
    assert len(drawn.rows_K) == 8


def test_greso_skips_more_readily_once_a_kind_of_its_groups_reaches_its_share() -> None:
    session = Session(config_of("greso"), make_pool(16))
    # Of every batch of eight one group is all right and one all wrong: an eighth each, of 1/12 and 1/6 that are wanted.
    for index in range(5):
        batch = session.draw(index, 8)
        place = {row: place for place, row in enumerate(batch.event.row_K.tolist())}
        session.answer_batch(batch, lambda row, _, n: float(n < (8, 0, 4)[min(place[row], 2)]))  # noqa: B023
        assert session.state.controlled == batch.event.controlled

    # Nothing moves before every prompt could have had its turn, which it could at the end of two batches.
    keeps = [(b.event.controlled["easy_keep"], b.event.controlled["hard_keep"]) for b in session.state.batches]
    sizes = [len(b.event.row_K) for b in session.state.batches]
    passed = [sum(sizes[:index]) >= 16 for index in range(5)]
    moves = np.cumsum(passed)
    assert passed[1:3] == [False, True]
    assert [easy for easy, _ in keeps] == pytest.approx(0.5 - 0.01 * moves)
    assert [hard for _, hard in keeps] == pytest.approx(0.5 + 0.01 * moves)


def test_easy_and_hard_prompts_of_greso_have_chances_of_their_own() -> None:
    policy = build_policy(
        replace(PRESETS["greso"].config, easy_keep=0.5, hard_keep=0.8), weights="none", advantage="grpo"
    )
    beliefs = replace(make_beliefs([0.9, 0.1, 0.5, 0.01]), run_N=np.array([2, -2, 0, -100]))

    assert policy.utility(beliefs, group_size=8).tolist() == pytest.approx([0.25, 0.64, 1.0, 0.01])


def test_greso_needs_the_estimator_that_counts_runs() -> None:
    with pytest.raises(ValueError, match="estimator 'streak' counts, got 'mixture'"):
        build_policy(replace(PRESETS["greso"].config, estimator="mixture"), weights="none", advantage="grpo")


@pytest.mark.parametrize("value", [0.0, 1.5])
@pytest.mark.parametrize("name", ["easy_keep", "hard_keep"])
def test_chances_to_keep_are_chances(name: str, value: float) -> None:
    changes: dict[str, Any] = {name: value}
    policy = replace(PRESETS["greso"].config, **changes)
    with pytest.raises(ValueError, match=rf"{name} must be in \(0, 1\], got {value}"):
        build_policy(policy, weights="none", advantage="grpo")


def _binomial(n: int, k: int) -> int:
    return 1 if k == 0 else _binomial(n, k - 1) * (n - k + 1) // k
