"""What of the beliefs a utility sees."""

from dataclasses import replace

import numpy as np

from predictors.base import Beliefs
from selector.beliefs.reading import read_beliefs
from tests.selector.draw_cases import make_frame, make_plan, mask
from tests.selector.test_policies import make_beliefs

PLAN = make_plan(4)


def unsure(num: int) -> Beliefs:
    return make_beliefs([0.3] * num, variance=0.02)


def test_beliefs_and_their_means_are_seen_as_they_are() -> None:
    beliefs = make_beliefs([0.1, 0.7], variance=0.01)

    assert read_beliefs(beliefs, "belief", make_frame(2), PLAN) is beliefs
    mean = read_beliefs(beliefs, "mean", make_frame(2), PLAN)
    assert (mean.mean_N.tolist(), mean.variance_N.tolist()) == ([0.1, 0.7], [0.0, 0.0])
    assert beliefs.variance_N.tolist() == [0.01, 0.01]


def test_a_draw_from_each_belief_has_its_mean_and_variance_and_is_taken_for_known() -> None:
    num = 40_000
    seen = read_beliefs(unsure(num), "draw", make_frame(num), PLAN)

    assert not seen.variance_N.any()
    assert abs(seen.mean_N.mean() - 0.3) < 4 * np.sqrt(0.02 / num)
    # The fourth moment of this Beta is below 3 variances squared: the error of a variance is below sqrt(2/n).
    assert abs(seen.mean_N.var() / 0.02 - 1) < 4 * np.sqrt(2 / num)


def test_draws_are_keyed_by_the_batch() -> None:
    one, same, next_index, refill = (
        read_beliefs(unsure(50), "draw", make_frame(50), plan).mean_N.tolist()
        for plan in (PLAN, PLAN, replace(PLAN, index=1), replace(PLAN, refill=1))
    )

    assert one == same
    assert len({tuple(one), tuple(next_index), tuple(refill)}) == 3


def test_draws_from_sure_and_from_split_beliefs_stay_inside_the_unit_interval() -> None:
    for variance in (0.0, 0.2499):
        seen = read_beliefs(make_beliefs([0.5] * 100, variance=variance), "draw", make_frame(100), PLAN)
        assert ((seen.mean_N > 0) & (seen.mean_N < 1)).all()
    assert abs(read_beliefs(make_beliefs([0.5]), "draw", make_frame(1), PLAN).mean_N[0] - 0.5) < 1e-5


def test_shuffled_beliefs_are_dealt_out_anew_within_the_frame() -> None:
    mean = np.linspace(0.05, 0.95, 20)
    beliefs = replace(make_beliefs(mean.tolist()), variance_N=mean / 100)
    frame = make_frame(20, frame_N=~mask(20, 3, 7))

    dealt = [read_beliefs(beliefs, "shuffled", frame, replace(PLAN, index=index)) for index in range(300)]

    for seen in dealt:
        assert sorted(seen.mean_N.tolist()) == sorted(mean.tolist())
        np.testing.assert_array_equal(seen.variance_N, seen.mean_N / 100)
        assert seen.mean_N[[3, 7]].tolist() == mean[[3, 7]].tolist()
    # Row 0 gets each of the 18 beliefs of the frame alike: on average their mean, within four standard errors.
    of_frame = mean[frame.frame_N]
    at_0 = np.array([seen.mean_N[0] for seen in dealt])
    assert abs(at_0.mean() - of_frame.mean()) < 4 * of_frame.std() / np.sqrt(300)


def test_runs_of_groups_are_dealt_out_with_the_beliefs_that_they_are_of() -> None:
    beliefs = replace(make_beliefs((np.arange(1, 31) / 100).tolist()), run_N=np.arange(30))

    seen = read_beliefs(beliefs, "shuffled", make_frame(30), PLAN)

    assert seen.run_N is not None
    np.testing.assert_allclose(seen.mean_N, (seen.run_N + 1) / 100)
    assert seen.run_N.tolist() != list(range(30))
