"""The audit: hand-worked draws, every sample of a small design, a simulated design with lag, and looking often."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.audit import BLOCK_DRAWS, MOST_BLOCKS, audit
from selector.audit_values import Audit, Estimate
from selector.audit_words import MISSING_AUDIT_TOLERANCE, further_draws
from selector.inclusion import Inclusion
from selector.observations import DrawRecord, Floats, observation_ranges
from tests.selector.test_confidence import most_misses

WIDE = (-10.0, 10.0)
# Outcomes and ranges that leave every limit away from 0 and 1 after some hundred draws.
BETWEEN: dict[str, Any] = {
    "outcome_K": np.array([0.5, 0.25]),
    "range_pass": (-0.5, 1.5),
    "range_pass_uniform": (-0.5, 1.5),
}


def record(**changes: Any) -> DrawRecord:
    """A draw of two tickets from a pool of four, the first an audit ticket."""
    columns: dict[str, Any] = {
        "index": 0,
        "num_tickets": 2,
        "num_audit": 1,
        "frame": 4,
        "eligible": 4,
        "weight_K": np.array([1.0, 1.0]),
        "credit_K": np.array([0, 0]),
        "audit_K": np.array([True, False]),
        "predicted_pass_K": np.array([0.5, 0.25]),
        "predicted_degenerate_K": np.array([0.5, 0.5]),
        "base_pass": 2.0,
        "base_degenerate": 2.0,
        "range_pass": WIDE,
        "range_degenerate": WIDE,
        "range_pass_uniform": WIDE,
        "range_degenerate_uniform": WIDE,
        "category_K": np.array([0, 1]),
        "difficulty_K": np.array([5, 2]),
        "pool_category_C": np.array([3, 1]),
        "pool_difficulty_B": np.array([0, 0, 1, 0, 0, 2, 0, 1, 0, 0]),
        "outcome_K": np.array([1.0, 0.25]),
        "degenerate_K": np.array([1.0, 0.0]),
    } | changes
    return DrawRecord(**columns)


def audited(records: list[DrawRecord], **changes: Any) -> Audit:
    options: dict[str, Any] = {"categories": ["algebra", "logic"], "audit_share": 0.1} | changes
    return audit(records, **options)


def value(found: Estimate) -> float:
    assert found.estimate is not None
    return found.estimate


def interval(found: Estimate) -> tuple[float, float]:
    assert found.interval is not None
    return found.interval


@dataclass
class Simulation:
    """N prompts of known pass rates, drawn by systematic πps with an audit on top; written apart from `selector.draw`.

    Drawn prompts are blocked for up to `block` more draws. `size` and `predicted` are functions of passes and rollouts.
    """

    rng: np.random.Generator
    pass_rate_N: Callable[[int], Floats]
    size: Callable[[Floats, Floats], Floats]
    predicted: Callable[[Floats, Floats], Floats]
    num_tickets: int = 8
    num_audit: int = 1
    group_size: int = 8
    block: int = 0
    records: list[DrawRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        num_rows = self.pass_rate_N(0).size
        self.passes, self.tries = np.zeros(num_rows), np.zeros(num_rows)
        self.credit, self.free_at = np.zeros(num_rows, int), np.zeros(num_rows, int)

    def run(self, num_draws: int) -> "Simulation":
        for _ in range(num_draws):
            self.step(len(self.records))
        return self

    def step(self, draw: int) -> None:
        p, num_rows = self.pass_rate_N(draw), self.credit.size
        eligible = self.free_at <= draw
        rows = np.flatnonzero(eligible)
        picked, audit_K, pi = self.sample(rows)
        predicted = np.clip(self.predicted(self.passes, self.tries), 0, 1)
        degenerate = predicted**self.group_size + (1 - predicted) ** self.group_size
        inclusion = np.ones(num_rows)
        inclusion[rows] = pi
        outcome = self.rng.binomial(self.group_size, p[picked]) / self.group_size
        num_all = (self.num_tickets, self.num_audit, num_rows)
        columns = (Inclusion.of(inclusion), self.credit, predicted, 1.0 - degenerate, eligible)
        for_pass, for_degenerate = observation_ranges(*columns, *num_all)
        self.records.append(
            record(
                index=draw,
                num_tickets=self.num_tickets,
                num_audit=self.num_audit,
                frame=num_rows,
                eligible=rows.size,
                weight_K=self.num_tickets * (1 + self.credit[picked]) / (num_rows * inclusion[picked]),
                credit_K=self.credit[picked],
                audit_K=audit_K,
                predicted_pass_K=predicted[picked],
                predicted_degenerate_K=degenerate[picked],
                base_pass=for_pass.base,
                base_degenerate=for_degenerate.base,
                range_pass=for_pass.reweighted,
                range_degenerate=for_degenerate.reweighted,
                range_pass_uniform=for_pass.uniform,
                range_degenerate_uniform=for_degenerate.uniform,
                category_K=np.zeros(self.num_tickets, int),
                difficulty_K=np.zeros(self.num_tickets, int),
                outcome_K=outcome,
                degenerate_K=((outcome == 0) | (outcome == 1)).astype(float),
            )
        )
        self.passes[picked] += outcome * self.group_size
        self.tries[picked] += self.group_size
        self.credit[eligible] = 0
        self.credit[~eligible] += 1
        if self.block:
            self.free_at[picked] = draw + 1 + self.rng.integers(0, self.block + 1, picked.size)

    def sample(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, Floats]:
        """Rows drawn, which of them are audit tickets, and π of every eligible row."""
        places = self.num_tickets - self.num_audit
        size = self.size(self.passes, self.tries)[rows]
        selected = places * size / size.sum()
        assert selected.max() <= 1
        order = self.rng.permutation(rows.size)
        marks = np.floor(np.cumsum(selected[order]) + self.rng.random())
        chosen = rows[order[np.diff(marks, prepend=0.0) > 0]][:places]
        shuffled = self.rng.permutation(rows)
        added = shuffled[~np.isin(shuffled, chosen)][: self.num_tickets - chosen.size]
        picked = np.concatenate((chosen, added))
        pi = selected + (1 - selected) * self.num_audit / (rows.size - places)
        return picked, np.isin(picked, shuffled[: self.num_audit]), pi


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


def learned(passes: Floats, tries: Floats) -> Floats:
    return (passes + 0.5) / (tries + 1)


def chance_of_signal(passes: Floats, tries: Floats) -> Floats:
    p = learned(passes, tries)
    return 0.05 + 1 - p**8 - (1 - p) ** 8


def test_the_selected_stream_lies_and_the_audit_says_so() -> None:
    p = np.repeat([0.0, 0.5], 50)
    run = Simulation(
        rng=np.random.default_rng(29),
        pass_rate_N=lambda draw: p,
        size=chance_of_signal,
        predicted=learned,
        num_tickets=20,
        num_audit=2,
    ).run(200)
    found = audited(run.records)
    curves = found.pass_rate
    assert_holds(curves.uniform, 0.25)
    assert_holds(curves.reweighted, 0.25)
    assert value(curves.selected) > 0.4
    assert interval(curves.uniform)[1] < 0.35
    # The quarter of the pool that is not degenerate: half of the prompts, and of those all but 2·0.5^8.
    assert_holds(found.degenerate.uniform, 0.5 + 0.5 * 2 * 0.5**8)
    assert found.verdict is not None
    assert found.finding == "bias"
    assert found.verdict.startswith("bias found: the selected stream differs from the pool by +0.1")
    assert "selected stream shows 0.4" in found.verdict
    assert "the uniform estimate is 0.2" in found.verdict
    assert found.verdict.endswith("read progress from the uniform curve")


def assert_holds(found: Estimate, truth: float) -> None:
    low, high = interval(found)
    assert low <= truth <= high


def test_a_uniform_selection_shows_no_difference() -> None:
    p = np.linspace(0, 1, 40)
    run = Simulation(
        rng=np.random.default_rng(3),
        pass_rate_N=lambda draw: p,
        size=lambda passes, tries: np.ones(40),
        predicted=learned,
    ).run(60)
    verdict = audited(run.records).verdict
    assert verdict is not None
    assert verdict.endswith("agrees: no difference between the curves to be seen so far")


def test_looking_every_few_draws_misses_a_moving_mean_no_more_often_than_stated() -> None:
    num_runs, num_draws, level = 80, 40, 0.8
    start, rng = np.repeat([0.05, 0.3, 0.8], 10), np.random.default_rng(2)
    missed = np.zeros(2, int)

    def pass_rate(draw: int) -> Floats:
        return start + draw / num_draws * (0.6 - start)

    truth = np.cumsum([pass_rate(draw).mean() for draw in range(num_draws)]) / np.arange(1, num_draws + 1)
    for _ in range(num_runs):
        run = Simulation(rng=rng, pass_rate_N=pass_rate, size=chance_of_signal, predicted=learned).run(num_draws)
        outside = np.zeros(2, bool)
        for look in range(10, num_draws + 1, 10):
            found = audited(run.records[:look], level=level).pass_rate
            for i, curve in enumerate((found.uniform, found.reweighted)):
                low, high = interval(curve)
                outside[i] |= not low <= truth[look - 1] <= high
        missed += outside
    assert max(missed) <= most_misses(num_runs, 1 - level)


# Blocks and findings


def test_blocks_are_the_audits_of_their_draws_at_a_level_of_their_own() -> None:
    rng = np.random.default_rng(12)
    draws = [replace(one, outcome_K=rng.random(2)) for one in many(250, **BETWEEN)]
    draws[99] = replace(draws[99], open_credit=(0.5, 0.2, 0.1))
    draws[100] = replace(draws[100], carried_credit=(0.5, 0.2, 0.1))
    found = audited(draws)
    assert found.num_blocks == 3
    assert [(block.number, block.draws, block.num_draws) for block in found.blocks] == [
        (1, (0, 99), 100),
        (2, (100, 199), 100),
        (3, (200, 249), 50),
    ]
    assert [1 - block.level for block in found.blocks] == pytest.approx([0.05 / 2, 0.05 / 6, 0.05 / 12])
    first = audited(draws[:100], level=0.975, open_credit=0.5, open_credit_predicted_pass=0.2)
    assert found.blocks[0].pass_rate == first.pass_rate
    second = audited(draws[100:200], level=found.blocks[1].level, carried_credit=0.5, carried_credit_predicted_pass=0.2)
    assert found.blocks[1].pass_rate == second.pass_rate


def test_the_latest_blocks_are_shown_and_all_are_counted() -> None:
    found = audited(many(MOST_BLOCKS * BLOCK_DRAWS + 1, **BETWEEN))
    assert found.num_blocks == MOST_BLOCKS + 1
    assert [block.number for block in found.blocks] == list(range(2, MOST_BLOCKS + 2))


def steady(num_draws: int, audit_x: float = 0.5, other_x: float = 0.5) -> list[DrawRecord]:
    """Narrow ranges: what is seen is soon known."""
    return many(
        num_draws,
        outcome_K=np.array([audit_x, other_x]),
        predicted_pass_K=np.array([0.5, 0.5]),
        range_pass=(0.0, 1.0),
        range_pass_uniform=(0.0, 1.0),
        range_degenerate=(-0.5, 1.5),
        range_degenerate_uniform=(-0.5, 1.5),
        degenerate_K=np.array([0.0, 0.0]),
    )


def test_the_finding_is_none_too_little_or_bias_and_says_so_in_words() -> None:
    settled, early = audited(steady(400)), audited(steady(20))
    assert (settled.finding, early.finding) == ("none", "too_little")
    assert settled.verdict is not None
    assert early.verdict is not None
    assert settled.verdict.startswith("no bias found at this resolution: the selected stream differs from the pool by")
    assert early.verdict.startswith("too little data")
    assert "further draws would settle 0.05" in early.verdict
    apart = audited(steady(400, audit_x=0.2, other_x=0.8))
    assert apart.finding == "bias"
    assert apart.verdict is not None
    assert apart.verdict.startswith("bias found: the re-weighted draws contradict the uniform ones, overall by +0.30")


def test_how_much_more_is_needed_falls_with_the_square_of_the_margin() -> None:
    assert further_draws(100, 0.1) == 300
    assert further_draws(100, 0.05) == further_draws(100, 0.01) == 0


def test_the_shift_is_the_fact_of_the_selected_stream_minus_each_estimate() -> None:
    found = audited(many(300, **BETWEEN))
    selected = value(found.pass_rate.selected)
    for shift, pool in (
        (found.pass_rate_shift.against_uniform, found.pass_rate.uniform),
        (found.pass_rate_shift.against_reweighted, found.pass_rate.reweighted),
    ):
        assert shift.estimate == pytest.approx(selected - value(pool))
        low, high = interval(pool)
        assert interval(shift) == pytest.approx((selected - high, selected - low))
    assert audited(many(5), audit_share=0.1).pass_rate_shift.against_uniform.asymptotic is None


def test_nothing_is_contrasted_where_chances_are_not_known_or_silence_tells() -> None:
    draws = steady(50, audit_x=0.2, other_x=0.8)
    assert audited(draws, known_chances=False).contrasts == ()
    assert audited(draws, informative_only=True).contrasts == ()
    assert {c.quantity for c in audited(draws, same_groups=False).contrasts} == {"pass_rate"}
    assert {c.quantity for c in audited(draws).contrasts} == {"pass_rate", "degenerate"}


# What is missing, what is owed, and what forbids a verdict


def many(num_draws: int, **changes: Any) -> list[DrawRecord]:
    return [record(index=i, **changes) for i in range(num_draws)]


def with_missing(draws: list[DrawRecord], place: int, every: int) -> list[DrawRecord]:
    """The same draws, where the ticket at `place` of each `every`-th one never came back."""
    missing = np.arange(2) == place
    return [
        replace(
            draw,
            outcome_K=np.where(missing, np.nan, draw.outcome_K),
            degenerate_K=np.where(missing, np.nan, draw.degenerate_K),
        )
        if i % every == 0
        else draw
        for i, draw in enumerate(draws)
    ]


def filled(draws: list[DrawRecord], x: float) -> list[DrawRecord]:
    return [
        replace(draw, outcome_K=np.where(np.isnan(draw.outcome_K), x, draw.outcome_K), degenerate_K=np.zeros(2))
        for draw in draws
    ]


def test_missing_tickets_count_as_predicted_and_as_the_worst_in_each_limit() -> None:
    draws = with_missing(many(300, range_pass=(-0.5, 1.5)), place=1, every=3)
    found = audited(draws).pass_rate.reweighted
    as_failed = audited(filled(draws, 0.0)).pass_rate.reweighted
    as_passed = audited(filled(draws, 1.0)).pass_rate.reweighted
    as_predicted = audited(filled(draws, 0.25)).pass_rate.reweighted
    assert found.estimate == pytest.approx(as_predicted.estimate)
    assert interval(found) == (interval(as_failed)[0], interval(as_passed)[1])


def test_missing_tickets_are_named_with_what_they_can_hide() -> None:
    # 100 of 600 tickets, w = 1, K = 2: at most (1/2)·(1/3)·0.25 too high and (1/2)·(1/3)·0.75 too low.
    found = audited(with_missing(many(300), place=1, every=3))
    (reason,) = found.claim_reasons
    assert reason.startswith("100 of 600 (16.7%) tickets never came back")
    assert reason.endswith("too low by 0.1250 or too high by 0.0417 at most")
    assert reason in found.warnings
    assert found.verdict is not None


def test_too_many_missing_audit_tickets_withhold_the_verdict() -> None:
    found = audited(with_missing(many(300), place=0, every=50))
    assert found.verdict is None
    assert found.warnings[-1].startswith("no verdict: 6 of 300 (2.0%) audit tickets are missing")


def test_a_few_missing_audit_tickets_widen_the_interval_and_leave_the_verdict() -> None:
    every = round(1 / MISSING_AUDIT_TOLERANCE)
    draws = many(2 * every)
    found = audited(with_missing(draws, place=0, every=every))
    assert found.verdict is not None
    assert interval(found.pass_rate.uniform)[0] < interval(audited(draws).pass_rate.uniform)[0]


def test_a_censored_feed_has_a_verdict_only_when_every_audit_ticket_came_back() -> None:
    whole = audited(many(300), informative_only=True)
    assert whole.verdict is not None
    assert "the selected stream cannot be compared" in whole.verdict
    assert any("mixed groups only" in warning for warning in whole.warnings)
    one_missing = audited(with_missing(many(300), place=0, every=300), informative_only=True)
    assert one_missing.verdict is None


def test_open_credit_is_a_reason_always_and_a_warning_when_it_weighs() -> None:
    small = audited(many(300), open_credit=0.5, open_credit_predicted_pass=0.1)
    large = audited(many(300), open_credit=30.0, open_credit_predicted_pass=3.0)
    assert len(small.claim_reasons) == len(large.claim_reasons) == 1
    assert not any("still to be counted" in warning for warning in small.warnings)
    assert "prompts blocked at the last draw are still to be counted: 10.00% of the window's weight" in large.warnings


def test_without_an_audit_share_there_is_no_uniform_curve_and_no_verdict() -> None:
    found = audited(many(50, num_audit=0, audit_K=np.zeros(2, bool)), audit_share=0)
    assert found.pass_rate.uniform == Estimate(estimate=None, interval=None)
    assert found.pass_rate.reweighted.estimate is not None
    assert found.verdict is None
    assert found.warnings == ("no verdict: the run has no audit share",)


def test_draws_without_an_audit_ticket_are_left_out_of_the_uniform_curve_and_told() -> None:
    draws = [*many(50), record(index=50, num_audit=0, audit_K=np.zeros(2, bool), outcome_K=np.zeros(2))]
    found = audited(draws)
    assert found.pass_rate.uniform == audited(many(50)).pass_rate.uniform
    assert found.warnings == ("1 of 51 (2.0%) draws had no audit ticket: the uniform curve leaves them out",)


def test_estimates_that_contradict_each_other_are_reported() -> None:
    tight = {"range_pass": (-1.0, 2.0), "range_pass_uniform": (-1.0, 2.0)}
    found = audited(many(400, outcome_K=np.array([1.0, 0.0]), predicted_pass_K=np.full(2, 0.5), **tight))
    assert found.verdict is not None
    assert "contradicts it" in found.verdict
    assert any("contradict each other" in warning for warning in found.warnings)


def test_one_draw_has_estimates_and_no_verdict_yet() -> None:
    found = audited([record()])
    assert found.pass_rate.reweighted.estimate == pytest.approx(0.75)
    assert found.pass_rate.reweighted.interval == (0.0, 1.0)
    assert found.verdict is None
    assert found.warnings == ("no verdict yet: fewer than 2 draws with audit tickets have ended",)


def test_no_draw_at_all_is_an_empty_audit() -> None:
    found = audited([])
    assert found.draws is None
    assert found.num_draws == 0
    assert found.pass_rate.reweighted == found.degenerate.selected == Estimate(estimate=None, interval=None)
    assert found.selection_ratio.category == {"algebra": None, "logic": None}
    assert found.effective_sample_size == found.largest_weight == 0.0
    assert found.verdict is None


def test_draws_that_returned_nothing_are_left_out() -> None:
    nothing = {
        name: np.zeros(0)
        for name in ("weight_K", "predicted_pass_K", "predicted_degenerate_K", "outcome_K", "degenerate_K")
    } | {name: np.zeros(0, int) for name in ("credit_K", "category_K", "difficulty_K")}
    empty = record(index=1, num_tickets=0, num_audit=0, audit_K=np.zeros(0, bool), eligible=0, **nothing)
    assert audited([record(), empty, record(index=2)]) == audited([record(), record(index=2)])


def test_when_nothing_came_back_the_intervals_say_nothing() -> None:
    draws = with_missing(with_missing(many(100), place=0, every=1), place=1, every=1)
    found = audited(draws)
    assert found.pass_rate.selected == Estimate(estimate=None, interval=None)
    assert found.pass_rate.reweighted.estimate == pytest.approx(0.5)
    assert interval(found.pass_rate.reweighted)[0] <= 0.5 - 0.375 / 2
    assert found.verdict is None


def test_a_group_without_a_known_shape_is_missing_from_the_degenerate_share_only() -> None:
    draws = [replace(draw, degenerate_K=np.array([np.nan, 0.0])) for draw in many(200)]
    found = audited(draws)
    assert found.claim_reasons == ()
    assert found.degenerate.selected.estimate == 0.0
    assert found.degenerate.uniform.estimate == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("draws", "changes", "words"),
    [
        ([record(outcome_K=np.array([3.0, 0.0]))], {}, r"outcomes must be in \[0, 1\] to be audited, got 3\.0"),
        ([record()], {"level": 95}, r"level must be in \(0, 1\)"),
        ([record()], {"categories": ["algebra"]}, r"category codes must be -1 to 0, got up to 1"),
        ([record(difficulty_K=np.array([0, 10]))], {}, r"difficulty bins must be 0 to 9, got 0 to 10"),
        ([record()], {"open_credit": 0.1, "open_credit_predicted_pass": 0.2}, "predicted open_credit"),
        ([record()], {"carried_credit": -1.0}, "carried_credit"),
    ],
)
def test_what_cannot_be_audited_is_refused_by_name(
    draws: list[DrawRecord], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        audited(draws, **changes)
