"""Own and implicit evidence: pseudo-counts at rest, the published recursion over the whole pool, and ability."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.base import Column, FloatArray
from predictors.beta_with_reference import BetaWithReference
from predictors.registry import build_estimator
from tests.predictors.groups import groups, one_by_one, random_history


def referenced(weak_N: FloatArray, strong_N: FloatArray, **options: float) -> BetaWithReference:
    made = build_estimator("beta_with_reference", options)
    assert isinstance(made, BetaWithReference)
    made.resize(np.zeros(weak_N.size, dtype=np.int32))
    made.attach({"weak": Column(value_N=weak_N), "strong": Column(value_N=strong_N)})
    return made


def pseudo_counts(made: BetaWithReference) -> FloatArray:
    """alpha + beta of each row."""
    beliefs = made.beliefs()
    return beliefs.mean_N * (1 - beliefs.mean_N) / beliefs.variance_N - 1


@pytest.mark.parametrize(("scored", "at_rest"), [(16, 82), (8, 50)])
def test_the_pseudo_counts_of_the_published_defaults_at_rest(scored: int, at_rest: float) -> None:
    """(2 l + r m) / l = 18 without any group, (2 l + (1 - r) n + r m) / l with one at each step."""
    made = referenced(np.zeros(2), np.ones(2))
    for version in range(80):
        made.advance(version)
        made.observe(groups([0], [scored / 2], scored=scored, version=version))

    np.testing.assert_allclose(pseudo_counts(made), [at_rest, 18], rtol=1e-6)
    assert made.beliefs().n_eff_N[1] == 0


def test_the_first_steps_by_hand() -> None:
    """c = (.5 - .2) / (.8 - .2) = .5, so p~ = .4 for the second row: alpha = 1 + .2 * 16 * .4."""
    made = referenced(np.array([0.2, 0.1]), np.array([0.8, 0.7]))
    made.observe(groups([0], [4]))
    first = made.beliefs()
    made.advance(1)
    waiting = made.beliefs()
    made.observe(groups([0], [8], version=1))
    second = made.beliefs()

    # Own row: .8 * 4 + .2 * 16 / 2 on either side. Between two steps nothing moves.
    np.testing.assert_allclose(first.mean_N, [0.5, (1 + 3.2 * 0.4) / 5.2], rtol=1e-6)
    np.testing.assert_array_equal(waiting.mean_N, first.mean_N)
    assert first.n_eff_N[0] == pytest.approx(9.6)
    # Step 2: c = .9 * .5 + .1 * (1 - .2) / .6, own 4.8 fades to 3.84, plus .8 * 8 + 3.2 successes.
    ability = 0.45 + 0.1 * 0.8 / 0.6
    average = (0.8 * 0.5 + ability) / 1.8
    assert second.mean_N[0] == pytest.approx((1 + 3.84 + 9.6) / (2 + 2 * 3.84 + 9.6))
    assert second.mean_N[1] == pytest.approx((1 + 3.2 * 1.8 * (0.1 + 0.6 * average)) / (2 + 3.2 * 1.8), rel=1e-6)


def published(
    rates: list[dict[int, float]], weak_N: FloatArray, strong_N: FloatArray, *, rollouts: int
) -> tuple[FloatArray, FloatArray]:
    """alpha and beta of the whole pool, worked through at every step, as the original does."""
    alpha, beta, ability = np.ones(weak_N.size), np.ones(weak_N.size), None
    for observed in rates:
        rows = list(observed)
        found = (np.mean([*observed.values()]) - weak_N[rows].mean()) / (strong_N[rows].mean() - weak_N[rows].mean())
        ability = found if ability is None else 0.9 * ability + 0.1 * found
        implied = np.clip(weak_N + (strong_N - weak_N) * ability, 0, 1)
        own, own_failed = np.zeros(weak_N.size), np.zeros(weak_N.size)
        for row, rate in observed.items():
            implied[row], own[row], own_failed[row] = rate, rollouts * rate, rollouts * (1 - rate)
        alpha = 0.8 * alpha + 0.2 + 0.8 * own + 0.2 * 16 * implied
        beta = 0.8 * beta + 0.2 + 0.8 * own_failed + 0.2 * 16 * (1 - implied)
    return alpha, beta


@pytest.mark.parametrize(("ability", "tolerance"), [(0.25, 1e-6), (1.4, 1e-6), (None, 0.003)])
def test_the_recursion_over_the_whole_pool_is_reproduced(ability: float | None, tolerance: float) -> None:
    """Exactly where ability stands still, also beyond the strong reference; within .003 where it drifts by .5 in 60."""
    rng = np.random.default_rng(0)
    weak_N = np.round(rng.uniform(0.0, 0.4, 50), 3)
    strong_N = np.round(weak_N + rng.uniform(0.2, 0.4, 50), 3)
    made = referenced(weak_N, strong_N)
    history = []
    for version in range(60):
        rows = np.sort(rng.choice(50, 6, replace=False))
        level = ability if ability is not None else 0.3 + version / 120
        rate = weak_N[rows] + level * (strong_N[rows] - weak_N[rows])
        if ability is None:
            rate = rng.binomial(16, rate) / 16
        made.advance(version)
        made.observe(groups(rows, 16 * rate, scored=16, version=version))
        history.append(dict(zip(rows.tolist(), rate.tolist(), strict=True)))
    alpha, beta = published(history, weak_N, strong_N, rollouts=16)

    np.testing.assert_allclose(made.beliefs().mean_N, alpha / (alpha + beta), atol=tolerance)
    np.testing.assert_allclose(pseudo_counts(made), alpha + beta, rtol=1e-6)


@given(st.integers(0, 10**6), st.floats(0.05, 1.0), st.floats(0.0, 1.0))
def test_lazy_sums_agree_with_sums_over_all_steps(seed: int, forgetting: float, share: float) -> None:
    rng = np.random.default_rng(seed)
    weak_N, strong_N = rng.uniform(0, 0.5, 6), rng.uniform(0.5, 1, 6)
    made = referenced(weak_N, strong_N, forgetting=forgetting, reference_share=share, prior_successes=2.0)
    batches: dict[int, list[tuple[int, float]]] = {}
    own: list[tuple[int, int, float, int]] = []
    now = 0
    for now, observations in random_history(seed=seed, max_late=4):
        made.advance(now)
        made.observe(observations)
        for row, passes, scored, version in one_by_one(observations):
            batches.setdefault(now, []).append((row, passes / scored))
            own.append((version, row, passes, scored))

    ability: float | None = None
    kept = 1 - forgetting
    taken = now + 1 if now in batches else now  # steps that are over
    weights, weighted = 0.0, 0.0
    for step in range(taken):
        if step in batches:
            rows = [row for row, _ in batches[step]]
            gap = np.mean(strong_N[rows]) - np.mean(weak_N[rows])
            if gap > 0.01:
                found = float(np.mean([rate for _, rate in batches[step]]) - np.mean(weak_N[rows])) / float(gap)
                ability = found if ability is None else 0.9 * ability + 0.1 * found
        if ability is not None:
            weight = kept ** (taken - 1 - step)
            weights, weighted = weights + weight, weighted + weight * ability

    beliefs = made.beliefs()
    for row in range(6):
        mine = [one for one in own if one[1] == row]
        fades = [kept ** max(taken - 1 - version, 0) for version, *_ in mine]
        passed = sum(f * ((1 - share) * k + 16 * share * k / n) for f, (_, _, k, n) in zip(fades, mine, strict=True))
        total = sum(f * ((1 - share) * n + 16 * share) for f, (_, _, _, n) in zip(fades, mine, strict=True))
        left = max(weights - sum(fades), 0.0) * 16 * share
        level = weighted / weights if weights else 0.0
        implied = min(max(weak_N[row] + level * (strong_N[row] - weak_N[row]), 0.0), 1.0)
        assert beliefs.mean_N[row] == pytest.approx((2 + passed + left * implied) / (3 + total + left), abs=1e-6)


def test_a_pool_without_references_borrows_its_own_smoothed_pass_rate() -> None:
    rng = np.random.default_rng(1)
    made = build_estimator("beta_with_reference", {})
    made.resize(np.zeros(400, dtype=np.int32))
    for version in range(60):
        made.advance(version)
        made.observe(groups(np.arange(200), rng.binomial(8, 0.3, 200), version=version))

    # 18 pseudo-counts, 16 of them at .3; the sd of a step's mean is .0115, smoothed by .9 about .003.
    assert made.beliefs().mean_N[399] == pytest.approx((1 + 16 * 0.3) / 18, abs=0.012)


def test_good_references_make_up_for_prompts_never_tried() -> None:
    """True rates half-way between both references: an untried prompt is known, up to the two counts of the prior."""
    rng = np.random.default_rng(2)
    weak_N, strong_N = rng.uniform(0, 0.4, 400), rng.uniform(0.6, 1, 400)
    made = referenced(weak_N, strong_N)
    truth_N = (weak_N + strong_N) / 2
    for version in range(60):
        made.advance(version)
        made.observe(groups(np.arange(200), rng.binomial(8, truth_N[:200]), version=version))

    error_N = made.beliefs().mean_N[200:] - truth_N[200:]
    assert np.abs(error_N).max() < 0.2 * 2 / 18 + 0.03


def test_a_step_whose_references_agree_says_nothing_of_ability() -> None:
    made = referenced(np.array([0.5, 0.2]), np.array([0.505, 0.9]))
    made.observe(groups([0], [8]))

    assert made.beliefs().variance_N[1] == pytest.approx(1 / 12)
    made.advance(1)
    made.observe(groups([1], [4], version=1))
    assert made.beliefs().mean_N[1] == pytest.approx(0.5)
    assert pseudo_counts(made)[1] == pytest.approx(2 + 0.8 * 8 + 3.2)


def test_what_is_left_alone_keeps_the_implicit_evidence_only() -> None:
    made = referenced(np.array([0.0, 0.0]), np.array([1.0, 1.0]))
    made.observe(groups([0], [8]))
    made.advance(200)

    np.testing.assert_allclose(pseudo_counts(made), 18)
    assert 0 < made.beliefs().n_eff_N[0] < 0.01


def test_references_are_kept_in_the_state_and_new_rows_have_the_ends() -> None:
    made = referenced(np.array([0.25, 0.5]), np.array([0.75, 1.0]))
    made.resize(np.zeros(3, dtype=np.int32))
    state = made.state()

    np.testing.assert_array_equal(state["weak_N"], np.array([0.25, 0.5, 0.0]))
    np.testing.assert_array_equal(state["strong_N"], np.array([0.75, 1.0, 1.0]))


def test_a_prompt_without_references_or_with_no_rate_has_the_ends() -> None:
    made = referenced(np.array([0.25, np.nan, 1.1]), np.array([np.nan, 0.75, 0.5]))
    np.testing.assert_array_equal(made.state()["weak_N"], [0.25, 0.0, 0.0])
    np.testing.assert_array_equal(made.state()["strong_N"], [1.0, 0.75, 0.5])

    made.attach({"weak": Column(value_N=np.zeros((3, 2)))})
    np.testing.assert_array_equal(made.state()["weak_N"], np.zeros(3))
    np.testing.assert_array_equal(made.state()["strong_N"], np.ones(3))


def test_references_for_other_rows_than_there_are_are_refused_and_nothing_changes() -> None:
    made = referenced(np.full(2, 0.25), np.ones(2))
    before = made.state()

    with pytest.raises(ValueError, match="column 'weak' has 3 entries for 2 rows"):
        made.attach({"weak": Column(value_N=np.zeros(3))})
    for name, array in made.state().items():
        np.testing.assert_array_equal(array, before[name])
