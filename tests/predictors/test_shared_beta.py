import numpy as np
import pytest

from predictors.base import Observations
from predictors.registry import build_estimator
from predictors.shared_beta import MAX_CONCENTRATION, MIN_PARAMETER, FadingPrior, SharedBeta
from tests.predictors.groups import groups


def make(categories: list[int], **options: float) -> SharedBeta:
    made = build_estimator("shared_beta", options)
    assert isinstance(made, SharedBeta)
    made.resize(np.array(categories, dtype=np.int32))
    return made


def test_a_prompt_never_tried_is_believed_to_be_like_its_category() -> None:
    made = make([0, 0, 1, 1])
    for version in range(100):
        made.advance(version)
        made.observe(groups([0, 2], [8, 0], version=version))
    mean_N = made.beliefs().mean_N
    assert mean_N[1] > 0.97
    assert mean_N[3] < 0.03


def test_two_groups_by_hand() -> None:
    # Category 0 has 4 of 8 and 2 of 8, category 1 nothing. The pool has two flat groups beside them, so that E[p] is
    # (1/2 + 1/4 + 2 · 1/2) / 4 = 7/16 there, and category 0 has two groups of the pool.
    prior = FadingPrior(memory_groups=256.0)
    prior.resize(np.array([0, 0, 1], dtype=np.int32))
    prior.observe(groups([0, 1], [4, 2]))
    alpha_C, beta_C = prior.parameters()
    pool_mean, pool_square = 7 / 16, (12 / 56 + 2 / 56 + 2 / 3) / 4
    mean, square = (3 / 4 + 2 * pool_mean) / 4, (14 / 56 + 2 * pool_square) / 4
    concentration = mean * (1 - mean) / (square - mean**2) - 1
    assert (alpha_C[0], beta_C[0]) == pytest.approx((mean * concentration, (1 - mean) * concentration))
    concentration = pool_mean * (1 - pool_mean) / (pool_square - pool_mean**2) - 1
    assert (alpha_C[1], beta_C[1]) == pytest.approx((pool_mean * concentration, (1 - pool_mean) * concentration))


def test_the_sums_are_the_slow_ones() -> None:
    rng = np.random.default_rng(0)
    memory, num_categories = 20.0, 5
    category_N = rng.integers(num_categories, size=60).astype(np.int32)
    prior = FadingPrior(memory)
    prior.resize(category_N)
    history: list[list[tuple[int, float, int]]] = []
    for _ in range(30):
        rows_B = rng.permutation(60)[: rng.integers(1, 20)]
        scored_B = rng.integers(1, 9, size=len(rows_B))
        passes_B = rng.integers(0, scored_B + 1).astype(float)
        prior.observe(
            Observations(rows_B=rows_B, passes_B=passes_B, scored_B=scored_B, version_B=np.zeros(len(rows_B), np.int64))
        )
        history.append(list(zip(category_N[rows_B].tolist(), passes_B.tolist(), scored_B.tolist(), strict=True)))
    sums = prior.state()
    for category in range(num_categories):
        count = total = pairs = square = 0.0
        for call in history:
            mine = [(k, n) for c, k, n in call if c == category]
            kept = (1 - 1 / memory) ** len(mine)
            count = count * kept + len(mine)
            total = total * kept + sum(k / n for k, n in mine)
            pairs = pairs * kept + sum(n > 1 for _, n in mine)
            square = square * kept + sum(k * (k - 1) / (n * (n - 1)) for k, n in mine if n > 1)
        found = [sums[name][category] for name in ("groups_C", "mean_sum_C", "paired_C", "square_sum_C")]
        assert found == pytest.approx([count, total, pairs, square])


@pytest.mark.parametrize(("passes", "low"), [(0, True), (8, False)])
def test_a_category_that_never_differed_stays_possible(passes: int, low: bool) -> None:
    made = make([0] * 50)
    made.observe(groups(list(range(49)), [passes] * 49))
    alpha_C, beta_C = made._prior.parameters()
    assert min(alpha_C[0], beta_C[0]) >= MIN_PARAMETER - 1e-9
    assert alpha_C[0] + beta_C[0] <= MAX_CONCENTRATION + 1e-9
    mean = made.beliefs().mean_N[49]
    assert 0 < (mean if low else 1 - mean) < 0.05


def test_old_evidence_gives_way_to_what_the_category_does_now() -> None:
    """A prompt that failed long ago, in a category that has come to pass, is believed to pass."""
    made = make([0] * 200)
    made.observe(groups(list(range(100)), [0] * 100))
    for version in range(1, 60):
        made.advance(version)
        made.observe(groups([100 + version], [8], version=version))
    beliefs = made.beliefs(np.array([0]))
    assert beliefs.mean_N[0] < 0.5  # 100 groups that failed, 59 that passed, and its own 8 rollouts
    for version in range(60, 1_000):
        made.advance(version)
        made.observe(groups([100 + version % 100], [8], version=version))
    assert made.beliefs(np.array([0])).mean_N[0] > 0.9


def test_groups_stay_with_the_category_their_prompt_had() -> None:
    made = make([0, 0, 0])
    made.observe(groups([0, 1], [8, 8]))
    before = made.beliefs().mean_N[2]
    made.resize(np.array([1, 0, 0, 1], dtype=np.int32))
    after = made.beliefs().mean_N
    assert after[2] == before
    assert after[3] != before


def test_a_memory_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"memory_groups must be in \[2, 1e\+09\], got 1"):
        make([0], memory_groups=1.0)
