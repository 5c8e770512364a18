from dataclasses import replace

import numpy as np
import pytest

from predictors.costs import Costs, RolloutCosts
from predictors.log_cost import LEARNED, SPREAD_START, SPREAD_WEIGHT, UNKNOWN
from tests.predictors.cost_cases import GROUP_SIZE, Batch, World, rollouts_of


def costs_of(world: World) -> Costs:
    made = Costs()
    made.resize(world.category_N)
    return made


def rollouts(rows: list[int], tokens: list[float], *, version: int = 0, cut: bool = False) -> RolloutCosts:
    return RolloutCosts(
        rows_R=np.array(rows, np.int64),
        tokens_R=np.array(tokens, np.float64),
        seconds_R=np.zeros(len(rows)),
        truncated_R=np.full(len(rows), cut),
        version_R=np.full(len(rows), version),
    )


def known(costs: Costs, version: int = 0) -> np.ndarray:
    found = costs.mean("tokens", version)
    assert found is not None
    return found


def error_of(world: World, *, versions: int = 120, size: int = 64, after: int = 20) -> dict[str, float]:
    """Mean absolute error of the logarithm of the predicted mean, beside simple predictors, before each batch."""
    made, size_N = costs_of(world), world.num_rows
    total_N, count_N, last_N = np.zeros(size_N), np.zeros(size_N), np.full(size_N, np.nan)
    errors: dict[str, list[np.ndarray]] = {"costs": [], "pool": [], "last": [], "running": []}
    for batch in world.batches(versions, size):
        rows_B, truth_B = batch.rows_B, batch.mean_log_B + 0.5 * batch.spread_B**2
        if batch.version >= after:
            pool = np.log(total_N.sum() / count_N.sum())
            seen_B = count_N[rows_B] > 0
            predicted = made.mean("tokens", batch.version, rows_B)
            assert predicted is not None
            running_B = np.log(np.where(seen_B, total_N[rows_B] / np.maximum(count_N[rows_B], 1), np.exp(pool)))
            errors["costs"].append(np.abs(np.log(predicted) - truth_B))
            errors["pool"].append(np.abs(pool - truth_B))
            errors["last"].append(np.abs(np.where(seen_B, last_N[rows_B], pool) - truth_B))
            errors["running"].append(np.abs(running_B - truth_B))
        made.observe(rollouts_of(batch))
        mean_B = batch.cost_BG.mean(axis=1)
        last_N[rows_B] = np.log(mean_B)
        total_N[rows_B] += mean_B
        count_N[rows_B] += 1
    return {name: float(np.concatenate(values).mean()) for name, values in errors.items()}


def test_nothing_is_said_before_anything_is_known() -> None:
    made = Costs()
    made.resize(np.zeros(3, np.int32))
    assert made.mean("tokens", 0) is None
    assert made.maximum("seconds", 0, 8) is None

    made.observe(rollouts([0, 0], [100.0, 100.0]))

    assert made.mean("tokens", 0) is not None
    assert made.mean("seconds", 0) is None


def test_the_first_rows_are_shared_out_as_a_kalman_filter_would_by_hand() -> None:
    """One category, two rows of 2 equal rollouts each at log cost 4 and 6. Level variance 1e4, offset 1/2, rows 1/4,
    siblings 1/4 / 2 = 1/8: both rows pull the level to 5 (their weights are equal), and keep 2/3 of the rest.
    """
    made = Costs()
    made.resize(np.zeros(3, np.int32))

    made.observe(rollouts([0, 0, 1, 1], [np.exp(4.0)] * 2 + [np.exp(6.0)] * 2))

    shrunk = SPREAD_WEIGHT / (SPREAD_WEIGHT + 2)  # two degrees of freedom without any scatter, in pool and category
    log_spread = SPREAD_START * shrunk**2
    own = 24.0 / 25.0
    unsure = np.array([1 / 12, 1 / 12, LEARNED["between"]]) + 0.5 * (1 - 0.5 / (0.5 + 3 / 16)) + 0.6875
    expected = np.array([5 - 2 / 3, 5 + 2 / 3, 5.0]) + 0.5 * (unsure + log_spread * np.array([own, own, 1.0]))
    # The dearest so far, e^6, is the most that is expected of any.
    np.testing.assert_allclose(np.log(known(made)), np.minimum(expected, 6.0), atol=2e-3)
    assert UNKNOWN == 1e4


def test_costs_come_closer_than_pool_last_and_running_mean_where_lengths_grow() -> None:
    for world in (World(), World(growth=0.02, seed=1), World(wander=0.08, seed=2), World(num_rows=3000, seed=3)):
        found = error_of(world)
        assert found["costs"] < 0.9 * min(found["pool"], found["last"], found["running"]), world


def test_a_pool_without_differences_is_predicted_by_its_mean() -> None:
    found = error_of(World(own_sd=0.0, category_sd=0.0, spread_sd=0.0, wander=0.0, growth=0.0))

    assert found["costs"] < 0.05  # what is left is the noise of each row's own spread
    assert found["last"] > 0.1


def test_a_prompt_never_tried_has_the_cost_of_its_category() -> None:
    made = Costs()
    made.resize(np.array([0] * 40 + [1] * 40, np.int32))
    rng = np.random.default_rng(0)
    for version in range(30):
        rows = rng.choice(39, 16, replace=False)
        rows = np.r_[rows, rows + 40]
        made.observe(rollouts(rows.tolist(), np.where(rows < 40, 100.0, 1000.0).tolist(), version=version))

    cost_N = known(made, 30)
    assert cost_N[39] == pytest.approx(100.0, rel=0.35)
    assert cost_N[79] == pytest.approx(1000.0, rel=0.35)
    assert cost_N[79] / cost_N[39] == pytest.approx(10.0, rel=0.2)


def test_growth_in_training_reaches_prompts_that_were_not_drawn_since() -> None:
    made = Costs()
    made.resize(np.zeros(60, np.int32))
    rng = np.random.default_rng(0)
    made.observe(rollouts(list(range(60)) * 4, [100.0] * 240))
    for version in range(1, 60):
        rows = rng.choice(30, 16, replace=False).tolist()
        made.observe(
            rollouts(rows * 4, (100.0 * np.exp(0.02 * version + rng.normal(0, 0.05, 64))).tolist(), version=version)
        )

    assert known(made, 60)[30:] == pytest.approx(np.full(30, 100.0 * np.exp(0.02 * 60)), rel=0.3)


def test_the_variances_that_are_learned_are_those_of_the_world() -> None:
    world = World(num_rows=2000, growth=0.0, wander=0.0, category_sd=0.0, spread_sd=0.0)
    made = costs_of(world)
    for batch in world.batches(100, 128):
        made.observe(rollouts_of(batch))

    state = made.state()
    assert float(state["tokens.between"]) == pytest.approx(0.25, rel=0.12)
    spread = state["tokens.scatter_C"].sum() / state["tokens.freedom_C"].sum()
    assert spread == pytest.approx(0.45**2, rel=0.02)


def test_forgetting_grows_where_prompts_change_and_not_where_they_stay() -> None:
    learned = []
    for wander in (0.0, 0.15):
        world = World(num_rows=200, wander=wander)
        made = costs_of(world)
        for batch in world.batches(150, 64):
            made.observe(rollouts_of(batch))
        learned.append(float(made.state()["tokens.forgetting"]))

    assert learned[0] < LEARNED["forgetting"] < 10 * learned[0] < learned[1]


def test_the_longest_sibling_is_predicted_from_the_spread_within_a_prompt() -> None:
    world, made = World(spread_sd=0.5), costs_of(World(spread_sd=0.5))
    own, common = [], []
    for batch in world.batches(150, 64):
        if batch.version >= 50:
            predicted = made.maximum("tokens", batch.version, GROUP_SIZE, batch.rows_B)
            assert predicted is not None
            own.append(np.log(predicted) - np.log(batch.cost_BG.max(axis=1)))
            common.append(predicted.mean() / batch.cost_BG.max(axis=1).mean())
        made.observe(rollouts_of(batch))

    assert np.mean(common) == pytest.approx(1.0, abs=0.05)
    assert np.abs(np.concatenate(own)).mean() < 0.3


def test_a_prompt_whose_siblings_differ_more_has_a_longer_longest() -> None:
    made = Costs()
    made.resize(np.zeros(2, np.int32))
    for version in range(20):
        made.observe(
            rollouts([0] * 4 + [1] * 4, [95.0, 100.0, 100.0, 105.0, 30.0, 80.0, 120.0, 350.0], version=version)
        )

    longest = made.maximum("tokens", 20, 8)
    mean = known(made, 20)
    assert longest is not None
    assert longest[1] / mean[1] > 1.5 * longest[0] / mean[0]
    assert (longest >= mean).all()


def test_a_truncated_length_counts_as_at_least_that_long() -> None:
    """A third of the rollouts are cut: their mean is found, where taking them at face value falls short of it."""
    world = replace(World(), growth=0.0, wander=0.0, own_sd=0.3, category_sd=0.0, spread_sd=0.0)
    limit = float(np.exp(6.2))
    made, naive = costs_of(world), costs_of(world)
    truth_N = np.zeros(world.num_rows)
    for batch in world.batches(120, 64):
        sent = rollouts_of(batch, limit)
        made.observe(sent)
        naive.observe(replace(sent, truncated_R=np.zeros_like(sent.truncated_R)))
        truth_N[batch.rows_B] = np.exp(batch.mean_log_B + 0.5 * batch.spread_B**2)

    seen = truth_N > 0
    ratio = np.log(known(made, 120)[seen] / truth_N[seen])
    at_face_value = np.log(known(naive, 120)[seen] / truth_N[seen])
    assert at_face_value.mean() < -0.15
    assert abs(ratio.mean()) < 0.5 * abs(at_face_value.mean())


def test_a_cut_off_rollout_never_lowers_what_is_expected_below_one_that_ended_there() -> None:
    for seen in (20.0, 90.0, 400.0):
        costs = []
        for cut in (False, True):
            made = Costs()
            made.resize(np.zeros(2, np.int32))
            made.observe(rollouts([0] * 4 + [1] * 4, [100.0, 110.0] * 4))
            made.observe(rollouts([0] * 4, [seen] * 4, version=1, cut=cut))
            costs.append(known(made, 1)[0])
        assert costs[1] >= costs[0]


def test_the_order_of_rollouts_changes_nothing_but_rounding() -> None:
    world = World()
    one, other = costs_of(world), costs_of(world)
    for batch in world.batches(20, 32):
        sent = rollouts_of(batch)
        order = np.random.default_rng(batch.version).permutation(sent.rows_R.size)
        one.observe(sent)
        other.observe(RolloutCosts(**{name: getattr(sent, name)[order] for name in RolloutCosts.__slots__}))

    np.testing.assert_allclose(known(one, 20), known(other, 20), rtol=1e-5)


def test_only_observed_rows_change_and_the_pool_that_they_share() -> None:
    made = Costs()
    made.resize(np.zeros(5, np.int32))
    made.observe(rollouts([0, 1, 2], [50.0, 60.0, 70.0]))
    before = made.state()

    made.observe(rollouts([1], [90.0], version=3))

    for name, array in made.state().items():
        if name.endswith("_N"):
            np.testing.assert_array_equal(np.delete(array, 1), np.delete(before[name], 1), err_msg=name)


def test_a_row_takes_24_bytes_and_its_category() -> None:
    made = Costs()
    made.resize(np.zeros(1000, np.int32))

    per_row = sum(array.nbytes for name, array in made.state().items() if name.endswith("_N") and name != "category_N")

    assert per_row == 24 * 1000


def test_a_state_round_trip_goes_on_to_the_same_bits() -> None:
    world = World()
    original, copy = costs_of(world), Costs()
    batches: list[Batch] = list(world.batches(30, 32))
    for batch in batches[:20]:
        original.observe(rollouts_of(batch))
    copy.load_state(original.state())
    for made in (original, copy):
        made.resize(np.r_[world.category_N, 9].astype(np.int32))
        for batch in batches[20:]:
            made.observe(rollouts_of(batch))

    ours, theirs = original.state(), copy.state()
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    made = Costs()
    made.resize(np.zeros(3, np.int32))
    made.observe(rollouts([0], [10.0]))
    before = known(made)
    state = made.state()
    for broken in (
        {name: array for name, array in state.items() if name != "last_N"},
        state | {"more": np.zeros(1)},
        state | {"tokens.deviation_N": np.zeros(2, np.float32)},
        state | {"tokens.level": np.array(np.nan)},
    ):
        with pytest.raises(ValueError, match="cost state"):
            made.load_state(broken)
    np.testing.assert_array_equal(known(made), before)


def test_bad_rollouts_are_refused_by_name() -> None:
    made = Costs()
    made.resize(np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="must be in"):
        made.observe(rollouts([3], [10.0]))
    with pytest.raises(ValueError, match="tokens_R must be finite"):
        rollouts([0], [np.nan])
    with pytest.raises(ValueError, match="version_R must be >= 0"):
        rollouts([0], [1.0], version=-1)
    made.observe(rollouts([], []))
    made.observe(rollouts([0], [0.0]))
    assert made.mean("tokens", 0) is None


def test_extreme_costs_stay_finite() -> None:
    made = Costs()
    made.resize(np.zeros(2, np.int32))
    rng = np.random.default_rng(0)
    for version in range(100):
        tokens = np.where(rng.random(16) < 0.5, 1.0, 1e9).tolist()
        made.observe(rollouts([0, 1] * 8, tokens, version=version * 1000, cut=version % 3 == 0))

    assert np.isfinite(known(made, 10**9)).all()
    longest = made.maximum("tokens", 10**9, 64)
    assert longest is not None
    assert np.isfinite(longest).all()


def test_a_prompt_whose_rollouts_are_all_cut_off_is_paid_for_up_to_the_limit_only() -> None:
    made = Costs()
    made.resize(np.zeros(3, np.int32))
    for version in range(60):
        rows = np.array([0] * 8 + [1] * 8)
        tokens = np.r_[np.full(8, 512.0), np.linspace(100.0, 300.0, 8)]
        made.observe(
            RolloutCosts(
                rows_R=rows, tokens_R=tokens, seconds_R=tokens / 100, truncated_R=rows == 0,
                version_R=np.full(16, version),
            )
        )  # fmt: skip
    mean_N, longest_N = made.mean("tokens", 60), made.maximum("tokens", 60, 8)
    assert mean_N is not None
    assert longest_N is not None
    assert 450.0 < mean_N[0] <= 512.0
    assert longest_N.max() <= 512.0
    assert mean_N[1] < 300.0


def test_versions_beyond_four_bytes_count_as_the_last_that_is_told_apart() -> None:
    made, same = Costs(), Costs()
    for costs, version in ((made, 2**53), (same, 2**31 - 1)):
        costs.resize(np.zeros(3, np.int32))
        costs.observe(rollouts([0, 1], [100.0, 200.0], version=5))
        costs.observe(rollouts([0], [300.0], version=version))
        costs.observe(rollouts([0], [400.0], version=version))
    assert np.array_equal(known(made, 2**53), known(same, 2**31 - 1))
    assert np.isfinite(known(made, 5)).all()
