"""What is believed of rewards without outcomes, against simulated prompts whose truth is known."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from predictors.base import NEVER
from predictors.reward_groups import RewardGroups, reward_groups
from predictors.reward_ties import _Ties
from predictors.rewards import ROW_COLUMNS, RewardBeliefs, Rewards

T = TypeVar("T", RewardBeliefs, RewardGroups)
GROUP = 8
TOLERANCE = 1e-6


@dataclass
class Prompts:
    """Prompts with a mean, a spread and, for some, one and the same reward whatever the answer."""

    mean_N: np.ndarray
    sd_N: np.ndarray
    constant_N: np.ndarray
    step: float = 0.0  # rewards are rounded to its multiples; 0: they are not

    @classmethod
    def drawn(cls, rng: np.random.Generator, num: int, constant: float, *, scale: float = 1.0) -> "Prompts":
        return cls(
            mean_N=scale * rng.normal(0.0, 2.0, num),
            sd_N=scale * np.exp(rng.normal(-1.0, 0.7, num)),
            constant_N=rng.random(num) < constant,
        )

    def rewards(self, rng: np.random.Generator, rows: np.ndarray) -> np.ndarray:
        noise_BG = self.sd_N[rows, None] * rng.normal(size=(len(rows), GROUP))
        reward_BG = self.mean_N[rows, None] + np.where(self.constant_N[rows, None], 0.0, noise_BG)
        return np.round(reward_BG / self.step) * self.step if self.step else reward_BG


@dataclass
class Seen:
    """Predictions and what came, of all groups after the first visits. All (B,)."""

    before: RewardBeliefs
    groups: RewardGroups
    truth_B: np.ndarray  # mean of each row at the time

    @property
    def informative_B(self) -> np.ndarray:
        return ~self.groups.is_alike_B

    @property
    def log_loss(self) -> float:
        p_B = np.clip(self.before.informative_N, 1e-9, 1.0 - 1e-9)
        return float(-np.mean(np.log(np.where(self.informative_B, p_B, 1.0 - p_B))))

    @property
    def covered(self) -> float:
        """Share of means within the middle 90 % of the belief."""
        z_B = (self.truth_B - self.before.mean_N) / np.sqrt(self.before.mean_variance_N)
        return float(np.mean(np.abs(z_B) < 1.645))


def visit(
    prompts: Prompts, *, steps: int = 40, share: float = 0.2, seed: int = 1, drift: float = 0.0, wander: float = 0.0,
    flips: float = 0.0,
) -> tuple[Rewards, Seen]:  # fmt: skip
    """A uniform share of the prompts at each step; what is kept is the second half of the steps."""
    rng, num = np.random.default_rng(seed), len(prompts.mean_N)
    rewards, kept = Rewards(), list[tuple[RewardBeliefs, RewardGroups, np.ndarray]]()
    rewards.resize(np.zeros(num, np.int32))
    for step in range(steps):
        prompts.mean_N = prompts.mean_N + drift + wander * rng.normal(size=num)
        prompts.constant_N = prompts.constant_N ^ (rng.random(num) < flips)
        rows = np.sort(rng.permutation(num)[: int(share * num)])
        groups = grouped(rows, step, prompts.rewards(rng, rows))
        if step >= steps // 2:
            kept.append((rewards.beliefs(step, GROUP, rows), groups, prompts.mean_N[rows]))
        rewards.observe(groups)
    before, groups_, truth = zip(*kept, strict=True)
    return rewards, Seen(_joined(before), _joined(groups_), np.concatenate(truth))


def _joined(parts: Sequence[T]) -> T:
    names = [field.name for field in fields(parts[0])]
    return type(parts[0])(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def grouped(rows: np.ndarray, version: int, reward_BG: np.ndarray) -> RewardGroups:
    return reward_groups(rows, np.full(len(rows), version), reward_BG, TOLERANCE)


def check_calibrated(seen: Seen, *, least: int = 200) -> None:
    """In each fifth of the predictions with enough of them the share that came lies within four standard errors and
    four hundredths of what was said.
    """
    bin_B = np.minimum((seen.before.informative_N * 5).astype(int), 4)
    for place in range(5):
        of_bin = bin_B == place
        count = int(np.count_nonzero(of_bin))
        if count >= least:
            said, came = seen.before.informative_N[of_bin].mean(), seen.informative_B[of_bin].mean()
            assert abs(said - came) < 0.04 + 4.0 * np.sqrt(said * (1.0 - said) / count), (place, said, came)


def test_a_group_is_counted_by_hand() -> None:
    rewards_BG = np.array([[1.0, 3.0, 1.0, 1.0], [2.0, 2.0, 2.0, np.nan], [5.0, np.nan, np.nan, np.nan]])
    groups = reward_groups(np.arange(3), np.zeros(3, np.int64), rewards_BG, 0.0)

    assert groups.size_B.tolist() == [4, 3, 1]
    assert groups.mean_B.tolist() == [1.5, 2.0, 5.0]
    assert groups.variance_B.tolist() == [1.0, 0.0, 0.0]  # 3 * 0.25 + 2.25 over three
    assert groups.ties_B.tolist() == [2, 2, 0]
    assert groups.is_alike_B.tolist() == [False, True, True]


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.float64, (3, 6), elements=st.sampled_from([-1.0, 0.0, 0.3, 0.5, 2.0, np.nan])),
    st.sampled_from([0.0, 0.25]),
)
def test_groups_are_what_a_loop_over_rollouts_makes_of_them(reward_BG: np.ndarray, tolerance: float) -> None:
    reward_BG[:, 0] = 0.0  # one reward at least
    groups = reward_groups(np.arange(3), np.zeros(3, np.int64), reward_BG, tolerance)

    for b, row in enumerate(reward_BG):
        known = sorted(value for value in row.tolist() if value == value)
        alike = known[-1] - known[0] <= tolerance
        longest = run = 0
        for one, other in pairwise(known):
            run = run + 1 if other - one <= tolerance else 0
            longest = max(longest, run)
        assert groups.size_B[b] == len(known)
        assert groups.mean_B[b] == pytest.approx(np.mean(known))
        assert groups.is_alike_B[b] == alike
        assert groups.ties_B[b] == (len(known) - 1 if alike else min(longest, len(known) - 2))
        assert groups.variance_B[b] == pytest.approx(0.0 if alike else np.var(known, ddof=1))


def test_neighbours_within_the_tolerance_do_not_make_a_group_alike_whose_ends_are_apart() -> None:
    groups = reward_groups(np.zeros(1, np.int64), np.zeros(1, np.int64), np.array([[0.0, 0.5, 1.0]]), 0.6)

    assert groups.ties_B.tolist() == [1]
    assert not groups.is_alike_B.any()


def test_a_group_without_a_reward_and_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="left out"):
        reward_groups(np.zeros(1, np.int64), np.zeros(1, np.int64), np.array([[np.nan, np.nan]]), 0.0)
    good = grouped(np.arange(2), 0, np.zeros((2, 3)))
    for name, bad in (("size_B", np.zeros(2, np.int64)), ("mean_B", np.array([0.0, np.inf])), ("ties_B", good.size_B)):
        with pytest.raises(ValueError, match=name):
            RewardGroups(**({f.name: getattr(good, f.name) for f in fields(good)} | {name: bad}))


def test_chances_of_ties_are_those_worked_out_by_hand() -> None:
    """A quarter constant, else Beta(2, 1): E[q^2] = 2/3 * 3/4, so two ties of two have 1/4 + 3/4 * 1/2."""
    ties = _Ties(constant=np.array([0.25]), alpha=np.array([2.0]), beta=np.array([1.0]))

    assert ties.differs(3) == pytest.approx([0.375])
    assert ties.differs(1) == pytest.approx([0.0])
    assert ties.chance(np.array([2.0]), np.array([2.0])) == pytest.approx([0.625])
    assert ties.chance(np.array([1.0]), np.array([2.0])) == pytest.approx([0.75 * 2.0 * (2.0 / 3.0) * (1.0 / 4.0)])
    assert ties.chance(np.array([0.0]), np.array([0.0])) == pytest.approx([1.0])


def test_own_rewards_are_weighed_against_the_category_by_their_noise_by_hand() -> None:
    """What is left to the belief is t s/n / (t + s/n), t the variance between rows and s that among siblings."""
    prompts = Prompts.drawn(np.random.default_rng(0), 500, constant=0.0)
    prompts.sd_N[:] = 2.0
    rewards = Rewards()
    rewards.resize(np.zeros(501, np.int32))
    rng = np.random.default_rng(1)
    rewards.observe(grouped(np.arange(500), 0, prompts.rewards(rng, np.arange(500))))
    found = rewards.beliefs(0, GROUP)
    between, within = found.mean_variance_N[500], found.variance_N[0]

    assert between == pytest.approx(4.0, rel=0.2)
    assert within == pytest.approx(4.0, rel=0.3)
    assert found.mean_variance_N[0] == pytest.approx(between * (within / 8) / (between + within / 8), rel=1e-3)
    truth = np.mean((found.mean_N[:500] - prompts.mean_N) ** 2)
    assert truth == pytest.approx(found.mean_variance_N[:500].mean(), rel=0.25)


def test_static_prompts_are_told_apart_and_predictions_are_calibrated() -> None:
    prompts = Prompts.drawn(np.random.default_rng(0), 2000, constant=0.8)
    rewards, seen = visit(prompts)

    check_calibrated(seen, least=20)
    assert seen.log_loss < 0.01  # of a coin with the pool's share it is 0.50
    assert seen.covered > 0.9
    expected, came = seen.before.variance_N.mean(), seen.groups.variance_B.mean()
    assert expected == pytest.approx(came, rel=0.1)
    differing = seen.informative_B & (seen.before.n_eff_N > 3 * GROUP)
    log_said = np.log(seen.before.variance_N[differing])
    assert np.corrcoef(log_said, np.log(seen.groups.variance_B[differing]))[0, 1] > 0.8
    assert rewards.rewarded_N.all()


@pytest.mark.parametrize("constant", [0.0, 0.3])
def test_rewards_on_a_coarse_scale_tie_as_often_as_predicted(constant: float) -> None:
    prompts = Prompts.drawn(np.random.default_rng(0), 2000, constant=constant)
    prompts.step = 0.5
    _, seen = visit(prompts, flips=0.005 * (constant > 0.0))

    assert seen.before.informative_N.mean() == pytest.approx(seen.informative_B.mean(), abs=0.02)
    share = seen.informative_B.mean()
    coin = -(share * np.log(share) + (1.0 - share) * np.log(1.0 - share))
    assert seen.log_loss < 0.7 * coin  # a coin that knows the share alone


def test_prompts_that_begin_and_cease_to_be_constant_are_predicted_with_that_chance() -> None:
    prompts = Prompts.drawn(np.random.default_rng(0), 2000, constant=0.8)
    rewards, seen = visit(prompts, flips=0.02)

    check_calibrated(seen)
    assert rewards.state()["ties.jumps"][0] > 0.01


def test_common_drift_is_followed_and_wandering_means_are_covered() -> None:
    drifting = Prompts.drawn(np.random.default_rng(0), 1000, constant=0.0)
    _, seen = visit(drifting, drift=0.1)
    assert np.mean(seen.truth_B - seen.before.mean_N) < 0.2  # two steps; it has moved by 4

    wandering = Prompts.drawn(np.random.default_rng(0), 1000, constant=0.0)
    _, seen = visit(wandering, wander=0.1, steps=100)
    assert 0.85 < seen.covered < 0.95


def test_nothing_depends_on_the_scale_or_the_place_of_rewards() -> None:
    small, large = (Prompts.drawn(np.random.default_rng(0), 300, constant=0.5, scale=s) for s in (1.0, 1024.0))
    large.mean_N += 2.0**20
    _, one = visit(small, steps=10)
    _, other = visit(large, steps=10)

    np.testing.assert_allclose(other.before.informative_N, one.before.informative_N, rtol=1e-9)
    np.testing.assert_allclose(other.before.variance_N, one.before.variance_N * 1024.0**2, rtol=1e-3)
    np.testing.assert_allclose(other.before.mean_N - 2.0**20, one.before.mean_N * 1024.0, rtol=1e-3, atol=1.0)


def test_a_prompt_never_rewarded_is_believed_as_first_groups_of_its_category_were() -> None:
    rng, category_N = np.random.default_rng(3), np.repeat(np.array([0, 1, 2], np.int32), 100)
    rewards = Rewards()
    rewards.resize(category_N)
    rows = np.r_[np.arange(50), 100 + np.arange(50)]
    reward_BG = np.where(rows[:, None] < 100, 7.0, rng.normal(-3.0, 1.0, (100, GROUP)))
    rewards.observe(grouped(rows, 0, reward_BG))
    found = rewards.beliefs(0, GROUP)

    assert found.informative_N[99] < 0.1 < 0.9 < found.informative_N[199]
    assert found.mean_N[99] == pytest.approx(7.0, abs=0.6)
    assert found.mean_N[199] == pytest.approx(-3.0, abs=0.6)
    assert found.informative_N[99] < found.informative_N[299] < found.informative_N[199]  # a category nobody saw
    assert found.lag_N[[0, 99]].tolist() == [0, NEVER]
    assert found.n_eff_N[[0, 99]].tolist() == [GROUP, 0.0]


def test_what_was_known_of_ties_fades_when_a_group_says_that_the_prompt_is_another_one_now() -> None:
    rewards, rng = Rewards(), np.random.default_rng(0)
    rewards.resize(np.zeros(40, np.int32))
    rows = np.arange(40)
    always = np.where(rows[:, None] < 20, 1.0, rng.normal(size=(40, GROUP)))
    for version in range(3):
        rewards.observe(grouped(rows, version, always))
    assert rewards.state()["ties.apart_N"][30] > 2 * (GROUP - 1)
    rewards.observe(grouped(rows[30:31], 100, np.ones((1, GROUP))))

    assert rewards.state()["ties.apart_N"][30] < 1.0
    assert rewards.state()["ties.constant_N"][30] > 0.5


def test_one_small_group_that_is_all_alike_does_not_make_a_prompt_hopeless() -> None:
    rewards = Rewards()
    rewards.resize(np.zeros(2, np.int32))
    rewards.observe(grouped(np.zeros(1, np.int64), 0, np.zeros((1, 4))))

    assert 0.02 < rewards.beliefs(0, GROUP).informative_N[0] < 0.7


def test_late_evidence_says_less_and_leaves_the_newest_version() -> None:
    on_time, late = (Rewards() for _ in range(2))
    for rewards, version in ((on_time, 100), (late, 0)):
        rewards.resize(np.zeros(20, np.int32))
        rewards.observe(grouped(np.arange(20), 100, np.random.default_rng(0).normal(size=(20, GROUP))))
        rewards.observe(grouped(np.arange(10), version, np.random.default_rng(1).normal(5.0, 1.0, (10, GROUP))))

    assert late.beliefs(100, GROUP).mean_N[0] < on_time.beliefs(100, GROUP).mean_N[0]
    assert (late.beliefs(100, GROUP).lag_N == 0).all()


def test_groups_of_one_row_count_in_order_and_saved_state_goes_on_to_the_same_bits() -> None:
    rng = np.random.default_rng(5)
    whole, parts = Rewards(), Rewards()
    for rewards in (whole, parts):
        rewards.resize(np.arange(6, dtype=np.int32) % 2)
    rows, reward_BG = np.array([1, 4, 1, 2, 4, 1]), rng.normal(size=(6, GROUP))
    reward_BG[3] = 0.5
    whole.observe(grouped(rows, 0, reward_BG))
    for at in ([0, 1, 3], [2, 4], [5]):
        parts.observe(grouped(rows[at], 0, reward_BG[at]))
    check_same(whole, parts)

    again = Rewards()
    again.load_state(whole.state())
    for rewards in (whole, again):
        rewards.resize(np.arange(9, dtype=np.int32) % 3)
        rewards.observe(grouped(np.array([0, 8]), 7, rng.normal(size=(2, GROUP)) * 0.0 + 3.0))
    check_same(whole, again)


def check_same(one: Rewards, other: Rewards) -> None:
    for name, array in one.state().items():
        np.testing.assert_array_equal(other.state()[name], array, err_msg=name)


def test_a_state_that_does_not_fit_and_rows_outside_the_pool_are_refused_and_change_nothing() -> None:
    rewards = Rewards()
    rewards.resize(np.zeros(4, np.int32))
    with pytest.raises(ValueError, match="must be a reward"):
        rewards.beliefs(0, GROUP)
    with pytest.raises(ValueError, match="rows"):
        rewards.observe(grouped(np.array([4]), 0, np.zeros((1, 2))))
    assert not rewards.is_known
    rewards.observe(grouped(np.arange(2), 0, np.random.default_rng(0).normal(size=(2, 4))))
    good = rewards.state()
    for name, bad in (("mean_N", np.zeros(3, np.float32)), ("track", np.array(np.nan)), ("wander", np.zeros(3))):
        with pytest.raises(ValueError, match=name):
            rewards.load_state(good | {name: bad})
    with pytest.raises(ValueError, match="count_N"):
        rewards.load_state({k: v for k, v in good.items() if k != "count_N"})
    for name, array in good.items():
        np.testing.assert_array_equal(rewards.state()[name], array)


def test_a_row_takes_32_bytes_and_none_before_the_first_reward() -> None:
    rewards = Rewards()
    rewards.resize(np.zeros(1000, np.int32))
    per_row = [name for name in rewards.state() if name.endswith("_N") and name != "category_N"]
    assert sum(rewards.state()[name].nbytes for name in per_row) == 0
    rewards.observe(grouped(np.arange(1), 0, np.zeros((1, 4))))
    assert sum(rewards.state()[name].nbytes for name in per_row) == 32_000
    assert {f"{name}" for name in ROW_COLUMNS} <= set(per_row)
