from pathlib import Path

import numpy as np
import pytest

from trainer.rollout.recorded import RecordedOutcomes
from trainer.rollout.synthetic import CATEGORIES, drifting_pool, write_record

GROUP_SIZE = 8


def test_the_same_seed_gives_the_same_pool() -> None:
    assert drifting_pool(20, visits=3, seed=1) == drifting_pool(20, visits=3, seed=1)
    assert drifting_pool(20, visits=3, seed=1) != drifting_pool(20, visits=3, seed=2)


def test_a_written_pool_is_read_back_unchanged(tmp_path: Path) -> None:
    rows = drifting_pool(20, visits=3)
    record = RecordedOutcomes.load(write_record(rows, tmp_path / "new" / "pool.jsonl"))
    assert (record.num_prompts, record.num_visits, record.group_size) == (20, 3, None)
    assert record.digest == RecordedOutcomes.from_rows(rows).digest


@pytest.mark.parametrize("seed", range(3))
def test_it_wastes_and_drifts_as_real_pools_do(seed: int) -> None:
    record = RecordedOutcomes.from_rows(drifting_pool(2_000, visits=24, seed=seed))
    p_VN = record.pass_rate_VN
    informative_V = (1 - p_VN**GROUP_SIZE - (1 - p_VN) ** GROUP_SIZE).mean(axis=1)
    # Bounds around a recorded run: half of all groups teach something, a third of the prompts is never solved at
    # first, and the mean pass rate rises from .33 to .47.
    assert 0.4 < informative_V.min() < informative_V.max() < 0.6
    assert 0.3 < ((1 - p_VN[0]) ** GROUP_SIZE).mean() < 0.45
    assert 0.30 < p_VN[0].mean() < p_VN[-1].mean() - 0.05 < 0.45
    # Some hopeless prompts wake up, some mastered ones slip back, and neither is the rule.
    hopeless_N, mastered_N = p_VN[0] < 0.01, p_VN[0] > 0.98
    assert 0.02 < (p_VN[-1][hopeless_N] > 0.1).mean() < 0.3
    assert 0.005 < (p_VN[-1][mastered_N] < 0.8).mean() < 0.15


def test_categories_differ_in_difficulty() -> None:
    rows = drifting_pool(2_000, visits=2)
    means = {name: np.mean([row["p"][0] for row in rows if row["category"] == name]) for name in CATEGORIES}
    assert list(means) == sorted(means, key=lambda name: -means[name])


def test_one_prompt_and_one_visit_are_enough_and_none_is_not() -> None:
    assert len(drifting_pool(1, visits=1)[0]["p"]) == 1
    with pytest.raises(ValueError, match="must be >= 1, got 0"):
        drifting_pool(0)
