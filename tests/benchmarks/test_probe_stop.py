"""What the stop of probes saves at equal error, exactly, and where no rule could save as much."""

from functools import cache

import pytest

from tests.benchmarks.learner_model import Constants, Learner
from tests.benchmarks.probe_stop import GROUP_SIZE, Pool, fixed_error, least_rollouts, stopped


@cache
def pool(least: float) -> Pool:
    return Pool.of(Learner(Constants(num_prompts=20_000, hopeless=0.5, mastered=0.3), 7, 10).pass_rate(), least)


def test_at_equal_error_the_stop_spends_at_most_sixty_per_cent_where_the_question_is_even() -> None:
    """Two prices err a little more and a little less than eight rollouts; a coin between them errs the same."""
    half = pool(0.5)
    allowed = fixed_error(half)
    dear, cheap = stopped(half, 0.5, 16, 0.0032), stopped(half, 0.5, 16, 0.0022)
    assert cheap.error <= allowed <= dear.error
    share = (allowed - cheap.error) / (dear.error - cheap.error)
    spent = share * dear.rollouts + (1.0 - share) * cheap.rollouts
    assert least_rollouts(half, allowed) <= spent <= 0.6 * GROUP_SIZE


@pytest.mark.parametrize("least", [0.2, 0.3])
def test_at_low_boundaries_no_rule_spends_as_little(least: float) -> None:
    assert least_rollouts(pool(least), fixed_error(pool(least))) > 0.6 * GROUP_SIZE
