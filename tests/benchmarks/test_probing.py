"""Probes on the simulated learner: what they find on a cold pool, that they end by themselves, and what they cost."""

from functools import cache

import numpy as np

from selector.config import RunConfig
from selector.policies import PRESETS
from selector.rollout_store import RolloutStoreConfig
from tests.benchmarks.learner_model import Constants
from tests.benchmarks.probing import Probed, train

COLD = Constants(num_prompts=20_000, num_heldout=200, hopeless=0.5, mastered=0.3)  # 80 % uninformative
WARM = Constants(num_prompts=3_000, num_heldout=200, hopeless=0.5, mastered=0.3)
SEED, STEPS = 7, 8


@cache
def run(*, cold: bool, probes: int, store: RolloutStoreConfig | None = None) -> Probed:
    config = RunConfig(pool="simulated", policy=PRESETS["midband"].config, seed=SEED, rollout_store=store)
    return train(
        config,
        COLD if cold else WARM,
        seed=SEED,
        num_rollouts=STEPS * 1024,
        probes=probes,
        warm=not cold,
    )


def test_on_a_cold_pool_probes_find_what_training_would_have_to_stumble_upon() -> None:
    with_probes, without = run(cold=True, probes=256), run(cold=True, probes=0)
    # Of 128 groups a step; a fifth of the pool can teach at all.
    assert with_probes.informative_T[:4].mean() > 1.5 * without.informative_T[:4].mean()


def test_at_equal_rollouts_in_total_probing_costs_no_quality_that_can_be_told_from_chance() -> None:
    for cold in (True, False):
        with_probes, without = run(cold=cold, probes=256), run(cold=cold, probes=0)
        made = min(with_probes.rollouts_T[-1], without.rollouts_T[-1])
        ours, theirs = (np.interp(made, one.rollouts_T, one.heldout_T) for one in (with_probes, without))
        assert ours > theirs - 0.01


def test_on_a_warm_pool_probes_are_few() -> None:
    found = run(cold=False, probes=256)
    assert found.probes_T[-1] < 0.25 * found.rollouts_T[-1]


def test_with_a_store_training_needs_fewer_rollouts_than_it_trains_on() -> None:
    found = run(cold=True, probes=256, store=RolloutStoreConfig())
    trained_T = np.diff(found.rollouts_T - found.probes_T, prepend=0.0)
    assert trained_T[0] == 1024  # nothing was probed before
    assert trained_T[1:].max() <= 1024
    assert trained_T[1] < 1024 - 6 * 30  # the first probes find some dozens, and six of eight are made then


def test_without_one_each_step_makes_all_of_its_rollouts_anew() -> None:
    found = run(cold=True, probes=256)
    assert (np.diff(found.rollouts_T - found.probes_T, prepend=0.0) == 1024).all()
