"""Tables of scores: by hand, against a plain loop, and on beliefs that are known to be right or too sure."""

from dataclasses import replace

import numpy as np
import pytest

from predictors.base import NEVER
from predictors.calibration import auc, beta_binomial_log_loss
from predictors.scores import (
    Came,
    Losses,
    Predicted,
    Scored,
    clustered_error,
    distance_from_uniform,
)
from predictors.value import informative_probability


def scored_together(predicted: Predicted, came: Came) -> Scored:
    return Losses.of(predicted, came).together()


def scored_by_lag(predicted: Predicted, came: Came) -> tuple[Scored, ...]:
    return Losses.of(predicted, came).by_lag()


def right_beliefs(*, size: int = 20_000, seed: int = 0) -> tuple[Predicted, Came]:
    """Pass rates from Beta(2, 3), believed to be, and groups of 8; lags and evidence at random."""
    rng = np.random.default_rng(seed)
    passes_B = rng.binomial(8, rng.beta(2.0, 3.0, size)).astype(float)
    mean_B, variance_B = np.full(size, 0.4), np.full(size, 0.04)
    predicted = Predicted(
        mean_B=mean_B,
        variance_B=variance_B,
        informative_B=informative_probability(mean_B, variance_B, 8),
        lag_B=rng.choice([NEVER, 0, 5, 1_000], size),
    )
    came = Came(
        passes_B=passes_B,
        scored_B=np.full(size, 8),
        informative_B=(passes_B > 0) & (passes_B < 8),
        judged_B=np.ones(size, bool),
        prompt_B=np.arange(size),
        uniform_B=rng.random(size),
    )
    return predicted, came


def test_two_predictions_by_hand() -> None:
    predicted = Predicted(
        mean_B=np.array([0.5, 0.5]),
        variance_B=np.array([1 / 12, 1 / 12]),
        informative_B=np.array([0.8, 0.6]),
        lag_B=np.array([NEVER, 400]),
    )
    came = Came(
        passes_B=np.array([0.0, 2.0]),
        scored_B=np.array([4, 4]),
        informative_B=np.array([False, True]),
        judged_B=np.ones(2, bool),
        prompt_B=np.array([0, 1]),
        uniform_B=np.array([0.1, 0.5]),
    )
    both = scored_together(predicted, came)

    # Flat: each of 5 counts has 1/5, so PIT values are .1 / 5 = .02 and 2 / 5 + .5 / 5 = .5.
    assert both.log_loss == pytest.approx(np.log(5))
    assert both.brier == pytest.approx(0.125)
    assert both.informative_log_loss == pytest.approx(-(np.log(0.2) + np.log(0.6)) / 2)
    assert both.informative_brier == pytest.approx((0.64 + 0.16) / 2)
    assert both.informative_auc == 0.0
    assert (both.predicted, both.observed) == (0.5, 0.25)
    assert both.informative_predicted == pytest.approx(0.7)
    assert both.informative_observed == 0.5
    assert both.coverage == 0.5
    assert both.coverage_error == pytest.approx(np.sqrt(0.25 + 0.25) / 2)
    assert both.pit_distance == pytest.approx(0.5)
    assert [(part.name, part.count) for part in scored_by_lag(predicted, came)] == [
        ("never tried", 1),
        ("lag > 300", 1),
    ]
    never, late = scored_by_lag(predicted, came)
    assert (late.coverage, late.informative_auc) == (1.0, None)
    assert (never.coverage, never.informative_auc) == (0.0, None)


def test_right_beliefs_are_found_right_in_every_part_and_too_sure_ones_are_not() -> None:
    predicted, came = right_beliefs()
    sure = replace(predicted, variance_B=predicted.variance_B / 8)

    for part in scored_by_lag(predicted, came):
        # 4.5 standard errors of a share of .9; a uniform sample is within 1.63 / sqrt(B) 99 times of 100.
        assert part.coverage is not None
        assert part.coverage_error is not None
        assert part.pit_distance is not None
        assert abs(part.coverage - 0.9) < 4.5 * part.coverage_error
        assert part.coverage_error == pytest.approx(np.sqrt(0.09 / part.count), rel=0.1)
        assert part.pit_distance < 2.0 / np.sqrt(part.count)
        assert part.informative.error < 0.02
    for part in scored_by_lag(sure, came):
        assert part.coverage is not None
        assert part.coverage < 0.8


def test_parts_add_up_to_the_whole_and_agree_with_a_loop() -> None:
    predicted, came = right_beliefs(size=300, seed=1)
    predicted = replace(predicted, informative_B=np.random.default_rng(2).random(300))
    whole = scored_together(predicted, came)
    odd_B = np.arange(300) % 2 == 1
    by_parity = Losses.of(predicted, came).parts([("odd", odd_B), ("none", odd_B & ~odd_B), ("even", ~odd_B)])
    assert [part.name for part in by_parity] == ["odd", "even"]
    for parts in (scored_by_lag(predicted, came), by_parity):
        assert sum(part.count for part in parts) == 300
        for name in ("log_loss", "brier", "informative_log_loss", "informative_brier", "coverage"):
            mean = sum(part.count * getattr(part, name) for part in parts) / 300
            assert mean == pytest.approx(getattr(whole, name))
    at = predicted.lag_B == 5
    bucket = next(part for part in scored_by_lag(predicted, came) if part.name == "lag 1-10")
    losses = beta_binomial_log_loss(
        predicted.mean_B[at], predicted.variance_B[at], came.passes_B[at], came.scored_B[at]
    )
    assert bucket.log_loss == pytest.approx(losses.mean())
    assert bucket.informative_auc == pytest.approx(auc(predicted.informative_B[at], came.informative_B[at]))


def test_groups_that_nobody_judged_are_scored_by_their_passes_alone() -> None:
    predicted, came = right_beliefs(size=40)
    half_B = np.arange(40) < 20
    found = scored_together(predicted, replace(came, judged_B=half_B))
    of_half = Losses.of(predicted, came).over("half", half_B)
    assert found.log_loss == scored_together(predicted, came).log_loss
    assert found.informative_brier == pytest.approx(of_half.informative_brier)
    assert found.informative_auc == pytest.approx(of_half.informative_auc)
    assert found.informative.count_R.sum() == 20
    none = scored_together(predicted, replace(came, judged_B=np.zeros(40, bool)))
    assert (none.informative_predicted, none.informative_log_loss, none.informative_auc) == (None, None, None)


def test_what_takes_sorting_is_left_out_where_nobody_asks_for_it() -> None:
    predicted, came = right_beliefs(size=50)
    fast, full = Losses.of(predicted, came, ranked=False).together(), scored_together(predicted, came)
    assert (fast.informative_auc, fast.pit_distance) == (None, None)
    assert (fast.coverage, fast.coverage_error) == (full.coverage, full.coverage_error)


def test_groups_of_one_prompt_count_as_one_for_the_error() -> None:
    inside_B, prompt_B = np.array([True, True, False, False]), np.array([7, 7, 2, 2])

    # Residuals of .5 add up to 1 and -1.
    assert clustered_error(inside_B, prompt_B) == pytest.approx(np.sqrt(2) / 4)
    assert clustered_error(inside_B, np.arange(4)) == pytest.approx(np.sqrt(4 * 0.25) / 4)


def test_a_distance_from_uniform_by_hand() -> None:
    assert distance_from_uniform(np.array([0.5])) == 0.5
    assert distance_from_uniform(np.array([0.9, 0.8])) == pytest.approx(0.8)
    assert distance_from_uniform((np.arange(100) + 0.5) / 100) == pytest.approx(0.005)


def test_graded_groups_have_no_pit_and_are_scored_otherwise() -> None:
    predicted, came = right_beliefs(size=50)
    half = replace(came, passes_B=np.where(np.arange(50) < 25, 1.5, came.passes_B))
    graded = replace(came, passes_B=np.full(50, 1.5))

    assert scored_together(predicted, graded).coverage is None
    assert scored_together(predicted, graded).pit_distance is None
    assert scored_together(predicted, graded).log_loss > 0
    of_whole = scored_together(predicted, half)
    assert of_whole.count == 50
    assert of_whole.coverage == pytest.approx(
        scored_together(
            Predicted(**{name: getattr(predicted, name)[25:] for name in predicted.__slots__}),
            Came(**{name: getattr(came, name)[25:] for name in came.__slots__}),
        ).coverage
    )


def test_nothing_to_score_is_refused_and_gives_empty_tables() -> None:
    predicted, came = right_beliefs(size=0)

    assert scored_by_lag(predicted, came) == ()
    with pytest.raises(ValueError, match="there must be a prediction to score"):
        scored_together(predicted, came)
    with pytest.raises(ValueError, match="there must be a prediction to score"):
        clustered_error(np.zeros(0, bool), np.zeros(0, np.int64))
    with pytest.raises(ValueError, match="there must be a value"):
        distance_from_uniform(np.zeros(0))
