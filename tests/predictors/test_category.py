"""One belief a category: by hand, against a loop over groups, and on categories whose spread is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.base import Estimator
from predictors.registry import build_estimator
from tests.predictors.groups import feed, groups, one_by_one, random_history


def by_category(*codes: int, **options: float) -> Estimator:
    made = build_estimator("category", options)
    made.resize(np.array(codes, dtype=np.int32))
    return made


def test_two_groups_of_a_category_by_hand() -> None:
    """8 groups at 1/2 and two at 1/4 and 3/4 of 8; squares 8 / 3, 2 * 1 / 56 and 6 * 5 / 56."""
    made = by_category(0, 0, 0, 1)
    made.observe(groups([0, 1], [2, 6]))
    beliefs = made.beliefs()

    mean, square = (8 / 2 + 1) / 10, (8 / 3 + 2 / 56 + 30 / 56) / 10
    np.testing.assert_allclose(beliefs.mean_N, [mean, mean, mean, 0.5])
    np.testing.assert_allclose(beliefs.variance_N, [square - mean**2] * 3 + [1 / 12])
    np.testing.assert_array_equal(beliefs.lag_N, [0, 0, -1, -1])


def test_a_later_step_fades_the_earlier_ones_by_hand() -> None:
    made = by_category(0, 1, learning_rate=0.25)
    made.observe(groups([0, 0, 1], [8, 8, 8], version=0))
    made.observe(groups([0], [0], version=5))

    # Sums of the first category: .75 * 2 of 2, then 0 of 1 more. The second had no group at that step and keeps what
    # it had.
    np.testing.assert_allclose(made.beliefs().mean_N, [(4 + 1.5) / (8 + 2.5), (4 + 1) / (8 + 1)])


@given(st.integers(0, 10**6), st.floats(0.01, 1.0))
def test_the_sums_agree_with_a_loop(seed: int, rate: float) -> None:
    codes = (0, 2, 2, 5, 0, 2)
    made = by_category(*codes, learning_rate=rate)
    sums, step = {code: np.zeros(4) for code in codes}, dict.fromkeys(codes, -1)
    for version, observations in random_history(seed=seed, max_late=4):
        made.advance(version)
        made.observe(observations)
        newest = -1
        for row, passes, scored, of in one_by_one(observations):
            newest = max(newest, of)
            code = codes[row]
            if newest > step[code]:
                sums[code] *= 1 - rate
                step[code] = newest
            sums[code] += [1, passes / scored, 0, 0]
            if scored > 1:
                sums[code] += [0, 0, 1, passes * (passes - 1) / scored / (scored - 1)]

    beliefs = made.beliefs()
    for row, code in enumerate(codes):
        weight, total, paired, squares = sums[code]
        mean, square = (total + 4) / (weight + 8), (squares + 8 / 3) / (paired + 8)
        assert beliefs.mean_N[row] == pytest.approx(mean)
        least, most = mean * (1 - mean) / 21, mean * (1 - mean) / (0.1 / min(mean, 1 - mean) + 1)
        assert beliefs.variance_N[row] == pytest.approx(min(max(square - mean**2, least), most))


def test_with_steps_of_one_size_it_is_the_published_average() -> None:
    """Q <- (1 - a) Q + a r, up to the 8 groups of the start next to the 10,000 that a step of 1000 tends to."""
    rng = np.random.default_rng(0)
    made = by_category(*[0] * 1000)
    average = 0.5
    for step in range(200):
        passes = rng.binomial(8, 0.2 + 0.003 * step, 1000)
        made.observe(groups(np.arange(1000), passes, version=step))
        average += 0.1 * (passes.mean() / 8 - average)

    assert made.beliefs().mean_N[0] == pytest.approx(average, abs=8 / 10_000)


def test_the_spread_within_a_category_is_found() -> None:
    """Beta(2, 6) has mean .25 and variance .0208; where prompts are alike it is still given 1/21 of m (1 - m)."""
    rng = np.random.default_rng(1)
    made = by_category(*[0] * 2000, *[1] * 2000)
    feed(made, np.r_[rng.beta(2, 6, 2000), np.full(2000, 0.5)], versions=np.arange(30), rng=rng)
    beliefs = made.beliefs()

    # 2000 prompts: sd of their mean .144 / 45 = .0032; of their variance about .0208 * sqrt(3 / 2000) = .0008.
    assert beliefs.mean_N[0] == pytest.approx(0.25, abs=0.01)
    assert beliefs.variance_N[0] == pytest.approx(0.0208, abs=0.0026)
    assert beliefs.variance_N[2000] == pytest.approx(0.25 / 21)


def test_a_jump_of_the_category_is_followed_at_the_rate() -> None:
    rng = np.random.default_rng(2)
    made = by_category(*[0] * 4000)
    feed(made, np.full(4000, 0.2), versions=np.arange(60), rng=rng)
    feed(made, np.full(4000, 0.6), versions=np.arange(60, 70), rng=rng)

    assert made.beliefs().mean_N[0] == pytest.approx(0.6 - 0.4 * 0.9**10, abs=0.005)


def test_a_prompt_that_changes_its_category_gets_the_belief_of_the_new_one() -> None:
    made = by_category(0, 0, 3)
    made.observe(groups([0, 2], [8, 0]))
    before = made.beliefs()
    made.resize(np.array([0, 3, 1, 3], dtype=np.int32))
    after = made.beliefs()

    np.testing.assert_array_equal(after.mean_N[[1, 3]], before.mean_N[2])
    assert after.mean_N[2] == 0.5
    copy = build_estimator("category", {})
    copy.load_state(made.state())
    np.testing.assert_array_equal(copy.beliefs().mean_N, after.mean_N)


def test_a_category_that_lost_its_prompts_is_still_known_after_a_restore() -> None:
    made = by_category(0, 4)
    made.observe(groups([1], [0]))
    known = made.beliefs().mean_N[1]
    made.resize(np.array([0, 0], dtype=np.int32))
    copy = build_estimator("category", {})
    copy.load_state(made.state())
    copy.resize(np.array([0, 0, 4], dtype=np.int32))

    assert copy.beliefs().mean_N[2] == known < 0.5


def test_a_state_with_too_few_categories_is_refused() -> None:
    made = by_category(0, 4)
    state = made.state()

    with pytest.raises(ValueError, match=r"'groups_C' must be float64 of shape \(5,\)"):
        made.load_state({**state, "groups_C": state["groups_C"][:4]})
    with pytest.raises(ValueError, match=r"'step_C' must be int64 of shape \(8,\)"):
        made.load_state({**state, "category_N": np.array([0, 7], dtype=np.int32)})
