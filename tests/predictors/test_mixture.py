"""The default estimator: against the average of its experts, and on simulated pools whose pass rates are known."""

import gc
import tracemalloc

import numpy as np
import pytest

from predictors.base import Beliefs, FloatArray
from predictors.calibration import beta_binomial_log_loss
from predictors.experts import Experts, aged
from predictors.mixture import GROUPS_PER_STEP, MIN_WEIGHT, RETURN_RATE, SHARE_E1, SPEED_E1, Mixture
from predictors.reading import MIN_N_EFF
from predictors.value import informative_probability
from tests.predictors.groups import estimator, groups

LAG = 10


def mixture(num_rows: int, **options: float) -> Mixture:
    made = estimator("mixture", num_rows=num_rows, **options)
    assert isinstance(made, Mixture)
    return made


def visit(made: Mixture, version: int, pass_rate_N: FloatArray, rng: np.random.Generator) -> tuple[Beliefs, FloatArray]:
    """Beliefs before a group of 8 of every row at this version, and the passes that then came."""
    made.advance(version)
    beliefs, rows = made.beliefs(), np.arange(pass_rate_N.size)
    passes = rng.binomial(8, pass_rate_N).astype(float)
    made.observe(groups(rows, passes, version=version))
    return beliefs, passes


def mean_loss(beliefs: Beliefs, passes: FloatArray) -> float:
    scored = np.full(passes.size, 8)
    return float(beta_binomial_log_loss(beliefs.mean_N, beliefs.variance_N, passes, scored).mean())


def share_below(beliefs: Beliefs, pass_rate_N: FloatArray, *, steps: int = 4_000) -> FloatArray:
    """(N,) the belief's probability of a pass rate below the true one, by sums over arcsin(sqrt(p))."""
    concentration = beliefs.mean_N * (1 - beliefs.mean_N) / beliefs.variance_N - 1
    alpha, beta = beliefs.mean_N * concentration, (1 - beliefs.mean_N) * concentration
    psi = (np.arange(steps) + 0.5) / steps * np.pi / 2
    log_density = (2 * alpha - 1)[:, None] * np.log(np.sin(psi)) + (2 * beta - 1)[:, None] * np.log(np.cos(psi))
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    below = (density * (psi < np.arcsin(np.sqrt(pass_rate_N))[:, None])).sum(axis=1)
    return np.asarray(below / density.sum(axis=1))


def covered(beliefs: Beliefs, pass_rate_N: FloatArray) -> float:
    """Share of true pass rates inside the middle 90 % of their beliefs."""
    below = share_below(beliefs, pass_rate_N)
    return float(np.mean((below > 0.05) & (below < 0.95)))


def wandered(pass_rate_N: FloatArray, *, drift: float, noise: float, rng: np.random.Generator) -> FloatArray:
    """After LAG versions: log-odds drift, p wanders with its ends drawing it in."""
    odds = pass_rate_N / (1 - pass_rate_N) * np.exp(4 * drift * LAG)
    p = odds / (1 + odds)
    for _ in range(LAG):
        p = p + rng.normal(0, np.sqrt(4 * noise * p * (1 - p)))
        p = np.clip(p, 1e-6, 1 - 1e-6)
    return np.asarray(p)


def test_the_first_group_meets_the_prior_by_hand() -> None:
    """A pool that said nothing but this group: 8 of 8 makes Beta(a + 8, b), a and b its category's."""
    made = mixture(2)
    prior = made.beliefs()
    made.observe(groups([0], [8]))
    after = made.beliefs()
    concentration = after.mean_N[1] * (1 - after.mean_N[1]) / after.variance_N[1] - 1
    alpha = after.mean_N[1] * concentration

    assert prior.mean_N[0] == pytest.approx(0.5)
    assert after.mean_N[1] > 0.5
    assert after.mean_N[0] == pytest.approx((alpha + 8) / (concentration + 8), rel=1e-5)
    assert after.n_eff_N[0] == pytest.approx(8, rel=1e-4)


def test_reading_a_pool_gives_the_average_of_its_experts() -> None:
    """As long as nothing has aged, to the precision of what is stored."""
    rng = np.random.default_rng(0)
    made, pass_rate = mixture(300), rng.beta(0.5, 0.7, 300)
    for version in range(0, 200, LAG):
        visit(made, version, pass_rate, rng)
    (alpha, beta, weight), beliefs = known(made), made.beliefs()
    mean, overlap = Experts(
        mean_EB=alpha / (alpha + beta), overlap_EB=1 / (alpha + beta + 1), weight_EB=weight
    ).moments()

    np.testing.assert_allclose(beliefs.mean_N, mean, rtol=2e-3)
    np.testing.assert_allclose(beliefs.variance_N, overlap * mean * (1 - mean), rtol=2e-2)


def known(made: Mixture) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(E, N) alpha, beta and weight of the experts with a memory, as they are stored, for a pool of one category."""
    state, level = made.state(), untried_levels(made)
    alpha = np.stack([state[f"alpha_{name}_N"] for name in ("long", "middle", "short")]).astype(float) + level[0]
    beta = np.stack([state[f"beta_{name}_N"] for name in ("long", "middle", "short")]).astype(float) + level[1]
    weight = np.stack([state["weight_long_N"], state["weight_middle_N"]]).astype(float)
    return alpha, beta, np.concatenate([weight, 1 - weight.sum(axis=0, keepdims=True)])


def untried_levels(made: Mixture) -> tuple[float, float]:
    """alpha and beta of category 0 now, from the belief of a row that was never tried."""
    size = made.beliefs().mean_N.size
    grown = mixture(0)
    grown.load_state(made.state())
    grown.resize(np.zeros(size + 1, dtype=np.int32))
    belief = grown.beliefs(np.array([size]))
    mean, variance = belief.mean_N[0], belief.variance_N[0]
    concentration = mean * (1 - mean) / variance - 1
    return mean * concentration, (1 - mean) * concentration


@pytest.mark.parametrize(("drift", "factor"), [(1e-3, 1.2), (-1e-3, 1 / 1.2)])
def test_a_belief_ages_by_drift_and_wander_by_hand(drift: float, factor: float) -> None:
    """One row, known by Beta(a, b); its weights are the start's, so its speed is that of the three together."""
    made = mixture(1)
    made.observe(groups([0], [3]))
    now = made.beliefs()
    state = {**made.state(), "pace_drift": np.array(drift), "pace_log_odds": np.array(-7.0)}
    made.load_state(state)
    made.advance(50)
    later = made.beliefs()
    speed = float(np.sum(SHARE_E1 * SPEED_E1))
    r = now.variance_N[0] / (now.mean_N[0] * (1 - now.mean_N[0]))
    odds = now.mean_N[0] / (1 - now.mean_N[0]) * factor
    wander = made.pace.process_noise * speed * 50
    overlap = 1 - (1 - r) / (1 + 4 * wander)

    # The category moved with the drift too, and the row's alpha and beta stand on it: by far less than the row.
    assert later.mean_N[0] == pytest.approx(odds / (1 + odds), abs=0.01)
    found = later.variance_N[0] / (later.mean_N[0] * (1 - later.mean_N[0]))
    assert found == pytest.approx(overlap, rel=0.02)


def test_jumps_move_a_row_towards_its_category_by_hand() -> None:
    """Half of the jumps have happened after 1 / (RETURN_RATE q) versions; 60 rows failed, one passed everything."""
    made = mixture(61)
    made.observe(groups(np.arange(61), np.r_[np.zeros(60), 8]))
    made.load_state({**made.state(), "pace_drift": np.array(0.0), "pace_process_noise": np.array(1 / RETURN_RATE / 50)})
    level = untried_levels(made)
    row, share = np.array([60]), made.pace.jump_share
    made.load_state({**made.state(), "speed_N": np.zeros(61, dtype=np.float32)})  # nothing but jumps
    at_rest = made.beliefs(row)
    made.advance(50)
    after, target = made.beliefs(row), level[0] / sum(level)
    spread = target * (1 - target) / (sum(level) + 1)
    second = (1 - share / 2) * (at_rest.variance_N + at_rest.mean_N**2) + share / 2 * (spread + target**2)

    assert share > 0.05
    assert after.mean_N[0] == pytest.approx(at_rest.mean_N[0] + share / 2 * (target - at_rest.mean_N[0]), rel=1e-3)
    assert after.variance_N[0] == pytest.approx((second - after.mean_N**2)[0], rel=5e-3)


def test_a_first_group_does_not_age_what_was_not_there() -> None:
    early, late = mixture(1), mixture(1)
    for made, version in ((early, 0), (late, 500)):
        made.advance(version)
        made.observe(groups([0], [7], version=version))

    assert late.beliefs().mean_N[0] == early.beliefs().mean_N[0]
    assert late.beliefs().variance_N[0] == early.beliefs().variance_N[0]


def test_weights_return_to_the_start_and_then_follow_bayes_rule_by_hand() -> None:
    """One row: 20 steady groups and one 500 versions later, g = 1 / (1 + RETURN_RATE q lag); hardly any jumps."""
    made = mixture(1)
    for place in range(20):
        made.advance(place * LAG)
        made.observe(groups([0], [4], version=place * LAG))
    made.load_state({**made.state(), "pace_process_noise": np.array(1e-4), "pace_log_odds": np.array(-7.0)})
    (alpha, beta, weight), lag, pace = known(made), 500, made.pace
    gone = 1 - 1 / (1 + RETURN_RATE * 1e-4 * lag)
    mean, overlap = aged(alpha, beta, np.array([pace.drift * lag]), 1e-4 * SPEED_E1 * lag)
    returned = Experts(mean_EB=mean, overlap_EB=overlap, weight_EB=weight + gone * (SHARE_E1 - weight))
    last = groups([0], [6], version=19 * LAG + lag)
    made.observe(last)
    expected = returned.told(last, returned.chances(last), np.zeros(1)).weight_EB

    assert weight[0, 0] > 0.4
    assert 0.6 < gone < 0.7
    np.testing.assert_allclose(known(made)[2], expected, atol=2e-3)


def test_how_much_a_category_says_is_learned_where_single_groups_cannot_tell() -> None:
    """Groups of one rollout: their first round looks the same whether p is the same everywhere or 0 and 1."""
    rng = np.random.default_rng(11)
    alike, bimodal = mixture(1_000), mixture(1_000)
    for made, pass_rate in ((alike, np.full(1_000, 0.5)), (bimodal, (rng.random(1_000) < 0.5) * 0.98 + 0.01)):
        for _ in range(4):
            made.observe(groups(np.arange(1_000), rng.binomial(1, pass_rate), scored=1))

    assert alike.pace.strength > 2.0
    assert bimodal.pace.strength < 0.5


def test_a_million_rows_take_64_bytes_each_in_its_state_and_in_memory() -> None:
    num_rows = 1_000_000
    gc.collect()
    tracemalloc.start()
    made = mixture(num_rows)
    made.observe(groups(np.arange(0, num_rows, 250), 3))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    state = made.state()

    assert sum(array.nbytes for name, array in state.items() if name.endswith("_N")) == 64 * num_rows
    assert held < 64 * num_rows + 100_000


@pytest.mark.parametrize("later", [0, 8])
def test_what_a_category_turns_out_to_be_reaches_prompts_tried_before(later: int) -> None:
    made = mixture(401)
    made.observe(groups([0], [1], scored=2))
    before = made.beliefs().mean_N[0]
    made.observe(groups(np.arange(1, 401), later))

    assert (made.beliefs().mean_N[0] - before) * (later - 4) > 0.1


def test_static_pass_rates_are_recovered_with_honest_intervals() -> None:
    rng = np.random.default_rng(1)
    made, pass_rate = mixture(1_000), rng.beta(0.6, 0.8, 1_000)
    errors = {}
    for place in range(41):
        beliefs, _ = visit(made, place * LAG, pass_rate, rng)
        if place in (2, 10, 40):
            errors[place] = float(np.sqrt(np.mean((beliefs.mean_N - pass_rate) ** 2)))
            # sd of a share of 1,000 is .0095.
            assert 0.87 < covered(beliefs, pass_rate) < 0.95, place
            assert abs(np.mean(beliefs.mean_N - pass_rate)) < 0.01

    # With 8 n rollouts and nothing forgotten the error is sqrt(E[p (1-p)] / 8 n): .098, .044 and .022 with E = .14.
    assert errors[2] < 0.098
    assert errors[10] < 0.046
    assert errors[40] < 0.024
    assert made.pace.process_noise < 2e-6


def test_a_drift_and_a_wander_are_learned_and_followed_with_honest_intervals() -> None:
    rng = np.random.default_rng(2)
    made, pass_rate = mixture(1_000), rng.beta(1.0, 2.5, 1_000)
    for place in range(50):
        beliefs, _ = visit(made, place * LAG, pass_rate, rng)
        if place in (5, 20, 49):
            # The tails of the wander are thicker than a Beta's, and some rows come to stay at an end.
            assert 0.80 < covered(beliefs, pass_rate) < 0.95, place
            assert abs(np.mean(beliefs.mean_N - pass_rate)) < 0.015
        pass_rate = wandered(pass_rate, drift=6e-4, noise=4e-5, rng=rng)

    assert made.pace.drift == pytest.approx(6e-4, rel=0.35)
    assert made.pace.process_noise == pytest.approx(4e-5, rel=0.5)


@pytest.mark.parametrize("drift", [-1e-3, 1e-3])
def test_a_linear_drift_is_followed_better_than_without_learning_it(drift: float) -> None:
    rng = np.random.default_rng(3)
    made, plain = mixture(500), estimator("discounted_beta", num_rows=500)
    pass_rate, ours, theirs = rng.uniform(0.2, 0.8, 500), [], []
    for place in range(40):
        beliefs, passes = visit(made, place * LAG, pass_rate, rng)
        plain.advance(place * LAG)
        ours.append(mean_loss(beliefs, passes))
        theirs.append(mean_loss(plain.beliefs(), passes))
        plain.observe(groups(np.arange(500), passes, version=place * LAG))
        pass_rate = wandered(pass_rate, drift=drift, noise=0.0, rng=rng)

    assert np.mean(ours[10:]) < np.mean(theirs[10:]) - 0.02
    # Without any wander a drift is thought unlikely, and is drawn to 0; toward the ends it hardly shows.
    assert 0.3 < made.pace.drift / drift < 1.2


def test_a_pool_that_jumps_is_believed_to_jump() -> None:
    """Everything is drawn anew at version 200: unsure within four visits, then as good as before."""
    rng = np.random.default_rng(4)
    made, pass_rate, losses = mixture(1_000), rng.beta(0.6, 0.8, 1_000), []
    for place in range(40):
        if place == 20:
            pass_rate = rng.beta(0.8, 0.6, 1_000)
        beliefs, passes = visit(made, place * LAG, pass_rate, rng)
        losses.append(mean_loss(beliefs, passes))
    flat = np.log(9)  # of a belief that knows nothing

    assert losses[19] < losses[20] - 1.0
    assert losses[24] < flat
    assert losses[39] < losses[19] + 0.15
    assert 0.85 < covered(beliefs, pass_rate) <= 1.0


def test_a_whole_pool_in_one_report_is_back_within_three_visits_of_a_jump() -> None:
    """The pace learns in steps, so that what a thousand groups say at once counts as if they had come one by one."""
    rng = np.random.default_rng(4)
    made, pass_rate = mixture(1_000), rng.beta(0.6, 0.8, 1_000)
    for place in range(24):
        if place == 20:
            pass_rate = rng.beta(0.8, 0.6, 1_000)
        beliefs, _ = visit(made, place * LAG, pass_rate, rng)

    assert covered(beliefs, pass_rate) > 0.87  # the sd of a share of 1,000 at .9 is .0095


def test_a_large_report_is_the_same_as_its_steps_one_after_the_other() -> None:
    rng = np.random.default_rng(5)
    whole, parts, pass_rate = mixture(600), mixture(600), rng.beta(0.6, 0.8, 600)
    for version in (0, 10, 20):
        told = groups(np.arange(600), rng.binomial(8, pass_rate), version=version)
        whole.observe(told)
        for start in range(0, 600, GROUPS_PER_STEP):
            parts.observe(told.take(np.arange(start, min(start + GROUPS_PER_STEP, 600))))

    for name, array in whole.state().items():
        np.testing.assert_array_equal(array, parts.state()[name], err_msg=name)


def test_prompts_that_regress_after_mastery_are_noticed_within_three_groups() -> None:
    """A twentieth of the mastered prompts falls to .5, too few to change the pool's pace; sooner than by counting."""
    rng = np.random.default_rng(5)
    made, plain = mixture(1_000), estimator("discounted_beta", num_rows=1_000)
    pass_rate = np.r_[np.full(800, 0.99), rng.uniform(0.1, 0.9, 200)]
    for place in range(29):
        if place == 26:
            assert np.median(made.beliefs().mean_N[:800]) > 0.97
            pass_rate[:40] = 0.5
        _, passes = visit(made, place * LAG, pass_rate, rng)
        plain.advance(place * LAG)
        plain.observe(groups(np.arange(1_000), passes, version=place * LAG))

    regressed = made.beliefs(np.arange(40))
    assert regressed.mean_N.mean() < plain.beliefs(np.arange(40)).mean_N.mean() - 0.05
    assert regressed.mean_N.mean() < 0.72
    assert informative_probability(*moments(regressed), 8).mean() > 0.8
    assert made.beliefs().mean_N[40:800].mean() > 0.97


def moments(beliefs: Beliefs) -> tuple[FloatArray, FloatArray]:
    return beliefs.mean_N, beliefs.variance_N


def test_rows_that_changed_are_read_with_the_short_memory_and_steady_ones_with_the_long() -> None:
    rng = np.random.default_rng(6)
    made, pass_rate = mixture(1_000), rng.uniform(0.2, 0.8, 1_000)
    for place in range(40):
        visit(made, place * LAG, pass_rate, rng)
        pass_rate[:500] = np.clip(pass_rate[:500] + rng.normal(0, 0.12, 500), 0.05, 0.95)
    state, short = made.state(), known(made)[2][2]

    assert short[:500].mean() > 2 * short[500:].mean()
    assert state["speed_N"][:500].mean() > state["speed_N"][500:].mean()


@pytest.mark.parametrize("passes", [0, 8])
def test_groups_all_alike_for_long_leave_a_chance_of_a_mixed_one(passes: int) -> None:
    """In a pool of all kinds, 30 such groups in a row and a visit's time later."""
    rng = np.random.default_rng(7)
    made, pass_rate = mixture(500), rng.beta(0.6, 0.8, 500)
    pass_rate[0] = passes / 8
    for place in range(30):
        visit(made, place * LAG, pass_rate, rng)
    made.advance(300)
    chance = informative_probability(*moments(made.beliefs(np.array([0]))), 8)[0]

    assert 0.0005 < chance < 0.1


def test_a_group_that_no_expert_thought_possible_is_survived() -> None:
    made = mixture(3)
    for version in range(100):
        made.advance(version)
        made.observe(groups([0, 1], [100_000, 50_000], scored=100_000, version=version))
    made.observe(groups([0, 1], [0, 0], scored=100_000, version=99))
    beliefs = made.beliefs()

    assert np.isfinite(beliefs.mean_N).all()
    assert beliefs.mean_N[0] < 0.999
    assert all(np.isfinite(array).all() for array in made.state().values())


def test_an_expert_whose_weight_was_lost_comes_back() -> None:
    """All weight on the long memory, as stored; then groups that the short one is quicker to follow."""
    rng = np.random.default_rng(8)
    made = mixture(200)
    lost = {"weight_long_N": np.ones(200, dtype=np.float16), "weight_middle_N": np.zeros(200, dtype=np.float16)}
    for place in range(60):
        visit(made, place * LAG, np.full(200, 0.95), rng)
        steady = {"pace_process_noise": np.array(1e-4), "pace_log_odds": np.array(-7.0)}
        made.load_state({**made.state(), **lost, **steady})
    for passes in (5, 4, 5):
        made.observe(groups([0, 1], [passes, 8], version=590))  # no time to return in
    short = known(made)[2][2]

    assert short[0] > 20 * MIN_WEIGHT
    assert abs(short[1]) < 2 * MIN_WEIGHT


def test_ageing_of_the_kept_average_is_close_to_ageing_each_expert() -> None:
    rng = np.random.default_rng(9)
    made, pass_rate = mixture(400), rng.beta(0.6, 0.8, 400)
    for place in range(20):
        visit(made, place * LAG, pass_rate, rng)
        pass_rate = wandered(pass_rate, drift=6e-4, noise=4e-5, rng=rng)
    made.load_state({**made.state(), "pace_log_odds": np.array(-7.0)})  # no jumps
    lag = 100
    made.advance(190 + lag)
    beliefs, pace, (alpha, beta, weight) = made.beliefs(), made.pace, known(made)
    wander = np.broadcast_to(pace.process_noise * SPEED_E1 * lag, alpha.shape)
    mean, overlap = aged(np.maximum(alpha, 0.05), np.maximum(beta, 0.05), np.full(400, pace.drift * lag), wander)
    gone = 1 - 1 / (1 + RETURN_RATE * pace.process_noise * lag)
    weight = weight + gone * (SHARE_E1 - weight)
    exact_mean, exact_overlap = Experts(mean_EB=mean, overlap_EB=overlap, weight_EB=weight).moments()

    np.testing.assert_allclose(beliefs.mean_N, exact_mean, atol=0.02)
    found = beliefs.variance_N / (beliefs.mean_N * (1 - beliefs.mean_N))
    np.testing.assert_allclose(found, exact_overlap, rtol=0.35)
    assert np.mean(found / exact_overlap) == pytest.approx(1.0, abs=0.1)


def test_a_row_left_alone_for_ever_is_nearly_known_to_have_gone_to_an_end_but_not_to_which() -> None:
    made = mixture(2)
    made.observe(groups([0], [3]))
    made.load_state({**made.state(), "pace_drift": np.array(0.0), "pace_log_odds": np.array(-7.0)})
    before = made.beliefs()
    made.advance(10**12)
    after = made.beliefs()

    assert after.mean_N[0] == pytest.approx(before.mean_N[0], rel=1e-5)
    assert after.variance_N[0] / (after.mean_N[0] * (1 - after.mean_N[0])) == pytest.approx(0.999, abs=1e-5)
    assert after.n_eff_N[0] == pytest.approx(MIN_N_EFF)
    assert after.lag_N.tolist() == [10**12, -1]
