"""What the audit counts: exposure, weights, mixes, response, and how good the stored predictions were."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from predictors.calibration import beta_binomial_log_loss
from selector.audit.accounts import Accounts, accounts
from selector.audit.exposure import value_ratio
from selector.audit.forecasts import NO_SCORES, Calibration, wrong_width
from selector.audit.issued import Issued, issued_tickets, own_lag
from selector.audit.mixes import Mix, departures, length_kinds, trained_tickets
from selector.run.state import RunState
from selector.types import TicketState, VoidReason
from tests.selector.engine_cases import Session, coin, make_config, make_pool, rollouts, tickets_of

RATES = np.linspace(0.05, 0.95, 24)


def made(num_draws: int = 6, **config: Any) -> Session:
    options: dict[str, Any] = {"weights": "horvitz_thompson", "audit_share": 0.25} | config
    session = Session(make_config(**options), make_pool(24))
    for index in range(num_draws):
        session.answer_batch(session.draw(index, 6, policy_version=index), coin(1, RATES), version=index)
    return session


def counted(session: Session) -> Accounts:
    return accounts(session.state)


# Exposure


def test_coverage_counts_prompts_waits_and_gaps_as_a_loop_over_tickets_does() -> None:
    session = made()
    state, found = session.state, counted(session).coverage
    draws_of: dict[int, list[int]] = {row: [] for row in range(24)}
    for batch in state.batches:
        for row in batch.event.row_K.tolist():
            draws_of[row].append(batch.event.index)
    assert found.drawn == sum(bool(draws) for draws in draws_of.values())
    assert found.never_drawn == 24 - found.drawn
    assert found.with_groups == found.drawn
    waits = [6 - (draws[-1] + 1 if draws else 0) for draws in draws_of.values()]
    assert found.longest_wait == max(waits)
    gaps = [b - a for draws in draws_of.values() for a, b in pairwise(draws)]
    assert found.longest_gap == max(gaps, default=0)
    assert (found.mastered, found.regressed) == (0, 0)


def test_ratios_by_a_number_have_the_shares_of_pool_and_tickets() -> None:
    value_N = np.array([1.0, 1.0, 2.0, 2.0, np.nan, 9.0])
    frame_N = np.array([True, True, True, True, True, False])
    low, high = value_ratio(value_N, frame_N, np.array([0, 0, 0, 2, 4]))
    assert (low.low, low.high, low.pool, low.selected) == (1.0, 2.0, 0.5, 0.75)
    assert (high.pool, high.selected, high.ratio) == (0.5, 0.25, 0.5)
    assert value_ratio(np.full(6, np.nan), frame_N, np.array([0])) == ()
    [alone] = value_ratio(np.full(6, 3.0), frame_N, np.array([0]))
    assert (alone.low, alone.high, alone.ratio) == (3.0, 3.0, 1.0)


def test_ratios_by_a_feature_are_those_of_a_loop() -> None:
    session = made(12)
    ratios = counted(session).features["difficulty"]
    value_N = session.state.pool.features["difficulty"]
    drawn = value_N[issued_tickets(session.state).row_M]
    assert sum(r.pool for r in ratios) == pytest.approx(1.0)
    assert sum(r.selected for r in ratios) == pytest.approx(1.0)
    for i, ratio in enumerate(ratios):
        last = i == len(ratios) - 1
        inside = [(v >= ratio.low) & ((v < ratio.high) | last) for v in (value_N, drawn)]
        assert ratio.pool == pytest.approx(inside[0].mean())
        assert ratio.selected == pytest.approx(inside[1].mean())


def test_uniform_draws_count_every_prompt_alike_and_cost_no_variance() -> None:
    session = made(policy=None, audit_share=1.0)
    found = counted(session)
    assert all(point.chance == pytest.approx(1.0) for point in found.induced)
    assert all(point.weight == pytest.approx(1.0) for point in found.induced)
    assert found.second_moment == pytest.approx(1.0)


def test_the_induced_curve_is_the_mean_chance_of_the_bins_prompts() -> None:
    session = Session(make_config(weights="none", audit_share=0.25), make_pool(24))
    session.draw(0, 6)
    [point] = counted(session).induced  # nothing is known yet: one bin
    event = session.state.batches[0].event
    assert (point.low, point.tickets) == (0.5, 6)
    assert point.chance == pytest.approx(24 / 6 * 6 / (1 / event.inclusion_K).sum())
    assert point.weight == pytest.approx(6 / event.ht_weight_K.sum())


def test_weights_that_cost_more_than_they_save_are_warned_of() -> None:
    session = made(2)
    state = session.state
    for batch in state.batches:
        batch.event.ht_weight_K[:] = np.array([4.0, 0.1, 0.1, 0.1, 0.1, 0.1])
    found = counted(session)
    assert found.second_moment is not None
    assert found.second_moment > 1
    assert any("cost more variance" in warning for warning in found.warnings)


def test_the_inverse_yield_is_judged_over_informative() -> None:
    session = Session(make_config(), make_pool(4))
    batch = session.draw(0, 4)
    for place, ticket in enumerate(tickets_of(batch)):
        session.report(ticket, rollouts(*((1.0, 0.0, 0.0, 0.0) if place == 0 else (1.0, 1.0, 1.0, 1.0))))
    assert counted(session).inverse_yield == 4.0
    assert accounts(Session(make_config(), make_pool(4)).state).inverse_yield is None


# Mixes and response


def mix(**changes: Any) -> Mix:
    values: dict[str, Any] = {
        "kind": "code", "issued": 500, "open": 0, "reported": 100, "trained": None, "void": {"stale": 400},
        "issued_share": 0.5, "reported_share": 0.2, "trained_share": None,
    }  # fmt: skip
    return Mix(**(values | changes))


def test_a_kind_that_falls_behind_is_named_with_what_became_of_it() -> None:
    other = mix(kind="math", reported=400, void={"stale": 100}, reported_share=0.8)
    first, second = departures("category", [mix(), other])
    assert first == (
        "category code: 50.0% of the tickets issued and 20.0% of those reported; of 500 issued 100 were reported, "
        "400 void as stale"
    )
    assert second.startswith("category math: 50.0%")


def test_small_departures_and_those_of_few_tickets_are_no_warning() -> None:
    close = [mix(reported=480, reported_share=0.48), mix(kind="math", reported=520, reported_share=0.52)]
    few = [mix(issued=5, reported=1, reported_share=0.2), mix(kind="math", issued=5, reported=4, reported_share=0.8)]
    assert departures("category", close) == departures("category", few) == []


def test_what_steps_say_they_trained_on_is_compared_where_they_say_it() -> None:
    trained = [mix(reported=250, trained=50, reported_share=0.5, trained_share=0.1, void={}), mix(
        kind="math", reported=250, trained=450, reported_share=0.5, trained_share=0.9, void={}
    )]  # fmt: skip
    [first, _] = departures("category", trained)
    assert first.endswith("of 500 issued 50 were trained on, 200 came back and were not trained on")


def test_mixes_count_issued_reported_trained_and_void_by_category() -> None:
    session = Session(make_config(), make_pool(8))
    batch = session.draw(0, 8)
    tickets = tickets_of(batch)
    odd = [t for t in tickets if session.state.book.tickets["row"][t] % 2]
    even = [t for t in tickets if t not in odd]
    for ticket in odd[:3]:
        session.void(ticket, VoidReason.STALE)
    for ticket in even:
        session.report(ticket, rollouts(1.0, 0.0, 0.0, 0.0))
    session.step(1, 1, trained=[session.id(t) for t in even[:2]])
    algebra, logic = counted(session).mix_category
    assert (algebra.kind, algebra.issued, algebra.reported, algebra.trained, algebra.open) == ("algebra", 4, 4, 2, 0)
    assert (logic.issued, logic.reported, logic.trained, logic.open, logic.void) == (4, 0, 0, 1, {"stale": 3})
    assert (logic.issued_share, logic.reported_share, logic.trained_share) == (0.5, 0.0, 0.0)
    trained = trained_tickets(session.state)
    assert trained is not None
    assert sorted(trained.tolist()) == sorted(even[:2])


def test_the_response_bounds_what_the_missing_may_hide() -> None:
    session = Session(make_config(), make_pool(4))
    batch = session.draw(0, 4)
    first, *rest = tickets_of(batch)
    session.void(first, VoidReason.STALE)
    for ticket in rest:
        session.report(ticket, rollouts(1.0, 0.0, 0.0, 0.0))
    [train] = counted(session).response["purpose"]
    assert (train.kind, train.ended, train.came_back, train.share) == ("train", 4, 3, 0.75)
    weight_K = batch.event.ht_weight_K
    assert train.too_low == train.too_high == pytest.approx(0.5 * weight_K[0] / weight_K.sum())


def test_lengths_are_quarters_of_what_was_expected() -> None:
    session = made(2)
    issued = issued_tickets(session.state)
    for tokens, names in (
        (np.full(issued.size, np.nan), ["not known at the draw"]),
        (np.full(issued.size, 7.0), ["7 to 7 tokens", "not known at the draw"]),
    ):
        found, code_M = length_kinds(with_tokens(issued, tokens))
        assert found == names
        assert set(code_M.tolist()) == {0}
    names, code_M = length_kinds(with_tokens(issued, np.append(np.arange(issued.size - 1) + 1.0, np.nan)))
    assert len(names) == 5
    assert np.bincount(code_M).tolist() == [3, 2, 3, 3, 1]  # 1 to 11, cut at 3.5, 6 and 8.5


def with_tokens(issued: Issued, tokens_M: np.ndarray) -> Issued:
    return replace(issued, tokens_M=tokens_M)


def test_prompts_that_never_come_back_are_listed_with_what_was_paid() -> None:
    session = Session(make_config(max_lag=0), make_pool(4))
    for index in range(3):
        batch = session.draw(index, 4, policy_version=2 * index + 2)
        for ticket in tickets_of(batch):
            if session.state.book.tickets["row"][ticket] == 0:
                session.report(ticket, rollouts(1.0, 0.0, 0.0, 0.0), version=0)
            else:
                session.report(ticket, rollouts(1.0, 0.0, 0.0, 0.0))
    found = counted(session)
    assert (found.never_back.prompts, found.never_back.tickets) == (1, 3)
    assert found.never_back.listed[0][0] == "p000"
    assert found.never_back.tokens == 3 * 4 * 10
    assert any("never came back in time" in warning for warning in found.warnings)


# Calibration


def slow_lags(state: RunState) -> list[int]:
    table = state.book.tickets
    lags = []
    for t in range(table.size):
        known = [
            (table["ended_seq"][u], table["reported_version"][u])
            for u in range(table.size)
            if table["row"][u] == table["row"][t]
            and table["state"][u] == TicketState.REPORTED
            and table["ended_seq"][u] < table["issued_seq"][t]
        ]
        lags.append(int(table["issued_version"][t] - max(known)[1]) if known else -1)
    return lags


def test_lags_are_those_of_the_slow_definition() -> None:
    session = made(12)
    assert own_lag(session.state, issued_tickets(session.state)).tolist() == slow_lags(session.state)


def test_groups_in_flight_are_no_evidence_yet() -> None:
    session = Session(make_config(), make_pool(4))
    session.draw(0, 4)
    session.draw(1, 4, allow_repeat=True, policy_version=1)
    for batch in session.state.batches:
        session.answer_batch(batch, coin(1, RATES))
    assert set(own_lag(session.state, issued_tickets(session.state)).tolist()) == {-1}


def test_scores_are_means_over_groups_against_what_was_stored_at_the_draw() -> None:
    session = made(10)
    state, found = session.state, counted(session).calibration
    table = state.book.tickets
    mean = np.concatenate([batch.event.pass_rate_K for batch in state.batches])
    variance = np.concatenate([batch.event.variance_K for batch in state.batches])
    informative = np.concatenate([batch.event.informative_K for batch in state.batches])
    share, seen = table["passes"] / table["scored"], table["informative"] == 1
    assert found.overall.groups == 60
    assert found.overall.predicted == pytest.approx(mean.mean())
    assert found.overall.observed == pytest.approx(share.mean())
    losses = beta_binomial_log_loss(mean, variance, table["passes"], table["scored"].astype(np.int64))
    assert found.overall.log_loss == pytest.approx(losses.mean())
    assert found.overall.brier == pytest.approx(((informative - seen) ** 2).mean())
    assert sum(part.groups for part in found.by_purpose.values()) == 60
    assert sum(part.groups for part in found.by_evidence.values()) == 60
    own = np.array(slow_lags(state)) >= 0
    assert found.by_evidence["own groups"].groups == own.sum()
    assert sum(part.groups for part in found.by_lag.values()) == own.sum()
    assert sum(part.groups for part in found.pass_rate) == sum(part.groups for part in found.informative) == 60
    assert sum(part.groups * part.observed for part in found.pass_rate) == pytest.approx(share.sum())


def test_beliefs_that_are_right_have_nine_in_ten_in_the_central_interval() -> None:
    """Flat priors and pass rates drawn from them: predictions are posteriors."""
    rng = np.random.default_rng(8)
    rates = rng.random(400)
    session = Session(make_config(audit_share=0.25), make_pool(400))
    for index in range(8):
        session.answer_batch(session.draw(index, 100), coin(3, rates))
    central = counted(session).calibration.overall.central
    assert central is not None
    assert abs(central - 0.9) < 4 * (0.09 / 800) ** 0.5


@pytest.mark.parametrize("jumps", [False, True])
def test_beliefs_that_are_too_sure_are_warned_of_by_uniform_groups(jumps: bool) -> None:
    """An estimator that never forgets, on pass rates that are turned round halfway or not."""
    before = np.random.default_rng(9).random(60)
    session = Session(make_config(audit_share=0.5), make_pool(60))
    for index in range(24):
        rates = 1.0 - before if jumps and index >= 12 else before
        session.answer_batch(session.draw(index, 40, policy_version=index), coin(3, rates), version=index)
    found = counted(session)

    assert found.calibration.by_purpose["audit"].groups >= 400
    assert any("surer than they should be" in warning for warning in found.warnings) == jumps


@pytest.mark.parametrize(
    ("groups", "central", "error", "said"),
    [
        (1_000, 0.80, 0.01, "80% came out within the middle 90% of what was predicted: beliefs are surer"),
        (1_000, 0.97, 0.01, "beliefs are less sure"),
        (199, 0.50, 0.01, None),  # too few groups to look
        (1_000, 0.86, 0.001, None),  # sure, and small
        (1_000, 0.80, 0.03, None),  # large, and not sure
        (1_000, None, None, None),  # graded
    ],
)
def test_how_far_the_share_of_central_groups_may_be_off(
    groups: int, central: float | None, error: float | None, said: str | None
) -> None:
    audit = replace(NO_SCORES, groups=groups, central=central, central_error=error)
    found = wrong_width(
        Calibration(
            overall=NO_SCORES,
            by_purpose={"audit": audit, "train": NO_SCORES},
            by_lag={},
            by_evidence={},
            pass_rate=(),
            informative=(),
        )
    )

    assert bool(found) == (said is not None)
    assert said is None or said in found[0]


def test_an_empty_run_has_counts_of_nothing() -> None:
    found = accounts(Session(make_config(), make_pool(4)).state)
    assert found.calibration.overall.groups == 0
    assert (found.induced, found.mix_category, found.mix_length) == ((), (), ())
    assert found.second_moment is None
    assert found.warnings == ()
