"""Quotas: shares by hand, rounded at random, over the floor, and whatever else a draw has to hold to."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from selector.policies import PRESETS, build_policy, override
from selector.sampling.designs import keyed_order
from selector.sampling.draw import draw
from selector.sampling.draw_plan import DrawFrame, DrawPlan
from selector.sampling.quotas import by_stratum, quota_utility
from tests.selector.draw_cases import make_frame, make_plan, mask
from tests.selector.engine_cases import Session, coin, make_config, make_policy, make_pool
from tests.selector.sampling.test_draw_statistics import CREDIT, SKEWED, assert_within, simulate

STRATUM = np.tile([0, 1, 2], 10)
FRAME = make_frame(30, stratum_N=STRATUM)


def quota_plan(size: int, *quotas: float, **values: Any) -> DrawPlan:
    return make_plan(size, quotas=quotas, **values)


def shares(frame: DrawFrame, plan: DrawPlan) -> np.ndarray:
    """Expected selected places of each stratum."""
    return np.bincount(STRATUM, weights=draw(frame, SKEWED, plan).selected_inclusion_N)


def test_utilities_are_scaled_to_the_shares_by_hand() -> None:
    found_N = quota_utility(
        np.array([1.0, 3.0, 0.0, 0.0, 5.0, 7.0]),
        np.array([1.0, 1.0, 1.0, 3.0, 2.0, 0.0]),
        np.array([1, 1, 2, 2, 0, 0]),
        np.array([0.5, 0.2]),
        1.0,
    )

    # Stratum 1: 1 to 3 of 0.5. Stratum 2 prefers nothing: 0.2 over gains of 1 and 3. The rest: 0.3 over a gain of 2.
    np.testing.assert_allclose(found_N, [0.125, 0.375, 0.05, 0.05, 0.15, 0.0])


def test_what_a_row_would_have_beyond_its_place_goes_to_others_of_its_stratum() -> None:
    # Six of ten places for three rows that would have 4.8, 0.9 and 0.3: all three are full, and three places are over.
    # Four for four rows, one of which would have 2: it has 1, the others 1 each as well.
    found_N = quota_utility(
        np.array([16.0, 3.0, 1.0, 6.0, 2.0, 2.0, 2.0, 1.0]),
        np.ones(8),
        np.array([1, 1, 1, 0, 0, 0, 0, 0]),
        np.array([0.6]),
        10.0,
    )

    np.testing.assert_allclose(found_N[:3], 0.1)
    assert found_N[3] == pytest.approx(0.1)
    np.testing.assert_allclose(found_N[4:7], found_N[7] * 2)
    assert found_N[3:].sum() == pytest.approx(0.4)


def test_strata_get_their_shares_over_a_floor_spread_evenly() -> None:
    # A tenth is spread over ten rows each; the rest 0.5, 0.3 and 0.2. No row is capped at these utilities.
    pi_N = draw(FRAME, np.ones(30), quota_plan(6, 0.5, 0.3)).inclusion_N

    found = np.bincount(STRATUM, weights=pi_N)
    np.testing.assert_allclose(found, 6 * (0.9 * np.array([0.2, 0.5, 0.3]) + 0.1 / 3), atol=1e-9)


def test_the_floor_is_never_lowered() -> None:
    for audit_share in (0.0, 0.25):
        drawn = draw(FRAME, SKEWED, quota_plan(6, 0.0, 1.0, audit_share=audit_share))
        places = 6 - drawn.num_audit
        assert drawn.selected_inclusion_N.min() >= 0.1 * places / 30 - 1e-11
        assert drawn.inclusion_N.sum() == pytest.approx(6.0)


def test_quotas_are_rounded_at_random_and_nothing_else() -> None:
    plan = quota_plan(7, 0.4, 0.35)
    whole = shares(FRAME, plan)
    counts = np.array(
        [np.bincount(STRATUM[draw(FRAME, SKEWED, replace(plan, index=i)).rows_K], minlength=3) for i in range(400)]
    )

    assert (counts >= np.floor(whole + 1e-9)).all()
    assert (counts <= np.ceil(whole - 1e-9)).all()
    assert_within((counts - whole).sum(axis=0), 400 * (whole % 1.0) * (1.0 - whole % 1.0))


@pytest.mark.parametrize("num_draws", [600, pytest.param(20_000, marks=pytest.mark.slow)])
def test_prompts_are_drawn_as_often_as_their_chances_say(num_draws: int) -> None:
    frame = make_frame(
        30, stratum_N=STRATUM, credit_N=CREDIT, blocked_N=mask(30, 3, 9), due_N=mask(30, 2, 12), waited_N=np.arange(30)
    )
    plan = quota_plan(9, 0.4, 0.4, audit_share=0.1)
    excess_N, variance_N = np.zeros(30), np.zeros(30)
    for index in range(num_draws):
        drawn = draw(frame, SKEWED, replace(plan, index=index))
        excess_N += np.bincount(drawn.rows_K, minlength=30) - drawn.inclusion_N
        variance_N += drawn.inclusion_N * (1.0 - drawn.inclusion_N)
    assert_within(excess_N, variance_N)


def test_an_order_by_stratum_is_one_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    for num_rows in (1, 7, 20_000):
        stratum_N = rng.integers(0, 3, num_rows)
        rows = by_stratum(keyed_order(num_rows, rng), stratum_N).rows()
        assert np.sort(rows).tolist() == list(range(num_rows))
        assert (np.diff(stratum_N[rows]) >= 0).all()


def test_a_run_draws_its_categories_by_quota_and_redraws_the_same() -> None:
    policy = make_policy(quotas={"logic": 0.75}, floor=0.1)
    session = Session(make_config(policy, audit_share=0.0, review_share=0.0), make_pool(40))
    answer, drawn = coin(0, np.full(40, 0.5)), []
    for index in range(12):
        batch = session.draw(index, 8)
        drawn += batch.event.row_K.tolist()
        session.answer_batch(batch, answer)
    event = session.replayed().draw(session.request(12, 8), now=session.now)
    assert event is not None

    assert event.digest == session.draw(12, 8).event.digest
    # Odd rows are logic: 0.9 · 3/4 + 0.1/2 of the places that are not revisits.
    assert 0.6 < np.mean(np.array(drawn) % 2) < 0.8


def test_a_category_that_the_pool_does_not_have_leaves_its_share_to_the_others() -> None:
    session = Session(make_config(make_policy(quotas={"chess": 0.5})), make_pool(20))

    assert len(session.draw(0, 8).event.row_K) == 8


def test_a_quota_without_strata_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="quotas need the stratum of every row"):
        draw(make_frame(30), SKEWED, quota_plan(6, 0.5))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quotas": {"a": 0.7, "b": 0.4}}, "add up to 1 at most"),
        ({"quotas": {"a": -0.1}}, r"shares in \[0, 1\]"),
        ({"quotas": {}}, r"got \{\}"),
        ({"quotas": {"a": 0.5}, "design": "poisson"}, "quotas need design 'proportional' and a utility, got 'poisson'"),
    ],
)
def test_quotas_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_policy(replace(PRESETS["midband"].config, **changes), weights="none", advantage="grpo")
    with pytest.raises(ValueError, match="has no effect with utility 'uniform'"):
        override(PRESETS["uniform"].config, {"quotas": {"a": 0.5}})


@pytest.mark.parametrize("lag", [0, 4])
def test_quotas_leave_weighted_sums_unbiased(lag: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def striped(num_rows: int, **columns: Any) -> DrawFrame:
        return make_frame(num_rows, stratum_N=np.arange(num_rows) % 3, **columns)

    monkeypatch.setattr("tests.selector.sampling.test_draw_statistics.make_frame", striped)
    runs = [simulate(seed, lag, quota_plan(6, 0.5, 0.3, audit_share=0.2)) for seed in range(120)]

    error = np.array([run.weighted + run.open_credit - run.exact for run in runs])
    standard_error = error.std(ddof=1) / np.sqrt(len(runs))
    assert abs(error.mean()) < 4 * standard_error
    assert 4 * standard_error < np.mean([run.exact for run in runs]) / 4
