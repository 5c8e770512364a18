"""The audit's estimates: hand-worked draws, every sample of a small design, a simulated design with lag."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.batches.observations import observation_ranges
from selector.sampling.inclusion import Inclusion
from tests.selector.audit_cases import BETWEEN, Simulation, audited, interval, many, record, value


def test_two_draws_by_hand() -> None:
    # Draw 0: m̂ = 0.5 and 0.25, x = 1 and 0.25, w = 1, base 2 of N = 4.
    #   re-weighted 0.5 + (0.5 + 0)/2 = 0.75; uniform 0.5 + 1·(1 − 0.5) = 1; selected 0.625.
    # Draw 1: N_e = 3, π = 2/3, c = 1 and 0, so w = 2·2/(4·2/3) = 1.5 and 0.75; m̂ = 0.5 and 0.75, x = 0 and 0.5.
    #   re-weighted 0.5 + (−0.75 − 0.1875)/2 = 0.03125; uniform 0.5 + 2·(3/4)·(0 − 0.5) = −0.25; selected 0.25.
    # One prompt is blocked at the end, c = 1, m̂ = 0.5: 0.125 more, over two draws.
    second = record(
        index=1,
        eligible=3,
        weight_K=np.array([1.5, 0.75]),
        credit_K=np.array([1, 0]),
        predicted_pass_K=np.array([0.5, 0.75]),
        outcome_K=np.array([0.0, 0.5]),
    )
    found = audited([record(), second], open_credit=0.25, open_credit_predicted_pass=0.125)
    assert found.pass_rate.reweighted.estimate == pytest.approx((0.75 + 0.03125 + 0.125) / 2)
    assert found.pass_rate.uniform.estimate == pytest.approx((1 - 0.25 + 0.125) / 2)
    assert found.pass_rate.selected.estimate == pytest.approx((0.625 + 0.25) / 2)
    # Degenerate, with m̂ = 0.5 twice and x = 1, 0: 0.5 + (0.5 − 0.5)/2, then 0.5 + (1.5·0.5 − 0.75·0.5)/2.
    assert found.degenerate.reweighted.estimate == pytest.approx((0.5 + 0.6875) / 2)
    assert (found.draws, found.num_draws, found.level) == ((0, 1), 2, 0.95)
    assert found.largest_weight == 1.5
    assert found.effective_sample_size == pytest.approx(4.25**2 / (1 + 1 + 1.5**2 + 0.75**2))


def test_credit_carried_into_the_window_is_taken_off_again() -> None:
    draws = many(400, **BETWEEN)
    plain = audited(draws).pass_rate.reweighted
    carried = audited(draws, carried_credit=8.0, carried_credit_predicted_pass=4.0).pass_rate.reweighted
    assert value(carried) == pytest.approx(value(plain) - 4 / 400)
    assert interval(carried) == pytest.approx((interval(plain)[0] - 8 / 400, interval(plain)[1]))


def test_open_credit_widens_the_interval_upwards_by_its_whole_weight() -> None:
    draws = many(400, **BETWEEN)
    plain = audited(draws).pass_rate
    widened = audited(draws, open_credit=8.0).pass_rate
    for one, other in ((plain.uniform, widened.uniform), (plain.reweighted, widened.reweighted)):
        assert interval(other) == pytest.approx((interval(one)[0], interval(one)[1] + 8 / 400))
        assert interval(other)[1] < 1
    assert widened.selected == plain.selected


def test_ratios_compare_tickets_with_what_uniform_draws_would_give() -> None:
    # Two draws of two tickets. Algebra: 2 + 1 drawn against 2·3/4 + 2·2/5 expected. Logic: 0 + 1 against 2/4 + 2·2/5.
    # The last prompt of the second pool has no category, and its own difficulty bin was never drawn.
    draws = [
        record(category_K=np.array([0, 0])),
        record(frame=5, pool_category_C=np.array([2, 2]), pool_difficulty_B=np.array([0, 0, 1, 0, 0, 2, 0, 1, 0, 1])),
    ]
    found = audited(draws, categories=["algebra", "logic", "empty"]).selection_ratio
    assert found.category == pytest.approx({"algebra": 3 / 2.3, "logic": 1 / 1.3, "empty": None})
    bins = [None, None, 2 / 0.9, None, None, 2 / (2 * 2 / 4 + 2 * 2 / 5), None, 0.0, None, 0.0]
    assert list(found.difficulty) == pytest.approx(bins)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=4, max_size=4),
    st.lists(st.floats(0, 0.6), min_size=4, max_size=4),
    st.lists(st.integers(0, 1), min_size=4, max_size=4),
)
def test_the_mean_over_every_sample_of_a_design_is_the_pools_mean_for_any_prediction(
    predicted: list[float], x: list[float], credit: list[int]
) -> None:
    # Four eligible rows and two blocked ones. Pairs S with these chances in tenths, and one audit row after each of the
    # 24 orders: 240 equally likely draws of three tickets. π is counted, not taken from a formula.
    pairs = [(0, 1)] * 1 + [(0, 2)] * 4 + [(1, 2)] * 2 + [(1, 3)] * 3
    draws = []
    for pair in pairs:
        for order in permutations(range(4)):
            added = next(row for row in order if row not in pair)
            draws.append((np.array([*pair, added]), order[0]))
    pi = np.bincount(np.concatenate([rows for rows, _ in draws]), minlength=4) / len(draws)
    m_hat, outcome, mass = np.array(predicted), np.array(x), 1 + np.array(credit)
    base = float(mass @ m_hat)
    ranges, _ = observation_ranges(Inclusion.of(pi), mass - 1, m_hat, m_hat, np.ones(4, bool), 3, 1, 6)
    records = [
        record(
            num_tickets=3,
            frame=6,
            eligible=4,
            weight_K=3 * mass[rows] / (6 * pi[rows]),
            credit_K=mass[rows] - 1,
            audit_K=rows == first,
            predicted_pass_K=m_hat[rows],
            predicted_degenerate_K=m_hat[rows],
            base_pass=base,
            base_degenerate=base,
            range_pass=ranges.reweighted,
            range_pass_uniform=ranges.uniform,
            category_K=np.zeros(3, int),
            difficulty_K=np.zeros(3, int),
            outcome_K=outcome[rows],
            degenerate_K=np.zeros(3),
        )
        for rows, first in draws
    ]
    found = audited(records)
    truth = float(mass @ outcome) / 6
    assert found.pass_rate.reweighted.estimate == pytest.approx(truth, abs=1e-12)
    assert found.pass_rate.uniform.estimate == pytest.approx(truth, abs=1e-12)
    assert found.degenerate.reweighted.estimate == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("kind", ["good", "bad"])
def test_estimates_are_unbiased_at_any_lag_once_the_open_credit_is_added(kind: str) -> None:
    p = np.linspace(0.2, 0.7, 16)
    m_hat = p if kind == "good" else 1 - p
    rng = np.random.default_rng(11)
    estimates = []
    for _ in range(200):
        run = Simulation(
            rng=rng,
            pass_rate_N=lambda draw: p,
            size=lambda passes, tries: 1 + p,
            predicted=lambda passes, tries: m_hat,
            num_tickets=4,
            block=2,
        ).run(8)
        open_N = run.credit / 16
        found = audited(
            run.records, open_credit=float(open_N.sum()), open_credit_predicted_pass=float(open_N @ p)
        ).pass_rate
        estimates.append([value(found.uniform), value(found.reweighted)])
    mean, sd = np.mean(estimates, axis=0), np.std(estimates, axis=0, ddof=1)
    assert np.all(np.abs(mean - p.mean()) < 4 * sd / np.sqrt(200))
    assert open_N.sum() / 8 > 0.01, "no credit was open, so the test says nothing of it"
